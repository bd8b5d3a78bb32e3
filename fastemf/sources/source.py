"""`Source`: observed entries by row and by column, in memory, on disk or on a cluster.

A fit reads a source in blocks of whole rows (or columns), and all values in stretches of a fixed
length. Each side of a source is `Grouped`. It is `Readable` if this process reads the entries
itself, and a `Side` if they are in memory.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fastemf.features.schema import FeatureTable
from fastemf.inputs.entries import parts
from fastemf.inputs.labels import Labels
from fastemf.kernels.threads import balance_blocks
from fastemf.kernels.vector_width import pad_columns
from fastemf.loss import expectile_from_sums, expectile_terms
from fastemf.support.arrays import Array, Floats, Ints

BLOCKS_PER_THREAD = 8  # runs are scheduled statically: several per thread even out the work
WORK_OF_LAUNCH = 2e6  # multiply-adds: with fewer, threads would wait longer than they work

Arrays = tuple[Array, ...]
Task = Callable[..., Any]
Results = Iterator[tuple[slice, Any]]  # the rows of a block, and the result of its task


class Grouped(Protocol):
    """One side of a source: entries by row (or by column), in blocks of whole rows."""

    @property
    def indptr(self) -> Ints:
        """Where each group begins, over all blocks."""

    @property
    def mass(self) -> Floats:
        """Summed weight of each group (its count without weights)."""

    @property
    def size(self) -> int:
        """Number of entries."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""

    def each(self, task: Task, others: Arrays, own: Arrays, *args: Any, n_threads: int) -> Results:
        """Yield each block's rows and ``task(block, *others, *own, *args, n_threads)``.

        Parameters
        ----------
        others
            Arrays by index on the other side. The first, if any, is a factor, which tasks receive
            padded by `fastemf.kernels.vector_width.pad_columns`.
        own
            Arrays by row; tasks receive the part of their block.
        args
            Further arguments, which should be small.
        n_threads
            Threads of a task in this process.
        """

    def sums(self, terms: Callable[..., Any], *args: Any) -> Floats:
        """Add up ``terms(values, weights, *args)`` of all stretches, in order."""


