"""Tables as DuckDB reads them: files, databases, SQL, and tables in memory."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from fastemf.inputs.columns import Where, shortened
from fastemf.inputs.database import explained, identifier, literal
from fastemf.inputs.file_lists import (
    EXPECTED,
    FORMATS,
    KINDS,
    TextSource,
    check_regular,
    file_extension,
    hold_stream,
    is_source,
    list_files,
    name_of,
)
from fastemf.inputs.query import Query
from fastemf.inputs.tables import arrow, as_read, check_names, is_frame, table_row
from fastemf.inputs.text_files import PACKED, REPLACED, SAVE_AS_UTF8, TextFile, locate

LONGEST_LINE = 1 << 22  # bytes of a line of CSV; some versions of DuckDB reserve 16 of them
REAL_TYPES = ("FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")


class OpenedTable(NamedTuple):
    """A query for some columns of a table, in the order of the source."""

    query: str
    name: str  # for messages
    is_text: bool  # whether labels are the text of a CSV file
    where: Where  # describes the position of a row
    expected: str = "a table"
    text_at: Callable[[str, int], Any] | None = None  # content of a text file
    reason: Callable[[str], str] = str  # improves a message of DuckDB

    def reading(self) -> AbstractContextManager[None]:
        """Turn errors of DuckDB into errors that name the source."""
        return explained(self.name, self.expected, self.reason)

    def explain(self, column: str, at: int) -> None:
        """Raise an error if a number that was read as null is other text."""
        text = None if self.text_at is None else self.text_at(column, at)
        if text is not None and text != "" and str(text).strip("+- ").lower() != "nan":
            raise ValueError(
                f"column {column!r} must hold numbers, got {shortened(repr(text))} at "
                f"{self.where(at)}"
            )


class Relation:
    """A table that DuckDB reads by itself: columns have types."""

    def __init__(self, connection: Any, relation: str, name: str, expected: str) -> None:
        self.connection, self.relation, self.name = connection, relation, name
        self.expected = expected
        self.is_ordered = True

    def types(self) -> dict[str, str]:
        """Return the types of the columns by name."""
        with explained(self.name, self.expected):
            found = self.connection.execute(f"DESCRIBE SELECT * FROM {self.relation}").fetchall()
        return {column: str(kind) for column, kind, *_ in found}

    def names(self, wanted: Sequence[str]) -> list[str]:
        """Return the names of the columns, at least those that are wanted."""
        return list(self.types())

    def hint(self) -> str:
        """Guess why a column is missing."""
        return ""

    def where(self, at: int) -> str:
        """Describe the position of a row."""
        return table_row(at) if self.name == "the table" else f"row {at} of {self.name} (from 0)"

    def open(
        self, wanted: Sequence[str], labels: Sequence[Any], numbers: Sequence[Any]
    ) -> OpenedTable:
        """Return a query for the wanted columns, some of which are labels or numbers."""
        types, columns = self.types(), []
        for column in wanted:
            kind, shown = types[column], identifier(column)
            if column in numbers and kind not in ("FLOAT", "DOUBLE"):
                if not (kind.endswith(("INT", "INTEGER")) or kind.startswith(REAL_TYPES)):
                    where = "" if self.name == "the table" else f" ({self.name})"
                    raise TypeError(f"column {column!r} must hold numbers, got type {kind}{where}")
                shown = f"{shown}::DOUBLE AS {shown}"
            elif column in labels and (kind == "UUID" or kind.startswith("ENUM")):
                shown = f"{shown}::VARCHAR AS {shown}"
            columns.append(shown)
        query = f"SELECT {', '.join(columns)} FROM {self.relation}"
        if not self.is_ordered:
            query += f" ORDER BY {', '.join(map(identifier, wanted))}"
        return OpenedTable(query, self.name, False, self.where, self.expected)


class _Files(Relation):
    """Files of one kind."""

    def __init__(self, connection: Any, kind: str, files: Sequence[TextFile], name: str) -> None:
        self.kind, self.files = kind, list(files)
        paths = ", ".join(literal(glob.escape(os.path.abspath(file.path))) for file in self.files)
        self.paths = f"[{paths}]"
        self.is_hive = all("=" in file.path.parent.name for file in self.files)
        hive = ", hive_partitioning=true" if self.is_hive else ", hive_partitioning=false"
        super().__init__(connection, f"read_parquet({self.paths}{hive})", name, EXPECTED[kind])

    @property
    def hive_keys(self) -> list[str]:
        parts = self.files[0].path.parent.parts if self.is_hive else ()
        return [part.split("=", 1)[0] for part in parts if "=" in part]

    def where(self, at: int) -> str:
        from pyarrow import parquet

        for file in self.files:
            size = parquet.read_metadata(file.path).num_rows
            if at < size:
                return f"row {at} of {file.name} (from 0)"
            at -= size
        return f"row {at} after {self.name}"

    def open(
        self, wanted: Sequence[str], labels: Sequence[Any], numbers: Sequence[Any]
    ) -> OpenedTable:
        with explained(self.name, self.expected):
            found = self.connection.execute(
                f"SELECT name, file_name, type FROM parquet_schema({self.paths})"
            ).fetchall()
        for column in wanted:
            of_file = {file: kind for name, file, kind in found if name == column}
            kinds = list(dict.fromkeys(of_file.values()))
            if len(kinds) > 1:
                files = (next(file for file in of_file if of_file[file] == kind) for kind in kinds)
                listed = " and ".join(f"{k} in {f}" for k, f in zip(kinds, files, strict=True))
                raise ValueError(f"column {column!r} must have one type in all files, got {listed}")
            if of_file and len(of_file) < len(self.files):
                have = {os.path.abspath(file) for file in of_file}
                lacks = next(f for f in self.files if os.path.abspath(f.path) not in have)
                raise ValueError(f"{lacks.name} has no column {column!r}")
        return super().open(wanted, labels, numbers)


class _CsvFiles(_Files):
    """Text files with separated columns; all columns are text."""

    def __init__(
        self, connection: Any, files: Sequence[TextFile], name: str, decimal: str | None
    ) -> None:
        super().__init__(connection, "csv", files, name)
        self._decimal = decimal or "."
        self._headers: list[list[str]] = []

    def names(self, wanted: Sequence[str]) -> list[str]:
        with explained(self.name, self.expected):
            self._headers = [file.header() for file in self.files]
        for file, header in zip(self.files, self._headers, strict=True):
            for column in wanted:
                if column in self._headers[0] and column not in header:
                    check_names([column], header, file.name)
        return [*self._headers[0], *self.hive_keys]

    def hint(self) -> str:
        is_decoded = not any(REPLACED in name for name in self._headers[0])
        return ("" if is_decoded else SAVE_AS_UTF8) + self.files[0].hint()

    def _reason(self, message: str) -> str:
        for file in self.files:
            if (found := file.find_csv_error(message)) is not None:
                of_file = "" if file.name == self.name else f" of {file.name}"
                return f"{found}{of_file}{file.hint()}"
        return message + self.files[0].hint()

    def where(self, at: int) -> str:
        file, line, _ = locate(self.files, at, is_json=False)
        return f"line {line} of {file.name}"

    def _text_at(self, column: str, at: int) -> str:
        file, _, row = locate(self.files, at, is_json=False)
        return str(row[self._headers[self.files.index(file)].index(column)])

    def open(
        self, wanted: Sequence[str], labels: Sequence[Any], numbers: Sequence[Any]
    ) -> OpenedTable:
        def same(pair: tuple[TextFile, list[str]]) -> tuple[list[str], str]:
            return pair[1], pair[0].path.suffix.lower()

        parts = []
        for (header, suffix), pairs in groupby(
            zip(self.files, self._headers, strict=True), key=same
        ):
            files = [file for file, _ in pairs]
            columns = ", ".join(self._column(name, header, name in numbers) for name in wanted)
            parts.append(f"SELECT {columns} FROM {self._reader(files, len(header), suffix)}")
        query = " UNION ALL ".join(parts)
        return OpenedTable(
            query, self.name, True, self.where, self.expected, self._text_at, self._reason
        )

    def _column(self, name: str, header: list[str], is_number: bool) -> str:
        column = f"c{header.index(name)}" if name in header else identifier(name)
        if is_number:  # DuckDB would accept 1_000
            plain = f"replace({column}, '_', 'x')"
            if self._decimal != ".":
                plain = f"replace(replace({plain}, '.', 'x'), {literal(self._decimal)}, '.')"
            column = f"try_cast({plain} AS DOUBLE)"
        return f"{column} AS {identifier(name)}"

    def _reader(self, files: Sequence[TextFile], width: int, suffix: str) -> str:
        paths = ", ".join(literal(glob.escape(os.path.abspath(file.path))) for file in files)
        columns = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(width))
        # The parallel reader takes some quoted line ends for the ends of rows.
        with explained(self.name, self.expected):
            has_quotes = [file.has_quotes() for file in files]
        hive = "true, hive_types_autocast=false" if self.is_hive else "false"
        return (
            f"read_csv([{paths}], auto_detect=false, header=true, columns={{{columns}}}, "
            f"delim={literal(files[0].delimiter)}, quote='\"', escape='\"', nullstr='', "
            f"allow_quoted_nulls=false, strict_mode=true, max_line_size={LONGEST_LINE}, "
            f"compression={literal(PACKED.get(suffix, 'none'))}, "
            f"parallel={str(not any(has_quotes)).lower()}, hive_partitioning={hive})"
        )


class _JsonFiles(_Files):
    """Text files with one JSON object per line."""

    def __init__(self, connection: Any, files: Sequence[TextFile], name: str) -> None:
        super().__init__(connection, "json", files, name)

    def names(self, wanted: Sequence[str]) -> list[str]:
        try:
            with explained(self.name, self.expected):
                keys = [key for file in self.files for key in file.keys(wanted)]
        except ValueError as error:
            if self.name in str(error):
                raise
            raise ValueError(f"{self.name}: expected {self.expected}: {error}") from None
        return [*dict.fromkeys(keys), *self.hive_keys]

    def where(self, at: int) -> str:
        file, line, _ = locate(self.files, at, is_json=True)
        return f"line {line} of {file.name}"

    def _text_at(self, column: str, at: int) -> Any:
        return locate(self.files, at, is_json=True)[2].get(column)

    def _reason(self, message: str) -> str:
        found = (file.find_json_error(message) for file in self.files)
        return next((reason for reason in found if reason is not None), message)

    def open(
        self, wanted: Sequence[str], labels: Sequence[Any], numbers: Sequence[Any]
    ) -> OpenedTable:
        keys = [name for name in wanted if name not in self.hive_keys]
        columns = ", ".join(f"{literal(name)}: 'JSON'" for name in keys)
        packing = PACKED.get(self.files[0].path.suffix.lower(), "auto_detect")
        reader = (
            f"read_json({self.paths}, format='newline_delimited', records='true', "
            f"auto_detect=false, columns={{{columns}}}, compression='{packing}', "
            f"hive_partitioning={'true, hive_types_autocast=false' if self.is_hive else 'false'})"
        )
        shown = []
        for name in wanted:
            column = identifier(name)
            if name in self.hive_keys:
                shown.append(column)
                continue
            text = f"({column}->>'$')"
            if name in numbers:
                kinds = "('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT')"
                text = (
                    f"CASE WHEN json_type({column}) IN {kinds} THEN try_cast({text} AS DOUBLE) END"
                )
            elif name in labels:
                text += self._label_type(reader, name)
            shown.append(f"{text} AS {column}")
        query = f"SELECT {', '.join(shown)} FROM {reader}"
        return OpenedTable(
            query, self.name, False, self.where, self.expected, self._text_at, self._reason
        )

    def _label_type(self, reader: str, name: str) -> str:
        """Return the cast of a column of labels, which must be strings or integers."""
        column = identifier(name)
        with explained(self.name, self.expected, self._reason):
            found = self.connection.execute(
                f"SELECT DISTINCT json_type({column}), length({column}::VARCHAR) > 18 FROM {reader}"
            ).fetchall()
        kinds = {kind for kind, _ in found} - {None, "NULL"}
        if kinds <= {"VARCHAR"}:
            return ""
        if kinds <= {"BIGINT", "UBIGINT"}:
            return "::HUGEINT" if any(is_long for _, is_long in found) else "::BIGINT"
        first: Any = None
        for file in self.files:
            for line, row in file.objects():
                value = row.get(name)
                first = value if first is None else first
                is_label = isinstance(value, (int, str)) and not isinstance(value, bool)
                if value is not None and not (is_label and isinstance(value, type(first))):
                    raise TypeError(
                        f"column {name!r} must hold strings or integers, all of one type, got "
                        f"{shortened(repr(value))} at line {line} of {file.name}"
                    )
        return ""


def find_table(source: Any, connection: Any, name: str | None = None) -> Relation:
    """Find the files or the table of a source."""
    if isinstance(source, Query):
        return _from_query(source, connection)
    delimiter = decimal = None
    if hasattr(source, "read") or (isinstance(source, str) and source == "-"):
        source = hold_stream(source)
    if isinstance(source, TextSource):
        delimiter, decimal, name = source.delimiter, source.decimal, source.name
        keep, source = source, source.paths
    elif not is_source(source):
        return _from_memory(source, connection, name)
    else:
        keep = None
    shown = name or name_of(source)
    if isinstance(source, (str, os.PathLike)) and ".duckdb" in os.fspath(source):
        return _from_database(os.fspath(source), connection)
    paths = list_files(source)
    kinds = {file_extension(path, FORMATS): path for path in paths}
    by_kind = {KINDS.get(suffix, suffix): path for suffix, path in kinds.items()}
    if len(by_kind) > 1:
        one, other = list(by_kind.values())[:2]
        raise ValueError(
            f"{shown} holds files of different kinds, such as {one.name} and {other.name}; pass a "
            "list of files of one kind"
        )
    [kind] = by_kind
    if kind not in EXPECTED:
        raise ValueError(f"{shown}: expected a table, got a file that ends in {paths[0].suffix}")
    files = [TextFile(path, name or str(path), delimiter or _delimiter(path)) for path in paths]
    if kind == "csv":
        found: Relation = _CsvFiles(connection, files, shown, decimal)
    elif kind == "json":
        found = _JsonFiles(connection, files, shown)
    else:
        found = _Files(connection, kind, files, shown)
    if keep is not None:
        found.keep = keep  # type: ignore[attr-defined]  # a temporary file is removed with it
    return found


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower() else ","


def _from_memory(table: Any, connection: Any, name: str | None) -> Relation:
    if is_frame(table):  # NaN means null in pandas
        table = arrow().Table.from_pandas(table, preserve_index=False)
    else:
        table = as_read(table)
    view = f"memory_{id(table)}"
    connection.register(view, table)
    return Relation(connection, view, name or "the table", "a table")


def _from_query(query: Query, connection: Any) -> Relation:
    name = str(query)
    if query.database is not None:
        _attach(query.database, connection)
        connection.execute("USE source")
    with explained(name, "one SELECT statement"):
        [(parsed,)] = connection.execute(
            "SELECT json_serialize_sql(?::VARCHAR)", [query.text]
        ).fetchall()
    statements = json.loads(parsed)
    if statements["error"] or len(statements["statements"]) != 1:
        reason = statements.get("error_message", f"got {len(statements.get('statements', []))}")
        raise ValueError(f"{name}: expected one SELECT statement: {reason}")
    text = query.text.strip().rstrip(";")
    found = Relation(connection, f"({text}\n)", name, "a valid query")
    modifiers = statements["statements"][0]["node"].get("modifiers", [])
    found.is_ordered = any(modifier["type"] == "ORDER_MODIFIER" for modifier in modifiers)
    return found


def _attach(path: str, connection: Any) -> None:
    check_regular(Path(path))
    with explained(path, "a DuckDB database"):
        connection.execute(f"ATTACH {literal(path)} AS source (TYPE duckdb, READ_ONLY)")


def _from_database(path: str, connection: Any) -> Relation:
    file, _, table = path.partition("::")
    _attach(file, connection)
    tables = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'source' AND "
        "schema_name = 'main' UNION ALL SELECT view_name FROM duckdb_views() WHERE "
        "database_name = 'source' AND schema_name = 'main' AND NOT internal"
    ).fetchall()
    names = [name for (name,) in tables]
    if not table and len(names) == 1:
        [table] = names
    if table not in names:
        listed = ", ".join(names) or "none"
        raise ValueError(f"{file}: name one of its tables by {file}::TABLE; it has {listed}")
    return Relation(connection, f"source.main.{identifier(table)}", path, "a table")
