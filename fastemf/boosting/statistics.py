"""Statistics of groups of observations: the values of each row, or of each column.

All of them count an observation of weight two as two observations. An empty group, such as an
unknown row, has the count 0; its other statistics are missing (NaN).
"""

from __future__ import annotations

import numpy as np

from fastemf.metrics import pinball_loss
from fastemf.support.arrays import Floats, Indices

QUANTILES = (0.1, 0.5, 0.9)
STATISTICS = ("count", "mean", "standard deviation", "minimum", "p10", "p50", "p90", "maximum")
ROUNDING = 1e-12  # relative tolerance of sums of weights


class SortedGroups:
    """Values sorted within groups, for quantiles of all groups at once.

    Parameters
    ----------
    groups
        The group of each value.
    values
        The values.
    size
        Number of groups; one more, which is empty, is appended.
    weights
        Weights of the values, None for ones.
    """

    def __init__(
        self, groups: Indices, values: Floats, size: int, weights: Floats | None = None
    ) -> None:
        order = np.lexsort((values, groups))
        self.values, sorted_groups = values[order], groups[order]
        self.reached = np.cumsum(np.ones(order.size) if weights is None else weights[order])
        bounds = np.searchsorted(sorted_groups, np.arange(size + 2))
        self.first, self.last = bounds[:-1], bounds[1:] - 1
        total = np.append(0.0, self.reached)
        self.before = total[bounds[:-1]]
        self.mass = total[bounds[1:]] - self.before
        self.some = self.last >= self.first

    def quantile(self, tau: float) -> Floats:
        """Return the smallest value of each group with the proportion τ at or below it."""
        wanted = self.before + tau * self.mass * (1 - ROUNDING)
        at = np.clip(np.searchsorted(self.reached, wanted), self.first, self.last)
        return np.where(self.some, self.values[np.maximum(at, 0)], np.nan)


def group_statistics(
    groups: Indices, values: Floats, size: int, weights: Floats | None = None
) -> Floats:
    """Compute the `STATISTICS` of each group; the last group is empty."""
    found = SortedGroups(groups, values, size, weights)
    v = np.ones(values.size) if weights is None else weights
    mass = np.where(found.some, found.mass, np.nan)
    mean = np.bincount(groups, v * values, size + 1) / mass
    spread = np.sqrt(np.bincount(groups, v * (values - mean[groups]) ** 2, size + 1) / mass)
    low, high = (
        np.where(found.some, found.values[at], np.nan)
        for at in (found.first.clip(max=values.size - 1), found.last)
    )
    middle = [found.quantile(tau) for tau in QUANTILES]
    return np.column_stack([found.mass, mean, spread, low, *middle, high])


def shrunk_quantiles(
    groups: Indices, values: Floats, size: int, tau: float, kappa: float, centre: float,
    weights: Floats | None = None,
) -> Floats:  # fmt: skip
    """Compute the τ-quantile of each group, shrunk towards `centre` as by κ observations."""
    found = SortedGroups(groups, values, size, weights)
    own = np.where(found.some, found.quantile(tau), centre)
    return np.asarray((found.mass * own + kappa * centre) / (found.mass + kappa))


def quantile(values: Floats, tau: float, weights: Floats | None = None) -> float:
    """Return the smallest value that has the proportion τ of all values at or below it."""
    if weights is None:
        place = int(np.ceil(tau * values.size * (1 - ROUNDING))) - 1
        return float(np.partition(values, place)[place])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(reached, tau * reached[-1] * (1 - ROUNDING))]])


def mean_pinball(residuals: Floats, tau: float, weights: Floats | None = None) -> float:
    """Compute the mean pinball loss of residuals."""
    return pinball_loss(residuals, np.zeros_like(residuals), tau, weights)
