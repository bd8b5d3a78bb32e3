"""`NormalScores`: a monotone transform of values to normal scores, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastemf.support.arrays import Floats

MAX_KNOTS = 4096
SMALLEST = 1e-9  # proportion at the outermost knots


@dataclass(frozen=True, eq=False)
class NormalScores:
    """An increasing piecewise linear function, constant outside its knots.

    Parameters
    ----------
    values, scores
        The knots in the units of the data, and their normal scores; both increase.
    """

    values: Floats
    scores: Floats

    @classmethod
    def fit(cls, values: Floats, weights: Floats | None = None) -> NormalScores:
        """Compute the scores of values: Φ⁻¹ of the proportion below each, counting ties half."""
        from scipy.special import ndtri

        knots, at = np.unique(values, return_inverse=True)
        mass = np.bincount(at, weights).astype(np.float64)
        proportions = (np.cumsum(mass) - mass / 2) / mass.sum()
        if knots.size > MAX_KNOTS:
            inner = np.searchsorted(proportions, np.arange(1, MAX_KNOTS - 1) / (MAX_KNOTS - 1))
            # If many observations tie at the largest value, its proportion is well below one.
            last = knots.size - 1
            kept = np.unique(np.concatenate([[0], np.minimum(inner, last), [last]]))
            knots, proportions = knots[kept], proportions[kept]
        # Tiny weights leave proportions that are equal, or not between 0 and 1, after rounding.
        scores = ndtri(np.clip(proportions, SMALLEST, 1 - SMALLEST))
        increasing = np.diff(np.maximum.accumulate(scores), prepend=-np.inf) > 0
        return cls(knots[increasing], scores[increasing])

    def to_scores(self, values: NDArray[np.floating]) -> Floats:
        """Transform values to scores."""
        return np.asarray(np.interp(values, self.values, self.scores))

    def to_values(self, scores: Floats) -> Floats:
        """Transform scores back to values."""
        return np.asarray(np.interp(scores, self.scores, self.values))
