"""`ChangedSource`: the same observations, each block changed as it is read.

A change may depend on the row and the column of an entry, through arrays by row and by column that
go with every block. In memory it is made once, unless it is not to be kept, elsewhere whenever a
block is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.observations.source import Grouped, Readable, Side, Source

__all__ = ["BlockChange", "ChangedSource", "InParts", "WrappedSide"]

PART = 1 << 23  # entries of a side in memory that are changed at once

_Arrays = tuple[NDArray[Any], ...]


@dataclass(frozen=True, eq=False)
class BlockChange:
    """What is made of a block: ``make(block, by_index, by_row, *args)`` returns another one.

    Workers are sent it, so `make` is a function of a module. `arrays` are those by row and those
    by column of the matrix, as many of both; the first of each is a factor.
    """

    make: Callable[..., Side]
    arrays: tuple[_Arrays, _Arrays]
    args: tuple[Any, ...] = ()
    counts: bool = False  # whether it changes weights, and with them what rows add up to
    dtype: np.dtype[Any] | None = None  # of the values and weights it makes, if another
    keeps: bool = True  # whether, in memory, what it makes is kept


class ChangedSource(Source):
    """A source with other values or weights.

    Sums over all values, as for their mean and spread, are those of the source itself: they are
    taken in stretches that know of no rows.
    """

    def __init__(self, source: Source, change: BlockChange) -> None:
        self.source = source
        self.change = change
        self.shape = source.shape
        self.by_row = _changed(source.by_row, 0, change)
        self.by_col = _changed(source.by_col, 1, change)
        self.row_labels = source.row_labels
        self.col_labels = source.col_labels

    def rms(self, mu: float = 0.0) -> float:
        """Compute the root mean square of the source's own values around mu."""
        return self.source.rms(mu)

    def expectile(self, omega: float) -> float:
        """Compute the ω-expectile of the source's own values."""
        return self.source.expectile(omega)

    def tail_is_right(self) -> bool:
        """Tell whether the third central moment of the source's own values is not negative."""
        return self.source.tail_is_right()


def _changed(side: Grouped, axis: int, change: BlockChange) -> Grouped:
    own, others = change.arrays[axis], change.arrays[1 - axis]
    if isinstance(side, Side):
        if change.keeps:
            return change.make(side, others, own, *change.args)
        side = InParts(side)
    return _ChangedSide(side, own, others, change)


class WrappedSide:
    """One side of a source that is read elsewhere: what another one has of it."""

    def __init__(self, side: Grouped) -> None:
        self._side = side
        self.mass = side.mass  # summed weight of each group

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each group begins, over all blocks."""
        return self._side.indptr

    @property
    def size(self) -> int:
        """Number of entries."""
        return self._side.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self._side.dtype


class InParts(WrappedSide, Readable):
    """A side in memory, read in parts, of which each may be changed without room for all."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self._of = side

    def blocks(self) -> Iterator[tuple[int, Side]]:
        """Yield whole rows, of about `PART` entries together."""
        side, indptr = self._of, self.indptr
        first, last = 0, indptr.size - 1
        while first < last:
            reached = int(np.searchsorted(indptr, indptr[first] + PART, side="right")) - 1
            end = min(max(reached, first + 1), last)
            part = slice(indptr[first], indptr[end])
            yield first, Side(
                indptr[first : end + 1] - indptr[first], side.indices[part], side.values[part],
                side.weights[part], side.mass[first:end], side.censored[part],
            )  # fmt: skip
            first = end

    def stretches(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield all values and weights in order, a cacheful at a time."""
        return self._of.stretches()


class _ChangedSide(WrappedSide):
    """One side of it, with other blocks."""

    def __init__(self, side: Grouped, own: _Arrays, others: _Arrays, change: BlockChange) -> None:
        super().__init__(side)
        self._own, self._others, self._change = own, others, change
        if change.counts:
            self.mass = np.empty_like(side.mass)
            for rows, found in self.each(_mass_of, (), (), n_threads=1):
                self.mass[rows] = found

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self._change.dtype or self._side.dtype

    def each(
        self, task: Callable[..., Any], others: _Arrays, own: _Arrays, *args: Any, n_threads: int
    ) -> Iterator[tuple[slice, Any]]:
        """Run a task on changed blocks; see `Grouped`."""
        change, count = self._change, len(self._own)
        on_block = _OnBlock(task, change.make, change.args, len(others), len(own), count)
        return self._side.each(
            on_block, (*others, *self._others), (*own, *self._own), *args, n_threads=n_threads
        )

    def sums(self, terms: Callable[..., Any], *args: Any) -> NDArray[np.float64]:
        """Add up the terms of the source's own values; see `Grouped`."""
        return self._side.sums(terms, *args)


def _mass_of(block: Side, n_threads: int) -> NDArray[np.float64]:
    return block.mass


@dataclass(frozen=True, eq=False)
class _OnBlock:
    """A task, given a changed block; an object, as workers are sent it."""

    task: Callable[..., Any]
    make: Callable[..., Side]
    args: tuple[Any, ...]  # of the change
    n_others: int  # arrays of the task, by index and by row
    n_own: int
    n_more: int  # arrays of the change, likewise both

    def __call__(self, block: Side, *given: Any) -> Any:
        ends = np.cumsum([self.n_others, self.n_more, self.n_own, self.n_more]).tolist()
        others, by_index, own, by_row, args = (
            given[first:last] for first, last in pairwise([0, *ends, None])
        )
        changed = self.make(block, by_index, by_row, *self.args)
        return self.task(changed, *others, *own, *args)
