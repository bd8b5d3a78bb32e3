"""Shrunken quantiles of rows and columns, of one side alone or as additive effects.

The additive effects a of rows and c of columns of residuals r solve

    a_i = shrunken τ-quantile of r − c_j,     c_j = shrunken τ-quantile of r − a_i

where each is shrunk towards the pooled distribution (`fastemf.quantile_model.shrunk_quantile`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastemf.quantile_model.observed_cells import ObservedCells
from fastemf.quantile_model.pinball import mean_pinball
from fastemf.quantile_model.shrunk_quantile import Floats, Pool, quantile, shrunk_quantiles
from fastemf.solver.weighting import Pair
from fastemf.sources.cell_sample import FOLDS

KAPPAS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
MIDDLE = 3  # index at which the search for κ starts
EVALUATED = 20_000  # observations that evaluate κ, at least, if there are as many
ROUNDS = 2


class ItemQuantiles(NamedTuple):
    """Effects of rows and columns, and the shrinkage that new rows and columns need."""

    predicted: Floats  # out-of-fold prediction of each observation
    sides: Pair  # effects of rows and columns, means over folds; the last entry is for unknown ones
    kappa: float
    pools: tuple[Pool, Pool]  # what rows and columns are shrunk towards


def fit_own_quantiles(cells: ObservedCells, axis: int, tau: float) -> ItemQuantiles:
    """Fit the quantile of the values of each row (axis 0) or column."""
    size = cells.shape[axis]
    zero = np.zeros(cells.shape[1 - axis] + 1)

    def of_fold(fold: int, kappa: float) -> Pair:
        kept = cells.select(cells.folds != fold)
        groups, pool = (kept.rows, kept.cols)[axis], Pool.fit(kept.values, kept.weights)
        own = shrunk_quantiles(kept.values, groups, size, tau, kappa, pool, kept.weights)
        return (own, zero) if axis == 0 else (zero, own)

    kappa, predicted, sides = _choose_kappa(cells, np.zeros(cells.values.size), of_fold, tau)
    pool = Pool.fit(cells.values, cells.weights)
    return ItemQuantiles(predicted, sides, kappa, (pool, pool))


def fit_additive_quantiles(
    cells: ObservedCells, residuals: Floats, values: Floats, tau: float,
    to_values: Callable[[Floats], Floats] | None = None,
) -> ItemQuantiles:  # fmt: skip
    """Fit additive quantile effects of rows and columns to the residuals of each fold's model.

    Parameters
    ----------
    residuals
        Residuals by fold and observation, out of fold or leave-one-out.
    values
        The values whose residuals these are.
    to_values
        Transforms predictions to the unit of the cells, if they are in another one.
    """
    location = values - residuals[cells.folds, np.arange(values.size)]

    def of_fold(fold: int, kappa: float) -> Pair:
        kept = cells.folds != fold
        return additive_effects(cells.select(kept), residuals[fold][kept], tau, kappa)

    kappa, predicted, sides = _choose_kappa(cells, location, of_fold, tau, to_values)
    mean = residuals.mean(axis=0)
    pools = (
        Pool.fit(mean - sides[1][cells.cols], cells.weights),
        Pool.fit(mean - sides[0][cells.rows], cells.weights),
    )
    return ItemQuantiles(predicted, sides, kappa, pools)


def additive_effects(cells: ObservedCells, r: Floats, tau: float, kappa: float) -> Pair:
    """Compute additive effects of rows and columns; the last entry of each is for unknown ones."""
    (m, n), weights = cells.shape, cells.weights
    a = np.zeros(m + 1)
    for _ in range(ROUNDS):
        left = r - a[cells.rows]
        c = shrunk_quantiles(left, cells.cols, n, tau, kappa, Pool.fit(left, weights), weights)
        left = r - c[cells.cols]
        a = shrunk_quantiles(left, cells.rows, m, tau, kappa, Pool.fit(left, weights), weights)
    return a, c


def _choose_kappa(
    cells: ObservedCells,
    location: Floats,
    of_fold: Callable[[int, float], Pair],
    tau: float,
    to_values: Callable[[Floats], Floats] | None = None,
) -> tuple[float, Floats, Pair]:
    """Choose κ by the out-of-fold loss, on as many folds as necessary, and predict with it."""
    per_fold = cells.values.size // FOLDS
    n_folds = min(FOLDS, max(1, -(-EVALUATED // max(per_fold, 1))))
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
        mask = cells.folds < n_folds
        some, at = cells.select(mask), predicted(KAPPAS[place], n_folds)[mask]
        r = some.values - (at if to_values is None else to_values(at))
        return mean_pinball(r - quantile(r, tau, some.weights), tau, some.weights)

    best, lowest = MIDDLE, loss(MIDDLE)
    for step in (-1, 1):
        place = MIDDLE + step
        while 0 <= place < len(KAPPAS) and (other := loss(place)) < lowest:
            best, lowest, place = place, other, place + step
        if best != MIDDLE:
            break
    kappa = KAPPAS[best]
    each = [sides(fold, kappa) for fold in range(FOLDS)]
    rows, cols = (np.mean(side, axis=0) for side in zip(*each, strict=True))
    return kappa, predicted(kappa, FOLDS), (rows, cols)
