"""Expectile matrix factorization of sparse, skewed data.

>>> import fastemf
>>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
>>> fit = fastemf.complete(R, omega=0.1, k=2)
>>> fit.predict([0, 1], [5, 5]).shape
(2,)

Names are imported when first used (PEP 562): importing the package compiles
nothing and loads neither Numba nor SciPy.
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
    from fastemf.coverage import Calibration as Calibration
    from fastemf.coverage import level_for_coverage as level_for_coverage
    from fastemf.estimators import ExpectileFactorization as ExpectileFactorization
    from fastemf.estimators import ExpectilePairRegressor as ExpectilePairRegressor
    from fastemf.inputs.labels import Labels as Labels
    from fastemf.levels import complete_levels as complete_levels
    from fastemf.model.evaluation import Evaluation as Evaluation
    from fastemf.model.evaluation import QuantileScore as QuantileScore
    from fastemf.model.evaluation import Score as Score
    from fastemf.model.explanation import Explanation as Explanation
    from fastemf.model.factorization import Factorization as Factorization
    from fastemf.model.file import ModelFileError as ModelFileError
    from fastemf.model.interval import Interval as Interval
    from fastemf.model.levels import Levels as Levels
    from fastemf.model.loading import load as load
    from fastemf.model.loo import LeaveOneOut as LeaveOneOut
    from fastemf.model.measured_share import MeasuredShare as MeasuredShare
    from fastemf.model.quantile_parts import QuantileParts as QuantileParts
    from fastemf.model.quantiles import Quantiles as Quantiles
    from fastemf.model.ranking import Ranking as Ranking
    from fastemf.model.similarity import Similar as Similar
    from fastemf.model.summary import Summary as Summary
    from fastemf.quantile_estimator import QuantilePairRegressor as QuantilePairRegressor
    from fastemf.quantiles import complete_quantiles as complete_quantiles
    from fastemf.reporting.report import report as report
    from fastemf.selection import Selection as Selection
    from fastemf.selection import select as select
    from fastemf.sensing.rip import measurements_needed as measurements_needed
    from fastemf.sensing.rip import rip_constant as rip_constant
    from fastemf.sensing.sense import sense as sense
    from fastemf.solver.axis import Axis as Axis
    from fastemf.solver.checkpoint import CheckpointError as CheckpointError
    from fastemf.solver.records import SweepRecord as SweepRecord
    from fastemf.solver.training import TrainingLevels as TrainingLevels
    from fastemf.solver.tuning import Baseline as Baseline
    from fastemf.solver.tuning import Tuning as Tuning
    from fastemf.solver.tuning import TuningStep as TuningStep
    from fastemf.stacking.promise import Promise as Promise
    from fastemf.support.warn import ConvergenceWarning as ConvergenceWarning

__version__ = "0.1.0"

_HOME = {
    "complete": "completion",
    "complete_levels": "levels",
    "complete_quantiles": "quantiles",
    "level_for_coverage": "coverage",
    "sense": "sensing.sense",
    "select": "selection",
    "report": "reporting.report",
    "Selection": "selection",
    "rip_constant": "sensing.rip",
    "measurements_needed": "sensing.rip",
    "Factorization": "model.factorization",
    "Levels": "model.levels",
    "Quantiles": "model.quantiles",
    "Interval": "model.interval",
    "QuantileParts": "model.quantile_parts",
    "Promise": "stacking.promise",
    "Calibration": "coverage",
    "load": "model.loading",
    "Labels": "inputs.labels",
    "Axis": "solver.axis",
    "ModelFileError": "model.file",
    "CheckpointError": "solver.checkpoint",
    "SweepRecord": "solver.records",
    "Evaluation": "model.evaluation",
    "Score": "model.evaluation",
    "QuantileScore": "model.evaluation",
    "Explanation": "model.explanation",
    "LeaveOneOut": "model.loo",
    "MeasuredShare": "model.measured_share",
    "TrainingLevels": "solver.training",
    "Tuning": "solver.tuning",
    "TuningStep": "solver.tuning",
    "Baseline": "solver.tuning",
    "Ranking": "model.ranking",
    "Similar": "model.similarity",
    "Summary": "model.summary",
    "ConvergenceWarning": "support.warn",
    "ExpectileFactorization": "estimators",
    "ExpectilePairRegressor": "estimators",
    "QuantilePairRegressor": "quantile_estimator",
}
_MODULES = ("datasets", "loss", "metrics", "operators", "plot", "store")

# Left out of __all__: a star import must not need scikit-learn.
_ESTIMATORS = [name for name, home in _HOME.items() if home in ("estimators", "quantile_estimator")]

__all__ = ["__version__", *(name for name in _HOME if name not in _ESTIMATORS), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fastemf.{name}")
    if name in _HOME:
        value = getattr(import_module(f"fastemf.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'fastemf' has no attribute {name!r}")


def __dir__() -> list[str]:
    from importlib.util import find_spec

    return sorted([*__all__, *(_ESTIMATORS if find_spec("sklearn") else [])])
