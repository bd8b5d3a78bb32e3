"""Leave-one-out residuals, and the scale of the residuals of each row and column.

The scale of a cell is s = m σ_i τ_j, where m is the mean absolute residual. The factors are shrunk
towards 1 by a prior of κ observations:

    σ_i = (Σ_j |r| / τ_j / m + κ) / (n_i + κ),     τ_j = (Σ_i |r| / σ_i / m + κ) / (n_j + κ)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastemf.boosting.observed_cells import ObservedCells
from fastemf.kernels.residual_sums import LARGEST
from fastemf.loss import sign_weights
from fastemf.solver.weighting import Pair
from fastemf.support.arrays import Floats, Indices

KAPPA = 10.0
ROUNDS = 3


def leave_one_out_residuals(
    residuals: Floats,
    omega: float,
    cells: ObservedCells,
    scales: Pair | None,
    leverages: tuple[Floats | None, Floats | None],
) -> Floats:
    """Approximate the residual of each observation in a fit without it.

    Residuals are divided by 1 − h of the row and of the column, as in
    `fastemf.kernels.residual_sums`. `scales` are the weights of rows and columns in the fit, None
    for ones. `leverages` are per unit of weight, None for a side that was not fitted.
    """
    fitted = sign_weights(residuals, omega)
    if cells.weights is not None:
        fitted = fitted * np.minimum(cells.weights, 1.0)
    if scales is not None:
        fitted = fitted * scales[0][cells.rows] * scales[1][cells.cols]
    for leverage, index in zip(leverages, (cells.rows, cells.cols), strict=True):
        if leverage is not None:
            residuals = residuals / (1 - np.minimum(LARGEST, fitted * leverage[index]))
    return residuals


class Scales(NamedTuple):
    """The mean, and log factors of rows and columns; the last entry is for unknown ones."""

    mean: float
    rows: Floats
    cols: Floats

    def at(self, i: Indices, j: Indices) -> Floats:
        """Return the scale of the residuals of cells; −1 is an unknown row or column."""
        return np.asarray(self.mean * np.exp(self.rows[i] + self.cols[j]))


def residual_scales(
    residuals: Floats,
    rows: Indices,
    cols: Indices,
    shape: tuple[int, int],
    weights: Floats | None = None,
) -> Scales:
    """Compute the scales of all rows and columns."""
    sizes = np.abs(residuals)
    mean = float(np.average(sizes, weights=weights))
    logs = [np.zeros(shape[0] + 1), np.zeros(shape[1] + 1)]
    if not mean > 0:
        return Scales(0.0, *logs)
    for _ in range(ROUNDS):
        for axis, (own, other) in enumerate(((rows, cols), (cols, rows))):
            others = logs[1 - axis][other]
            logs[axis] = log_scales(sizes, own, others, shape[axis], mean, weights)
    return Scales(mean, *logs)


def log_scales(
    sizes: Floats,
    groups: Indices,
    others: Floats,
    n_groups: int,
    mean: float,
    weights: Floats | None = None,
) -> Floats:
    """Compute the log factors of one side, given those of the other side for each residual."""
    relative = sizes / np.exp(others)
    if weights is not None:
        relative = relative * weights
    total = np.bincount(groups, relative, n_groups + 1)
    mass = np.bincount(groups, weights, n_groups + 1)
    return np.asarray(np.log((total / mean + KAPPA) / (mass + KAPPA)))
