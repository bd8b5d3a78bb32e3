"""Quantiles of groups, shrunk towards a pooled distribution.

The τ-quantile of a group of weight n, shrunk by a prior of κ observations, is the smallest q with

    n F_g(q) + κ F(q) ≥ τ (n + κ)

where F_g is the distribution of the group and F that of the pool. A group without observations has
the quantile of the pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ATOMS = 513  # of a pool, evenly spaced on the logit scale to resolve the tails
MAX_LOGIT = 9.0  # of the outermost atoms
POOL_SIZE = 10_000  # values that represent a pool, at least, if there are as many
ROUNDING = 1e-12  # relative tolerance of sums of weights


@dataclass(frozen=True, eq=False)
class Pool:
    """A distribution: increasing values, and the proportion at or below each, up to 1."""

    values: Floats
    proportions: Floats

    @classmethod
    def fit(cls, values: Floats, weights: Floats | None = None) -> Pool:
        """Summarize the distribution of values by at most `ATOMS` of them."""
        every = max(1, values.size // POOL_SIZE)
        values, weights = values[::every], None if weights is None else weights[::every]
        order = np.argsort(values, kind="stable")
        total = np.arange(1.0, values.size + 1) if weights is None else np.cumsum(weights[order])
        proportions = total / total[-1]
        if values.size > ATOMS:
            wanted = 1 / (1 + np.exp(-np.linspace(-MAX_LOGIT, MAX_LOGIT, ATOMS)))
            wanted[-1] = 1.0
            order = order[np.searchsorted(proportions, wanted * (1 - ROUNDING))]
            proportions = wanted
        return cls(values[order], proportions)


def shrunk_quantiles(
    values: Floats,
    groups: NDArray[np.integer],
    size: int,
    tau: float,
    kappa: float,
    pool: Pool,
    weights: Floats | None = None,
) -> Floats:
    """Compute the shrunken τ-quantile of each group; the last entry is that of an empty group."""
    mass = np.bincount(groups, weights, size + 1)
    wanted = tau * (mass + kappa) * (1 - ROUNDING)
    atoms = np.append(pool.values, np.inf)  # a group may have values beyond those of the pool
    proportions = np.append(pool.proportions, [1.0, 0.0])  # index −1: before the first atom
    # Bisect for the first atom that reaches the wanted mass; `place` counts atoms below a value.
    place = np.searchsorted(pool.values, values, side="left")
    low, high = np.zeros(size + 1, np.int64), np.full(size + 1, pool.values.size)
    while (low < high).any():
        middle = (low + high) // 2
        own = _sums(place <= middle[groups], groups, size, weights)
        enough = own + kappa * proportions[middle] >= wanted
        high, low = np.where(enough, middle, high), np.where(enough, low, middle + 1)
    quantiles = atoms[low]
    # A value of the group between the previous atom and this one may already reach it.
    before = _sums(place < low[groups], groups, size, weights)
    missing = wanted - kappa * proportions[low - 1] - before
    between = np.flatnonzero(place == low[groups])
    between = between[np.lexsort((values[between], groups[between]))]
    of_group = groups[between]
    reached = np.cumsum(np.ones(between.size) if weights is None else weights[between])
    starts = np.concatenate([[0.0], reached])[np.searchsorted(of_group, np.arange(size + 1))]
    enough = reached - starts[of_group] >= missing[of_group]
    np.minimum.at(quantiles, of_group[enough], values[between[enough]])
    return quantiles


def quantile(values: Floats, tau: float, weights: Floats | None = None) -> float:
    """Return the smallest value that has the proportion τ of all values at or below it."""
    if weights is None:
        place = int(np.ceil(tau * values.size * (1 - ROUNDING))) - 1
        return float(np.partition(values, place)[place])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(reached, tau * reached[-1] * (1 - ROUNDING))]])


def _sums(
    mask: NDArray[np.bool_], groups: NDArray[np.integer], size: int, weights: Floats | None
) -> Floats:
    """Sum the weights of the values in a mask, by group."""
    counted = mask.astype(np.float64) if weights is None else mask * weights
    return np.asarray(np.bincount(groups, counted, size + 1), np.float64)
