"""The two sides of a store, sorted in bounded memory.

1. Spill: write the checked entries to raw files, because the source can be read only once.
2. Count the entries of each row and each column.
3. Scatter: cut the rows into buckets that fit into memory, and write each entry to its bucket.
4. Sort each bucket by row, stably, after the entries that the store already has. A bucket of one
   row is sorted already.

Entries keep the order of the source within a row and within a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.entries import PART, CheckedEntries
from fastemf.kernels.entries import CountArgs, count_keys
from fastemf.kernels.threads import count_threads, launch
from fastemf.sources.memory import group
from fastemf.sources.store.files import ArrayFile
from fastemf.sources.store.manifest import StoredArray, array_name
from fastemf.sources.store.reading import Store, StoredSide, cuts_within


class Spill:
    """Checked entries in raw files, in the order of the source."""

    def __init__(
        self, folder: Path, dtype: np.dtype[Any], index: np.dtype[Any], weighted: bool
    ) -> None:
        self.folder, self.dtype, self.index_dtype, self.weighted = folder, dtype, index, weighted
        self.size = 0
        kinds = {"rows": index, "cols": index, "values": dtype}
        if weighted:
            kinds["weights"] = dtype
        self._files = [ArrayFile(folder / f"spill.{name}", kind) for name, kind in kinds.items()]

    def close(self) -> None:
        """Close and remove the files."""
        for file in self._files:
            file.close()
            file.path.unlink(missing_ok=True)

    def append(self, entries: CheckedEntries) -> None:
        """Write some entries."""
        for file, column in zip(
            self._files, (*entries.indices, entries.values, entries.weights), strict=False
        ):
            file.append(column)
        self.size += entries.values.size

    def pieces(self, length: int) -> Iterator[CheckedEntries]:
        """Yield all entries in order, at most `length` at a time."""
        for first in range(0, self.size, length):
            count = min(length, self.size - first)
            rows, cols, values, *weights = (file.read(first, count) for file in self._files)
            yield CheckedEntries((rows, cols), values, weights[0] if weights else values[:0])


class SortPlan(NamedTuple):
    """How the entries of a spill are sorted."""

    spill: Spill
    before: Store | None  # its entries come first
    shape: tuple[int, int]
    piece: int  # entries read from the spill at a time
    budget: int  # bytes of a bucket
    positioned: bool  # whether the rows have the positions of the entries in the source


def write_sides(plan: SortPlan, folder: Path) -> dict[str, StoredArray]:
    """Write the entries by row and by column; return the files."""
    files: dict[str, StoredArray] = {}
    for axis, counts in enumerate(_counts(plan)):
        files |= _write_side(plan, folder, axis, counts)
    return files


def _counts(plan: SortPlan) -> list[NDArray[np.int64]]:
    """Count the new entries of each row and of each column."""
    tables = [np.zeros((1, n), np.int64) for n in plan.shape]
    one = np.array([0, 1])
    for part in plan.spill.pieces(plan.piece):
        bounds = np.array([0, part.values.size])
        for keys, table in zip(part.indices, tables, strict=True):
            launch(count_keys, 1, one, CountArgs(bounds, keys, table))
    return [table[0] for table in tables]


def _write_side(
    plan: SortPlan, folder: Path, axis: int, counts: NDArray[np.int64]
) -> dict[str, StoredArray]:
    spill, n = plan.spill, counts.size
    n_threads = min(count_threads(-1), 1 + spill.size // PART)
    old = None if plan.before is None else (plan.before.by_row, plan.before.by_col)[axis]
    known = np.zeros(n, np.int64)
    if old is not None:
        known[: old.indptr.size - 1] = np.diff(old.indptr)
    indptr, starts = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    np.cumsum(known + counts, out=indptr[1:])
    np.cumsum(counts, out=starts[1:])
    kinds = {"indices": spill.index_dtype, "values": spill.dtype}
    kinds |= {"weights": spill.dtype} if spill.weighted else {}
    kinds |= {"positions": np.dtype(np.int64)} if plan.positioned and axis == 0 else {}
    entry = spill.index_dtype.itemsize * 2 + 2 * sum(kind.itemsize for kind in kinds.values())
    entry += 16 * spill.weighted  # two more columns to sum weights
    cuts = cuts_within(plan.budget, indptr, entry, 8 * (n_threads + 3))
    mass = np.zeros(n)
    with ExitStack() as opened:

        def create(path: Path, kind: np.dtype[Any], length: int | None = None) -> ArrayFile:
            return opened.enter_context(ArrayFile(path, kind, length))

        buckets = {part: create(spill.folder / part, kind) for part, kind in kinds.items()}
        buckets["keys"] = create(spill.folder / "keys", spill.index_dtype)
        _scatter(plan, axis, starts, cuts, buckets, n_threads)
        files = {
            part: create(folder / array_name(axis, part), kind, int(indptr[-1]))
            for part, kind in kinds.items()
        }
        for rows in (slice(*pair) for pair in pairwise(cuts.tolist())):
            at, count = int(starts[rows.start]), int(starts[rows.stop] - starts[rows.start])
            if rows.stop == rows.start + 1:
                mass[rows] = _copy(buckets, files, at, count, old, rows.start)
            else:
                found = _sort(buckets, at, count, rows, n_threads)
                found = found if old is None else _merge(old, rows, *found)
                for part, column in found[1].items():
                    files[part].append(column)
                mass[rows] = _masses(*found)
        arrays = {"indptr": indptr} | ({"mass": mass} if spill.weighted else {})
        for part, array in arrays.items():
            files[part] = create(folder / array_name(axis, part), array.dtype, array.size)
            files[part].append(array)
        for file in files.values():
            file.finish()
        for bucket in buckets.values():
            bucket.path.unlink()
    return {file.path.name: StoredArray.of(file) for file in files.values()}


def _scatter(
    plan: SortPlan,
    axis: int,
    starts: NDArray[np.int64],
    cuts: NDArray[np.int64],
    buckets: dict[str, ArrayFile],
    n_threads: int,
) -> None:
    """Write key, other index, value, weight and position of each entry to its bucket."""
    n_buckets = cuts.size - 1
    bucket = np.repeat(np.arange(n_buckets, dtype=plan.spill.index_dtype), np.diff(cuts))
    place = starts[cuts[:-1]].copy()
    position = 0 if plan.before is None else plan.before.size
    for part in plan.spill.pieces(plan.piece):
        keys, others = part.indices[axis], part.indices[1 - axis]
        of_entry = bucket[keys]
        # `group` moves one index at a time: first the other index, then the key.
        moved = group(of_entry, others, None, part.values, part.weights, n_buckets, n_threads)
        columns = {part: getattr(moved, part) for part in ("indices", "values", "weights")}
        moved_keys = group(of_entry, keys, None, part.values, part.weights, n_buckets, n_threads)
        columns["keys"] = moved_keys.indices
        if "positions" in buckets:
            columns["positions"] = position + np.argsort(of_entry, kind="stable")
        position += keys.size
        for b in np.flatnonzero(np.diff(moved.indptr)):
            run = slice(int(moved.indptr[b]), int(moved.indptr[b + 1]))
            for name, file in buckets.items():
                file.put(int(place[b]), columns[name][run])
            place[b] += run.stop - run.start


def _copy(
    buckets: dict[str, ArrayFile],
    files: dict[str, ArrayFile],
    at: int,
    count: int,
    old: StoredSide | None,
    row: int,
) -> float:
    """Copy one row, whose known and new entries are sorted already; return its mass."""
    mass = 0.0
    for part, file in files.items():
        known = () if old is None else old.pieces(part, row)
        for piece in chain(known, buckets[part].pieces(at, count)):
            file.append(piece)
            if part == "weights":  # in the order of one sum over all
                mass = float(np.cumsum(np.concatenate([[mass], piece]))[-1])
    return mass  # used only with weights


def _sort(
    buckets: dict[str, ArrayFile], at: int, count: int, rows: slice, n_threads: int
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Sort a bucket of new entries by row; return the counts of the rows, and the columns."""
    found = {part: file.read(at, count) for part, file in buckets.items()}
    keys, values = found.pop("keys"), found["values"]
    keys -= keys.dtype.type(rows.start)
    weights = found.get("weights", values[:0])
    n = rows.stop - rows.start
    side = group(keys, found["indices"], None, values, weights, n, n_threads)
    columns = {part: getattr(side, part) for part in found if part != "positions"}
    if "positions" in found:
        columns["positions"] = found["positions"][np.argsort(keys, kind="stable")]
    return np.diff(side.indptr), columns


def _merge(
    old: StoredSide, rows: slice, counts: NDArray[np.int64], new: dict[str, NDArray[Any]]
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Insert the new entries of some rows after the known ones of each row."""
    last = min(rows.stop, old.indptr.size - 1)
    if rows.start >= last:
        return counts, new
    block = old.read(rows.start, last)
    ends = np.full(counts.size, block.size)
    ends[: last - rows.start] = block.indptr[1:]
    known = {part: getattr(block, part) for part in new if part != "positions"}
    if "positions" in new:
        known["positions"] = old.read_positions(int(old.indptr[rows.start]), block.size)
    places = np.repeat(ends, counts)
    merged = {
        part: np.insert(known[part].astype(column.dtype, copy=False), places, column)
        for part, column in new.items()
    }
    return np.diff(ends, prepend=0) + counts, merged


def _masses(counts: NDArray[np.int64], columns: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return the summed weight of each row."""
    if "weights" not in columns:
        return counts.astype(np.float64)
    keys = np.repeat(np.arange(counts.size), counts)
    return np.bincount(keys, weights=columns["weights"], minlength=counts.size).astype(np.float64)
