"""`build` and `append`: write observations to a store, in bounded memory and atomically."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastemf.sources.store.folders import (
    STAGE,
    check_absent,
    clear_unused,
    generations,
    publish_generation,
    publish_store,
    workplace,
)
from fastemf.sources.store.generation import GenerationWriter
from fastemf.sources.store.manifest import StoreError
from fastemf.sources.store.reading import Store, hold_state, open_state, open_store
from fastemf.sources.store.table_log import ColumnNames
from fastemf.sources.store.verification import check_checksums
from fastemf.support.validation import check_integer, check_shape

MEMORY_LIMIT = 1 << 30  # bytes


def build(
    source: Any,
    path: str | os.PathLike[str],
    *,
    rows: Any = None,
    cols: Any = None,
    values: Any = None,
    weights: Any = None,
    columns: Sequence[str] = (),
    shape: Any = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
) -> Store:
    """Write observations, possibly larger than memory, to a folder that fits can read.

    Parameters
    ----------
    source
        Any table that `fastemf.complete` reads (a file, a glob, a list or a folder of files, SQL, a
        table in memory), a tuple ``(rows, cols, values)``, or an iterator of chunks, each a table
        or such a tuple (with weights as optional fourth item).
    path
        The folder to create. It appears when it is complete; after an error nothing remains.
    rows, cols, values
        Column names of tables. `rows` and `cols` hold labels, numbered in order of first appearance
        as in `fastemf.complete`, or positions from 0 if `shape` is given. The store remembers the
        names.
    weights
        Name of the column of weights, or an array for triplets.
    columns
        Further columns of tables to keep, one value for each observation.
    shape
        (rows, columns), for positions; for triplets the default is the largest index + 1.
    memory_limit
        Bytes of memory for sorting, in addition to labels and a few numbers per row and column.
        Tables use at least 128 MiB.
    progress
        Whether to show a progress bar.

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
        As for data in memory; the message names the file and the line, or the chunk and the entry.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> days = iter([([0, 1], [0, 2], [1.5, 2.0]), ([1], [0], [4.0])])
    >>> fastemf.store.build(days, path)
    <Store 2 x 3, 3 observations, float64>
    """
    target = Path(os.path.abspath(path))
    memory_limit = check_integer(memory_limit, "memory_limit", minimum=1)
    shape = None if shape is None else check_shape(shape, "shape")
    names = ColumnNames(rows, cols, values, weights, _column_names(columns))
    check_absent(target)
    with workplace(target.with_name(f".{target.name}.partial"), "build") as place:
        check_absent(target)  # created by a build that ended just before
        writer = GenerationWriter(place, 1, names, memory_limit, progress, shape=shape)
        publish_store(place / STAGE, target, writer.write(source))
    return open_store(target)


def append(
    path: str | os.PathLike[str],
    source: Any,
    *,
    rows: Any = None,
    cols: Any = None,
    values: Any = None,
    weights: Any = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
) -> Store:
    """Add observations to a store.

    Fits of the store are bitwise identical to fits of a store built from all observations at once,
    the new ones last. All observations are written again, so the time depends on their number.

    Parameters
    ----------
    path
        Folder of the store.
    source
        New observations, in any form that `fastemf.store.build` accepts.
    rows, cols, values
        Column names of tables; the default is the names that the store was built with. A store with
        labels takes labels of the same kind; new labels get positions after the existing ones. A
        store without labels takes positions from 0, and its shape grows to the largest one.
    weights
        Name of the column of weights, by default the one of the build, or an array for triplets.
        Required if the store has weights, and an error otherwise.
    memory_limit
        Bytes of memory for sorting, in addition to labels and a few numbers per row and column.
    progress
        Whether to show a progress bar.

    Returns
    -------
    Store
        The store with all observations, old and new.

    Raises
    ------
    FileExistsError
        Another append to this store is running.
    fastemf.store.StoreError
        There is no sound store at `path`, as for `fastemf.store.open`.
    OSError
        The disk is full; the store is unchanged.
    TypeError, ValueError, IndexError
        As for `build`, or the values have another type than the store, which is unchanged.

    Notes
    -----
    If the process is killed, the store is either unchanged or has all new observations; the next
    call removes leftover files. Readers keep reading the state in which they opened the store.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> fastemf.store.build(([0, 1, 1], [0, 2, 0], [1.5, 2.0, 4.0]), path)
    <Store 2 x 3, 3 observations, float64>
    >>> fastemf.store.append(path, ([2, 0], [1, 0], [3.0, 2.5]))
    <Store 3 x 3, 5 observations, float64>
    """
    folder = Path(os.path.abspath(path))
    memory_limit = check_integer(memory_limit, "memory_limit", minimum=1)
    hold_state(folder)  # raises an error for a folder that is not a store
    with workplace(folder / ".append", "append") as place:
        manifest, hold = hold_state(folder)
        clear_unused(folder, manifest.generation)
        check_checksums(folder, manifest)  # damaged files would get valid checksums
        store = open_state(folder, manifest, hold, memory_limit)
        names = ColumnNames(rows, cols, values, weights, tuple(manifest.more))
        number = 1 + max(generations(folder))
        writer = GenerationWriter(place, number, names, memory_limit, progress, before=store)
        publish_generation(place / STAGE, folder, writer.write(source))
        del hold, store, writer  # releases the lock of the previous generation
        with suppress(StoreError, OSError):
            clear_unused(folder, number)
    return open_store(folder)


def _column_names(columns: Any) -> tuple[str, ...]:
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise TypeError(f"columns must be a list of column names, got {columns!r}")
    if len(set(columns)) < len(columns):
        raise ValueError(f"columns must be distinct, got {list(columns)}")
    return tuple(columns)
