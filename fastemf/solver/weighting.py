"""Weights of the observations and of the ridge of each row and column in the objective.

The objective of a fit is

    F = Σ v p_i q_j ρ(r) + λ (Σ d_i ‖x_i‖² + Σ e_j ‖y_j‖²) + λ₀ (Σ f_i a_i² + Σ g_j c_j²)

with vectors by row and by column: p and q weight the observations, d and e the ridge of the
factors, f and g that of the intercepts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastemf.support.arrays import Floats

Pair = tuple[Floats, Floats]


@dataclass(frozen=True, eq=False)
class Weighting:
    """The six vectors; in each pair that of the rows comes first."""

    ridge: Pair
    intercepts: Pair
    observations: Pair | None = None  # None for ones

    @property
    def solved_ridge(self) -> Pair:
        """The ridge with 1 in place of 0: a row without cells in the sample needs one too."""
        rows, cols = (np.where(part > 0, part, 1.0) for part in self.ridge)
        return rows, cols


def equal_weighting(sizes: tuple[int, int]) -> Weighting:
    """Give everything the weight 1."""
    return Weighting(_ones(sizes), _ones(sizes))


def count_weighting(masses: Pair) -> Weighting:
    """Multiply the ridge of a row or column by its number of observations."""
    return Weighting(masses, _ones((masses[0].size, masses[1].size)))


def _ones(sizes: tuple[int, int]) -> Pair:
    return np.ones(sizes[0]), np.ones(sizes[1])
