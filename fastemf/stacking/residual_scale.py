"""How large the residuals of a row and of a column are: s = m σ_i τ_j, shrunk.

With κ observations' worth of the mean m of the absolute residuals,

    σ_i = (Σ_j |r| / τ_j / m + κ) / (n_i + κ),     τ_j = (Σ_i |r| / σ_i / m + κ) / (n_j + κ)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scales", "residual_scales", "scales_given"]

ROUNDS = 3


class Scales(NamedTuple):
    """The mean, and logarithms of the factors of rows and columns; last those of unknown ones."""

    mean: float
    rows: NDArray[np.float64]
    cols: NDArray[np.float64]


def residual_scales(
    residuals: NDArray[np.float64],
    rows: NDArray[np.integer],
    cols: NDArray[np.integer],
    shape: tuple[int, int],
    kappa: float,
    weights: NDArray[np.float64] | None = None,
) -> Scales:
    """Find the scales of all rows and columns."""
    size = np.abs(residuals)
    mean = float(np.average(size, weights=weights))
    found = [np.zeros(shape[0] + 1), np.zeros(shape[1] + 1)]
    if not mean > 0:
        return Scales(0.0, *found)
    for _ in range(ROUNDS):
        for axis, (own, other) in enumerate(((rows, cols), (cols, rows))):
            about = found[1 - axis][other]
            found[axis] = scales_given(size, own, about, shape[axis], mean, kappa, weights)
    return Scales(mean, *found)


def scales_given(
    sizes: NDArray[np.float64],
    groups: NDArray[np.integer],
    about: NDArray[np.float64],
    size: int,
    mean: float,
    kappa: float,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Find the logarithms of one side's factors, given those of the other side of each residual."""
    relative = sizes / np.exp(about)
    if weights is not None:
        relative = relative * weights
    total = np.bincount(groups, relative, size + 1)
    mass = np.bincount(groups, weights, size + 1)
    return np.asarray(np.log((total / mean + kappa) / (mass + kappa)))
