"""The fit of a table over the levels of rows and columns to what a tuned fit leaves.

A product of factors cannot follow a function of how large a row and a column are; a small table
can. Levels of a cell come from the other folds of the cells: those that a cell had a part in
would make the table look better than it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.level_sums import CURVATURE, SLOPE, WITH, WITHOUT
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.level_sums import FOLDS, LeftOver, fold_part
from fastemf.solver.level_table import AxisLevels, LevelTable, places
from fastemf.solver.records import Ridge
from fastemf.solver.sampling import CellSample, Marks
from fastemf.solver.settings import Settings
from fastemf.solver.trial import Factors, swept
from fastemf.solver.weighting import Pair

__all__ = ["fitted_table"]

BINS = 12
BY_VALUE = 0.25  # of an edge between bins; the rest is by quantile: tails need bins of their own
PRIOR = 20.0  # observations' worth of zero
SMOOTHING = 0.3
NEWTON_STEPS = 3  # of each bin's expectile; the tables of the folds have their signs from all
MOST_WORSE = 1  # folds that a table may make worse
SWEEPS, TOL = 10, 1e-4  # of levels


class _Bins(NamedTuple):
    """Bins of one axis: where they end, and the levels at their centres."""

    edges: NDArray[np.float64]
    centres: NDArray[np.float64]


def fitted_table(
    engine: CompletionEngine,
    factors: Factors,
    leverages: Pair,
    shift: float,
    marks: Marks,
    ridge: float,
    settings: Settings,
) -> tuple[AxisLevels, AxisLevels] | None:
    """Fit a table to what a fit with intercepts leaves; None where none would help.

    It is kept if tables of the other folds make at least four of the five better, and all
    together. `marks` say in which fold a cell is, and `ridge` is that of the intercepts.
    """
    left = LeftOver(engine, factors, leverages, shift, marks)
    even = engine.with_intercepts()
    folds = [even.view(CellSample(marks, fold_part(fold)).rest()) for fold in range(FOLDS)]
    if not left.reach > 0 or any(not 0 < fold.mass < even.mass for fold in folds):
        return None
    levels = _levels(even, ridge, settings)
    apart = [_levels(fold, ridge, settings) for fold in folds]
    bins = [_bins(of_axis, mass) for of_axis, mass in zip(levels, even.masses, strict=True)]
    if any(np.any(np.diff(centres) <= 0) for _, centres in bins):
        return None
    by_fold = [np.column_stack(parts) for parts in zip(*apart, strict=True)]
    found = [
        np.searchsorted(edges, of_axis, side="right").astype(np.uint8)
        for (edges, _), of_axis in zip(bins, by_fold, strict=True)
    ]
    steps = np.zeros((bins[0].centres.size, bins[1].centres.size))
    for _ in range(NEWTON_STEPS):
        sums = left.by_bin((found[0], found[1]), steps)
        prior = PRIOR * float(sums[..., CURVATURE].sum()) / even.mass
        steps = _steps(sums.sum(axis=0), prior)
    values = np.stack([_smoothed(_steps(sums.sum(axis=0) - part, prior)) for part in sums])
    at = [_positions(of_axis, centres) for (_, centres), of_axis in zip(bins, by_fold, strict=True)]
    losses = left.losses((at[0], at[1]), values)
    worse = np.count_nonzero(losses[:, WITH] >= losses[:, WITHOUT])
    total = losses.sum(axis=0)
    if worse > MOST_WORSE or total[WITH] >= total[WITHOUT]:
        return None
    table = LevelTable(bins[0].centres, bins[1].centres, _smoothed(steps) / left.scale, ridge)
    return AxisLevels(levels[0], table), AxisLevels(levels[1], table)


def _positions(levels: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Count the centres up to each level, with the share of the way to the next."""
    first, _, share = places(levels, centres)
    return np.asarray(first + share)


def _levels(engine: CompletionEngine, ridge: float, settings: Settings) -> Pair:
    """Find the level of each row and each column: intercepts without factors."""
    factors, _ = swept(engine, engine.no_factors(), Ridge(0.0, ridge), settings, SWEEPS, TOL)
    rows, cols = (factor[:, 0].astype(np.float64) for factor in factors)
    return rows, cols


def _bins(levels: NDArray[np.float64], mass: NDArray[np.float64]) -> _Bins:
    """Cut the levels of one axis into bins, those that occur more often into finer ones."""
    levels, mass = levels[mass > 0], mass[mass > 0]
    order = np.argsort(levels, kind="stable")
    levels, mass = levels[order], mass[order]
    low, high = levels[0], levels[-1]
    if not high > low:
        return _Bins(np.empty(0), levels[:1])
    shares = np.arange(1, BINS) / BINS
    middles = (np.cumsum(mass) - mass / 2) / mass.sum()
    quantiles = np.interp(shares, middles, levels)
    edges = (1 - BY_VALUE) * quantiles + BY_VALUE * (low + shares * (high - low))
    bins = np.searchsorted(edges, levels, side="right")
    ends = np.concatenate([[low], edges, [high]])
    centres = (ends[:-1] + ends[1:]) / 2
    masses = np.bincount(bins, mass, BINS)
    sums = np.bincount(bins, mass * levels, BINS)
    np.divide(sums, masses, out=centres, where=masses > 0)
    return _Bins(edges, centres)


def _steps(sums: NDArray[np.int64], prior: float) -> NDArray[np.float64]:
    """Take a Newton step in each bin, shrunk."""
    return np.asarray(sums[..., SLOPE] / (sums[..., CURVATURE] + prior))


def _smoothed(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Combine each bin with those beside it."""
    total, count = np.zeros_like(steps), np.zeros_like(steps)
    for axis in (0, 1):
        for here, there in ((slice(1, None), slice(-1)), (slice(-1), slice(1, None))):
            one, other = [slice(None)] * 2, [slice(None)] * 2
            one[axis], other[axis] = here, there
            total[tuple(one)] += steps[tuple(other)]
            count[tuple(one)] += 1
    beside = np.divide(total, count, out=steps.copy(), where=count > 0)
    return np.asarray((1 - SMOOTHING) * steps + SMOOTHING * beside)
