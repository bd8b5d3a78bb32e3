"""What a model leaves of the observations: sums over it, and products with its slopes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import tally as tallies
from fastemf.kernels.problem import Rows, Sample
from fastemf.kernels.products import SparseProduct, multiply
from fastemf.kernels.threads import launch
from fastemf.kernels.width import padded
from fastemf.observations.source import Grouped, Side
from fastemf.solver.blocks import BLOCKS_PER_THREAD, WORK_OF_LAUNCH, Part

__all__ = ["Remainder", "Slopes", "enough", "left_of", "runs_of", "slopes_block", "tally_block"]


@dataclass(frozen=True, eq=False)
class Remainder:
    """One side's view of a model: rows of `this`, given `other`, and what is known of each."""

    this: NDArray[Any]
    other: NDArray[Any]
    own: NDArray[np.float64]
    about: NDArray[np.float64]
    own_marks: NDArray[np.int64]
    marks: NDArray[np.int64]
    part: Part
    omega: float
    shift: float
    unit: float
    n_threads: int

    def each(
        self,
        side: Grouped,
        task: Callable[..., Any],
        *args: Any,
        own: tuple[NDArray[Any], ...] = (),
        about: tuple[NDArray[Any], ...] = (),
    ) -> Any:
        """Run a task over the side's blocks.

        `own` and `about` are more arrays by row, and by index on the other side.
        """
        return side.each(
            task,
            (self.other, self.about, self.marks, *about),
            (self.this, self.own, self.own_marks, *own),
            self.part, self.omega, self.shift, self.unit, *args, n_threads=self.n_threads,
        )  # fmt: skip

    def sums(self, side: Grouped, task: Callable[..., Any]) -> NDArray[np.float64]:
        """Run a task that returns sums by row."""
        out = np.empty((self.this.shape[0], tallies.N_SUMS))
        for rows, found in self.each(side, task):
            out[rows] = found
        return out


def tally_block(
    block: Side,
    other: NDArray[Any],
    about: NDArray[np.float64],
    marks: NDArray[np.int64],
    this: NDArray[Any],
    own: NDArray[np.float64],
    own_marks: NDArray[np.int64],
    part: Part,
    omega: float,
    shift: float,
    unit: float,
    n_threads: int,
) -> NDArray[np.float64]:
    """Compute the sums of the rows of one block."""
    left = left_of(block, other, about, marks, this, own, own_marks, part, omega, shift, unit)
    out = np.full((this.shape[0], tallies.N_SUMS), np.nan)
    n_threads = enough(block, other, n_threads)
    launch(tallies.tally_rows, n_threads, runs_of(block, n_threads), tallies.Sums(left, out))
    if np.isnan(out[:, tallies.MASS]).any():  # a kernel raises nothing
        raise MemoryError("no memory for the scratch of sums over a block of rows")
    return out


def slopes_block(
    block: Side,
    other: NDArray[Any],
    about: NDArray[np.float64],
    marks: NDArray[np.int64],
    this: NDArray[Any],
    own: NDArray[np.float64],
    own_marks: NDArray[np.int64],
    part: Part,
    omega: float,
    shift: float,
    unit: float,
    signed: bool,
    n_threads: int,
) -> NDArray[Any]:
    """Compute the slopes of the loss at the observations of one block."""
    left = left_of(block, other, about, marks, this, own, own_marks, part, omega, shift, unit)
    out = np.empty(block.size, block.dtype)
    n_threads = enough(block, other, n_threads)
    runs = runs_of(block, n_threads)
    launch(tallies.fill_slopes, n_threads, runs, tallies.SlopesOut(left, int(signed), out))
    return out


def left_of(
    block: Side,
    other: NDArray[Any],
    about: NDArray[np.float64],
    marks: NDArray[np.int64],
    this: NDArray[Any],
    own: NDArray[np.float64],
    own_marks: NDArray[np.int64],
    part: Part,
    omega: float,
    shift: float,
    unit: float,
) -> tallies.Left:
    """Gather the observations of a block, and a model of them."""
    rows = Rows(block.indptr, block.indices, block.values, block.weights)
    sample = Sample(np.empty(0, block.dtype), marks, own_marks, *part)
    return tallies.Left(
        rows, sample, padded(this), other, own, about, omega, 1 - omega, float(shift), unit
    )  # fmt: skip


def enough(block: Side, other: NDArray[Any], n_threads: int) -> int:
    """Return as many threads as there is work for."""
    work = block.size * (10.0 + other.shape[1])
    return n_threads if work >= WORK_OF_LAUNCH else 1


def runs_of(block: Side, n_threads: int) -> NDArray[np.int64]:
    """Cut the rows of a block into runs of about equal work."""
    return block.runs(BLOCKS_PER_THREAD * n_threads)


class Slopes:
    """One side of the matrix of slopes, zero where nothing is observed, as a linear operator."""

    def __init__(self, side: Grouped, remainder: Remainder, signed: bool) -> None:
        self._side = side
        self._remainder = remainder
        self._signed = signed
        # In memory the slopes are worth keeping; data on disk are there because memory is short.
        self._kept = None
        if isinstance(side, Side):
            [(_, self._kept)] = remainder.each(side, slopes_block, signed)

    def __call__(self, dense: NDArray[Any]) -> NDArray[Any]:
        """Multiply by a dense matrix."""
        left, width = self._remainder, dense.shape[1]
        n_rows = left.this.shape[0]
        whole = padded(np.empty((n_rows, width), dense.dtype))[:, :width]
        if self._kept is not None and isinstance(self._side, Side):
            whole[:] = _times(self._side, self._kept, padded(dense), left.n_threads)[:, :width]
            return whole
        for rows, out in left.each(self._side, _slopes_times, self._signed, dense):
            whole[rows] = out[:, :width]
        return whole


def _slopes_times(block: Side, *args: Any) -> NDArray[Any]:
    """Compute a block's rows of the product, given what the slopes are of and a dense matrix."""
    *of, dense, n_threads = args
    computed: Callable[..., NDArray[Any]] = slopes_block  # whose arguments `of` are
    return _times(block, computed(block, *of, n_threads), padded(dense), n_threads)


def _times(block: Side, slopes: NDArray[Any], dense: NDArray[Any], n_threads: int) -> NDArray[Any]:
    out = np.empty((block.indptr.size - 1, dense.shape[1]), dense.dtype)
    n_threads = enough(block, dense, n_threads)
    product = SparseProduct(block.indptr, block.indices, slopes, dense, out)
    launch(multiply, n_threads, runs_of(block, n_threads), product)
    return out
