"""`open_batches`: open the source of a store, which is arrays, tables, or an iterator of them.

The lines of tables are copied in order into a temporary table of DuckDB, which numbers labels.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastemf.inputs.columns import (
    RULE,
    Where,
    check_nulls,
    concatenated,
    integers_of_text,
    offers_arrow,
)
from fastemf.inputs.database import connect, identifier
from fastemf.inputs.file_lists import is_source
from fastemf.inputs.labels import Labels
from fastemf.inputs.relations import Relation, open_table
from fastemf.inputs.tables import arrow, is_table
from fastemf.inputs.text_types import mark_text
from fastemf.sources.store.manifest import COLUMN_ROLES
from fastemf.sources.store.reading import Store

BATCH = 1 << 20  # lines
LEAST_MEMORY = 1 << 27  # bytes of memory for DuckDB
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")


class ColumnNames(NamedTuple):
    """Names of the columns of a table."""

    rows: Any
    cols: Any
    values: Any
    weights: Any
    columns: tuple[str, ...] = ()  # further ones

    def check(self) -> None:
        """Raise an error if a name is missing or not a string."""
        for field, name in zip(("rows", "cols", "values"), self, strict=False):
            if not isinstance(name, str):
                raise TypeError(f"{field} must name a column of the table, got {name!r}")
        if self.rows == self.cols:
            raise ValueError(f"rows and cols must name two columns, got {self.rows!r} for both")
        if self.weights is not None and not isinstance(self.weights, str):
            raise TypeError(f"weights must name a column of the table, got {self.weights!r}")

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
            raise TypeError(f"chunk 0 must be a tuple or a table, got {type(first).__name__}")
    elif not (is_source(source) or is_table(source)):
        raise TypeError(
            "source must be a file, a list or a folder of files, a SQL query, a table, a tuple "
            f"(rows, cols, values) or an iterator of such chunks, got {type(source).__name__}"
        )
    if known is not None:
        pairs = zip(COLUMN_ROLES, names, strict=False)
        given = [columns[role] if name is None else name for role, name in pairs]
        names = ColumnNames(given[0], given[1], given[2], given[3], names.columns)
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


# --- tables -----------------------------------------------------------------------------------


class TableLog:
    """The lines of tables, copied in order into a temporary table of DuckDB.

    Its columns are c0 (rows), c1 (cols), c2 (values), c3 (weights, if any), and further columns.
    """

    def __init__(
        self, connection: Any, names: ColumnNames, positions: bool, known: Store | None
    ) -> None:
        self._connection = connection
        self._names = names
        self._positions = positions
        self._known = (None, None) if known is None else (known.row_labels, known.col_labels)
        self._wanted = [name for name in names[:4] if name is not None]
        self._tables: list[Relation] = []
        self._starts = [0]  # first line of each table
        self._types: list[str] = []  # of the first table

    def insert(self, table: Any, name: str | None) -> None:
        """Append the lines of a table."""
        wanted, more = self._wanted, self._names.columns
        others = [column for column in more if column not in wanted]
        opened = open_table(table, self._connection, wanted[:2], wanted[2:], others, name=name)
        with opened.reading():
            found = self._connection.sql(opened.query)
        type_of = dict(zip(found.columns, map(str, found.types), strict=True))
        types = [self._label_type(opened.name, column, type_of[column]) for column in wanted[:2]]
        types += [type_of[column] for column in (*wanted[2:], *more)]
        self._types = self._types or types
        for column, here, before in zip(wanted, types, self._types, strict=False):
            if here != before:
                raise TypeError(
                    f"column {column!r} must have one type throughout, got {before} before and "
                    f"{here} in {opened.name}"
                )
        columns = ", ".join(
            f"{identifier(column)}::{kind} AS c{number}"
            for number, (column, kind) in enumerate(zip([*wanted, *more], types, strict=True))
        )
        # Labels are numbered before they are read; positions can be read at once.
        verb = f"CREATE {'VIEW' if self._positions and name is None else 'TABLE'} log AS"
        if self._tables:
            verb = "INSERT INTO log"
            self._starts.append(self._count("true"))
        with opened.reading():
            self._connection.execute(f"{verb} SELECT {columns} FROM ({opened.query})")
        self._tables.append(opened)

    def _label_type(self, name: str, column: str, kind: str) -> str:
        """Return the type in which labels or positions are kept."""
        is_text = kind == "VARCHAR" or kind.startswith("ENUM")
        if kind in INTEGERS or (self._positions and (is_text or kind == "UBIGINT")):
            return "BIGINT"
        if is_text:
            return "VARCHAR"
        if not self._positions and (kind == "UBIGINT" or kind.startswith(("DATE", "TIMESTAMP"))):
            return kind
        rule = "must hold integers as positions" if self._positions else RULE
        raise TypeError(f"column {column!r} {rule}, got type {kind} ({name})")

    def _count(self, condition: str) -> int:
        found = self._connection.execute(f"SELECT count(*) FROM log WHERE {condition}").fetchall()
        return int(found[0][0])

    def _place(self, line: int, number: int | None = None) -> str:
        """Describe the position of a line, whose column `number`, if given, was read as null."""
        table = bisect_right(self._starts, line) - 1
        at = line - self._starts[table]
        if number is not None:
            self._tables[table].explain(self._wanted[number], at)
        return self._tables[table].where(at)

    def number_labels(self, axis: int) -> Labels:
        """Return the labels of a column in order of first appearance, after the known ones."""
        name, known = self._wanted[axis], self._known[axis]
        found = self._connection.sql(
            f"SELECT c{axis} AS label FROM log WHERE c{axis} IS NOT NULL GROUP BY c{axis} "
            "ORDER BY min(rowid)"
        ).to_arrow_table()
        column = found.column("label")
        if self._tables[0].is_text and len(column) and (known is None or known.kind != "str"):
            column = integers_of_text(column)
        labels, _ = Labels.encode(column, name, what=f"column {name!r}")
        return labels if known is None else self._joined(known, labels, f"column {name!r}")

    def _joined(self, known: Labels, labels: Labels, what: str) -> Labels:
        """Return known labels and those that are new."""
        with suppress(ValueError):  # negative integers and integers over 2**63 - 1
            if known.kind == labels.kind or {known.kind, labels.kind} <= {"int64", "uint64"}:
                new = known.positions(labels, what=what) < 0
                added = Labels.of_distinct(labels.values[new], None, labels.is_utc)
                return known.joined(added) if new.any() else known
        kinds = f"{known.kind} before and {labels.kind} ({self._tables[0].name})"
        raise TypeError(f"{what} must hold labels of one kind, got {kinds}")

    def batches(self, labels: Sequence[Labels | None]) -> Iterator[Batch]:
        """Yield all lines in order, with labels replaced by their positions."""
        import pyarrow.compute as pc

        codes = [self._codes(axis, labels[axis]) for axis in (0, 1)]
        width = len(self._wanted)
        columns = [codes[0], codes[1], *(f"c{number}" for number in range(2, width))]
        columns += [
            f"c{width + at} AS {identifier(name)}" for at, name in enumerate(self._names.columns)
        ]
        reader = self._connection.sql(f"SELECT {', '.join(columns)} FROM log").to_arrow_reader(
            BATCH
        )
        first = 0
        for batch in reader:
            found = [batch.column(number) for number in range(width)]
            for number, column in enumerate(found):
                if pc.any(absent := pc.is_null(column, nan_is_null=number > 1)).as_py():
                    reader.close()  # a connection has one result at a time
                    self._refuse_nulls(number, first + pc.index(absent, True).as_py())
            for axis, side in enumerate(labels):
                if not self._types[axis].startswith(("DATE", "TIMESTAMP")):
                    found[axis] = concatenated(found[axis])
                if side is not None and self._types[axis] != "VARCHAR":
                    found[axis] = side.positions(found[axis])
            found[2:] = map(concatenated, found[2:])
            more = batch.select(range(width, batch.num_columns)) if self._names.columns else None
            if more is not None and not self._tables[0].has_types:
                more = mark_text(more)
            place = partial(lambda first, entry: self._place(first + entry), first)
            weights = found[3] if width > 3 else None
            yield Batch(self._tables[0].name, place, found[0], found[1], found[2], weights, more)
            first += len(batch)

    def _refuse_nulls(self, number: int, line: int) -> None:
        """Raise an error for a null in a column, or for NaN in a column of numbers."""
        condition = f"c{number} IS NULL" + (f" OR isnan(c{number})" if number > 1 else "")
        place = self._place(line, number if number > 1 else None)
        what = f"column {self._wanted[number]!r}"
        check_nulls(self._count(condition), lambda: line, what, lambda _: place)

    def _codes(self, axis: int, labels: Labels | None) -> str:
        """Return the SQL expression of the positions of text labels, which are an ENUM."""
        if labels is None or self._types[axis] != "VARCHAR":
            return f"c{axis}"
        pa = arrow()
        texts = pa.table({"label": pa.array(labels.values).cast(pa.string())})
        self._connection.register("labels", texts)
        self._connection.execute(f"CREATE TYPE side{axis} AS ENUM (SELECT label FROM labels)")
        self._connection.unregister("labels")
        return f"enum_code(c{axis}::side{axis})"
