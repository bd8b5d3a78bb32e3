"""Expectile matrix factorization of sparse, skewed data.

>>> import fastemf
>>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
>>> fit = fastemf.complete(R, omega=0.1, k=2)
>>> fit.predict([0, 1], [5, 5]).shape
(2,)

Names are imported on first use (PEP 562). Importing the package compiles nothing and loads neither
Numba nor SciPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastemf import datasets as datasets
    from fastemf import loss as loss
    from fastemf import metrics as metrics
    from fastemf import operators as operators
    from fastemf import plot as plot
    from fastemf import store as store
    from fastemf.completion import complete as complete
    from fastemf.estimators import ExpectileFactorization as ExpectileFactorization
    from fastemf.estimators import ExpectilePairRegressor as ExpectilePairRegressor
    from fastemf.estimators import QuantilePairRegressor as QuantilePairRegressor
    from fastemf.inputs.histograms import histograms as histograms
    from fastemf.inputs.labels import Labels as Labels
    from fastemf.inputs.query import sql as sql
    from fastemf.levels import complete_levels as complete_levels
    from fastemf.models.factorization import Factorization as Factorization
    from fastemf.models.file import ModelFileError as ModelFileError
    from fastemf.models.levels import Levels as Levels
    from fastemf.models.loading import load as load
    from fastemf.models.quantiles import Quantiles as Quantiles
    from fastemf.quantiles import complete_quantiles as complete_quantiles
    from fastemf.reporting.report import report as report
    from fastemf.selection import select as select
    from fastemf.sensing.rip import measurements_needed as measurements_needed
    from fastemf.sensing.rip import rip_constant as rip_constant
    from fastemf.sensing.sense import sense as sense
    from fastemf.solver.checkpoint import CheckpointError as CheckpointError
    from fastemf.solver.settings import Checkpoint as Checkpoint
    from fastemf.solver.settings import Solver as Solver
    from fastemf.solver.settings import Validation as Validation
    from fastemf.support.warn import ConvergenceWarning as ConvergenceWarning

__version__ = "0.1.0"

_MODULE_OF = {
    "complete": "completion",
    "complete_levels": "levels",
    "complete_quantiles": "quantiles",
    "sense": "sensing.sense",
    "select": "selection",
    "report": "reporting.report",
    "rip_constant": "sensing.rip",
    "measurements_needed": "sensing.rip",
    "Factorization": "models.factorization",
    "Levels": "models.levels",
    "Quantiles": "models.quantiles",
    "load": "models.loading",
    "Labels": "inputs.labels",
    "sql": "inputs.query",
    "histograms": "inputs.histograms",
    "ModelFileError": "models.file",
    "Solver": "solver.settings",
    "Checkpoint": "solver.settings",
    "Validation": "solver.settings",
    "CheckpointError": "solver.checkpoint",
    "ConvergenceWarning": "support.warn",
    "ExpectileFactorization": "estimators",
    "ExpectilePairRegressor": "estimators",
    "QuantilePairRegressor": "estimators",
}
_MODULES = ("datasets", "loss", "metrics", "operators", "plot", "store")

# Not in __all__, so that a star import does not need scikit-learn.
_ESTIMATORS = [name for name, module in _MODULE_OF.items() if module == "estimators"]

__all__ = ["__version__", *(name for name in _MODULE_OF if name not in _ESTIMATORS), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fastemf.{name}")
    if name in _MODULE_OF:
        value = getattr(import_module(f"fastemf.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'fastemf' has no attribute {name!r}")


def __dir__() -> list[str]:
    from importlib.util import find_spec

    return sorted([*__all__, *(_ESTIMATORS if find_spec("sklearn") else [])])
