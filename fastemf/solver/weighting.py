"""How much the observations and the ridge of each row and column count in the objective.

The objective of a fit is

    F = Σ v p_i q_j ρ(r) + λ (Σ d_i ‖x_i‖² + Σ e_j ‖y_j‖²) + λ₀ (Σ f_i a_i² + Σ g_j c_j²)

with vectors by row and by column: p and q weigh the observations, d and e the ridge on the
factors, f and g that on the intercepts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Weighting", "count_scaled", "plain"]

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Weighting:
    """The six vectors; those of the rows come first in each pair."""

    ridge: Pair
    intercepts: Pair
    observations: Pair | None = None  # None for ones

    @property
    def solved_ridge(self) -> Pair:
        """The ridge with one for zero: a row of which no cell counts must not be without one."""
        rows, cols = (np.where(part > 0, part, 1.0) for part in self.ridge)
        return rows, cols


def plain(sizes: tuple[int, int]) -> Weighting:
    """Weigh everything alike."""
    return Weighting(_ones(sizes), _ones(sizes))


def count_scaled(masses: Pair) -> Weighting:
    """Multiply the ridge of a row or column by its number of observations."""
    return Weighting(masses, _ones((masses[0].size, masses[1].size)))


def _ones(sizes: tuple[int, int]) -> Pair:
    return np.ones(sizes[0]), np.ones(sizes[1])
