"""`Store`: observations on disk, read block by block during a fit.

Reading never writes, so stores may be read-only and have any number of readers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.features.schema import FeatureTable
from fastemf.inputs.columns import one_line
from fastemf.inputs.entries import parts
from fastemf.inputs.label_arrays import from_arrays
from fastemf.inputs.labels import Labels
from fastemf.inputs.tables import arrow
from fastemf.inputs.value_check import size_limits
from fastemf.sources.grouping import sum_weights
from fastemf.sources.source import Readable, Side, Source
from fastemf.sources.store.files import open_regular, read_into
from fastemf.sources.store.folders import Hold
from fastemf.sources.store.manifest import (
    COLUMNS,
    LABEL_PARTS,
    MANIFEST,
    Manifest,
    StoredArray,
    StoreError,
    array_name,
    data_folder,
    reading,
)
from fastemf.support.validation import check_integer

BUDGET = 1 << 28
# Two blocks are in memory, one being solved and one being read, and temporary arrays as large as a
# third.
BUDGET_PARTS = 3

Room = dict[str, NDArray[Any]]
Range = tuple[float, float]
Columns = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class StoredSide(Readable):
    """Entries by row (axis 0) or by column (axis 1), on disk; pointers and masses in memory.

    Numbers are checked when they are read for the first time. `ranges` holds the smallest and the
    largest of each part, and the file where they were found.
    """

    folder: Path
    axis: int
    manifest: Manifest
    budget: int
    hold: Hold | None  # lock of the generation, which is not removed while it may be read
    _ranges: dict[str, tuple[Path, Range]] = field(default_factory=dict)
    _seen: dict[tuple[str, int, int], Range] = field(default_factory=dict)

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """Position of the first entry of each group."""
        return self._pointers(0, self.manifest.shape[self.axis])

    @cached_property
    def mass(self) -> NDArray[np.float64]:
        """Summed weight of each group (its count without weights)."""
        mass = np.empty(self.indptr.size - 1)
        for first, last in pairwise(self.cuts().tolist()):
            begin, end = self.indptr[first], self.indptr[last]
            weighted = self.manifest.weighted
            weights = self.read_part("weights", begin, end - begin) if weighted else np.empty(0)
            mass[first:last] = sum_weights(self.indptr[first : last + 1], weights)
        return mass

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.manifest.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.dtype(self.manifest.dtype)

    def path(self, part: str) -> Path:
        """Return the path of a file."""
        return data_folder(self.folder, self.manifest.generation) / array_name(self.axis, part)

    def blocks(self) -> Iterator[tuple[int, Side]]:
        """Yield blocks of whole groups within the budget; a thread reads the next one."""
        mass = self.mass
        ranges = list(pairwise(self.cuts().tolist()))
        longest = max(int(self.indptr[last] - self.indptr[first]) for first, last in ranges)
        rooms = [self._room(longest) for _ in range(min(2, len(ranges)))]
        with ThreadPoolExecutor(1, "fastemf-read") as reader:

            def ahead(number: int) -> Any:
                return reader.submit(self._block, *ranges[number], rooms[number % 2])

            coming = ahead(0)
            for number, (first, last) in enumerate(ranges):
                pointers, indices, values, weights = coming.result()
                if number + 1 < len(ranges):
                    coming = ahead(number + 1)
                yield first, Side(pointers, indices, values, weights, mass[first:last])
        self._finish()

    def stretches(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield values and weights in order, in the pieces of `fastemf.inputs.entries.parts`."""
        for part in parts(self.size):
            count = min(part.stop, self.size) - part.start
            values = self.read_part("values", part.start, count)
            weighted = self.manifest.weighted
            yield values, self.read_part("weights", part.start, count) if weighted else values[:0]
        self._finish()

    def read(self, first: int, last: int) -> Side:
        """Read the groups from `first` to `last` − 1 into new arrays."""
        n = self.manifest.shape[self.axis]
        if not 0 <= first <= last <= n:
            raise IndexError(
                f"first and last must satisfy 0 <= first <= last <= {n}, got {first} and {last}"
            )
        pointers, indices, values, weights = self._block(first, last, None)
        return Side(pointers, indices, values, weights, sum_weights(pointers, weights))

    def labels(self) -> Labels | None:
        """Read the labels of the groups, if any."""
        if not self.manifest.labels:
            return None
        about, n = self.manifest.labels[self.axis], self.manifest.shape[self.axis]
        found = [self.read_part(part, 0, self._stored(part).length) for part in LABEL_PARTS]
        try:
            return from_arrays(about, found[0], found[1], n)
        except (TypeError, ValueError) as error:
            raise StoreError(f"{self.path(LABEL_PARTS[0])} is damaged: {error}") from None

    def cuts(self) -> NDArray[np.int64]:
        """Return the boundaries of the blocks: at most a third of the budget each, or one group."""
        each = self.manifest.index_dtype.itemsize
        each += self.dtype.itemsize * (2 if self.manifest.weighted else 1)
        return cuts_within(self.budget // BUDGET_PARTS, self.indptr, each, 8)

    def _stored(self, part: str) -> StoredArray:
        return self.manifest.files[array_name(self.axis, part)]

    def _pointers(self, first: int, last: int) -> NDArray[np.int64]:
        found = self.read_part("indptr", first, last + 1 - first)
        right = bool((found[1:] >= found[:-1]).all())  # a difference could overflow
        right = right and found[0] >= 0 and found[-1] <= self.size and not (first == 0 and found[0])
        if not right or (last == self.manifest.shape[self.axis] and found[-1] < self.size):
            path = self.path("indptr")
            raise StoreError(f"{path} is damaged: it must increase from 0 to {self.size}")
        return found

    def read_part(
        self, part: str, first: int, count: int, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Read some elements of a file; check indices at every read, and numbers at the first."""
        path, stored = self.path(part), self._stored(part)
        array = np.empty(count, stored.dtype) if out is None else out
        with reading(path), open_regular(path) as file:
            file.seek(len(stored.header) + first * array.itemsize)
            if not read_into(file, array):
                raise StoreError(f"{path} ended early: it is truncated")
        if part in ("indices", "positions"):
            n = self.manifest.shape[1 - self.axis] if part == "indices" else self.size
            # Negative indices are large as unsigned integers.
            if array.size and array.view(f"u{array.itemsize}").max() >= n:
                raise StoreError(f"{path} is damaged: an index is not below {n}")
        elif part in ("values", "weights") and (part, first, count) not in self._seen and count:
            low, high = float(array.min()), float(array.max())
            limit = size_limits(self.dtype)[1]  # the squares of values must not overflow
            least, most = (0.0, np.inf) if part == "weights" else (-limit, limit)
            if not (least < low and high < most):  # also for NaN
                rule = "positive and finite" if least == 0 else f"below {limit:.3g} in size"
                raise StoreError(
                    f"{path} is damaged: its numbers must be {rule}, got {low} to {high}"
                )
            self._seen[part, first, count] = low, high
        return array

    def _block(self, first: int, last: int, room: Room | None) -> Columns:
        pointers = self._pointers(first, last)
        begin, size = int(pointers[0]), int(pointers[-1] - pointers[0])
        room = self._room(size) if room is None else room
        if size > room["values"].size:
            raise StoreError(f"{self.path('indptr')} was changed while it was read")
        columns = [self.read_part(part, begin, size, room[part][:size]) for part in room]
        weights = columns[2] if self.manifest.weighted else columns[1][:0]
        return pointers - begin, columns[0], columns[1], weights

    def _room(self, length: int) -> Room:
        """Return buffers for `length` entries."""
        kinds = {"indices": self.manifest.index_dtype, "values": self.dtype}
        if self.manifest.weighted:
            kinds["weights"] = self.dtype
        return {part: np.empty(length, kind) for part, kind in kinds.items()}

    def _finish(self) -> None:
        """Check the range of all numbers, which must be the same on both sides."""
        for part in ("values", "weights")[: 1 + self.manifest.weighted]:
            found = np.array([seen for (name, *_), seen in self._seen.items() if name == part])
            low, high = here = float(found[:, 0].min()), float(found[:, 1].max())
            path, largest = self.path(part), max(-low, high)
            if 0 < largest <= size_limits(self.dtype)[0] and part == "values":
                raise StoreError(
                    f"{path} is damaged: the square of {largest} underflows in {self.dtype}"
                )
            other, there = self._ranges.setdefault(part, (path, here))
            if there != here:
                raise StoreError(f"{path} is damaged, or {other} is: their {part} differ")


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
    features : FeatureTable or None
        Side features of the observations, if a fit uses some of the further columns as such.
    """

    path: Path
    shape: tuple[int, int]
    by_row: StoredSide = field(repr=False)
    by_col: StoredSide = field(repr=False)
    budget: int
    row_labels: Labels | None = None
    col_labels: Labels | None = None
    features: FeatureTable | None = None

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
            "columns": manifest.more,
            "bytes": sum(stored.bytes for stored in manifest.files.values()),
        }

    def read_columns(self, names: Sequence[str] | None = None) -> Any:
        """Read further columns into a pyarrow table, in the order of the observations by row.

        Parameters
        ----------
        names
            Some of the `columns` that the store was built with; None for all of them.

        Examples
        --------
        >>> import os, tempfile, fastemf, pyarrow as pa
        >>> log = pa.table({"r": ["b", "a", "b"], "c": [1, 1, 2], "ms": [5.0, 7.0, 6.0],
        ...                 "hour": [3, 9, 4]})
        >>> path = os.path.join(tempfile.mkdtemp(), "log")
        >>> columns = dict(rows="r", cols="c", values="ms", columns=["hour"])
        >>> fastemf.store.build(log, path, **columns).read_columns().to_pydict()
        {'hour': [3, 4, 9]}
        """
        manifest = self.by_row.manifest
        if isinstance(names, str):
            raise TypeError(f"names must be a list of column names, got {names!r}")
        names = manifest.more if names is None else list(names)
        if not names or len(set(names)) < len(names) or not set(names) <= set(manifest.more):
            rule = f"one or more distinct columns of the store, {manifest.more}"
            raise ValueError(f"names must be {rule}, got {names}")
        arrow()  # names the extra to install
        from pyarrow import parquet

        path = data_folder(self.path, manifest.generation) / COLUMNS
        with reading_columns(path):
            table = parquet.read_table(path, columns=names)
        places = self.by_row.read_part("positions", 0, self.size)
        if len(table) != self.size or table.column_names != names:
            raise StoreError(f"{path} is damaged: it has {len(table)} lines")
        return table.take(places)


@contextmanager
def reading_columns(path: Path) -> Iterator[None]:
    """Turn errors of the file of further columns into a `StoreError`."""
    try:
        with reading(path):
            yield
    except arrow().ArrowException as error:
        raise StoreError(f"{path} is damaged: {one_line(str(error))}") from None


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
    Opening checks the manifest, the existence and the size of each file, and the pointers and
    labels. A fit checks each block that it reads, and raises the same error. Indices
    are checked at every read, so that damaged files cannot cause accesses out of bounds. At the
    first read, values must be finite and have the same range by row and by column, and so must
    weights, which are positive. Only `fastemf.store.verify` detects a value that was changed
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
    """Read the manifest and lock its generation, so that no append removes it."""
    while True:
        before = _identity(folder)
        try:
            manifest = Manifest.read(folder)
            hold = Hold(folder, manifest.generation)
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
    ranges: dict[str, tuple[Path, Range]] = {}
    sides = [StoredSide(folder, axis, manifest, budget, hold, ranges) for axis in (0, 1)]
    for side in sides:
        side.indptr  # noqa: B018  # reading checks it
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
    return StoredSide(Path(path), axis, manifest, BUDGET, None).read(first, last)


def cuts_within(budget: int, indptr: NDArray[np.int64], entry: int, row: int) -> NDArray[np.int64]:
    """Return the boundaries of runs of rows of at most `budget` bytes, or of one row.

    An entry takes `entry` bytes and a row takes `row`.
    """
    cost = indptr * entry + row * np.arange(indptr.size)
    cuts = [0]
    while cuts[-1] < indptr.size - 1:
        last = int(np.searchsorted(cost, cost[cuts[-1]] + budget, side="right")) - 1
        cuts.append(max(last, cuts[-1] + 1))
    return np.array(cuts, np.int64)
