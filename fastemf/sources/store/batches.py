"""`open_batches`: read the source of a store, which is arrays, tables, or an iterator of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import Where, first_null, offers_arrow
from fastemf.inputs.database import connect
from fastemf.inputs.entries import check_lengths
from fastemf.inputs.file_lists import is_source
from fastemf.inputs.intervals import refuse_intervals
from fastemf.inputs.labels import Labels
from fastemf.inputs.relations import Relation, open_table
from fastemf.inputs.tables import arrow, is_table, numbers
from fastemf.inputs.text_types import integers_of_text, mark_text
from fastemf.sources.store.manifest import COLUMN_ROLES
from fastemf.sources.store.reading import Store

LEAST_MEMORY = 1 << 27  # bytes of memory for DuckDB


class ColumnNames(NamedTuple):
    """Names of the columns of a table."""

    rows: Any
    cols: Any
    values: Any
    weights: Any
    columns: tuple[str, ...] = ()  # further ones

    def refuse(self, what: str) -> None:
        """Raise an error for names of columns if the source is not a table."""
        for field, name in zip(self._fields, self, strict=True):
            if name is not None and (field != "columns" or name):
                raise ValueError(f"{field} names a column of a table, but source has {what}")


class Batch(NamedTuple):
    """Some entries of the source; rows and columns are positions."""

    name: str  # of the source, for messages
    place: Where  # describes the position of an entry
    rows: Any
    cols: Any
    values: Any
    weights: Any = None
    more: Any = None  # further columns, an Arrow table


class OpenedSource(NamedTuple):
    """A source that can be read once."""

    batches: Iterable[Batch]
    columns: dict[str, str | None]  # names of the columns of tables by role
    coders: tuple[LabelCoder, ...] = ()  # of rows and columns, if they have labels

    def labels(self) -> list[Labels]:
        """Return the labels of rows and columns, once all batches are read."""
        return [coder.labels() for coder in self.coders]


@contextmanager
def open_batches(
    source: Any, names: ColumnNames, positions: bool, known: Store | None, scratch: Path,
    memory_limit: int,
) -> Iterator[OpenedSource]:  # fmt: skip
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
    is_chunked = isinstance(source, Iterator)
    chunks = source if is_chunked else iter([source])
    first = next(chunks, None)
    refuse_intervals(first, names.values)
    chunks = chain([] if first is None else [first], chunks)
    if isinstance(first, tuple) or (is_chunked and first is None):
        what = "chunks of arrays" if is_chunked else "triplets"
        (names if is_chunked else names._replace(weights=None)).refuse(what)
        if is_chunked:
            yield OpenedSource(map(_array_batch, chunks, count()), columns)
        else:
            yield OpenedSource([_array_batch(source, None, names.weights)], columns)
        return
    if is_chunked and not offers_arrow(first):
        raise TypeError(f"chunk 0 must be a tuple or a table, got {type(first).__name__}")
    if not (is_source(source) or is_table(source) or is_chunked):
        raise TypeError(
            "source must be a file, a list or a folder of files, a SQL query, a table, a tuple "
            f"(rows, cols, values) or an iterator of such chunks, got {type(source).__name__}"
        )
    if known is not None:
        given = [columns[role] if name is None else name
                 for role, name in zip(COLUMN_ROLES, names, strict=False)]  # fmt: skip
        names = ColumnNames(given[0], given[1], given[2], given[3], names.columns)
    if not isinstance(names.weights, str | None):
        raise TypeError(f"weights must name a column of the table, got {names.weights!r}")
    if names.rows is not None and names.rows == names.cols:
        raise ValueError(f"rows and cols must name two columns, got {names.rows!r} for both")
    columns = dict(zip(COLUMN_ROLES, names, strict=False)) if known is None else columns
    before = (None, None) if known is None else (known.row_labels, known.col_labels)
    coders = () if positions else tuple(map(LabelCoder, names[:2], before))
    memory = f"{max(memory_limit, LEAST_MEMORY) >> 20}MiB"
    tables = ((chunk, f"chunk {number}" if is_chunked else None)
              for number, chunk in enumerate(chunks))  # fmt: skip
    with closing(connect(memory_limit=memory, temp_directory=str(scratch))) as connection:
        yield OpenedSource(_table_batches(tables, names, coders, connection), columns, coders)


# --- arrays -----------------------------------------------------------------------------------


def _array_batch(chunk: Any, number: int | None, weights: Any = None) -> Batch:
    name = "the triplets" if number is None else f"chunk {number}"
    if not isinstance(chunk, tuple) or len(chunk) not in (3, 3 if number is None else 4):
        got = f"{len(chunk)} items" if isinstance(chunk, tuple) else type(chunk).__name__
        if number is None:
            raise ValueError(f"source as a tuple must be (rows, cols, values), got {got}")
        raise TypeError(
            f"{name} must be a tuple (rows, cols, values) or (rows, cols, values, weights), as "
            f"chunk 0, got {got}"
        )
    columns = (*chunk, weights) if len(chunk) == 3 else chunk
    arrays = [None if column is None else np.asarray(column) for column in columns]
    check_lengths(*(array for array in arrays if array is not None), of=f" (and weights) of {name}")
    return Batch(name, lambda entry: f"entry {entry} of {name}", *arrays)


# --- tables -----------------------------------------------------------------------------------


class LabelCoder:
    """Number the labels of a column in order of first appearance, batch by batch."""

    def __init__(self, name: str, known: Labels | None) -> None:
        self._name, self._known = name, known
        self._kind = ""  # of the labels
        self._dtype: Any = None
        self._is_text = False  # whether they are texts that may be integers
        self._place_of: dict[Any, int] = {}

    def code(self, column: Any, source: Relation, where: Where) -> NDArray[np.int64]:
        """Return the positions of some labels."""
        labels, codes = Labels.encode(column, what=f"column {self._name!r}", where=where)
        if not self._kind:
            self._begin(labels, source)
        self._check_kind(labels, source.name)
        place_of = self._place_of
        places = [place_of.setdefault(key, len(place_of)) for key in _keys(labels)]
        return np.asarray(np.array(places, np.int64)[codes])

    def _begin(self, labels: Labels, source: Relation) -> None:
        known, self._dtype, self._source = self._known, labels.values.dtype, source.name
        self._is_text = source.is_text and (known is None or known.kind in ("int64", "uint64"))
        self._kind = _kind(labels if known is None or self._is_text else known)
        keys = [] if known is None else _keys(known)
        self._place_of = {
            str(key) if self._is_text else key: place for place, key in enumerate(keys)
        }

    def _check_kind(self, labels: Labels, source: str, before: str = "") -> None:
        if _kind(labels) != (before or self._kind):
            kinds = f"{before or self._kind} before and {labels.kind} ({source})"
            raise TypeError(f"column {self._name!r} must hold labels of one kind, got {kinds}")

    def labels(self) -> Labels:
        """Return all labels, the known ones first."""
        known, column = self._known, list(self._place_of)
        if self._is_text:
            column = integers_of_text(arrow().chunked_array([column], "string"))
        elif self._kind.startswith("datetime"):
            column = np.array(column, np.int64).view(self._dtype)
        name = self._name if known is None else known.name
        labels, _ = Labels.encode(column, name, what=f"column {self._name!r}")
        if self._kind.endswith("UTC]"):
            labels = Labels.of_distinct(labels.values, name, True)
        if known is not None:
            self._check_kind(labels, self._source, _kind(known))
        return labels


def _kind(labels: Labels) -> str:
    return "int64" if labels.kind == "uint64" else labels.kind


def _keys(labels: Labels) -> list[Any]:
    """Return labels as strings or integers."""
    dates = labels.values.dtype.kind == "M"
    return list((labels.values.view(np.int64) if dates else labels.values).tolist())


def _table_batches(
    tables: Iterable[tuple[Any, str | None]], names: ColumnNames,
    coders: tuple[LabelCoder, ...], connection: Any,
) -> Iterator[Batch]:  # fmt: skip
    """Yield the lines of tables in order, with labels replaced by their positions."""
    wanted = [*names[:3]] + ([] if names.weights is None else [names.weights])
    for table, name in tables:
        if name is not None and not offers_arrow(table):
            raise TypeError(f"{name} must be a table, as chunk 0, got {type(table).__name__}")
        opened = open_table(table, connection, wanted[:2], wanted[2:], names.columns, name=name)
        first = 0
        for batch in opened.batches():
            where = partial(_place, opened, first)
            found = []
            for axis, column in enumerate(map(batch.column, wanted[:2])):
                if coders:
                    found.append(coders[axis].code(column, opened, where))
                else:
                    found.append(_positions(column, wanted[axis], opened, where))
            for column in wanted[2:]:
                if batch.column(column).null_count:
                    opened.explain(column, first + first_null(batch.column(column)))
                found.append(numbers(batch.column(column), column, where))
            more = batch.select(list(names.columns)) if names.columns else None
            if more is not None and not opened.has_types:
                more = mark_text(more)
            weights = found[3] if len(found) > 3 else None
            yield Batch(opened.name, where, found[0], found[1], found[2], weights, more)
            first += len(batch)


def _place(source: Relation, first: int, at: int) -> str:
    return source.where(first + at)


def _positions(column: Any, name: str, source: Relation, where: Where) -> NDArray[Any]:
    """Read a column of positions, which may be text."""
    pa = arrow()
    if source.is_text:
        column = integers_of_text(pa.chunked_array([column]))
    if not pa.types.is_integer(column.type):
        kind = f"{column.type} ({source.name})"
        raise TypeError(f"column {name!r} must hold integers as positions, got type {kind}")
    return numbers(column, name, where)
