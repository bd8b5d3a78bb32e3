"""What a fit leaves of the observations, summed by fold of the cells and by bins of levels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import level_sums as kernels
from fastemf.kernels.threads import launch
from fastemf.observations.source import Side
from fastemf.solver.blocks import ALL, Part
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.remainder import enough, left_of, runs_of
from fastemf.solver.sampling import Marks
from fastemf.solver.trial import Factors
from fastemf.solver.weighting import Pair

__all__ = ["FOLDS", "LeftOver", "fold_part"]

FOLDS = 5

Items = tuple[NDArray[Any], NDArray[Any]]  # by row and fold, and by column and fold


class Bounds(NamedTuple):
    """What makes whole numbers of residuals and weights: see `fastemf.kernels.level_sums`."""

    low: float
    high: float
    scale: float
    share: float


def fold_part(fold: int) -> Part:
    """Return the cells of a fold, of which a cell's hash says in which it is."""
    first, last = (-(-number * ALL // FOLDS) for number in (fold, fold + 1))
    return Part(first, last - first)


class LeftOver:
    """What a fit leaves of each observation, as if that had not been fitted, minus the shift.

    A residual is kept within those of predictions in the data's range.
    """

    def __init__(
        self,
        engine: CompletionEngine,
        factors: Factors,
        leverages: Pair,
        shift: float,
        marks: Marks,
    ) -> None:
        self._side, left = engine.remainder(*factors, leverages, shift)
        self._left = replace(left, own_marks=marks[0], marks=marks[1])
        ranges = [found for _, found in self._side.each(_range, (), (), n_threads=1)]
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        self.reach = high - low + abs(shift)  # of residuals
        self.scale = math.ldexp(1.0, -math.frexp(self.reach)[1])
        share = math.ldexp(1.0, -math.frexp(engine.mass)[1])
        self._bounds = Bounds(low, high, self.scale, share)

    def by_bin(self, bins: Items, steps: NDArray[np.float64]) -> NDArray[np.int64]:
        """Sum slopes (at zero) and curvatures of the loss by fold and bins.

        Residuals are weighted by whether they are above a bin's step, which is scaled.
        """
        return self._sum(_bins_block, bins, steps)

    def losses(self, places: Items, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Sum the loss of each fold with its table and without, the table's values scaled."""
        return self._sum(_losses_block, places, values)

    def _sum(self, task: Any, items: Items, given: Any) -> NDArray[np.int64]:
        found = self._left.each(
            self._side, task, self._bounds, given, own=items[:1], about=items[1:]
        )  # fmt: skip
        return np.sum([part for _, part in found], axis=0)  # type: ignore[no-any-return]


def _range(block: Side, n_threads: int) -> tuple[float, float]:
    values = block.values
    return float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))


def _bins_block(block: Side, *args: Any) -> NDArray[np.int64]:
    """Compute the sums of one block, over all its rows."""
    terms, bins, steps, n_threads = _terms(block, *args)
    out = np.zeros((terms.bounds.size - 1, FOLDS, *steps.shape, 2), np.int64)
    runs = np.arange(terms.bounds.size)
    launch(kernels.sum_bins, n_threads, runs, kernels.Binned(terms, *bins, steps, out))
    return np.asarray(out.sum(axis=0))


def _losses_block(block: Side, *args: Any) -> NDArray[np.int64]:
    """Compute the losses of one block, over all its rows."""
    terms, places, values, n_threads = _terms(block, *args)
    out = np.zeros((terms.bounds.size - 1, FOLDS, 2), np.int64)
    runs = np.arange(terms.bounds.size)
    launch(kernels.judge_table, n_threads, runs, kernels.Judged(terms, *places, values, out))
    return np.asarray(out.sum(axis=0))


def _terms(
    block: Side,
    other: NDArray[Any],
    about: NDArray[np.float64],
    marks: NDArray[np.int64],
    about_items: NDArray[Any],
    this: NDArray[Any],
    own: NDArray[np.float64],
    own_marks: NDArray[np.int64],
    own_items: NDArray[Any],
    part: Part,
    omega: float,
    shift: float,
    unit: float,
    bounds: Bounds,
    given: Any,
    n_threads: int,
) -> tuple[kernels.Terms, Items, Any, int]:
    """Write a block's problem as the kernels take it."""
    left = left_of(block, other, about, marks, this, own, own_marks, part, omega, shift, unit)
    n_threads = enough(block, other, n_threads)
    terms = kernels.Terms(left, runs_of(block, n_threads), FOLDS, *bounds)
    return terms, (own_items, about_items), given, n_threads
