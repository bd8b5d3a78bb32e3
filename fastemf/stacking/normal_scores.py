"""`NormalScores`: values on the scale on which they are normally distributed, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["NormalScores"]

MOST = 4096  # knots


@dataclass(frozen=True, eq=False)
class NormalScores:
    """A rising function by its knots, straight between them and constant beyond.

    Parameters
    ----------
    values, scores
        The knots in the data's unit, and their normal scores; both rise.
    """

    values: NDArray[np.float64]
    scores: NDArray[np.float64]

    @classmethod
    def of(
        cls, values: NDArray[np.float64], weights: NDArray[np.float64] | None = None
    ) -> NormalScores:
        """Find the scores of values: Φ⁻¹ of the share below each, ties by half."""
        from scipy.special import ndtri

        knots, at = np.unique(values, return_inverse=True)
        mass = np.bincount(at, weights).astype(np.float64)
        share = (np.cumsum(mass) - mass / 2) / mass.sum()
        if knots.size > MOST:
            inner = np.searchsorted(share, np.arange(1, MOST - 1) / (MOST - 1))
            # Many at the largest value leave its share, by half of them, far short of one.
            last = knots.size - 1
            kept = np.unique(np.concatenate([[0], np.minimum(inner, last), [last]]))
            knots, share = knots[kept], share[kept]
        return cls(knots, ndtri(share))

    def of_values(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the scores of values."""
        return np.asarray(np.interp(values, self.values, self.scores))

    def to_values(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values that have these scores."""
        return np.asarray(np.interp(scores, self.scores, self.values))
