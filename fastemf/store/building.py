"""`build`: entries of any size to a store, in the memory that was allowed.

1. Spill: read the source once, check it, write it raw.
2. Count: how many entries each row and each column has; hence where each begins.
3. Scatter, for each side: cut its rows into buckets that fit into memory, and put each
   entry into the place of its bucket in the final files.
4. Sort each bucket by row, stably, where it is. A row alone in its bucket is sorted.

So entries stay in the source's order within a row and within a column.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.entries import PART
from fastemf.entry_kernels import COUNT
from fastemf.label_arrays import to_arrays
from fastemf.labels import Labels
from fastemf.observations import group
from fastemf.store.chunks import Chunks, Names, read_chunks
from fastemf.store.files import ArrayFile
from fastemf.store.manifest import LABEL_PARTS, MANIFEST, SIDES, Manifest, StoredArray
from fastemf.store.reading import BUDGET, Store, open_store
from fastemf.store.spill import Spill
from fastemf.store.workplace import Workplace, workplace
from fastemf.threads import count_threads, launch
from fastemf.validation import check_integer, check_shape

__all__ = ["build"]

PIECE_BYTES = 128  # at most, that an entry takes while a piece of the source is at hand


def build(
    source: Any,
    path: str | os.PathLike[str],
    *,
    rows: Any = None,
    cols: Any = None,
    values: Any = None,
    weights: Any = None,
    shape: Any = None,
    budget: int = BUDGET,
) -> Store:
    """Write observations, more than memory holds if need be, to a folder that a fit can read.

    Parameters
    ----------
    source
        A Parquet or CSV file, a list of them, or a folder of them; a table; a tuple
        ``(rows, cols, values)``; or an iterator of chunks, each a table or such a tuple
        (with the weights as fourth, where there are any).
    path
        The folder to make. It appears when it is complete, and not at all if anything goes
        wrong.
    rows, cols, values
        Names of the columns of tables and files. What is in `rows` and `cols` are labels,
        numbered in order of first appearance, as in `fastemf.complete`; or positions
        from 0, if `shape` is given.
    weights
        Name of the column of weights, or for triplets their array.
    shape
        (rows, columns), for positions; for triplets the default is the largest index + 1.
    budget
        Bytes of memory to sort in, besides a few numbers per row and column, and their
        labels.

    Returns
    -------
    Store

    Raises
    ------
    FileExistsError
        There is something at `path`, or another build is making it.
    OSError
        The disk is too small; nothing was written.
    TypeError, ValueError, IndexError
        As for data in memory, with the file and row group, or the chunk, and the entry.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> days = iter([([0, 1], [0, 2], [1.5, 2.0]), ([1], [0], [4.0])])
    >>> fastemf.store.build(days, path)
    <Store 2 x 3, 3 observations, float64>
    """
    target = Path(os.path.abspath(path))
    budget = check_integer(budget, "budget", minimum=1)
    shape = None if shape is None else check_shape(shape, "shape")
    piece = max(1, min(1 << 20, budget // PIECE_BYTES))
    names = Names(rows, cols, values, weights, positions=shape is not None)
    with workplace(target) as place:
        chunks = read_chunks(source, names, piece)
        if chunks.size is not None:
            place.check_space(_bytes_needed(chunks, weights is not None, shape))
        spill = Spill(place, shape)
        for chunk in chunks:
            for part in chunk.pieces(piece):
                spill.append(part)
        shape, labels = spill.finish()
        if chunks.size is None:
            place.check_space(_bytes_of_sides(spill, shape))
        files: dict[str, StoredArray] = {}
        for axis, counts in enumerate(_counts(spill, shape, piece)):
            files |= _write_side(place, spill, axis, counts, piece, budget)
        spill.remove()
        about, written = _write_labels(place, labels)
        manifest = Manifest(
            shape, spill.size, spill.dtype.name, spill.weighted, about, files | written
        )
        text = np.frombuffer(manifest.text().encode(), np.uint8)
        file = place.create(MANIFEST, text.dtype)
        file.append(text)
        file.finish()
    return open_store(target)


def _bytes_needed(chunks: Chunks, weighted: bool, shape: tuple[int, int] | None) -> int:
    """Of the spill, both sides, and the keys of one."""
    assert chunks.size is not None
    value = 8 if chunks.value_dtype is None else chunks.value_dtype.itemsize
    index = 8 if shape is not None and max(shape) > np.iinfo(np.int32).max else 4
    numbers = value * (2 if weighted else 1)
    return chunks.size * (2 * index + numbers + 2 * (index + numbers) + index)


def _bytes_of_sides(spill: Spill, shape: tuple[int, int]) -> int:
    index = spill.index_dtype.itemsize
    numbers = spill.dtype.itemsize * (2 if spill.weighted else 1)
    return spill.size * (2 * (index + numbers) + index) + 8 * sum(shape)


def _counts(spill: Spill, shape: tuple[int, int], piece: int) -> list[NDArray[np.int64]]:
    tables = [np.zeros((1, n), np.int64) for n in shape]
    one = np.array([0, 1])
    for part in spill.pieces(piece):
        bounds = np.array([0, part.values.size])
        for keys, table in zip(part.indices, tables, strict=True):
            launch(COUNT, 1, one, bounds, keys, table)
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
    entry += 16 * spill.weighted  # summing weights takes two more columns
    cuts = _cuts(indptr, entry, 8 * (n_threads + 3), budget)
    _scatter(spill, axis, indptr, cuts, [keys, *files.values()], piece, n_threads)
    for first, last in pairwise(cuts.tolist()):
        at, count = int(indptr[first]), int(indptr[last] - indptr[first])
        if last == first + 1:
            _keep(files, count, mass[first:last])
            continue
        local = keys.read(at, count)
        local -= local.dtype.type(first)
        indices, values, *weights = (file.read(at, count) for file in files.values())
        v = weights[0] if weights else values[:0]
        side = group(local, indices, None, values, v, last - first, n_threads)
        for part, file in files.items():
            file.append(getattr(side, part))
        mass[first:last] = side.mass
    keys.remove()
    files["indptr"] = place.create(f"{SIDES[axis]}.indptr.npy", indptr.dtype, indptr.size)
    files["indptr"].append(indptr)
    if spill.weighted:
        files["mass"] = place.create(f"{SIDES[axis]}.mass.npy", mass.dtype, mass.size)
        files["mass"].append(mass)
    for file in files.values():
        file.finish()
    return {
        file.path.name: StoredArray(file.dtype.str, file.length, file.crc32)
        for file in files.values()
    }


def _write_labels(
    place: Workplace, labels: list[Labels]
) -> tuple[list[dict[str, Any]], dict[str, StoredArray]]:
    """What the manifest says of the labels of both sides, and their files."""
    said, files = [], {}
    for side, one in zip(SIDES, labels, strict=False):
        about, arrays = to_arrays(one)
        said.append(about)
        for part, array in zip(LABEL_PARTS, arrays, strict=True):
            file = place.create(f"{side}.{part}.npy", array.dtype, array.size)
            file.append(array)
            file.finish()
            files[file.path.name] = StoredArray(file.dtype.str, file.length, file.crc32)
    return said, files


def _cuts(indptr: NDArray[np.int64], entry: int, row: int, budget: int) -> NDArray[np.int64]:
    """Boundaries of buckets whose entries and rows take at most `budget`, or have one row."""
    rows = np.arange(indptr.size, dtype=np.int64)
    cost = indptr * entry + rows * row
    cuts = [0]
    while cuts[-1] < indptr.size - 1:
        last = int(np.searchsorted(cost, cost[cuts[-1]] + budget, side="right")) - 1
        cuts.append(max(last, cuts[-1] + 1))
    return np.array(cuts, np.int64)


def _scatter(
    spill: Spill,
    axis: int,
    indptr: NDArray[np.int64],
    cuts: NDArray[np.int64],
    files: list[ArrayFile],
    piece: int,
    n_threads: int,
) -> None:
    """Put each entry's key, other index, value and weight into the place of its bucket."""
    n_buckets = cuts.size - 1
    bucket = np.repeat(np.arange(n_buckets, dtype=spill.index_dtype), np.diff(cuts))
    place = indptr[cuts[:-1]].copy()
    for part in spill.pieces(piece):
        keys, others = part.indices[axis], part.indices[1 - axis]
        of_entry = bucket[keys]
        # The sort moves one index and the numbers: once with the other index, once with the key.
        moved = group(of_entry, others, None, part.values, part.weights, n_buckets, n_threads)
        moved_keys = group(of_entry, keys, None, part.values, part.weights, n_buckets, n_threads)
        columns = (moved_keys.indices, moved.indices, moved.values, moved.weights)
        for b in np.flatnonzero(np.diff(moved.indptr)):
            run = slice(int(moved.indptr[b]), int(moved.indptr[b + 1]))
            for file, column in zip(files, columns, strict=False):
                file.put(int(place[b]), column[run])
            place[b] += run.stop - run.start


def _keep(files: dict[str, ArrayFile], count: int, mass: NDArray[np.float64]) -> None:
    """A bucket of one row: its entries are where they belong."""
    for part, file in files.items():
        total = 0.0
        for piece in file.keep(count):
            if part == "weights":  # in the order that summing them at once has
                total = float(np.cumsum(np.concatenate([[total], piece]))[-1])
        if part == "weights":
            mass[0] = total
