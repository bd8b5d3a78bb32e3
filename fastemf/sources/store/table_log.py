"""`TableLog`: the lines of tables in DuckDB, which numbers their labels."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from fastemf.inputs.columns import RULE, Where, check_nulls, concatenated, integers_of_text
from fastemf.inputs.database import identifier
from fastemf.inputs.labels import Labels
from fastemf.inputs.relations import Relation, open_table
from fastemf.inputs.tables import arrow
from fastemf.sources.store.reading import Store

BATCH = 1 << 20  # lines
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")


class ColumnNames(NamedTuple):
    """Names of the columns of a table."""

    rows: Any
    cols: Any
    values: Any
    weights: Any
    more: tuple[str, ...] = ()

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
            option = "columns" if field == "more" else field
            if name is not None and (field != "more" or name):
                raise ValueError(f"{option} names a column of a table, but source has {what}")


class Batch(NamedTuple):
    """Some entries of the source; rows and columns are positions."""

    name: str  # of the source, for messages
    place: Where  # describes the position of an entry
    rows: Any
    cols: Any
    values: Any
    weights: Any = None
    more: Any = None  # further columns, an Arrow table


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
        connection, names = self._connection, self._names
        others = [column for column in names.more if column not in self._wanted]
        opened = open_table(
            table, connection, self._wanted[:2], self._wanted[2:], others, name=name
        )
        with opened.reading():
            relation = connection.sql(opened.query)
        of_column = dict(zip(relation.columns, map(str, relation.types), strict=True))
        types = [of_column[column] for column in (*self._wanted, *names.more)]
        types[:2] = (
            self._label_type(opened.name, *pair)
            for pair in zip(self._wanted[:2], types[:2], strict=True)
        )
        self._types = self._types or types
        for column, here, before in zip(self._wanted, types, self._types, strict=False):
            if here != before:
                raise TypeError(
                    f"column {column!r} must have one type throughout, got {before} before and "
                    f"{here} in {opened.name}"
                )
        pairs = zip([*self._wanted, *names.more], types, strict=True)
        columns = ", ".join(
            f"{identifier(column)}::{kind} AS c{number}"
            for number, (column, kind) in enumerate(pairs)
        )
        # Labels are numbered before they are read; positions can be read at once.
        verb = f"CREATE {'VIEW' if self._positions and name is None else 'TABLE'} log AS"
        if self._tables:
            verb = "INSERT INTO log"
            self._starts.append(self._count("true"))
        with opened.reading():
            connection.execute(f"{verb} SELECT {columns} FROM ({opened.query})")
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

    def _table_at(self, line: int) -> tuple[Relation, int]:
        """Return the table of a line, and the number of the line there."""
        number = bisect_right(self._starts, line) - 1
        return self._tables[number], line - self._starts[number]

    def _place(self, line: int) -> str:
        table, at = self._table_at(line)
        return table.where(at)

    def _check_nulls(self, number: int, column: Any, first: int, reader: Any) -> None:
        """Raise an error for a null in a column, or for NaN in a column of numbers."""
        import pyarrow.compute as pc

        absent, condition = pc.is_null(column, nan_is_null=number > 1), f"c{number} IS NULL"
        if not pc.any(absent).as_py():
            return
        reader.close()  # a connection has one result at a time
        line = first + pc.index(absent, True).as_py()
        if number > 1:
            condition += f" OR isnan(c{number})"
            table, at = self._table_at(line)
            table.explain(self._wanted[number], at)
        what = f"column {self._wanted[number]!r}"
        check_nulls(self._count(condition), lambda: line, what, self._place)

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
        raise TypeError(
            f"{what} must hold labels of one kind, got {known.kind} before and {labels.kind} "
            f"({self._tables[0].name})"
        )

    def batches(self, labels: Sequence[Labels | None]) -> Iterator[Batch]:
        """Yield all lines in order, with labels replaced by their positions."""
        codes = [self._codes(axis, labels[axis]) for axis in (0, 1)]
        width = len(self._wanted)
        columns = [codes[0], codes[1], *(f"c{number}" for number in range(2, width))]
        columns += [
            f"c{width + at} AS {identifier(name)}" for at, name in enumerate(self._names.more)
        ]
        lines = self._connection.sql(f"SELECT {', '.join(columns)} FROM log")
        first = 0
        reader = lines.to_arrow_reader(BATCH)
        for batch in reader:
            found = [batch.column(number) for number in range(width)]
            for number, column in enumerate(found):
                self._check_nulls(number, column, first, reader)
            for axis, side in enumerate(labels):
                if not self._types[axis].startswith(("DATE", "TIMESTAMP")):
                    found[axis] = concatenated(found[axis])
                if side is not None and self._types[axis] != "VARCHAR":
                    found[axis] = side.positions(found[axis])
            found[2:] = map(concatenated, found[2:])
            weights = found[3] if width > 3 else None
            more = batch.select(range(width, batch.num_columns)) if self._names.more else None
            place = partial(self._place_from, first)
            rows, cols, values = found[:3]
            yield Batch(self._tables[0].name, place, rows, cols, values, weights, more)
            first += len(batch)

    def _place_from(self, first: int, entry: int) -> str:
        return self._place(first + entry)

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
