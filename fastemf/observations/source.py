"""What the sweeps go through: observed entries by row and by column, wherever they are kept.

A fit asks a `Source` for entries: block after block of whole rows (or columns), and all values
in stretches of one length. Each of its sides is `Grouped`; where this process reads the entries
itself it is `Readable`, and a `Side` where they are in memory.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.entries import parts
from fastemf.inputs.labels import Labels
from fastemf.kernels.threads import balanced
from fastemf.kernels.width import padded
from fastemf.loss import expectile_from_sums, expectile_terms

__all__ = ["Grouped", "Readable", "Side", "Source"]


class Grouped(Protocol):
    """One side of a source: entries by row (or by column), in blocks of whole rows."""

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each group begins, over all blocks."""

    @property
    def mass(self) -> NDArray[np.float64]:
        """Summed weight of each group (its count without weights)."""

    @property
    def size(self) -> int:
        """Number of entries."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""

    def each(
        self,
        task: Callable[..., Any],
        others: tuple[NDArray[Any], ...],
        own: tuple[NDArray[Any], ...],
        *args: Any,
        n_threads: int,
    ) -> Iterator[tuple[slice, Any]]:
        """Yield each block's rows and ``task(block, *others, *own, *args, n_threads)``.

        Parameters
        ----------
        others
            Arrays by index on the other side, of which the first, if there are any, is a factor:
            tasks get it as `fastemf.kernels.width.padded` makes it.
        own
            Arrays by row: tasks get the block's part.
        args
            Small things.
        n_threads
            Threads of a task in this process.
        """

    def sums(self, terms: Callable[..., Any], *args: Any) -> NDArray[np.float64]:
        """Add up ``terms(values, weights, *args)`` of every stretch, in order."""


class Readable(ABC):
    """A side whose entries this process reads itself."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[int, Side]]:
        """Yield each block's first group and entries, which are gone when the next is asked for."""

    @abstractmethod
    def stretches(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield values and weights in order, in the pieces of `fastemf.inputs.entries.parts`."""

    def each(
        self,
        task: Callable[..., Any],
        others: tuple[NDArray[Any], ...],
        own: tuple[NDArray[Any], ...],
        *args: Any,
        n_threads: int,
    ) -> Iterator[tuple[slice, Any]]:
        """Run a task block by block; see `Grouped`."""
        others = (*map(padded, others[:1]), *others[1:])
        for first, block in self.blocks():
            rows = slice(first, first + block.indptr.size - 1)
            parts = (array[rows] for array in own)
            yield rows, task(block, *others, *parts, *args, n_threads)

    def sums(self, terms: Callable[..., Any], *args: Any) -> NDArray[np.float64]:
        """Add terms up stretch by stretch; see `Grouped`."""
        total: NDArray[np.float64] = np.zeros(())
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
    weights : array of the same dtype, empty where every weight is one
    mass : float64 array, summed weight of each group (its count without weights)
    censored : int8 array of the codes of `fastemf.inputs.censoring`, empty where nothing is
    """

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any]
    mass: NDArray[np.float64]
    censored: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.values.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.values.dtype

    def blocks(self) -> Iterator[tuple[int, Side]]:
        """Yield everything at once."""
        yield 0, self

    def stretches(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield all values and weights in order, a cacheful at a time."""
        for part in parts(self.size):
            yield self.values[part], self.weights[part]

    @cached_property
    def _runs(self) -> dict[tuple[float, int], NDArray[np.int64]]:
        return {}

    def runs(self, n_runs: int, per_group: float = 1.0) -> NDArray[np.int64]:
        """Cut the groups into at most so many runs of about equal work, and return the boundaries.

        A group's work is that of `per_group` entries beside its own. Sweeps ask again and again.
        """
        asked = per_group, n_runs
        if asked not in self._runs:
            self._runs[asked] = balanced(np.diff(self.indptr) + per_group, n_runs)
        return self._runs[asked]

    @property
    def keys(self) -> NDArray[Any]:
        """The group of each entry."""
        groups = np.arange(self.indptr.size - 1, dtype=self.indices.dtype)
        return np.repeat(groups, np.diff(self.indptr))


class Source:
    """Observed entries of an (m, n) matrix, wherever they are kept.

    The entries of a table come with the labels of its rows and columns, in index order. Sums
    go over stretches of one length in one order, so they are bitwise identical for every source
    of the same entries.
    """

    shape: tuple[int, int]
    by_row: Grouped
    by_col: Grouped
    row_labels: Labels | None
    col_labels: Labels | None

    @property
    def size(self) -> int:
        """Number of observations."""
        return self.by_row.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The float type everything is computed in."""
        return self.by_row.dtype

    @property
    def mass(self) -> float:
        """Summed weights: the number of observations where there are none."""
        return float(np.sum(self.by_row.mass))

    def digest(self) -> str:
        """Hash the entries, each at its place; the result is the same wherever they are kept."""
        found = hashlib.blake2b(repr((self.shape, self.dtype.str)).encode(), digest_size=16)
        for side in (self.by_row, self.by_col):
            found.update(np.ascontiguousarray(side.indptr, "<i8").data)
            begins = side.indptr[:-1]
            # Whole numbers modulo 2**64 have one sum, whatever the blocks and their order.
            total = sum(part for _, part in side.each(_hashes, (), (begins,), n_threads=1))
            found.update((total % 2**64).to_bytes(8, "little"))
        return found.hexdigest()

    def rms(self, mu: float = 0.0) -> float:
        """Compute the root mean square of the values around mu, in float64."""
        return float(np.sqrt(self.by_row.sums(_squares, mu) / self.mass))

    def expectile(self, omega: float) -> float:
        """Compute the ω-expectile of the values, in float64."""
        return expectile_from_sums(lambda around: self.by_row.sums(expectile_terms, omega, around))

    def tail_is_right(self) -> bool:
        """Tell whether the values' third central moment is positive or zero."""
        mean = self.expectile(0.5)
        spread = self.rms(mean) or 1.0  # cubes in this unit cannot overflow
        return bool(self.by_row.sums(_cubes, mean, spread) >= 0)


def _hashes(block: Side, begins: NDArray[np.int64], n_threads: int) -> int:
    """Sum up a hash of each entry of a block: of its position, index, value and weight.

    `begins` holds the positions of the first entries of the block's groups, over all blocks.
    """
    total = 0
    for part in parts(block.size):
        values, weights = block.values[part], block.weights[part]
        position = int(begins[0]) + part.start
        found = np.arange(position, position + values.size, dtype=np.uint64)
        # Odd factors: no two entries within reach of each other have the same sum.
        found *= np.uint64(0x9E3779B97F4A7C15)
        found += block.indices[part].astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
        _mix(found)
        codes = block.censored[part].view(np.uint8)
        for numbers in filter(np.size, (values, weights, codes)):
            found ^= np.ascontiguousarray(numbers).view(f"u{numbers.itemsize}")
            _mix(found)
        total += int(np.sum(found))
    return total


def _mix(numbers: NDArray[np.uint64]) -> None:
    """Spread every bit of each number over the whole of it: the last steps of SplitMix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(31)


def _squares(values: NDArray[Any], weights: NDArray[Any], mu: float) -> float:
    with np.errstate(over="ignore"):  # whoever needs the sum checks it
        squares = np.square(values.astype(np.float64) - mu)
        return float(np.sum(squares * weights if weights.size else squares))


def _cubes(values: NDArray[Any], weights: NDArray[Any], mean: float, spread: float) -> float:
    cubes = ((values.astype(np.float64) - mean) / spread) ** 3
    return float(np.sum(cubes * weights if weights.size else cubes))
