"""`UpdateRecord`: what an update of a boosted model fitted anew, and what it kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastemf.boosting.coverage_report import wilson_interval
from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.boosting.observed_cells import ObservedCells
from fastemf.metrics import effective_omega
from fastemf.support.arrays import Floats

# Trees are kept while the confidence interval of each coverage reaches the range from the quantile
# to the coverage in the training data, extended by this proportion of the quantile's rarer side:
# 0.005 for p95, 0.001 for p99.
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """What an update fitted anew, and what it kept of the earlier model.

    Attributes
    ----------
    all_data : bool
        Whether the model was refitted to all data (``init=``), or updated with new observations
        only (`Quantiles.update`).
    observations : int
        Number of observations that the update used.
    updated, new : (int, int)
        Number of rows and columns of the earlier model that were fitted again, and of new ones.
    ridges_kept : bool
        Whether the ridges are those of the earlier model, and not given.
    trees_kept : bool
        Whether the linear starts and the trees are those of the earlier model.
    coverage : tuple of floats
        Coverage of the quantiles with the starts and trees of the earlier model: of all data, from
        the fits without the fold of each cell, or of the new observations, before the update.
        (Of levels: effective omegas.) Empty if the starts and trees could not be kept.
    before : tuple of floats
        The same of the earlier data, with which the trees were trained; the quantiles themselves
        for an update with new observations.
    moved : tuple of floats
        The quantiles whose coverage has moved.
    """

    all_data: bool
    observations: int
    updated: tuple[int, int]
    new: tuple[int, int]
    ridges_kept: bool
    trees_kept: bool
    coverage: tuple[float, ...] = ()
    before: tuple[float, ...] = ()
    moved: tuple[float, ...] = ()

    def __str__(self) -> str:
        data = "all" if self.all_data else "new"
        rows, cols = (
            f"{known:,} known and {new:,} new"
            for known, new in zip(self.updated, self.new, strict=True)
        )
        found = ", ".join(f"{one:.3f}" for one in self.coverage)
        trees = "starts and trees kept" if self.trees_kept else "starts and trees trained anew"
        where = "out of fold" if self.all_data else "of the new observations before the update"
        parts = [
            f"updated with {self.observations:,} observations ({data} data)",
            f"fitted again: factors of {rows} rows, {cols} columns",
            f"{'ridges kept' if self.ridges_kept else 'ridges as given'}; {trees}"
            + (f", whose coverage {where} was {found}" if found else ""),
        ]
        if self.moved:
            parts.append("coverage has moved: " + ", ".join(f"{one:g}" for one in self.moved))
        return "; ".join(parts)


def measure_levels(
    cells: ObservedCells, predicted: Floats, objectives: tuple[Objective, ...]
) -> tuple[float, ...]:
    """Return the coverage of each quantile, or the effective omega of each level."""
    found = []
    for one, own in zip(objectives, predicted.T, strict=True):
        residuals = cells.values - own
        if one.kind == QUANTILE:
            found.append(float(np.average(residuals <= 0, weights=cells.weights)))
        else:
            found.append(effective_omega(residuals, cells.weights))
    return tuple(found)


def find_moved(
    levels: tuple[float, ...], before: tuple[float, ...], count: float,
    objectives: tuple[Objective, ...],
) -> tuple[float, ...]:  # fmt: skip
    """Return the quantiles whose coverage in `count` cells has moved.

    That `before` is of the training data of the trees, in which it is often farther from 0.5.
    """
    moved = []
    for one, level, reference in zip(objectives, levels, before, strict=True):
        low, high = wilson_interval(level, count)
        slack = TOLERANCE * min(one.level, 1 - one.level)
        least, most = min(one.level, reference), max(one.level, reference)
        if not (low - slack <= most and least <= high + slack):
            moved.append(one.level)
    return tuple(moved)
