"""Tables as DuckDB reads them: files, databases, SQL, and tables in memory."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from pathlib import Path
from typing import Any

from fastemf.inputs import file_lists
from fastemf.inputs.columns import arrow_column, shortened
from fastemf.inputs.database import explained, identifier, literal
from fastemf.inputs.labels import Labels
from fastemf.inputs.query import Query
from fastemf.inputs.tables import arrow, check_names, select_columns, table_row
from fastemf.inputs.text_files import TextFile, locate
from fastemf.support.terminal import escape_control

BATCH = 1 << 20  # lines
LONGEST_LINE = 1 << 22  # bytes of a line of CSV; some versions of DuckDB reserve 16 of them
JSON_INTEGERS = ("BIGINT", "UBIGINT")
JSON_NUMBERS = "('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT')"


def open_table(
    source: Any, connection: Any, labels: Sequence[Any], numbers: Sequence[Any],
    others: Sequence[str] = (), *, name: str | None = None,
) -> Relation:  # fmt: skip
    """Open columns of a table for DuckDB; the `query` of the result selects them.

    Parameters
    ----------
    source
        A path, a glob, a list of paths or a folder of CSV, TSV, JSON lines or Parquet files, a
        DuckDB file (``calls.duckdb`` or ``calls.duckdb::table``), a `TextSource`, an open CSV file,
        the result of `fastemf.sql`, or a table in memory.
    connection
        Made by `fastemf.inputs.database.connect`.
    labels, numbers, others
        Names of the columns. Labels of CSV files are text; others keep their types.
    name
        Name of a table in memory, for messages.
    """
    wanted = list(dict.fromkeys([*labels, *numbers, *others]))
    found = find_table(source, connection, name, wanted, labels)
    present = found.names([name for name in wanted if isinstance(name, str)])
    try:
        check_names(wanted, present, found.name)
    except ValueError as error:
        raise ValueError(f"{error}{found.hint()}") from None
    found.query = found.select(wanted, labels, numbers)
    return found


class Relation:
    """A table that DuckDB reads by itself: columns have types."""

    is_text = False  # whether labels are the text of a CSV file
    has_types = True  # whether columns have types, unlike those of text files
    expected = "a table"
    query = ""  # for the columns that `open_table` opened, in the order of the source

    def __init__(
        self, connection: Any, relation: str, name: str, *, is_ordered: bool = True
    ) -> None:
        self.connection, self.relation, self.name = connection, relation, name
        self.is_ordered = is_ordered

    def names(self, wanted: Sequence[str]) -> list[str]:
        """Return the names of the columns, at least those that are wanted."""
        return list(self._types())

    def select(self, wanted: Sequence[str], labels: Sequence[Any], numbers: Sequence[Any]) -> str:
        """Return a query for the wanted columns, some of which are labels or numbers."""
        types, columns = self._types(), []
        for column in wanted:
            kind, shown = types[column], identifier(column)
            if column in labels and (kind == "UUID" or kind.startswith("ENUM")):
                shown = f"{shown}::VARCHAR AS {shown}"
            columns.append(shown)
        order = "" if self.is_ordered else f" ORDER BY {', '.join(map(identifier, wanted))}"
        return f"SELECT {', '.join(columns)} FROM {self.relation}{order}"

    def _types(self) -> dict[str, str]:
        with self.reading():
            found = self._fetch(f"DESCRIBE SELECT * FROM {self.relation}")
        return {column: str(kind) for column, kind, *_ in found}

    def _fetch(self, query: str) -> list[Any]:
        return list(self.connection.execute(query).fetchall())

    def batches(self) -> Iterator[Any]:
        """Yield the opened columns as record batches of Arrow."""
        with self.reading():
            yield from self.connection.sql(self.query).to_arrow_reader(BATCH)

    def reading(self) -> AbstractContextManager[None]:
        """Turn errors of DuckDB into errors that name the source."""
        return explained(self.name, self.expected, self._reason)

    def _reason(self, message: str) -> str:
        """Improve a message of DuckDB."""
        return message

    def hint(self) -> str:
        """Guess why a column is missing."""
        return ""

    def where(self, at: int) -> str:
        """Describe the position of a row."""
        return table_row(at) if self.name == "the table" else f"row {at} of {self.name} (from 0)"

    def explain(self, column: str, at: int) -> None:
        """Raise an error if a number that was read as null is other text."""


class _ParquetFiles(Relation):
    expected = "a Parquet file"

    def __init__(self, connection: Any, paths: Sequence[Path], name: str) -> None:
        self._listed = _listed(paths)
        hive = str(bool(_hive_keys(paths))).lower()
        super().__init__(
            connection, f"read_parquet({self._listed}, hive_partitioning={hive})", name
        )

    def where(self, at: int) -> str:
        """Describe the position of a row."""
        for path, size in self._sizes:
            if at < size:
                return f"row {at} of {path} (from 0)"
            at -= size
        return f"row {at} after {self.name}"

    def select(self, wanted: Sequence[str], labels: Sequence[Any], numbers: Sequence[Any]) -> str:
        """Return a query, after a check that columns have the same types in all files."""
        with self.reading():
            self._sizes = self._fetch(
                f"SELECT file_name, num_rows FROM parquet_file_metadata({self._listed})"
            )
            found = self._fetch(f"SELECT name, type, file_name FROM parquet_schema({self._listed})")
        for column in wanted:
            first_of = {kind: file for name, kind, file in reversed(found) if name == column}
            if len(first_of) > 1:
                kinds = [f"{kind} in {file}" for kind, file in reversed(first_of.items())]
                raise ValueError(
                    f"column {column!r} must have one type in all files, got {' and '.join(kinds)}"
                )
        return super().select(wanted, labels, numbers)


class _TextFiles(Relation):
    """Text files of one kind."""

    has_types = False

    def __init__(self, connection: Any, files: Sequence[TextFile], name: str, decimal: str) -> None:
        super().__init__(connection, "", name)
        self._hive_keys = _hive_keys([file.path for file in files])
        self._hive = (
            "hive_partitioning=true, hive_types_autocast=false"
            if self._hive_keys
            else "hive_partitioning=false"
        )
        self._files, self._decimal = files, decimal
        self.is_text = bool(files[0].delimiter)
        self.expected = "a table" if self.is_text else "one JSON object per line"

    def names(self, wanted: Sequence[str]) -> list[str]:
        """Return the names of the columns, at least those that are wanted."""
        with explained(self.name, self.expected):
            found = [file.names(wanted) for file in self._files]
        names = list(dict.fromkeys(name for names in found for name in names))
        if self.is_text:  # columns may be in another order
            names = found[0]
            for file, header in zip(self._files, found, strict=True):
                check_names([name for name in wanted if name in names], header, file.name)
        return [*names, *self._hive_keys]

    def where(self, at: int) -> str:
        """Describe the position of a row."""
        return locate(self._files, at)[0]

    def explain(self, column: str, at: int) -> None:
        """Raise an error if a number that was read as null is other text."""
        place, row = locate(self._files, at)
        value = row.get(column)
        if value not in (None, "") and str(value).strip("+- ").lower() != "nan":
            shown = shortened(repr(value))
            raise ValueError(f"column {column!r} must hold numbers, got {shown} at {place}")

    def _reason(self, message: str) -> str:
        for file in self._files:
            if (found := file.find_error(message)) is not None:
                of_file = "" if file.name == self.name else f" of {file.name}"
                return f"{found}{of_file}{file.hint()}"
        return message + self.hint()

    def hint(self) -> str:
        """Guess why a column is missing."""
        return self._files[0].hint()

    def select(self, wanted: Sequence[str], labels: Sequence[Any], numbers: Sequence[Any]) -> str:
        """Return a query for the wanted columns; it reads files with the same header together."""
        if not self.is_text:
            return self._select_json(wanted, labels, numbers)
        parts = []
        for (_, header), group in groupby(
            self._files, key=lambda file: (file.packing, file.header)
        ):
            columns = ", ".join(self._csv_column(name, header, name in numbers) for name in wanted)
            parts.append(f"SELECT {columns} FROM {self._csv_reader(list(group))}")
        return " UNION ALL ".join(parts)

    def _csv_column(self, name: str, header: list[str], is_number: bool) -> str:
        column = f"c{header.index(name)}" if name in header else identifier(name)
        if is_number:  # DuckDB would accept 1_000
            plain = f"replace({column}, '_', 'x')"
            if self._decimal != ".":
                plain = f"replace(replace({plain}, '.', 'x'), {literal(self._decimal)}, '.')"
            column = f"try_cast({plain} AS DOUBLE)"
        return f"{column} AS {identifier(name)}"

    def _csv_reader(self, files: Sequence[TextFile]) -> str:
        columns = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(files[0].header)))
        # The parallel reader takes some quoted line ends for the ends of rows.
        with explained(self.name, self.expected):
            has_quotes = [file.has_quotes() for file in files]
        return (
            f"read_csv({_listed([file.path for file in files])}, auto_detect=false, header=true, "
            f"columns={{{columns}}}, delim={literal(files[0].delimiter)}, quote='\"', "
            f"escape='\"', nullstr='', allow_quoted_nulls=false, strict_mode=true, "
            f"max_line_size={LONGEST_LINE}, compression={literal(files[0].packing or 'none')}, "
            f"parallel={str(not any(has_quotes)).lower()}, {self._hive})"
        )

    def _select_json(
        self, wanted: Sequence[str], labels: Sequence[Any], numbers: Sequence[Any]
    ) -> str:
        keys = [name for name in wanted if name not in self._hive_keys]
        columns = ", ".join(f"{literal(name)}: 'JSON'" for name in keys)
        reader = (
            f"read_json({_listed([file.path for file in self._files])}, "
            f"format='newline_delimited', records='true', auto_detect=false, "
            f"columns={{{columns}}}, {self._hive}, "
            f"compression={literal(self._files[0].packing or 'auto_detect')})"
        )
        shown = list(map(identifier, wanted))
        for at, column in enumerate(map(identifier, wanted)):
            name, text = wanted[at], f"({column}->>'$')"
            if name in numbers and name in keys:
                is_number = f"json_type({column}) IN {JSON_NUMBERS}"
                text = f"CASE WHEN {is_number} THEN try_cast({text} AS DOUBLE) END"
            elif name in labels and name in keys:
                text += self._json_label_type(reader, name)
            if name in keys:
                shown[at] = f"{text} AS {column}"
        return f"SELECT {', '.join(shown)} FROM {reader}"

    def _json_label_type(self, reader: str, name: str) -> str:
        """Return the cast of a column of labels, which must be strings or integers."""
        column = identifier(name)
        with self.reading():
            found = self._fetch(
                f"SELECT json_type({column}), length({column}::VARCHAR) > 18, min(line) FROM "
                f"(SELECT {column}, row_number() OVER () - 1 AS line FROM {reader}) "
                f"WHERE json_type({column}) <> 'NULL' GROUP BY ALL ORDER BY min(line)"
            )
        is_integer = bool(found) and found[0][0] in JSON_INTEGERS
        for kind, _, line in found:
            if kind not in (JSON_INTEGERS if is_integer else ("VARCHAR",)):
                place, row = locate(self._files, line)
                is_large = is_integer and type(row[name]) is int
                rule = "hold strings or integers, all of one type"
                error = f"must {'fit into 64-bit integers' if is_large else rule}"
                raise (ValueError if is_large else TypeError)(
                    f"column {name!r} {error}, got {shortened(repr(row[name]))} at {place}"
                )
        if not is_integer:
            return ""
        return "::HUGEINT" if any(is_long for _, is_long, _ in found) else "::BIGINT"


def find_table(
    source: Any, connection: Any, name: str | None = None, wanted: Sequence[Any] = (),
    labels: Sequence[Any] = (),
) -> Relation:  # fmt: skip
    """Find the files or the table of a source."""
    if isinstance(source, Query):
        return _from_query(source, connection)
    if file_lists.is_stream(source):
        source = file_lists.hold_stream(source)
    if not isinstance(source, file_lists.TextSource):
        if not file_lists.is_source(source):
            return _from_memory(source, connection, name, wanted, labels)
        if isinstance(source, (str, os.PathLike)) and ".duckdb" in os.fspath(source):
            return _from_database(os.fspath(source), connection)
        source = file_lists.TextSource(source)
    found = _from_files(source, connection)
    found.source = source  # type: ignore[attr-defined]  # a temporary file is removed with it
    return found


def _from_files(source: file_lists.TextSource, connection: Any) -> Relation:
    paths, name = file_lists.list_files(source.paths), file_lists.name_of(source)
    path_of = {}
    for path in paths:
        extension = file_lists.file_extension(path, file_lists.FORMATS)
        path_of[file_lists.KINDS.get(extension, extension)] = path
    if len(path_of) > 1:
        one, other = list(path_of.values())[:2]
        raise ValueError(
            f"{name} holds files of different kinds, such as {one.name} and {other.name}; pass a "
            "list of files of one kind"
        )
    [kind] = path_of
    if kind != "csv" and (source.delimiter or source.decimal):
        raise ValueError(f"--sep and --decimal apply to text files (.csv, .tsv), got {name}")
    if kind == "parquet":
        return _ParquetFiles(connection, paths, name)
    if kind not in ("csv", "json"):
        raise ValueError(f"{name}: expected a table, got a file that ends in {paths[0].suffix}")
    files = []
    for path in paths:
        delimiter = source.delimiter or ("\t" if ".tsv" in path.name.lower() else ",")
        delimiter = delimiter if kind == "csv" else ""
        files.append(TextFile(path, source.name or str(path), delimiter))
    return _TextFiles(connection, files, name, source.decimal or ".")


def _listed(paths: Sequence[Path]) -> str:
    """Return a list of files for SQL."""
    return f"[{', '.join(_path_literal(glob.escape(os.path.abspath(path))) for path in paths)}]"


def _path_literal(path: str) -> str:
    """Return a path for SQL. DuckDB takes names of files as UTF-8 in every locale."""
    return literal(os.fsencode(path).decode("utf-8", "surrogateescape"))


def _hive_keys(paths: Sequence[Path]) -> list[str]:
    """Return the names of columns whose values are in the names of folders (``day=1/a.csv``)."""
    if not all("=" in path.parent.name for path in paths):
        return []
    return [part.split("=", 1)[0] for part in paths[0].parent.parts if "=" in part]


def _from_memory(
    table: Any, connection: Any, name: str | None, wanted: Sequence[Any], labels: Sequence[Any]
) -> Relation:
    pa = arrow()
    columns = {}
    for column, values in zip(wanted, select_columns(table, wanted), strict=True):
        columns[column] = arrow_column(values, f"column {column!r}")
        if columns[column] is None:  # objects of pandas that Arrow does not have
            what = f"column {column!r}"
            if column in labels:
                Labels.encode(values, what=what, where=table_row)
            raise TypeError(f"{what} must hold values of one type")
    view = f"memory_{id(columns)}"
    connection.register(view, pa.table(columns))
    return Relation(connection, view, name or "the table")


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
    modifiers = statements["statements"][0]["node"].get("modifiers", [])
    is_ordered = any(modifier["type"] == "ORDER_MODIFIER" for modifier in modifiers)
    text = query.text.strip().rstrip(";")
    found = Relation(connection, f"({text}\n)", name, is_ordered=is_ordered)
    found.expected = "a valid query"
    return found


def _attach(path: str, connection: Any) -> None:
    file_lists.check_regular(Path(path))
    with explained(path, "a DuckDB database"):
        connection.execute(f"ATTACH {_path_literal(path)} AS source (TYPE duckdb, READ_ONLY)")


def _from_database(path: str, connection: Any) -> Relation:
    file, _, table = path.partition("::")
    _attach(file, connection)
    found = connection.execute(
        "SELECT table_name FROM information_schema.tables "
        "WHERE table_catalog = 'source' AND table_schema = 'main' ORDER BY table_name"
    ).fetchall()
    names = [name for (name,) in found]
    if not table and len(names) == 1:
        [table] = names
    if table not in names:
        listed = ", ".join(map(escape_control, names)) or "none"
        raise ValueError(f"{file}: name one of its tables by {file}::TABLE; it has {listed}")
    return Relation(connection, f"source.main.{identifier(table)}", path)
