"""`Store`: observations on disk, read block by block during a fit.

Reading never writes, so stores may be read-only and have any number of readers.
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
from fastemf.inputs.label_arrays import from_arrays, joined_arrays
from fastemf.inputs.labels import Labels
from fastemf.sources.source import Readable, Side, Source
from fastemf.sources.store.content import check_masses, check_sums
from fastemf.sources.store.locks import Hold
from fastemf.sources.store.manifest import LABEL_PARTS, MANIFEST, Manifest, StoreError, array_name
from fastemf.sources.store.segment import Merge, SegmentSide, cuts_within
from fastemf.support.validation import check_integer

BUDGET = 1 << 28
# Two blocks are in memory, one being solved and one being read, and temporary arrays as large as a
# third.
BUDGET_PARTS = 3

Room = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class StoredSide(Readable):
    """Entries by row (axis 0) or by column (axis 1), on disk; pointers and masses in memory."""

    folder: Path
    axis: int
    manifest: Manifest
    budget: int
    hold: Hold  # locks of the segments, which are not removed while they may be read
    _spare: list[Room] = field(default_factory=list)  # buffers of an earlier pass
    _ranges: dict[int, dict[Path, tuple[float, float]]] = field(default_factory=dict)  # of values
    _summed: set[tuple[int, int]] = field(default_factory=set)  # blocks whose masses were checked

    @cached_property
    def segments(self) -> list[SegmentSide]:
        """The same side of each segment."""
        return [
            SegmentSide(
                self.folder, self.axis, self.manifest, segment,
                self._ranges.setdefault(segment.number, {}),
            )
            for segment in self.manifest.segments
        ]  # fmt: skip

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """Position of the first entry of each group."""
        return Merge(self.segments, 0, self.manifest.shape[self.axis]).pointers

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
        """Yield blocks of whole groups within the budget; a thread reads the next one."""
        ranges = list(pairwise(self.cuts().tolist()))
        longest = max(int(self.indptr[last] - self.indptr[first]) for first, last in ranges)
        rooms = [self._room(longest) for _ in range(min(2, len(ranges)))]
        try:
            with ThreadPoolExecutor(1, "fastemf-read") as reader:

                def ahead(number: int) -> Any:
                    return reader.submit(self._block, *ranges[number], rooms[number % 2])

                coming = ahead(0)
                for number, (first, _) in enumerate(ranges):
                    block = coming.result()
                    if number + 1 < len(ranges):
                        coming = ahead(number + 1)
                    yield first, block
        finally:
            self._spare.extend(rooms)
        self._finish()

    def stretches(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield values and weights in order, in the pieces of `fastemf.inputs.entries.parts`."""
        kinds = ("values", "weights") if self.manifest.weighted else ("values",)
        pending: list[list[NDArray[Any]]] = [[] for _ in kinds]  # incomplete pieces, by kind
        size = 0
        for first, last in pairwise(self.cuts().tolist()):
            merge = Merge(self.segments, first, last)
            for kind, pieces in zip(kinds, pending, strict=True):
                pieces.append(merge.read(kind, np.empty(merge.size, self.dtype)))
            size += merge.size
            is_last = last == self.indptr.size - 1
            if size < PART and not is_last:
                continue
            columns = [np.concatenate(pieces) for pieces in pending]
            values, weights = columns[0], columns[1] if len(columns) > 1 else columns[0][:0]
            whole = size if is_last else size // PART * PART
            for part in parts(whole):
                yield values[part], weights[part]
            pending = [[column[whole:].copy()] for column in columns]
            size -= whole
        self._finish()

    def read(self, first: int, last: int) -> Side:
        """Read the groups from `first` to `last` − 1 into new arrays."""
        n = self.manifest.shape[self.axis]
        if not 0 <= first <= last <= n:
            raise IndexError(
                f"first and last must satisfy 0 <= first <= last <= {n}, got {first} and {last}"
            )
        return self._block(first, last, None)

    def labels(self) -> Labels | None:
        """Read the labels of the groups, if any."""
        if not self.manifest.labels:
            return None
        about, n = self.manifest.labels[self.axis], self.manifest.shape[self.axis]
        found = [
            [side.read(part, 0, side.stored(part).length) for part in LABEL_PARTS]
            for side in self.segments
        ]
        try:
            return from_arrays(about, *joined_arrays(about, found), n)
        except (TypeError, ValueError) as error:
            path = self.segments[self._wrong_labels(about, found)].path(LABEL_PARTS[0])
            raise StoreError(f"{path} is damaged: {error}") from None

    def _wrong_labels(self, about: dict[str, Any], found: list[list[NDArray[Any]]]) -> int:
        """Return the first segment whose labels are invalid on their own, else the last one."""
        n = 0
        for number, (segment, arrays) in enumerate(zip(self.manifest.segments, found, strict=True)):
            added, n = segment.shape[self.axis] - n, segment.shape[self.axis]
            try:
                from_arrays(about, *joined_arrays(about, [arrays]), added)
            except (TypeError, ValueError):
                if added or arrays[0].size:
                    return number
        return -1

    def cuts(self) -> NDArray[np.int64]:
        """Return the boundaries of the blocks: at most a third of the budget each, or one group."""
        each = self.manifest.index_dtype.itemsize
        each += self.dtype.itemsize * (2 if self.manifest.weighted else 1)
        each += 8 * (len(self.segments) > 1)  # places of merged entries
        return cuts_within(self.budget // BUDGET_PARTS, self.indptr, each, 8)

    def _block(self, first: int, last: int, room: Room | None) -> Side:
        merge = Merge(self.segments, first, last)
        room = self._room(merge.size) if room is None else room
        if merge.size > room["values"].size:
            raise StoreError(f"{self.segments[-1].path('indptr')} was changed while it was read")
        columns = {part: merge.read(part, room[part][: merge.size]) for part in room}
        weights = columns.get("weights", columns["values"][:0])
        mass = self._mass(merge.pointers, first)
        block = Side(merge.pointers, columns["indices"], columns["values"], weights, mass)
        if weights.size and (first, merge.size) not in self._summed:
            paths = (str(segment.path("weights")) for segment in self.segments)
            check_sums(self.segments[-1].path("mass"), " or ".join(paths), block)
            self._summed.add((first, merge.size))
        return block

    def _room(self, length: int) -> Room:
        """Return buffers for `length` entries, from an earlier pass if large enough."""
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
        latest = self.segments[-1]  # its masses include all earlier segments
        mass = latest.read("mass", first, counts.size)
        check_masses(latest.path("mass"), mass, counts)
        return mass

    def _finish(self) -> None:
        for segment in self.segments:
            segment.finish()


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
        Bytes of observations that a fit holds in memory at once; more only for a single row or
        column that is larger.
    row_labels, col_labels : Labels or None
        Labels of rows and columns, if they were given.
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
        """Properties of the store, and its size on disk."""
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
    """Open a store written by `fastemf.store.build`; its entries stay on disk.

    Observations that are appended later are not visible until the store is opened again.

    Parameters
    ----------
    path
        Folder of the store.
    budget
        Bytes of observations that a fit may hold in memory at once.

    Raises
    ------
    fastemf.store.StoreError
        A `ValueError` that names the file: not a store, another version, or damaged.
    FileNotFoundError
        There is no such folder.

    Notes
    -----
    Opening checks the manifest, the existence and the size of each file, and the pointers, sums of
    weights and labels. A fit checks each block that it reads, and raises the same error. Indices
    are checked at every read, so that damaged files cannot cause accesses out of bounds. At the
    first read, values must be finite and have the same range by row and by column, and weights must
    be positive with the stored sums. Only `fastemf.store.verify` detects a value that was changed
    to another one within the range.

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
    manifest, hold = hold_state(folder)
    return open_state(folder, manifest, hold, budget)


def hold_state(folder: Path) -> tuple[Manifest, Hold]:
    """Read the manifest and lock its segments, so that no append removes one of them."""
    while True:
        before = _identity(folder)
        try:
            manifest = Manifest.read(folder)
            paths = [folder / one.file(array_name(0, "indptr")) for one in manifest.segments]
            hold = Hold(paths)
        except StoreError:
            if _identity(folder) == before:
                raise
            continue
        if _identity(folder) == before:
            return manifest, hold


def _identity(folder: Path) -> tuple[int, ...]:
    """Return properties of the manifest file that change when it is replaced."""
    try:
        found = os.stat(folder / MANIFEST)
    except (OSError, ValueError):  # ValueError: an invalid path
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def open_state(folder: Path, manifest: Manifest, hold: Hold, budget: int) -> Store:
    """Open the store described by a manifest."""
    rooms: list[Room] = []
    ranges: dict[int, dict[Path, tuple[float, float]]] = {}
    sides = [StoredSide(folder, axis, manifest, budget, hold, rooms, ranges) for axis in (0, 1)]
    by_row, by_col = (float(side.mass.sum()) for side in sides)  # reading checks them
    if not math.isclose(by_row, by_col, rel_tol=1e-6):
        names = " or ".join(str(side.segments[-1].path("mass")) for side in sides)
        raise StoreError(
            f"{names} is damaged: both must have the same sum, got {by_row} and {by_col}"
        )
    labels = [side.labels() for side in sides]
    return Store(folder, manifest.shape, sides[0], sides[1], budget, labels[0], labels[1])


def read_block(path: str | os.PathLike[str], axis: int, first: int, last: int) -> Side:
    """Read the observations of rows (axis 0) or columns (axis 1) `first` to `last` − 1.

    All arguments can be sent to another process, which then reads the block itself.

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
    manifest, hold = hold_state(folder)
    return StoredSide(folder, axis, manifest, BUDGET, hold).read(first, last)


def read_state(path: str, manifest: Manifest, axis: int, first: int, last: int) -> Side:
    """Read a block of the state described by a manifest, even after later appends."""
    return StoredSide(Path(path), axis, manifest, BUDGET, Hold([])).read(first, last)
