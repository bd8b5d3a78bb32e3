"""The cells set aside, one by one: what was observed, and what models that have not seen it say.

Tables are fitted to these, and not to leave-one-out residuals: where factors follow noise, the
latter are too small, and too small in some places more than in others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.judged import Counted, Picked, count_rows, pick_rows
from fastemf.kernels.threads import launch
from fastemf.observations.source import Side
from fastemf.solver.blocks import ALL
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.remainder import enough, left_of, runs_of
from fastemf.solver.sampling import Marks
from fastemf.solver.start import Factors
from fastemf.solver.trial import Fitted, Trial
from fastemf.solver.weighting import Pair

__all__ = ["Judged", "judged_cells", "picked_cells"]

MOST = 300_000  # observations: of more, a sample by their hashes


class Judged(NamedTuple):
    """Observations that were set aside, in the order of trials and rows."""

    hashes: NDArray[np.int64]  # of their cells
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    predicted: NDArray[np.float64]  # with the shift of the trial's fit
    statistics: NDArray[np.float64]  # columns in the order of `fastemf.solver.tables.STATISTICS`

    @property
    def residuals(self) -> NDArray[np.float64]:
        """What the predictions leave."""
        return self.values - self.predicted


def judged_cells(
    trials: list[Trial],
    fits: list[Fitted],
    simple: list[Fitted],
    scales: list[Pair],
    marks: Marks,
) -> Judged:
    """Gather the cells set aside of all trials, as seen by the fits to the other cells.

    `simple` are fits of intercepts alone, whose intercepts are the levels, `scales` the variances
    of rows and columns in each trial. `marks` give each cell its hash.
    """
    found = []
    for trial, fit, levels, variances in zip(trials, fits, simple, scales, strict=True):
        rows, cols, hashes, values, weights, fitted = picked_cells(
            trial.judge, fit.factors, marks, MOST / len(trials)
        )
        noise = [np.log(part) for part in variances]
        mu = trial.judge.mu or 0.0
        statistics = np.column_stack([
            levels.factors[0][rows, -1], levels.factors[1][cols, -1], noise[0][rows],
            noise[1][cols], fitted - mu,
        ])  # fmt: skip
        found.append((hashes, values, weights, fitted + fit.shift, statistics))
    return Judged(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def picked_cells(
    engine: CompletionEngine, factors: Factors, marks: Marks, most: float
) -> tuple[Any, ...]:
    """Pick at most about so many of the cells that count: row, column, hash, value, weight, fit.

    Rows come in order.
    """
    side, left = engine.remainder(*factors)
    share = min(1.0, most / max(engine.count, 1))
    part = left.part._replace(span=max(1, min(round(share * left.part.span), ALL)))
    left = replace(left, own_marks=marks[0], marks=marks[1], part=part)
    blocks = sorted(left.each(side, pick_block), key=lambda found: found[0].start)
    parts = [(rows.start + picked[0], *picked[1:]) for rows, picked in blocks]
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def pick_block(block: Side, *args: Any) -> tuple[NDArray[Any], ...]:
    """Pick the sample of one block, given what `left_of` takes and the number of threads."""
    *of, n_threads = args
    left = left_of(block, *of)
    n_threads = enough(block, left.other, n_threads)
    runs = runs_of(block, n_threads)
    ends = np.zeros(block.indptr.size, np.int64)
    launch(count_rows, n_threads, runs, Counted(left, ends[1:]))
    np.cumsum(ends, out=ends)
    whole = [np.empty(ends[-1], np.int64) for _ in range(3)]
    floats = [np.empty(ends[-1]) for _ in range(3)]
    launch(pick_rows, n_threads, runs, Picked(left, ends[:-1], *whole, *floats))
    return (*whole, *floats)
