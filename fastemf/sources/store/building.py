"""`build`: write observations to a new store, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.inputs.label_arrays import to_arrays
from fastemf.inputs.labels import Labels
from fastemf.sources.store.chunks import TableColumns, read_chunks
from fastemf.sources.store.manifest import (
    LABEL_PARTS,
    MANIFEST,
    Manifest,
    Segment,
    StoredArray,
    array_name,
)
from fastemf.sources.store.reading import BUDGET, Store, open_store
from fastemf.sources.store.sides import write_sides
from fastemf.sources.store.spill import Spill
from fastemf.sources.store.workplace import Workplace, workplace
from fastemf.support.validation import check_integer, check_shape

PIECE_BYTES = 128  # upper bound of the memory per entry of a piece of the source


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
    """Write observations, possibly larger than memory, to a folder that fits can read.

    Parameters
    ----------
    source
        A Parquet or CSV file, a list or a folder of such files, a table, a tuple
        ``(rows, cols, values)``, or an iterator of chunks, each a table or such a tuple (with
        weights as optional fourth item).
    path
        The folder to create. It appears when it is complete; after an error nothing remains.
    rows, cols, values
        Column names of tables and files. `rows` and `cols` hold labels, numbered in order of first
        appearance as in `fastemf.complete`, or positions from 0 if `shape` is given.
    weights
        Name of the column of weights, or an array for triplets.
    shape
        (rows, columns), for positions; for triplets the default is the largest index + 1.
    budget
        Bytes of memory for sorting, in addition to labels and a few numbers per row and column.

    Returns
    -------
    Store

    Raises
    ------
    FileExistsError
        `path` exists, or another build of it is running.
    OSError
        The disk is full; nothing was written.
    TypeError, ValueError, IndexError
        As for data in memory; the message names the file and row group, or the chunk, and the
        entry.

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
    """Write the entries of a source by row and by column; return their manifest."""
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
    segment = Segment(0, shape, spill.size)
    return Manifest(
        shape, spill.size, spill.dtype.name, spill.weighted, about, files | written, (segment,)
    )


def _bytes(size: int, index: int, value: int, weighted: bool, *, spilled: bool) -> int:
    """Return the bytes needed on disk: both sides, the keys of one side, and the spill."""
    numbers = value * (2 if weighted else 1)
    entry = 2 * (index + numbers) + index
    return size * (entry if spilled else entry + 2 * index + numbers)


def write_labels(
    place: Workplace, labels: Sequence[Labels], known: tuple[int, int]
) -> tuple[list[dict[str, Any]], dict[str, StoredArray]]:
    """Write the labels of both sides, except the first `known` ones.

    Returns the entries of the manifest for all labels, and the files.
    """
    described, files = [], {}
    for axis, (one, first) in enumerate(zip(labels, known, strict=False)):
        about, (content, offsets) = to_arrays(one)
        described.append(about)
        if offsets.size:
            content, offsets = content[offsets[first] :], offsets[first:] - offsets[first]
        else:
            content = content[first:]
        for part, array in zip(LABEL_PARTS, (content, offsets), strict=True):
            file = place.create(array_name(axis, part), array.dtype, array.size)
            file.append(array)
            file.finish()
            files[file.path.name] = StoredArray.of(file)
    return described, files
