"""`UpdateRecord`: what an update of a boosted model fitted anew, and what it kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastemf.boosting.coverage_report import wilson_interval
from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.boosting.observed_cells import ObservedCells
from fastemf.metrics import effective_omega
from fastemf.support.arrays import Floats

# Trees are kept while the confidence interval of each coverage comes as close to its quantile as
# this proportion of the quantile's rarer side: 0.005 for p95, 0.001 for p99.
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
    trees_kept : bool
        Whether the linear starts and the trees are those of the earlier model.
    coverage : tuple of floats
        Coverage of the quantiles with the starts and trees of the earlier model: out-of-fold
        coverage of all data or, before the update, coverage of the new observations. (Of levels:
        effective omegas.) Empty if the starts and trees could not be kept.
    moved : tuple of floats
        The quantiles whose coverage has moved.
    """

    all_data: bool
    observations: int
    updated: tuple[int, int]
    new: tuple[int, int]
    trees_kept: bool
    coverage: tuple[float, ...] = ()
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
            f"ridges kept; {trees}" + (f", whose coverage {where} was {found}" if found else ""),
        ]
        if self.moved:
            parts.append("coverage has moved: " + ", ".join(f"{one:g}" for one in self.moved))
        return "; ".join(parts)


def measure_levels(
    cells: ObservedCells, predicted: Floats, objectives: tuple[Objective, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the level of the predictions for each objective, and the objectives that have moved.

    The level is the coverage of a quantile, or the effective omega of an expectile.
    """
    found, moved = [], []
    for t, one in enumerate(objectives):
        residuals = cells.values - predicted[:, t]
        if one.kind == QUANTILE:
            level = float(np.average(residuals <= 0, weights=cells.weights))
        else:
            level = effective_omega(residuals, cells.weights)
        low, high = wilson_interval(level, cells.effective_size)
        slack = TOLERANCE * min(one.level, 1 - one.level)
        found.append(level)
        if not low - slack <= one.level <= high + slack:
            moved.append(one.level)
    return tuple(found), tuple(moved)
