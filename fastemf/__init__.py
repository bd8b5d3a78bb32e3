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
    from fastemf.factorization import Factorization as Factorization
    from fastemf.factorization import load as load
    from fastemf.labels import Labels as Labels
    from fastemf.model_file import ModelFileError as ModelFileError
    from fastemf.records import SweepRecord as SweepRecord
    from fastemf.rip import measurements_needed as measurements_needed
    from fastemf.rip import rip_constant as rip_constant
    from fastemf.sensing import sense as sense
    from fastemf.warn import ConvergenceWarning as ConvergenceWarning

__version__ = "0.1.0"

_HOME = {
    "complete": "completion",
    "sense": "sensing",
    "rip_constant": "rip",
    "measurements_needed": "rip",
    "Factorization": "factorization",
    "load": "factorization",
    "Labels": "labels",
    "ModelFileError": "model_file",
    "SweepRecord": "records",
    "ConvergenceWarning": "warn",
}
_MODULES = ("datasets", "loss", "metrics", "operators", "plot", "store")

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fastemf.{name}")
    if name in _HOME:
        value = getattr(import_module(f"fastemf.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'fastemf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
