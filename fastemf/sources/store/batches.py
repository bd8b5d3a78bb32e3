"""`open_batches`: open the source of a store, which is arrays, tables, or an iterator of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastemf.inputs.columns import offers_arrow
from fastemf.inputs.database import connect
from fastemf.inputs.file_lists import is_source
from fastemf.inputs.labels import Labels
from fastemf.inputs.tables import is_table
from fastemf.sources.store.manifest import COLUMN_ROLES
from fastemf.sources.store.reading import Store
from fastemf.sources.store.table_log import Batch, ColumnNames, TableLog

LEAST_MEMORY = 1 << 27  # bytes of memory for DuckDB


class OpenedSource(NamedTuple):
    """A source that can be read once."""

    batches: Iterable[Batch]
    columns: dict[str, str | None]  # names of the columns of tables by role
    labels: tuple[Labels, Labels] | None = None


@contextmanager
def open_batches(
    source: Any,
    names: ColumnNames,
    positions: bool,
    known: Store | None,
    scratch: Path,
    memory_limit: int,
) -> Iterator[OpenedSource]:
    """Open a source of any kind.

    Parameters
    ----------
    source
        See `fastemf.store.build`.
    names
        Names of the columns of a table; `weights` of triplets is an array.
    positions
        Whether the columns of a table hold positions instead of labels.
    known
        The store to which the entries are appended; its labels keep their positions.
    scratch
        Folder for temporary files.
    memory_limit
        Bytes of memory for DuckDB.
    """
    columns = dict.fromkeys(COLUMN_ROLES) if known is None else known.by_row.manifest.columns
    if isinstance(source, tuple):
        names._replace(weights=None).refuse("triplets")
        if len(source) != 3:
            raise ValueError(
                f"source as a tuple must be (rows, cols, values), got {len(source)} items"
            )
        yield OpenedSource([_array_batch("the triplets", (*source, names.weights))], columns)
        return
    chunks: Iterator[Any] = iter([source])
    if is_chunked := isinstance(source, Iterator):
        first = next(source, None)
        chunks = chain([] if first is None else [first], source)
        if first is None or isinstance(first, tuple):
            names.refuse("chunks of arrays")
            yield OpenedSource(_array_batches(chunks), columns)
            return
        if not offers_arrow(first):
            raise TypeError(
                "chunk 0 must be a tuple (rows, cols, values) or a table, got "
                f"{type(first).__name__}"
            )
    elif not (is_source(source) or is_table(source)):
        raise TypeError(
            "source must be a file, a list or a folder of files, a SQL query, a table, a tuple "
            f"(rows, cols, values) or an iterator of such chunks, got {type(source).__name__}"
        )
    if known is not None:
        pairs = zip(COLUMN_ROLES, names, strict=False)
        given = [columns[role] if name is None else name for role, name in pairs]
        names = ColumnNames(given[0], given[1], given[2], given[3], names.more)
    names.check()
    columns = dict(zip(COLUMN_ROLES, names, strict=False)) if known is None else columns
    memory = f"{max(memory_limit, LEAST_MEMORY) >> 20}MiB"
    connection = connect(memory_limit=memory, temp_directory=str(scratch))
    try:
        log = TableLog(connection, names, positions, known)
        for number, chunk in enumerate(chunks):
            if is_chunked and not offers_arrow(chunk):
                raise TypeError(
                    f"chunk {number} must be a table, as chunk 0, got {type(chunk).__name__}"
                )
            log.insert(chunk, f"chunk {number}" if is_chunked else None)
        if positions:
            yield OpenedSource(log.batches((None, None)), columns)
        else:
            labels = log.number_labels(0), log.number_labels(1)
            yield OpenedSource(log.batches(labels), columns, labels)
    finally:
        connection.close()


# --- arrays -----------------------------------------------------------------------------------


def _array_batch(name: str, columns: Sequence[Any]) -> Batch:
    arrays = [None if column is None else np.asarray(column) for column in columns]
    shapes = [array.shape for array in arrays if array is not None]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1:
        raise ValueError(
            f"rows, cols and values (and weights) of {name} must be one-dimensional and of equal "
            f"length, got shapes {', '.join(map(str, shapes))}"
        )
    return Batch(name, lambda entry: f"entry {entry} of {name}", *arrays)


def _array_batches(chunks: Iterator[Any]) -> Iterator[Batch]:
    for number, chunk in enumerate(chunks):
        name = f"chunk {number}"
        if not isinstance(chunk, tuple) or len(chunk) not in (3, 4):
            got = f"{len(chunk)} items" if isinstance(chunk, tuple) else type(chunk).__name__
            raise TypeError(
                f"{name} must be a tuple (rows, cols, values) or (rows, cols, values, weights), as "
                f"chunk 0, got {got}"
            )
        yield _array_batch(name, chunk)
