"""The two sides of a store, written from a spill in bounded memory.

1. Count the entries of each row and each column.
2. Scatter: cut the rows into buckets that fit into memory, and write each entry to its bucket in
   the final files.
3. Sort each bucket by row, stably and in place. A bucket of one row is sorted already.

Entries keep the order of the source within a row and within a column.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.entries import PART
from fastemf.kernels.entries import CountArgs, count_keys
from fastemf.kernels.threads import count_threads, launch
from fastemf.sources.memory import group
from fastemf.sources.store.files import ArrayFile
from fastemf.sources.store.manifest import SIDES, StoredArray
from fastemf.sources.store.reading import Store
from fastemf.sources.store.segment import cuts_within
from fastemf.sources.store.spill import Spill
from fastemf.sources.store.workplace import Workplace


def write_sides(
    place: Workplace, spill: Spill, shape: tuple[int, int], piece: int, budget: int
) -> dict[str, StoredArray]:
    """Write the entries by row and by column, `piece` at a time; return the files."""
    files: dict[str, StoredArray] = {}
    for axis, counts in enumerate(_counts(spill, shape, piece)):
        files |= _write_side(place, spill, axis, counts, piece, budget)
    return files


def _counts(spill: Spill, shape: tuple[int, int], piece: int) -> list[NDArray[np.int64]]:
    tables = [np.zeros((1, n), np.int64) for n in shape]
    one = np.array([0, 1])
    for part in spill.pieces(piece):
        bounds = np.array([0, part.values.size])
        for keys, table in zip(part.indices, tables, strict=True):
            launch(count_keys, 1, one, CountArgs(bounds, keys, table))
    return [table[0] for table in tables]


def _write_side(
    place: Workplace, spill: Spill, axis: int, counts: NDArray[np.int64], piece: int, budget: int
) -> dict[str, StoredArray]:
    n_threads = min(count_threads(-1), 1 + spill.size // PART)
    indptr = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    mass = counts.astype(np.float64)
    kinds = {"indices": spill.index_dtype, "values": spill.dtype}
    if spill.weighted:
        kinds["weights"] = spill.dtype
    files = {
        part: place.create(f"{SIDES[axis]}.{part}.npy", kind, spill.size)
        for part, kind in kinds.items()
    }
    keys = place.create("spill.keys", spill.index_dtype)
    entry = spill.index_dtype.itemsize * 4 + spill.dtype.itemsize * (4 if spill.weighted else 2)
    entry += 16 * spill.weighted  # two more columns to sum weights
    cuts = cuts_within(budget, indptr, entry, 8 * (n_threads + 3))
    _scatter(spill, axis, indptr, cuts, [keys, *files.values()], piece, n_threads)
    for first, last in pairwise(cuts.tolist()):
        at, count = int(indptr[first]), int(indptr[last] - indptr[first])
        if last == first + 1:
            _keep(files, count, mass[first:last])
        else:
            _sort(keys, files, at, count, first, mass[first:last], n_threads)
    keys.remove()
    files["indptr"] = place.create(f"{SIDES[axis]}.indptr.npy", indptr.dtype, indptr.size)
    files["indptr"].append(indptr)
    if spill.weighted:
        if spill.before is not None:
            mass = _grown_mass(spill, spill.before, axis, mass.size, piece)
        files["mass"] = place.create(f"{SIDES[axis]}.mass.npy", mass.dtype, mass.size)
        files["mass"].append(mass)
    for file in files.values():
        file.finish()
    return {file.path.name: StoredArray.of(file) for file in files.values()}


def _grown_mass(spill: Spill, before: Store, axis: int, n: int, piece: int) -> NDArray[np.float64]:
    """Return the masses of a store and the spill after it, summed in order."""
    known = (before.by_row, before.by_col)[axis].mass
    mass = np.zeros(n)
    mass[: known.size] = known
    for part in spill.pieces(piece):
        np.add.at(mass, part.indices[axis], part.weights.astype(np.float64))
    return mass


def _scatter(
    spill: Spill,
    axis: int,
    indptr: NDArray[np.int64],
    cuts: NDArray[np.int64],
    files: list[ArrayFile],
    piece: int,
    n_threads: int,
) -> None:
    """Write key, other index, value and weight of each entry to its bucket."""
    n_buckets = cuts.size - 1
    bucket = np.repeat(np.arange(n_buckets, dtype=spill.index_dtype), np.diff(cuts))
    place = indptr[cuts[:-1]].copy()
    for part in spill.pieces(piece):
        keys, others = part.indices[axis], part.indices[1 - axis]
        of_entry = bucket[keys]
        # `group` moves one index at a time: first the other index, then the key.
        moved = group(of_entry, others, None, part.values, part.weights, n_buckets, n_threads)
        moved_keys = group(of_entry, keys, None, part.values, part.weights, n_buckets, n_threads)
        columns = (moved_keys.indices, moved.indices, moved.values, moved.weights)
        for b in np.flatnonzero(np.diff(moved.indptr)):
            run = slice(int(moved.indptr[b]), int(moved.indptr[b + 1]))
            for file, column in zip(files, columns, strict=False):
                file.put(int(place[b]), column[run])
            place[b] += run.stop - run.start


def _sort(
    keys: ArrayFile,
    files: dict[str, ArrayFile],
    at: int,
    count: int,
    first: int,
    mass: NDArray[np.float64],
    n_threads: int,
) -> None:
    """Sort the bucket that begins with row `first` in place, and compute its masses."""
    local = keys.read(at, count)
    local -= local.dtype.type(first)
    indices, values, *weights = (file.read(at, count) for file in files.values())
    v = weights[0] if weights else values[:0]
    side = group(local, indices, None, values, v, mass.size, n_threads)
    for part, file in files.items():
        file.append(getattr(side, part))
    mass[:] = side.mass


def _keep(files: dict[str, ArrayFile], count: int, mass: NDArray[np.float64]) -> None:
    """Keep a bucket of one row, which is sorted already, and compute its mass."""
    for part, file in files.items():
        total = 0.0
        for piece in file.keep(count):
            if part == "weights":  # in the order of one sum over all
                total = float(np.cumsum(np.concatenate([[total], piece]))[-1])
        if part == "weights":
            mass[0] = total
