"""The two sides of a store, sorted in bounded memory.

1. Spill: write the checked entries as records to a file, because the source can be read only once.
2. Count the entries of each row and each column.
3. Scatter: cut the rows into buckets that fit into memory, and write each record to its bucket.
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

from fastemf.inputs.entries import PART
from fastemf.kernels.threads import count_threads
from fastemf.sources.grouping import group
from fastemf.sources.store.files import ArrayFile
from fastemf.sources.store.manifest import SIDES, StoredArray, array_name, write_array
from fastemf.sources.store.reading import Store, cuts_within

WHOLE = 1 << 62  # length of a piece that is not cut
Records = NDArray[Any]  # with fields rows, cols, values and, if any, weights and positions


class Spill:
    """Checked entries in a file, in the order of the source.

    `positioned` entries have their positions in the source, counted from `first`.
    """

    def __init__(
        self, folder: Path, dtype: np.dtype[Any], index: np.dtype[Any], weighted: bool,
        positioned: bool, first: int,
    ) -> None:  # fmt: skip
        self.folder, self.positioned, self._first, self.size = folder, positioned, first, 0
        kinds = [("rows", index), ("cols", index), ("values", dtype)]
        kinds += [("weights", dtype)] * weighted + [("positions", np.dtype(np.int64))] * positioned
        self.record = np.dtype(kinds)
        self._file = ArrayFile(folder / "spill", self.record)

    def close(self) -> None:
        """Close and remove the file."""
        self._file.close()
        self._file.path.unlink(missing_ok=True)

    def append(self, entries: dict[str, NDArray[Any]]) -> None:
        """Write some entries."""
        records = np.empty(entries["values"].size, self.record)
        if self.positioned:
            first = self._first + self.size
            entries = entries | {"positions": np.arange(first, first + records.size)}
        for name, column in entries.items():
            records[name] = column
        self._file.put(self.size, records)
        self.size += records.size

    def pieces(self, length: int) -> Iterator[Records]:
        """Yield all entries in order, at most `length` at a time."""
        return self._file.pieces(0, self.size, length)


class SortPlan(NamedTuple):
    """How the entries of a spill are sorted."""

    spill: Spill
    before: Store | None  # its entries come first
    shape: tuple[int, int]
    piece: int  # entries in memory at a time, where any number would do
    budget: int  # bytes of a bucket


def write_sides(plan: SortPlan, folder: Path) -> dict[str, StoredArray]:
    """Write the entries by row and by column; return the files."""
    counts = [np.zeros(n, np.int64) for n in plan.shape]
    for records in plan.spill.pieces(plan.piece):
        for side, total in zip(SIDES, counts, strict=True):
            total += np.bincount(records[side], minlength=total.size)
    return _write_side(plan, folder, 0, counts[0]) | _write_side(plan, folder, 1, counts[1])


def _write_side(
    plan: SortPlan, folder: Path, axis: int, counts: NDArray[np.int64]
) -> dict[str, StoredArray]:
    spill, n, side = plan.spill, counts.size, SIDES[axis]
    n_threads = min(count_threads(-1), 1 + spill.size // PART)
    known = np.zeros(n, np.int64)
    if plan.before is not None:
        before = np.diff((plan.before.by_row, plan.before.by_col)[axis].indptr)
        known[: before.size] = before
    starts = np.append(0, np.cumsum(counts))
    indptr = np.append(0, np.cumsum(known + counts))
    fields = _fields(spill, axis)
    entry = 2 * spill.record.itemsize + 5 * spill.record[0].itemsize + 8
    cuts = cuts_within(plan.budget, indptr, entry, 8 * (n_threads + 3))
    with ExitStack() as opened:

        def create(path: Path, kind: np.dtype[Any], length: int | None = None) -> ArrayFile:
            return opened.enter_context(ArrayFile(path, kind, length))

        buckets = create(spill.folder / "buckets", spill.record)
        _scatter(plan, side, starts, cuts, buckets, n_threads)
        files = {
            part: create(folder / array_name(axis, part), spill.record[field], int(indptr[-1]))
            for part, field in fields.items()
        }
        for first, last in pairwise(cuts.tolist()):
            new = slice(int(starts[first]), int(starts[last]))
            for records in _read_bucket(plan, axis, first, last, buckets, new, n_threads):
                for part, field in fields.items():
                    files[part].append(records[field])
        for file in files.values():
            file.finish()
    buckets.path.unlink()
    stored = {file.path.name: StoredArray.of(file) for file in files.values()}
    name = array_name(axis, "indptr")
    return stored | {name: write_array(folder / name, indptr)}


def _fields(spill: Spill, axis: int) -> dict[str, str]:
    """Return the field of the records for each part of a side."""
    parts = {"indices": SIDES[1 - axis], "values": "values"}
    parts |= {"weights": "weights"} if "weights" in (spill.record.names or ()) else {}
    return parts | ({"positions": "positions"} if spill.positioned and axis == 0 else {})


def _scatter(
    plan: SortPlan, side: str, starts: NDArray[np.int64], cuts: NDArray[np.int64],
    buckets: ArrayFile, n_threads: int,
) -> None:  # fmt: skip
    """Write each record to its bucket."""
    bucket = np.repeat(np.arange(cuts.size - 1, dtype=plan.spill.record[0]), np.diff(cuts))
    place = starts[cuts[:-1]].copy()
    for records in plan.spill.pieces(plan.piece):
        order, indptr = _order(bucket[records[side]], cuts.size - 1, n_threads)
        records = records.take(order)  # faster than an index
        for b in np.flatnonzero(np.diff(indptr)):
            run = records[indptr[b] : indptr[b + 1]]
            buckets.put(int(place[b]), run)
            place[b] += run.size


def _read_bucket(
    plan: SortPlan, axis: int, first: int, last: int, buckets: ArrayFile, new: slice,
    n_threads: int,
) -> Iterator[Records | dict[str, NDArray[Any]]]:  # fmt: skip
    """Yield the entries of some rows, sorted by row; those of a single row in pieces."""
    length = plan.piece if last == first + 1 else WHOLE
    known = _read_known(plan, axis, first, last, length)
    new_ones = buckets.pieces(new.start, new.stop - new.start, length)
    if last == first + 1:
        yield from chain(known, new_ones)
        return
    side, found = SIDES[axis], np.empty(0, plan.spill.record)
    for records in new_ones:
        keys = records[side] - records[side].dtype.type(first)
        if plan.before is None and not plan.spill.positioned:
            yield _group(records, keys, axis, last - first, n_threads)
            return
        found = records.take(_order(keys, last - first, n_threads)[0])
    for records in known:
        places = np.searchsorted(records[side], found[side], side="right")
        found = np.insert(records, places, found)
    yield found


def _group(
    records: Records, keys: NDArray[Any], axis: int, n: int, n_threads: int
) -> dict[str, NDArray[Any]]:
    """Return the fields of records without positions, sorted by their keys."""
    names = records.dtype.names or ()
    others, values = (np.ascontiguousarray(records[name]) for name in (SIDES[1 - axis], "values"))
    weights = np.ascontiguousarray(records["weights"]) if "weights" in names else values[:0]
    side = group(keys, others, None, values, weights, n, n_threads)
    return {SIDES[1 - axis]: side.indices, "values": side.values, "weights": side.weights}


def _read_known(plan: SortPlan, axis: int, first: int, last: int, length: int) -> Iterator[Records]:
    """Yield the entries of some rows that the store already has, at most `length` at a time."""
    if plan.before is None:
        return
    old = (plan.before.by_row, plan.before.by_col)[axis]
    bounds = old.indptr[first : last + 1]
    for at in range(int(bounds[:1].sum()), int(bounds[-1:].sum()), length):
        inside = bounds.clip(at, at + length)
        records = np.empty(int(inside[-1]) - at, plan.spill.record)
        rows = np.arange(first, first + bounds.size - 1)
        records[SIDES[axis]] = np.repeat(rows, np.diff(inside))
        for part, field in _fields(plan.spill, axis).items():
            records[field] = old.read_part(part, at, records.size)
        yield records


def _order(keys: NDArray[Any], n: int, n_threads: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the order of a stable sort of keys below `n`, and where each key begins in it."""
    moved = keys.view(f"f{keys.itemsize}")  # by `group`, and not used
    places = np.arange(keys.size, dtype=keys.dtype)
    side = group(keys, places, None, moved, moved[:0], n, n_threads)
    return side.indices, side.indptr
