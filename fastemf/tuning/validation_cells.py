"""Validation cells with their predictions, to which correction tables are fitted.

Leave-one-out residuals would not do: where factors fit noise they are too small, and more so in
some places than in others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastemf.kernels.threads import launch
from fastemf.kernels.validation_cells import CountArgs, PickArgs, count_in_sample, pick_sample
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.residual_sums import residual_kernel_args, residual_view
from fastemf.solver.start import Factors
from fastemf.solver.weighting import Pair
from fastemf.sources.cell_sample import N_HASHES, Marks
from fastemf.sources.source import Side
from fastemf.support.arrays import Array, Floats, Ints
from fastemf.tuning.corrections import STATISTICS
from fastemf.tuning.trial import Trial, TrialFit

MOST = 300_000  # observations; more are sampled by the hashes of their cells


class ValidationCells(NamedTuple):
    """Validation observations, in the order of trials and rows."""

    hashes: Ints  # of their cells
    values: Floats
    weights: Floats
    predicted: Floats  # with the shift of the trial's fit
    statistics: Floats  # columns in the order of `corrections.STATISTICS`

    @property
    def residuals(self) -> Floats:
        """Residuals of the predictions."""
        return self.values - self.predicted

    def columns(self, names: Sequence[str]) -> list[Floats]:
        """Return some of the statistics."""
        return [self.statistics[:, STATISTICS.index(name)] for name in names]


def collect_validation_cells(
    trials: list[Trial],
    fits: list[TrialFit],
    simple: list[TrialFit],
    scales: list[Pair],
    marks: Marks,
) -> ValidationCells:
    """Collect the validation cells of all trials, predicted by the fits to the training cells.

    `simple` are fits of intercepts only, which are the row and column effects; `scales` are the
    variances of rows and columns in each trial. `marks` give each cell its hash.
    """
    found = []
    for trial, fit, effects, variances in zip(trials, fits, simple, scales, strict=True):
        rows, cols, hashes, values, weights, fitted = pick_cells(
            trial.validation, fit.factors, marks, MOST / len(trials)
        )
        noise = [np.log(part) for part in variances]
        mu = trial.validation.mu or 0.0
        statistics = np.column_stack([
            effects.factors[0][rows, -1], effects.factors[1][cols, -1], noise[0][rows],
            noise[1][cols], fitted - mu,
        ])  # fmt: skip
        found.append((hashes, values, weights, fitted + fit.shift, statistics))
    return ValidationCells(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def pick_cells(
    engine: CompletionEngine, factors: Factors, marks: Marks, most: float
) -> tuple[Any, ...]:
    """Sample about `most` observations of an engine, in the order of rows.

    Returns their rows, columns, hashes, values, weights and fitted values.
    """
    view = residual_view(engine, 0, *factors)
    part, proportion = view.parameters.part, min(1.0, most / max(engine.count, 1))
    part = part._replace(span=max(1, min(round(proportion * part.span), N_HASHES)))
    view = view._replace(
        own=view.own._replace(marks=marks[0]),
        others=view.others._replace(marks=marks[1]),
        parameters=view.parameters._replace(part=part),
    )
    blocks = sorted(view.each(_pick_block), key=lambda found: found[0].start)
    parts = [(rows.start + picked[0], *picked[1:]) for rows, picked in blocks]
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def _pick_block(block: Side, *args: Any) -> tuple[Array, ...]:
    """Pick the cells of one block, given the arguments of `residual_kernel_args` and threads."""
    left, n_threads = residual_kernel_args(block, *args[:-1]), args[-1]
    n_threads, runs = block.plan_launch(left.other.shape[1], n_threads)
    ends = np.zeros(block.indptr.size, np.int64)
    launch(count_in_sample, n_threads, runs, CountArgs(left, ends[1:]))
    np.cumsum(ends, out=ends)
    whole = [np.empty(ends[-1], np.int64) for _ in range(3)]
    floats = [np.empty(ends[-1]) for _ in range(3)]
    launch(pick_sample, n_threads, runs, PickArgs(left, ends[:-1], *whole, *floats))
    return (*whole, *floats)
