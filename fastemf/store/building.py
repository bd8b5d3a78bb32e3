"""`build`: write any number of entries to a store, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.inputs.label_arrays import to_arrays
from fastemf.inputs.labels import Labels
from fastemf.store.chunks import TableColumns, read_chunks
from fastemf.store.manifest import LABEL_PARTS, MANIFEST, Manifest, StoredArray, array_name
from fastemf.store.reading import BUDGET, Store, open_store
from fastemf.store.sides import write_sides
from fastemf.store.spill import Spill
from fastemf.store.workplace import Workplace, workplace
from fastemf.support.validation import check_integer, check_shape

__all__ = ["build", "write_entries", "write_labels"]

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
    names = TableColumns(rows, cols, values, weights, positions=shape is not None)
    with workplace(target) as place:
        manifest = write_entries(place, source, names, Spill(place, shape), budget)
        text = np.frombuffer(manifest.text().encode(), np.uint8)
        file = place.create(MANIFEST, text.dtype)
        file.append(text)
        file.finish()
    return open_store(target)


def write_entries(
    place: Workplace, source: Any, names: TableColumns, spill: Spill, budget: int
) -> Manifest:
    """Write the entries of a source by row and by column; return what is to be said of them."""
    piece = max(1, min(1 << 20, budget // PIECE_BYTES))
    chunks = read_chunks(source, names, piece)
    index = spill.index_dtype.itemsize
    if chunks.size is not None and chunks.value_dtype is not None:
        value, weighted = chunks.value_dtype.itemsize, names.weights is not None
        place.check_space(_bytes(chunks.size, index, value, weighted, spilled=False))
    for chunk in chunks:
        for part in chunk.pieces(piece):
            spill.append(part)
    shape, labels = spill.finish()
    if chunks.size is None:
        value = spill.dtype.itemsize
        place.check_space(_bytes(spill.size, index, value, spill.weighted, spilled=True))
    files = write_sides(place, spill, shape, piece, budget)
    spill.remove()
    known = (0, 0) if spill.before is None else spill.before.shape
    about, written = write_labels(place, labels, known)
    return Manifest(shape, spill.size, spill.dtype.name, spill.weighted, about, files | written)


def _bytes(size: int, index: int, value: int, weighted: bool, *, spilled: bool) -> int:
    """Return the bytes needed on disk: both sides, the keys of one, the spill if it is to come."""
    numbers = value * (2 if weighted else 1)
    entry = 2 * (index + numbers) + index
    return size * (entry if spilled else entry + 2 * index + numbers)


def write_labels(
    place: Workplace, labels: Sequence[Labels], known: tuple[int, int]
) -> tuple[list[dict[str, Any]], dict[str, StoredArray]]:
    """Write the labels of both sides but for the first ones, as many as are known.

    Returns what the manifest says of all of them, and the files.
    """
    said, files = [], {}
    for axis, (one, first) in enumerate(zip(labels, known, strict=False)):
        about, (content, offsets) = to_arrays(one)
        said.append(about)
        if offsets.size:
            content, offsets = content[offsets[first] :], offsets[first:] - offsets[first]
        else:
            content = content[first:]
        for part, array in zip(LABEL_PARTS, (content, offsets), strict=True):
            file = place.create(array_name(axis, part), array.dtype, array.size)
            file.append(array)
            file.finish()
            files[file.path.name] = StoredArray.of(file)
    return said, files
