"""Histories of rows and columns, merged with those of new observations.

Counts, means, standard deviations, minima, maxima and residual scales are exact. Quantiles are
those of the new values and of the earlier distribution, which is taken to be linear between the
quantiles that the history has.
"""

from __future__ import annotations

import numpy as np

from fastemf.boosting.cell_features import SCALE, CellFeatures
from fastemf.boosting.observed_cells import ObservedCells
from fastemf.boosting.residuals import KAPPA
from fastemf.boosting.statistics import QUANTILES, group_statistics
from fastemf.support.arrays import Floats, Ints

COUNT, MEAN, SPREAD, LOW = range(4)
HIGH = SCALE - 1
STEPS = 60  # of the bisection


def merge_history(
    features: CellFeatures, axis: int, cells: ObservedCells, sizes: Floats, weights: Floats
) -> Floats:
    """Return the history of one side with new observations added.

    `sizes` are the absolute residuals of the observations, and `weights` their weights in the
    history.
    """
    before = features.history[axis]
    own, other = (cells.rows, cells.cols) if axis == 0 else (cells.cols, cells.rows)
    touched, groups = np.unique(own, return_inverse=True)
    old = before[touched]
    new = group_statistics(groups, cells.values, touched.size, weights)[:-1]
    merged = old.copy()
    n, more = old[:, COUNT], new[:, COUNT]
    merged[:, COUNT] = total = n + more
    is_new, part = n == 0, more / total
    difference = np.where(is_new, 0.0, new[:, MEAN] - old[:, MEAN])
    merged[:, MEAN] = np.where(is_new, new[:, MEAN], old[:, MEAN] + part * difference)
    squares = np.where(is_new, 0.0, (1 - part) * old[:, SPREAD] ** 2) + part * new[:, SPREAD] ** 2
    merged[:, SPREAD] = np.sqrt(squares + part * (1 - part) * difference**2)
    merged[:, LOW] = np.fmin(old[:, LOW], new[:, LOW])
    merged[:, HIGH] = np.fmax(old[:, HIGH], new[:, HIGH])
    if features.mean_scale > 0:
        relative = weights * sizes / np.exp(features.history[1 - axis][other, SCALE])
        added = np.bincount(groups, relative, touched.size) / features.mean_scale
        merged[:, SCALE] = np.log(
            (np.exp(old[:, SCALE]) * (n + KAPPA) + added) / (total + KAPPA)
        )  # fmt: skip
    kappas, centres = features.kappas[:, axis], features.centres
    shrunk = old[:, SCALE + 1 :]
    with np.errstate(invalid="ignore", divide="ignore"):  # of items without observations
        quantiles = ((n[:, None] + kappas) * shrunk - kappas * centres) / n[:, None]
    levels = [*QUANTILES, *(one.level for one in features.objectives)]
    knots = np.column_stack([old[:, LOW], old[:, LOW + 1 : HIGH], quantiles, old[:, HIGH]])
    curves = _Curves(np.array([0.0, *levels, 1.0]), knots, n, groups, cells.values, weights)
    found = np.column_stack([curves.quantile(level) for level in levels])
    merged[:, LOW + 1 : HIGH] = found[:, : len(QUANTILES)]
    own_quantiles = found[:, len(QUANTILES) :]
    merged[:, SCALE + 1 :] = (total[:, None] * own_quantiles + kappas * centres) / (
        total[:, None] + kappas
    )
    after = before.copy()
    after[touched] = merged
    return after


class _Curves:
    """Distributions of groups: earlier ones, smooth between knots, and new values.

    The distribution function of the earlier values is a monotone cubic in each interval, with one
    slope at each knot: with two, quantiles would drift to the side with the smaller one.
    """

    def __init__(
        self, levels: Floats, knots: Floats, counts: Floats, groups: Ints, values: Floats,
        weights: Floats,
    ) -> None:  # fmt: skip
        self._levels, order = np.unique(levels, return_index=True)
        self._knots = np.maximum.accumulate(np.nan_to_num(knots[:, order]), axis=1)
        self._slopes = _slopes(self._levels, self._knots)
        self._counts, self._groups = counts, groups
        self._values, self._weights = values, weights
        size = counts.size
        self._total = counts + np.bincount(groups, weights, size)
        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        np.minimum.at(low, groups, values)
        np.maximum.at(high, groups, values)
        has_knots = counts > 0
        self._low = np.where(has_knots, np.minimum(low, self._knots[:, 0]), low)
        self._high = np.where(has_knots, np.maximum(high, self._knots[:, -1]), high)

    def quantile(self, tau: float) -> Floats:
        """Return the τ-quantile of each group, by bisection."""
        low, high = self._low, self._high
        for _ in range(STEPS):
            middle = low + (high - low) / 2
            is_enough = self._mass(middle) >= tau * self._total
            low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
        return high

    def _mass(self, x: Floats) -> Floats:
        """Return the number of observations up to x in each group."""
        is_below = self._values <= x[self._groups]
        new = np.bincount(self._groups, self._weights * is_below, x.size)
        earlier = np.zeros(x.size)
        for at in range(self._levels.size - 1):
            p, q = self._levels[at : at + 2]
            (a, b), (c, d) = self._knots.T[at : at + 2], self._slopes.T[at : at + 2]
            width = b - a
            t = np.divide(x - a, width, out=np.ones_like(x), where=width > 0).clip(0, 1)
            # The cubic with these values and slopes at both ends.
            rise = t * t * (3 - 2 * t)
            found = p + (q - p) * rise + width * t * (1 - t) * ((1 - t) * c - t * d)
            earlier = np.where(x >= a, found, earlier)
        return np.asarray(self._counts * earlier + new)


def _slopes(levels: Floats, knots: Floats) -> Floats:
    """Return the slope at each knot: the harmonic mean of those of the intervals beside it.

    It is at most twice the smaller one, so that the cubics increase.
    """
    inverse = np.diff(knots) / np.diff(levels)
    total = inverse[:, :-1] + inverse[:, 1:]
    inner = np.divide(2.0, total, out=np.zeros_like(total), where=total > 0)
    ends = np.zeros((len(knots), 1))
    return np.hstack([ends, inner, ends])
