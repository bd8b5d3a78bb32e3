"""Quantiles of rows and columns, alone and added up, of values or of what a location leaves.

Rows a and columns c of residuals r solve

    a_i = the shrunk τ-quantile of r − c_j,     c_j = the shrunk τ-quantile of r − a_i

each shrunk towards the distribution of all (`fastemf.stacking.shrunk_quantile`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.sampling import FOLDS
from fastemf.solver.weighting import Pair
from fastemf.stacking.pinball import mean_pinball
from fastemf.stacking.sampled import Sampled
from fastemf.stacking.shrunk_quantile import Floats, Pool, quantile, shrunk_quantiles

__all__ = ["KAPPAS", "ItemQuantiles", "added", "added_quantiles", "own_quantiles"]


KAPPAS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
MIDDLE = 3  # where the search for κ begins
JUDGED = 20_000  # observations that judge it, at least, where there are as many
ROUNDS = 2


class ItemQuantiles(NamedTuple):
    """Quantiles of rows and columns out of fold, and all that new items need to find theirs."""

    predicted: Floats  # of each observation, from the other folds: the sum of both sides'
    sides: Pair  # means over the folds; last that of an unknown row or column
    kappa: float
    pools: tuple[Pool, Pool]  # of what rows, and of what columns, are the quantiles of


def own_quantiles(cells: Sampled, axis: int, tau: float) -> ItemQuantiles:
    """Find the quantiles of the values of each row (axis 0) or column alone."""
    groups = (cells.rows, cells.cols)[axis]
    size = cells.shape[axis]
    nothing = np.zeros(cells.shape[1 - axis] + 1)

    def of_fold(fold: int, kappa: float) -> Pair:
        kept = cells.folds != fold
        values, weights = cells.values[kept], _of(cells.weights, kept)
        pool = Pool.of(values, weights)
        found = shrunk_quantiles(values, groups[kept], size, tau, kappa, pool, weights)
        return (found, nothing) if axis == 0 else (nothing, found)

    kappa, predicted, sides = _chosen(cells, np.zeros(cells.values.size), of_fold, tau)
    pool = Pool.of(cells.values, cells.weights)
    return ItemQuantiles(predicted, sides, kappa, (pool, pool))


def added_quantiles(
    cells: Sampled, residuals: Floats, values: Floats, tau: float,
    back: Callable[[Floats], Floats] | None = None,
) -> ItemQuantiles:  # fmt: skip
    """Find quantiles of rows and columns that add up, of what the models of the folds leave.

    Parameters
    ----------
    residuals
        By fold and observation, as if the observation had not been fitted.
    values
        What the residuals are of.
    back
        What makes predictions of values comparable with those of the cells.
    """
    location = values - residuals[cells.folds, np.arange(values.size)]

    def of_fold(fold: int, kappa: float) -> Pair:
        kept = cells.folds != fold
        return added(cells.where(kept), residuals[fold][kept], tau, kappa)

    kappa, predicted, sides = _chosen(cells, location, of_fold, tau, back)
    mean = residuals.mean(axis=0)
    pools = (
        Pool.of(mean - sides[1][cells.cols], cells.weights),
        Pool.of(mean - sides[0][cells.rows], cells.weights),
    )
    return ItemQuantiles(predicted, sides, kappa, pools)


def added(cells: Sampled, r: Floats, tau: float, kappa: float) -> Pair:
    """Find quantiles of rows and of columns of residuals that add up; last those of no item."""
    (m, n), weights = cells.shape, cells.weights
    a = np.zeros(m + 1)
    for _ in range(ROUNDS):
        left = r - a[cells.rows]
        c = shrunk_quantiles(left, cells.cols, n, tau, kappa, Pool.of(left, weights), weights)
        left = r - c[cells.cols]
        a = shrunk_quantiles(left, cells.rows, m, tau, kappa, Pool.of(left, weights), weights)
    return a, c


def _chosen(
    cells: Sampled,
    location: Floats,
    of_fold: Callable[[int, float], Pair],
    tau: float,
    back: Callable[[Floats], Floats] | None = None,
) -> tuple[float, Floats, Pair]:
    """Choose κ by the loss out of fold, on as many folds as it takes; predict with it."""
    per_fold = cells.values.size // FOLDS
    judges = min(FOLDS, max(1, -(-JUDGED // max(per_fold, 1))))
    known: dict[tuple[int, float], Pair] = {}

    def sides(fold: int, kappa: float) -> Pair:
        if (fold, kappa) not in known:
            known[fold, kappa] = of_fold(fold, kappa)
        return known[fold, kappa]

    def predicted(kappa: float, folds: int) -> Floats:
        out = np.full(cells.values.size, np.nan)
        for fold in range(folds):
            out_of = cells.folds == fold
            a, c = sides(fold, kappa)
            out[out_of] = location[out_of] + a[cells.rows[out_of]] + c[cells.cols[out_of]]
        return out

    def loss(place: int) -> float:
        found = predicted(KAPPAS[place], judges)
        judged = cells.folds < judges
        found = found[judged] if back is None else back(found[judged])
        left, weights = cells.values[judged] - found, _of(cells.weights, judged)
        return mean_pinball(left - quantile(left, tau, weights), tau, weights)

    best, lowest = MIDDLE, loss(MIDDLE)
    for step in (-1, 1):
        place = MIDDLE + step
        while 0 <= place < len(KAPPAS) and (other := loss(place)) < lowest:
            best, lowest, place = place, other, place + step
        if best != MIDDLE:
            break
    kappa = KAPPAS[best]
    found = [sides(fold, kappa) for fold in range(FOLDS)]
    rows, cols = (np.mean(side, axis=0) for side in zip(*found, strict=True))
    return kappa, predicted(kappa, FOLDS), (rows, cols)


def _of(weights: Floats | None, chosen: NDArray[np.bool_]) -> Floats | None:
    return None if weights is None else weights[chosen]
