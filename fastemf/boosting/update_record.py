"""`UpdateRecord`: what an update of a boosted model fitted anew, and what it kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastemf.boosting.coverage_report import wilson_interval
from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.boosting.observed_cells import ObservedCells
from fastemf.metrics import effective_omega
from fastemf.sources.cell_sample import hashes
from fastemf.support.arrays import Floats, Ints, Mask

# Coverage has moved if it is farther than this proportion of the rarer side (0.01 for p95, 0.002
# for p99) from the range between the quantile and the coverage in the training data.
TOLERANCE = 0.2
MOST_HASHES = 100_000  # of cells that trees were trained on
SALT = 0x2545F491  # added to the hash of a cell, so that the sample is independent of the folds


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
    unseen : tuple of floats
        Coverage in the cells that the earlier trees were not trained on, likewise. Empty if there
        are none, and for an update with new observations.
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
    unseen: tuple[float, ...] = ()
    moved: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"updated with {'; '.join(self.lines())}"

    def lines(self) -> list[str]:
        """Describe the update: data, what was fitted, what was not, and the coverage."""
        data = "observations, old and new" if self.all_data else "new observations"
        rows, cols = (
            f"{known:,} known and {new:,} new"
            for known, new in zip(self.updated, self.new, strict=True)
        )
        kept = ["ridges"] * self.ridges_kept + ["linear starts", "trees"] * self.trees_kept
        lines = [
            f"{self.observations:,} {data}",
            f"fitted again: the factors of {rows} rows and of {cols} columns"
            + ("" if self.trees_kept else ", linear starts, trees"),
            f"kept: {', '.join(kept) or 'nothing'}",
        ]
        where = "with the earlier trees" if self.all_data else "of the new observations before that"
        for what, levels in (
            (where, self.coverage),
            ("in cells that the earlier trees have not seen", self.unseen),
        ):
            if levels:
                found = ", ".join(f"{one:.4f}" for one in levels)
                lines.append(f"coverage {what}: {found}")
        if self.moved:
            moved = ", ".join(f"{one:g}" for one in self.moved)
            remedy = "" if self.all_data else "; a refit to all data trains the trees anew"
            lines.append(f"the coverage of {moved} has moved{remedy}")
        return lines


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
    levels: tuple[float, ...], before: tuple[float, ...], objectives: tuple[Objective, ...],
    count: float = math.inf,
) -> tuple[float, ...]:  # fmt: skip
    """Return the quantiles whose coverage has moved.

    That `before` is of the training data of the trees, in which it is often farther from 0.5. The
    coverage of `count` new cells moves by chance; that of all data less, because most are the same.
    """
    moved = []
    for one, level, reference in zip(objectives, levels, before, strict=True):
        low, high = (level, level) if math.isinf(count) else wilson_interval(level, count)
        slack = TOLERANCE * min(one.level, 1 - one.level)
        least, most = min(one.level, reference), max(one.level, reference)
        if not (low - slack <= most and least <= high + slack):
            moved.append(one.level)
    return tuple(moved)


def sample_hashes(cells: ObservedCells) -> Ints:
    """Return the hashes of the cells, in increasing order; a sample of them if there are many."""
    found = np.unique(cells.hashes)
    if found.size > MOST_HASHES:
        order = hashes(found, np.int64(SALT))
        found = found[order <= np.partition(order, MOST_HASHES - 1)[MOST_HASHES - 1]]
    return found


def find_unseen(cells: ObservedCells, trained: Ints) -> Mask:
    """Mark the cells that trees were not trained on, given a sample of the hashes of those."""
    unseen = ~np.isin(cells.hashes, trained)
    if trained.size >= MOST_HASHES:
        unseen &= hashes(cells.hashes, np.int64(SALT)) <= hashes(trained, np.int64(SALT)).max()
    return np.asarray(unseen)
