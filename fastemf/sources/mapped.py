"""`MappedSource`: the observations of another source, each block mapped as it is read.

A map may depend on the row and the column of an entry, through arrays by row and by column that
are passed with every block. In memory the mapped entries are computed once and kept, unless `keep`
is False; elsewhere they are computed whenever a block is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fastemf.sources.memory import Observations
from fastemf.sources.source import Arrays, Grouped, Results, Side, Source, Task
from fastemf.support.arrays import Array, Floats

PART = 1 << 23  # entries of a side in memory that are mapped at once

Elementwise = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class BlockMap:
    """A map of blocks: ``function(block, by_index, by_row, *args)`` returns another block.

    The map is sent to workers, so `function` is defined at the top level of a module.

    Parameters
    ----------
    function
        The function of a block.
    arrays
        Arrays by row and arrays by column of the matrix, equally many; the first of each is a
        factor.
    args
        Further arguments of the function.
    changes_weights
        Whether the function changes weights and therefore the mass of rows and columns.
    dtype
        Type of the new values and weights, if it differs.
    keep
        Whether the mapped entries of a source in memory are kept.
    elementwise
        The function of the values, if new values depend on nothing else. Sums over all values
        are then sums over the new values; otherwise they are those of the original source.
    """

    function: Callable[..., Side]
    arrays: tuple[Arrays, Arrays] = ((), ())
    args: tuple[Any, ...] = ()
    changes_weights: bool = False
    dtype: np.dtype[Any] | None = None
    keep: bool = True
    elementwise: Elementwise | None = None

    def of_side(self, side: Grouped, axis: int) -> Grouped:
        """Return one side of a source with mapped entries."""
        own, others = self.arrays[axis], self.arrays[1 - axis]
        if isinstance(side, Side):
            if self.keep:
                return self.function(side, others, own, *self.args)
            side = _SideInParts(
                side.indptr, side.indices, side.values, side.weights, side.mass, side.censored,
                side.half_widths,
            )  # fmt: skip
        return _MappedSide(side, own, others, self)


class MappedSource(Source):
    """A source with other values or weights.

    Sums over all values, for example for their mean and spread, run over pieces that cross the
    boundaries of rows. So they use the values of the original source, except for an elementwise
    map.
    """

    def __init__(self, source: Source, block_map: BlockMap) -> None:
        self.source = source
        self.block_map = block_map
        self.shape = source.shape
        self.by_row = block_map.of_side(source.by_row, 0)
        self.by_col = block_map.of_side(source.by_col, 1)
        self.row_labels = source.row_labels
        self.col_labels = source.col_labels
        self.features = source.features

    def sums(self, terms: Callable[..., Any], *args: Any) -> Floats:
        """Add up terms of the original values, or of elementwise mapped values."""
        elementwise = self.block_map.elementwise
        if elementwise is not None:
            terms = _TermsOfMapped(terms, elementwise)
        return self.source.sums(terms, *args)

    def rms(self, mu: float = 0.0) -> float:
        """Compute the root mean square around mu of the values that `sums` uses."""
        return self.source.rms(mu) if self.block_map.elementwise is None else super().rms(mu)


def map_values(source: Source, function: Elementwise) -> Source:
    """Return a source whose values are ``function(values)``, computed elementwise.

    For a source elsewhere, `function` must be an object that can be sent to workers.
    """
    if isinstance(source, Observations):
        return source.map_values(function)
    return MappedSource(source, BlockMap(_map_block, args=(function,), elementwise=function))


def _map_block(block: Side, by_index: Arrays, by_row: Arrays, function: Elementwise) -> Side:
    return block.map_values(function)


@dataclass(frozen=True, eq=False)
class _TermsOfMapped:
    """Terms of a sum over mapped values; an object, because it is sent to workers."""

    terms: Callable[..., Any]
    function: Elementwise

    def __call__(self, values: Array, weights: Array, *args: Any) -> Any:
        return self.terms(self.function(values).astype(values.dtype), weights, *args)


class _SideInParts(Side):
    """A side in memory in blocks of about `PART` entries, so that not all are mapped at once."""

    def blocks(self) -> Iterator[tuple[int, Side]]:
        """Yield the first group and the entries of each block."""
        indptr = self.indptr
        first, last = 0, indptr.size - 1
        while first < last:
            reached = int(np.searchsorted(indptr, indptr[first] + PART, side="right")) - 1
            end = min(max(reached, first + 1), last)
            part = slice(indptr[first], indptr[end])
            yield first, Side(
                indptr[first : end + 1] - indptr[first], self.indices[part], self.values[part],
                self.weights[part], self.mass[first:end], self.censored[part],
                self.half_widths[part],
            )  # fmt: skip
            first = end


class _MappedSide:
    """One side of a source with blocks that are mapped as they are read."""

    def __init__(self, side: Grouped, own: Arrays, others: Arrays, block_map: BlockMap) -> None:
        self._side, self._own, self._others, self._map = side, own, others, block_map
        self.indptr, self.size = side.indptr, side.size
        self.dtype = block_map.dtype or side.dtype
        self.mass = side.mass
        if block_map.changes_weights:
            self.mass = np.empty_like(side.mass)
            for rows, mass in self.each(_mass_of, (), (), n_threads=1):
                self.mass[rows] = mass

    def each(self, task: Task, others: Arrays, own: Arrays, *args: Any, n_threads: int) -> Results:
        """Run a task on mapped blocks; see `Grouped`."""
        counts = len(others), len(self._others), len(own), len(self._own)
        on_block = _OnMappedBlock(task, self._map.function, self._map.args, counts)
        return self._side.each(
            on_block, (*others, *self._others), (*own, *self._own), *args, n_threads=n_threads
        )

    def sums(self, terms: Callable[..., Any], *args: Any) -> Floats:
        """Add up the terms of the original values; see `Grouped`."""
        return self._side.sums(terms, *args)


def _mass_of(block: Side, n_threads: int) -> Floats:
    return block.mass


@dataclass(frozen=True, eq=False)
class _OnMappedBlock:
    """A task on a mapped block; an object, because it is sent to workers."""

    task: Task
    function: Callable[..., Side]
    map_args: tuple[Any, ...]
    counts: tuple[int, int, int, int]  # arrays by index of the task and the map, then by row

    def __call__(self, block: Side, *given: Any) -> Any:
        ends = np.cumsum(self.counts).tolist()
        others, by_index, own, by_row, args = (
            given[first:last] for first, last in pairwise([0, *ends, None])
        )
        mapped = self.function(block, by_index, by_row, *self.map_args)
        return self.task(mapped, *others, *own, *args)
