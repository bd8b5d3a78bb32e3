"""Residuals as if each observation had not been fitted: see `fastemf.kernels.tally`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.tally import LARGEST
from fastemf.solver.weighting import Pair
from fastemf.stacking.sampled import Sampled

__all__ = ["left_out_of"]


def left_out_of(
    residuals: NDArray[np.float64],
    omega: float,
    cells: Sampled,
    scales: Pair | None,
    leverages: tuple[NDArray[np.float64] | None, NDArray[np.float64] | None],
) -> NDArray[np.float64]:
    """Divide residuals by 1 − h of row and column, where these had a part in the fit.

    `scales` are the weights of rows and columns in the fit, None for ones; `leverages` are per
    unit of weight.
    """
    fitted = np.where(residuals >= 0, omega, 1 - omega)
    if cells.weights is not None:
        fitted = fitted * np.minimum(cells.weights, 1.0)
    if scales is not None:
        fitted = fitted * scales[0][cells.rows] * scales[1][cells.cols]
    for leverage, index in zip(leverages, (cells.rows, cells.cols), strict=True):
        if leverage is not None:
            residuals = residuals / (1 - np.minimum(LARGEST, fitted * leverage[index]))
    return residuals
