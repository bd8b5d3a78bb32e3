"""Quantiles of groups, shrunk towards the distribution of all: `Pool` and `shrunk_quantiles`.

The τ-quantile of a group of weight n, shrunk by κ observations' worth of the pool, is the smallest
q with

    n F_g(q) + κ F(q) ≥ τ (n + κ)

where F_g is the group's distribution and F the pool's. Without observations it is the pool's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Pool", "quantile", "shrunk_quantiles"]

Floats = NDArray[np.float64]

ATOMS = 513  # of a pool: evenly spaced on the logit scale, so that tails have theirs
FURTHEST = 9.0  # logit of the outermost ones
ENOUGH = 10_000  # values that a pool is made of, at least, where there are as many
ROUNDING = 1e-12  # of a sum of weights


@dataclass(frozen=True, eq=False)
class Pool:
    """A distribution: values that rise, and the share at or below each, of which the last is 1."""

    values: Floats
    shares: Floats

    @classmethod
    def of(cls, values: Floats, weights: Floats | None = None) -> Pool:
        """Take the distribution of values, by at most some hundred of them."""
        every = max(1, values.size // ENOUGH)
        values, weights = values[::every], None if weights is None else weights[::every]
        order = np.argsort(values, kind="stable")
        reached = _cumulated(values.size, weights, order)
        shares = reached / reached[-1]
        if values.size > ATOMS:
            wanted = 1 / (1 + np.exp(-np.linspace(-FURTHEST, FURTHEST, ATOMS)))
            wanted[-1] = 1.0
            order = order[np.searchsorted(shares, wanted * (1 - ROUNDING))]
            shares = wanted
        return cls(values[order], shares)


def shrunk_quantiles(
    values: Floats,
    groups: NDArray[np.integer],
    size: int,
    tau: float,
    kappa: float,
    pool: Pool,
    weights: Floats | None = None,
) -> Floats:
    """Find the shrunk τ-quantile of each group, and last that of a group without values."""
    mass = np.bincount(groups, weights, size + 1)
    wanted = tau * (mass + kappa) * (1 - ROUNDING)
    atoms = np.append(pool.values, np.inf)  # values of a group may lie beyond the pool's
    shares = np.append(pool.shares, [1.0, 0.0])  # of which the last is the one before the first
    # The first atom at which a group has enough, by bisection: atoms below each value come first.
    place = np.searchsorted(pool.values, values, side="left")
    low, high = np.zeros(size + 1, np.int64), np.full(size + 1, pool.values.size)
    while (low < high).any():
        middle = (low + high) // 2
        own = _sums(place <= middle[groups], groups, size, weights)
        enough = own + kappa * shares[middle] >= wanted
        high, low = np.where(enough, middle, high), np.where(enough, low, middle + 1)
    found = atoms[low]
    # A value of the group between that atom and the one before may already be enough.
    before = _sums(place < low[groups], groups, size, weights)
    missing = wanted - kappa * shares[low - 1] - before
    between = np.flatnonzero(place == low[groups])
    between = between[np.lexsort((values[between], groups[between]))]
    of_group = groups[between]
    reached = np.cumsum(np.ones(between.size) if weights is None else weights[between])
    starts = np.concatenate([[0.0], reached])[np.searchsorted(of_group, np.arange(size + 1))]
    enough = reached - starts[of_group] >= missing[of_group]
    np.minimum.at(found, of_group[enough], values[between[enough]])
    return found


def quantile(values: Floats, tau: float, weights: Floats | None = None) -> float:
    """Find the smallest of the values that has the share τ at or below it."""
    if weights is None:
        place = int(np.ceil(tau * values.size * (1 - ROUNDING))) - 1
        return float(np.partition(values, place)[place])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(reached, tau * reached[-1] * (1 - ROUNDING))]])


def _sums(
    chosen: NDArray[np.bool_],
    groups: NDArray[np.integer],
    size: int,
    weights: Floats | None,
) -> Floats:
    """Sum the weights of the values chosen, by group."""
    counted = chosen.astype(np.float64) if weights is None else chosen * weights
    return np.asarray(np.bincount(groups, counted, size + 1), np.float64)


def _cumulated(size: int, weights: Floats | None, order: NDArray[np.integer]) -> Floats:
    return np.arange(1.0, size + 1) if weights is None else np.cumsum(weights[order])
