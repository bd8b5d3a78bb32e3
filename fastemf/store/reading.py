"""`Store`: observations on disk, read block by block while a fit goes on.

Reading writes nothing: stores may be read-only, and have any number of readers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.entries import PART, parts
from fastemf.inputs.label_arrays import from_arrays
from fastemf.inputs.labels import Labels
from fastemf.observations.source import Readable, Side, Source
from fastemf.store.content import (
    NumberCheck,
    check_masses,
    check_others,
    check_pointers,
    check_sums,
)
from fastemf.store.cuts import cuts_within
from fastemf.store.files import open_regular, read_into
from fastemf.store.manifest import LABEL_PARTS, Manifest, StoreError, array_name, reading
from fastemf.support.validation import check_integer

__all__ = ["BUDGET", "Store", "StoredSide", "open_store", "read_block"]

BUDGET = 1 << 28
# Two blocks are in memory, one being solved and one being read, and a third's worth of
# temporary arrays.
SHARES = 3

Room = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class StoredSide(Readable):
    """Entries by row (axis 0) or by column (axis 1), on disk; pointers and masses in memory."""

    folder: Path
    axis: int
    manifest: Manifest
    budget: int
    _spare: list[Room] = field(default_factory=list)  # rooms of an earlier pass: touched memory
    _ranges: dict[Path, tuple[float, float]] = field(default_factory=dict)  # of values, by file
    _summed: set[tuple[int, int]] = field(default_factory=set)  # blocks whose weights were added up

    @cached_property
    def _numbers(self) -> dict[str, NumberCheck]:
        return {
            part: NumberCheck(self._path(part), positive=part == "weights")
            for part in ("values", "weights")
        }

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """Position of the first entry of each group."""
        pointers = self._read("indptr", 0, self.manifest.shape[self.axis] + 1)
        check_pointers(self._path("indptr"), pointers, self.size, begins=True, ends=True)
        return pointers

    @cached_property
    def mass(self) -> NDArray[np.float64]:
        """Summed weight of each group (its count without weights)."""
        return self._mass(self.indptr, 0)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.manifest.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.dtype(self.manifest.dtype)

    def blocks(self) -> Iterator[tuple[int, Side]]:
        """Yield blocks of whole groups within the budget; the next is read while one is at hand."""
        ranges = list(pairwise(self.cuts().tolist()))
        longest = max(int(self.indptr[last] - self.indptr[first]) for first, last in ranges)
        rooms = [self._room(longest) for _ in range(min(2, len(ranges)))]
        try:
            with ThreadPoolExecutor(1, "fastemf-read") as reader:

                def ahead(number: int) -> Any:
                    first, last = ranges[number]
                    pointers = self.indptr[first : last + 1]
                    return reader.submit(self._block, first, pointers, rooms[number % 2])

                coming = ahead(0)
                for number, (first, _) in enumerate(ranges):
                    block = coming.result()
                    if number + 1 < len(ranges):
                        coming = ahead(number + 1)
                    yield first, block
        finally:
            self._spare.extend(rooms)
        self._numbers["values"].finish(self.dtype, self._ranges)

    def stretches(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield values and weights in order, in the pieces of `fastemf.inputs.entries.parts`."""
        each = self.dtype.itemsize * (2 if self.manifest.weighted else 1)
        length = max(1, self.budget // SHARES // each // PART) * PART
        for first in range(0, self.size, length):
            count = min(length, self.size - first)
            values = self._read("values", first, count)
            weights = self._read("weights", first, count) if self.manifest.weighted else values[:0]
            for part in parts(count):
                yield values[part], weights[part]
        self._numbers["values"].finish(self.dtype, self._ranges)

    def read(self, first: int, last: int) -> Side:
        """Read the groups from `first` to `last` − 1 into arrays of their own."""
        n = self.manifest.shape[self.axis]
        if not 0 <= first <= last <= n:
            raise IndexError(f"first and last must rise within 0 to {n}, got {first} and {last}")
        pointers = self._read("indptr", first, last + 1 - first)
        begins, ends = first == 0, last == n
        check_pointers(self._path("indptr"), pointers, self.size, begins=begins, ends=ends)
        return self._block(first, pointers, self._room(int(pointers[-1] - pointers[0])))

    def labels(self) -> Labels | None:
        """Read the labels of the groups, if they have any."""
        if not self.manifest.labels:
            return None
        content, offsets = (
            self._read(part, 0, self.manifest.files[array_name(self.axis, part)].length)
            for part in LABEL_PARTS
        )
        about, n = self.manifest.labels[self.axis], self.manifest.shape[self.axis]
        try:
            return from_arrays(about, content, offsets, n)
        except (TypeError, ValueError) as error:
            raise StoreError(f"{self._path(LABEL_PARTS[0])} is damaged: {error}") from None

    def cuts(self) -> NDArray[np.int64]:
        """Return the boundaries of the blocks: at most a share of the budget each, or one group."""
        each = self.manifest.index_dtype.itemsize
        each += self.dtype.itemsize * (2 if self.manifest.weighted else 1)
        return cuts_within(self.budget // SHARES, self.indptr, each, 8)

    def _block(self, first: int, pointers: NDArray[np.int64], room: Room) -> Side:
        at, count = int(pointers[0]), int(pointers[-1] - pointers[0])
        columns = {part: self._read(part, at, count, room[part][:count]) for part in room}
        weights = columns.get("weights", columns["values"][:0])
        block = Side(
            pointers - at, columns["indices"], columns["values"], weights,
            self._mass(pointers, first),
        )  # fmt: skip
        if weights.size and (first, count) not in self._summed:
            check_sums(self._path("mass"), self._path("weights"), block)
            self._summed.add((first, count))
        return block

    def _room(self, length: int) -> Room:
        """Return memory for that many entries, that of an earlier pass if it is large enough."""
        with suppress(IndexError):
            spare = self._spare.pop()
            if spare["values"].size >= length:
                return spare
        kinds = {"indices": self.manifest.index_dtype, "values": self.dtype}
        if self.manifest.weighted:
            kinds["weights"] = self.dtype
        return {part: np.empty(length, kind) for part, kind in kinds.items()}

    def _mass(self, pointers: NDArray[np.int64], first: int) -> NDArray[np.float64]:
        counts = np.diff(pointers)
        if not self.manifest.weighted:
            return counts.astype(np.float64)
        mass = self._read("mass", first, counts.size)
        check_masses(self._path("mass"), mass, counts)
        return mass

    def _path(self, part: str) -> Path:
        return self.folder / array_name(self.axis, part)

    def _read(
        self, part: str, first: int, count: int, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        path = self._path(part)
        stored = self.manifest.files[path.name]
        array = np.empty(count, stored.dtype) if out is None else out
        with reading(path), open_regular(path) as file:
            file.seek(stored.data + first * array.itemsize)
            if not read_into(file, array):
                raise StoreError(f"{path} ended early: it is truncated")
        self._check(part, first, array)
        return array

    def _check(self, part: str, first: int, array: NDArray[Any]) -> None:
        """Check indices whenever they are read, and numbers when they are read the first time."""
        if part == "indices":
            check_others(self._path(part), array, self.manifest.shape[1 - self.axis])
        elif part in self._numbers:
            self._numbers[part].see(first, array)


@dataclass(frozen=True, eq=False, repr=False)
class Store(Source):
    """Observations of an (m, n) matrix in a folder, for `fastemf.complete`.

    Attributes
    ----------
    path : pathlib.Path
    shape : tuple of int
        Rows and columns.
    size : int
        Number of observations.
    dtype : numpy.dtype
        float32 or float64, the type in which a fit computes.
    budget : int
        Bytes of observations that a fit holds in memory at once; more only for a row or
        column that is longer.
    row_labels, col_labels : Labels or None
        Names of rows and columns, where they came from tables.
    """

    path: Path
    shape: tuple[int, int]
    by_row: StoredSide = field(repr=False)
    by_col: StoredSide = field(repr=False)
    budget: int
    row_labels: Labels | None = None
    col_labels: Labels | None = None

    def __repr__(self) -> str:
        m, n = self.shape
        more = ", weights" if self.by_row.manifest.weighted else ""
        more += "" if self.row_labels is None else ", labels"
        return f"<Store {m} x {n}, {self.size} observations, {self.dtype}{more}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(open_store, budget=self.budget), (self.path,)

    @property
    def info(self) -> dict[str, Any]:
        """Facts of the manifest, and the bytes on disk."""
        manifest = self.by_row.manifest
        return {
            "shape": self.shape,
            "size": self.size,
            "dtype": manifest.dtype,
            "weighted": manifest.weighted,
            "labels": [about["name"] for about in manifest.labels],
            "bytes": sum(stored.bytes for stored in manifest.files.values()),
        }


def open_store(path: str | os.PathLike[str], *, budget: int = BUDGET) -> Store:
    """Open a store that `fastemf.store.build` wrote; its entries stay on disk.

    Parameters
    ----------
    path
        Its folder.
    budget
        Bytes of observations that a fit may hold in memory at once.

    Raises
    ------
    fastemf.store.StoreError
        A `ValueError` that names the file: it is no store, of another version, or damaged.
    FileNotFoundError
        There is no such folder.

    Notes
    -----
    What is checked without a pass over the entries: the manifest, that each file is there and
    has its size, and all that is read at once, which are the pointers to the groups, their
    summed weights and the labels. A fit checks each block that it reads: indices whenever
    they are read, so that no damage leads it out of bounds, and that values are finite and
    have one range by row and by column, weights positive and their sums right, when they
    are read first; it raises the same error. A value that was changed to another one within
    the range only `fastemf.store.verify` finds.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, random_state=0, density=0.5).R.tocoo()
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> _ = fastemf.store.build((R.row, R.col, R.data), path)
    >>> log = fastemf.store.open(path, budget=64 * 2**20)
    >>> log.shape, log.size
    ((60, 40), 1200)
    >>> fastemf.complete(log, omega=0.1, k=2).shape
    (60, 40)
    """
    folder = Path(os.path.abspath(path))
    budget = check_integer(budget, "budget", minimum=1)
    manifest = Manifest.read(folder)
    rooms: list[Room] = []
    ranges: dict[Path, tuple[float, float]] = {}
    sides = [StoredSide(folder, axis, manifest, budget, rooms, ranges) for axis in (0, 1)]
    by_row, by_col = (float(side.mass.sum()) for side in sides)  # reading checks them
    if not math.isclose(by_row, by_col, rel_tol=1e-6):
        names = " or ".join(str(folder / array_name(axis, "mass")) for axis in (0, 1))
        raise StoreError(
            f"{names} is damaged: both must add up to the same, got {by_row}, {by_col}"
        )
    labels = [side.labels() for side in sides]
    return Store(folder, manifest.shape, sides[0], sides[1], budget, labels[0], labels[1])


def read_block(path: str | os.PathLike[str], axis: int, first: int, last: int) -> Side:
    """Read the observations of rows (axis 0) or columns (axis 1) `first` to `last` − 1.

    Every argument can be sent to another process: with `fastemf.solver.blocks.solve_block` this is
    a half-sweep's work, anywhere the folder can be seen.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> _ = fastemf.store.build(([0, 1, 1], [0, 2, 0], [1.5, 2.0, 4.0]), path)
    >>> fastemf.store.read_block(path, 0, 1, 2).values.tolist()
    [2.0, 4.0]
    """
    folder = Path(os.path.abspath(path))
    if axis not in (0, 1):
        raise ValueError(f"axis must be 0 or 1, got {axis!r}")
    return StoredSide(folder, axis, Manifest.read(folder), BUDGET).read(first, last)
