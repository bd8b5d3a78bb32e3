"""The distribution of residuals that are only known to lie in intervals.

The estimate solves Turnbull's (1976) equation of self-consistency: the probability of a bin is the
mean, over all residuals, of the conditional probability of the bin given the interval of the
residual. It is iterated from a uniform distribution and smoothed in each step (the EMS algorithm of
Silverman et al., 1990), because the unsmoothed estimate consists of spikes.

Residuals of cells with similar fitted values share a distribution: noise, its skewness and the
shrinkage by a ridge all vary with the fitted value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastemf.boosting.statistics import quantile
from fastemf.loss import sign_weights
from fastemf.support.arrays import Floats

BINS = 256
STEPS = 50
SMOOTHING = 2.5  # standard deviation, in bins
TAIL = 0.001  # proportion of the interval ends beyond the bins, on each side, before a margin
MARGIN = 0.15  # on each side, relative to the range of the others
GROUPS, FEWEST = 8, 500  # groups of fitted values at most, and observations in each at least
NEGLIGIBLE = 1e-9  # probability of an interval for which values are uniform instead


@dataclass(frozen=True, eq=False)
class IntervalDistributions:
    """Distributions of residuals in units of the noise, by groups of fitted values.

    Parameters
    ----------
    omega
        The expectile level.
    bounds
        The largest fitted value of each group but the last, increasing.
    at
        For each group, the ends of its bins, increasing.
    below
        For each group, the probability of a residual below each of these ends.
    """

    omega: float
    bounds: Floats
    at: Floats
    below: Floats

    def impute(self, fitted: Floats, lower: Floats, upper: Floats) -> Floats:
        """Return the residual whose slope of the loss is the mean over the interval.

        See `fastemf.censoring.kaplan_meier`; at ω = 0.5, and wherever an interval does not contain
        0, it is the conditional mean given the interval.
        """

        def impute(at: Floats, below: Floats, lower: Floats, upper: Floats) -> Floats:
            # The integral of w(u) u over a bin is the difference of w(u) u² / 2 at its ends, times
            # the density, also in a bin that contains 0.
            density = np.diff(below) / np.diff(at)
            potential = sign_weights(at, self.omega) * at**2 / 2
            slopes = np.concatenate([[0.0], np.cumsum(density * np.diff(potential))])

            def slope(x: Floats) -> Floats:
                x = np.clip(x, at[0], at[-1])
                bin_ = np.clip(np.searchsorted(at, x, side="right") - 1, 0, density.size - 1)
                own = sign_weights(x, self.omega) * x**2 / 2 - potential[bin_]
                return np.asarray(slopes[bin_] + density[bin_] * own)

            probability = np.interp(upper, at, below) - np.interp(lower, at, below)
            g = (slope(upper) - slope(lower)) / np.maximum(probability, NEGLIGIBLE)
            middle = _uniform(lower, upper, np.full(lower.size, 0.5))
            u = np.where(probability > NEGLIGIBLE, g / sign_weights(g, self.omega), middle)
            return np.clip(u, lower, upper)

        return self._by_group(impute, fitted, lower, upper)

    def draw(self, fitted: Floats, lower: Floats, upper: Floats, uniform: Floats) -> Floats:
        """Draw residuals conditional on their intervals, by inversion of uniform numbers."""

        def draw(
            at: Floats, below: Floats, lower: Floats, upper: Floats, uniform: Floats
        ) -> Floats:
            first, last = np.interp(lower, at, below), np.interp(upper, at, below)
            u = np.interp(first + uniform * (last - first), below, at)
            u = np.where(last - first > NEGLIGIBLE, u, _uniform(lower, upper, uniform))
            return np.clip(u, lower, upper)

        return self._by_group(draw, fitted, lower, upper, uniform)

    def _by_group(self, function: Callable[..., Floats], fitted: Floats, *given: Floats) -> Floats:
        """Apply a function of a distribution and of residuals to each group."""
        groups = np.searchsorted(self.bounds, fitted)
        found = np.empty(fitted.size)
        for group, (at, below) in enumerate(zip(self.at, self.below, strict=True)):
            own = np.flatnonzero(groups == group)
            found[own] = function(at, below, *(part[own] for part in given))
        return found


def _uniform(lower: Floats, upper: Floats, uniform: Floats) -> Floats:
    """Return points of intervals, and the end of half-infinite intervals."""
    low = np.where(np.isfinite(lower), lower, upper)
    high = np.where(np.isfinite(upper), upper, lower)
    return np.asarray(low + uniform * (high - low))


def interval_distributions(
    fitted: Floats, lower: Floats, upper: Floats, weights: Floats, omega: float
) -> IntervalDistributions:
    """Estimate the distributions of residuals, given their intervals and the fitted values."""
    n_groups = int(np.clip(weights.sum() // FEWEST, 1, GROUPS))
    bounds = np.unique([quantile(fitted, g / n_groups, weights) for g in range(1, n_groups)])
    bounds = bounds[bounds < fitted.max()]  # equal values are in one group
    groups = np.searchsorted(bounds, fitted)
    found = [
        _interval_distribution(lower[own], upper[own], weights[own])
        for own in (np.flatnonzero(groups == group) for group in range(bounds.size + 1))
    ]
    at, below = (np.array(part) for part in zip(*found, strict=True))
    return IntervalDistributions(omega, bounds, at, below)


def _interval_distribution(lower: Floats, upper: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Estimate one distribution: the ends of its bins, and the probability below each of them."""
    ends, of_ends = np.concatenate([lower, upper]), np.concatenate([weights, weights])
    finite = np.isfinite(ends)
    low, high = (quantile(ends[finite], tau, of_ends[finite]) for tau in (TAIL, 1 - TAIL))
    margin = MARGIN * (high - low) or max(abs(high), 1.0)
    at = np.linspace(low - margin, high + margin, BINS + 1)
    # Intervals are rounded to bins; few pairs of bins remain, whatever the number of residuals.
    first = np.clip(np.searchsorted(at, lower, side="right") - 1, 0, BINS - 1)
    last = np.clip(np.searchsorted(at, upper, side="left"), first + 1, BINS)
    pairs = np.bincount(first * (BINS + 1) + last, weights, (BINS + 1) ** 2)
    of_first, of_last = np.divmod(np.flatnonzero(pairs), BINS + 1)
    mass = pairs[pairs > 0] / pairs.sum()
    offsets = np.arange(-int(4 * SMOOTHING), int(4 * SMOOTHING) + 1)
    kernel = np.exp(-0.5 * (offsets / SMOOTHING) ** 2)
    probability = np.full(BINS, 1 / BINS)
    for _ in range(STEPS):
        below = np.concatenate([[0.0], np.cumsum(probability)])
        ratio = mass / np.maximum(below[of_last] - below[of_first], 1e-300)
        begun = np.bincount(of_first, ratio, BINS + 1) - np.bincount(of_last, ratio, BINS + 1)
        probability *= np.maximum(np.cumsum(begun[:-1]), 0)
        probability = np.convolve(probability, kernel, "same")
        probability /= probability.sum()
    below = np.concatenate([[0.0], np.cumsum(probability)])
    return at, below / below[-1]