class Readable(ABC):
    """A side whose entries are read in this process."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[int, Side]]:
        """Yield the first group and the entries of each block, valid until the next block."""

    @abstractmethod
    def stretches(self) -> Iterator[tuple[Array, Array]]:
        """Yield values and weights in order, in the pieces of `fastemf.inputs.entries.parts`."""

    def each(self, task: Task, others: Arrays, own: Arrays, *args: Any, n_threads: int) -> Results:
        """Run a task block by block; see `Grouped`."""
        others = (*map(pad_columns, others[:1]), *others[1:])
        for first, block in self.blocks():
            rows = slice(first, first + block.indptr.size - 1)
            parts = (array[rows] for array in own)
            yield rows, task(block, *others, *parts, *args, n_threads)

    def sums(self, terms: Callable[..., Any], *args: Any) -> Floats:
        """Add up terms stretch by stretch; see `Grouped`."""
        total: Floats = np.zeros(())
        for values, v in self.stretches():
            total = total + terms(values, v, *args)
        return total


@dataclass(frozen=True, eq=False)
class Side(Readable):
    """Entries grouped by row (or, for the other side, by column).

    Attributes
    ----------
    indptr : int64 array, length groups + 1
    indices : int32 or int64 array, the index on the other side
    values : float32 or float64 array
    weights : array of the same dtype, empty if every weight is one
    mass : float64 array, summed weight of each group (its count without weights)
    censored : int8 array of the codes of `fastemf.censoring.limits`, empty if none is censored
    half_widths : array of the same dtype, empty if no observation is an interval: the value of an
        interval is its middle
    """

    indptr: Ints
    indices: Array
    values: Array
    weights: Array
    mass: Floats
    censored: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    half_widths: Array = field(default_factory=lambda: np.empty(0))

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.values.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.values.dtype

    def blocks(self) -> Iterator[tuple[int, Side]]:
        """Yield all entries as one block."""
        yield 0, self

    def stretches(self) -> Iterator[tuple[Array, Array]]:
        """Yield all values and weights in order, in pieces that fit into the cache."""
        for part in parts(self.size):
            yield self.values[part], self.weights[part]

    def map_values(self, function: Callable[[Array], Array]) -> Side:
        """Replace the values by ``function(values)``, in their type."""
        return replace(self, values=function(self.values).astype(self.dtype))

    @cached_property
    def _runs(self) -> dict[tuple[float, int], Ints]:
        return {}

    def runs(self, n_runs: int, per_group: float = 1.0) -> Ints:
        """Return the boundaries of at most `n_runs` runs of groups, of about equal work.

        The work of a group is its number of entries plus `per_group`. Results are cached.
        """
        key = per_group, n_runs
        if key not in self._runs:
            self._runs[key] = balance_blocks(np.diff(self.indptr) + per_group, n_runs)
        return self._runs[key]

    def plan_launch(self, width: int, n_threads: int) -> tuple[int, Ints]:
        """Return the number of threads worth launching, and the runs to divide among them.

        The work of an entry is that of a product of two vectors of length `width`.
        """
        if self.size * (10.0 + width) < WORK_OF_LAUNCH:
            n_threads = 1
        return n_threads, self.runs(BLOCKS_PER_THREAD * n_threads)

    @property
    def keys(self) -> Array:
        """The group of each entry."""
        groups = np.arange(self.indptr.size - 1, dtype=self.indices.dtype)
        return np.repeat(groups, np.diff(self.indptr))


class Source:
    """Observed entries of an (m, n) matrix.

    The labels of rows and columns, if any, are in index order. Sums run over stretches of a fixed
    length in a fixed order, so they are bitwise identical for every source of the same entries.
    """

    is_remote: ClassVar = False  # whether other processes hold the entries
    shape: tuple[int, int]
    by_row: Grouped
    by_col: Grouped
    row_labels: Labels | None
    col_labels: Labels | None
    features: FeatureTable | None = None  # of the observations, in the order of `by_row`

    @property
    def size(self) -> int:
        """Number of observations."""
        return self.by_row.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The floating-point type of the values."""
        return self.by_row.dtype

    @property
    def mass(self) -> float:
        """Sum of the weights, or the number of observations without weights."""
        return float(np.sum(self.by_row.mass))

    def digest(self) -> str:
        """Hash the entries and their positions; the result is the same for every kind of source."""
        found = hashlib.blake2b(repr((self.shape, self.dtype.str)).encode(), digest_size=16)
        for side in (self.by_row, self.by_col):
            found.update(np.ascontiguousarray(side.indptr, "<i8").data)
            begins = side.indptr[:-1]
            # Sums modulo 2**64 do not depend on the blocks and their order.
            total = sum(part for _, part in side.each(_hashes, (), (begins,), n_threads=1))
            found.update((total % 2**64).to_bytes(8, "little"))
        return found.hexdigest()

    def sums(self, terms: Callable[..., Any], *args: Any) -> Floats:
        """Add up ``terms(values, weights, *args)`` over all values, in order."""
        return self.by_row.sums(terms, *args)

    def rms(self, mu: float = 0.0) -> float:
        """Compute the root mean square of the values around mu, in float64."""
        return float(np.sqrt(self.sums(_squares, mu) / self.mass))

    def expectile(self, omega: float) -> float:
        """Compute the ω-expectile of the values, in float64."""
        return expectile_from_sums(lambda around: self.sums(expectile_terms, omega, around))

    def tail_is_right(self) -> bool:
        """Return whether the third central moment of the values is positive or zero."""
        mean = self.expectile(0.5)
        spread = self.rms(mean) or 1.0  # cubes in this unit cannot overflow
        return bool(self.sums(_cubes, mean, spread) >= 0)


def _hashes(block: Side, begins: Ints, n_threads: int) -> int:
    """Add up the hashes of the entries of a block: of position, index, value and weight.

    `begins` holds the positions of the first entries of the block's groups, over all blocks.
    """
    total = 0
    for part in parts(block.size):
        values, weights, widths = block.values[part], block.weights[part], block.half_widths[part]
        position = int(begins[0]) + part.start
        found = np.arange(position, position + values.size, dtype=np.uint64)
        # Odd factors: nearby entries have different sums.
        found *= np.uint64(0x9E3779B97F4A7C15)
        found += block.indices[part].astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
        mix_bits(found)
        codes = block.censored[part].view(np.uint8)
        for numbers in filter(np.size, (values, weights, codes, widths)):
            found ^= np.ascontiguousarray(numbers).view(f"u{numbers.itemsize}")
            mix_bits(found)
        total += int(np.sum(found))
    return total


def mix_bits(numbers: NDArray[np.uint64]) -> None:
    """Mix the bits of each number: the last steps of SplitMix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(31)


def _squares(values: Array, weights: Array, mu: float) -> float:
    with np.errstate(over="ignore"):  # callers check the sum
        squares = np.square(values.astype(np.float64) - mu)
        return float(np.sum(squares * weights if weights.size else squares))


def _cubes(values: Array, weights: Array, mean: float, spread: float) -> float:
    cubes = ((values.astype(np.float64) - mean) / spread) ** 3
    return float(np.sum(cubes * weights if weights.size else cubes))
