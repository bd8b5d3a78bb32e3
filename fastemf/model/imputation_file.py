"""How a model file keeps what replaces censored values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.beyond import KNOTS, Beyond
from fastemf.solver.imputation import Imputation
from fastemf.solver.table_record import check_numbers
from fastemf.support.array_file import DamagedFileError

__all__ = ["NAMES", "imputation_from", "imputation_to"]

SCALES = ("row_scales", "col_scales")
CURVES = ("beyond_right", "beyond_left")  # two rows: where, and by what
NAMES = {*SCALES, *CURVES}


def imputation_to(imputation: Imputation) -> tuple[list[float], dict[str, NDArray[Any]]]:
    """Return the bounds for the header, and arrays."""
    curves = (np.stack([curve.at, curve.by]) for curve in (imputation.right, imputation.left))
    arrays = dict(zip(SCALES, imputation.scales, strict=True))
    return list(imputation.bounds), arrays | dict(zip(CURVES, curves, strict=True))


def imputation_from(
    bounds: Any, arrays: dict[str, NDArray[Any]], shape: tuple[int, int]
) -> Imputation:
    """Rebuild it from a file, of which nothing is taken for granted."""
    right = isinstance(bounds, list) and [type(bound) for bound in bounds] == [float, float]
    if not right or not -np.inf < bounds[0] <= bounds[1] < np.inf:
        raise DamagedFileError("imputation must be two bounds, finite and rising")
    for name, size in zip(SCALES, shape, strict=True):
        check_numbers(name, arrays[name], size)
        if not (arrays[name] > 0).all():
            raise DamagedFileError(f"{name} must be positive")
    curves = []
    for name in CURVES:
        curve = arrays[name]
        if curve.ndim != 2 or not 1 <= curve.shape[1] <= KNOTS:
            raise DamagedFileError(f"{name} must have at most {KNOTS} knots")
        check_numbers(name, curve, 2, curve.shape[1])
        if not (np.diff(curve[0]) > 0).all():
            raise DamagedFileError(f"{name} must have knots that rise")
        curves.append(Beyond(curve[0], curve[1]))
    rows, cols = (arrays[name] for name in SCALES)
    return Imputation((rows, cols), curves[0], curves[1], (bounds[0], bounds[1]), None)
