"""Tables in CSV files, comma or tab between columns, and on standard streams.

Labels are integers where all of a column are written as integers are (``7``, ``-12``); one that
is not, such as ``007``, makes the column strings, dates included. An empty field is a null, but
for ``""``, which is an empty string.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import IO, Any, NamedTuple

from fastemf.inputs.columns import Where
from fastemf.inputs.tables import arrow, check_names

__all__ = [
    "DELIMITERS",
    "CsvFile",
    "conversion",
    "csv_bytes",
    "csv_names",
    "is_integer_text",
    "parsing",
    "read_csv",
]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
INTEGER = r"^(0|-?[1-9][0-9]*)$"


class CsvFile(NamedTuple):
    """Bytes of a table that can be read any number of times."""

    opened: Callable[[], IO[bytes]]
    name: str  # for messages
    delimiter: str


def is_integer_text(text: str) -> bool:
    """Return whether a label is written as integers are."""
    return re.fullmatch(INTEGER, text) is not None


def parsing(delimiter: str) -> Any:
    """Say how lines are cut into fields."""
    arrow()
    from pyarrow import csv as arrow_csv

    return arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def conversion(wanted: Sequence[str], types: Mapping[str, Any]) -> Any:
    """Say which columns are read, as which Arrow types, and what is a null."""
    from pyarrow import csv as arrow_csv

    return arrow_csv.ConvertOptions(
        include_columns=list(wanted),
        column_types=dict(types),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def csv_bytes(table: Any, delimiter: str) -> bytes:
    """Write an Arrow table to memory."""
    from pyarrow import csv as arrow_csv

    out = io.BytesIO()
    arrow_csv.write_csv(table, out, arrow_csv.WriteOptions(delimiter=delimiter))
    return out.getvalue()


def csv_names(source: CsvFile) -> list[str]:
    """Read the names of the columns."""
    arrow()
    from pyarrow import csv as arrow_csv

    with _explained(source), source.opened() as file:
        reader = arrow_csv.open_csv(file, parse_options=parsing(source.delimiter))
        return list(reader.schema.names)


def read_csv(
    source: CsvFile, labels: Sequence[Any], numbers: Sequence[Any], texts: Sequence[Any]
) -> tuple[Any, Where]:
    """Read columns as an Arrow table; also return what says where a line of it is.

    `texts` are those of the labels that are strings even where all look like integers.
    """
    pa = arrow()
    from pyarrow import csv as arrow_csv

    check_names([*labels, *numbers], csv_names(source), source.name)
    as_text = dict.fromkeys([*labels, *numbers], pa.string())
    with _explained(source), source.opened() as file:
        table = arrow_csv.read_csv(
            file,
            parse_options=parsing(source.delimiter),
            convert_options=conversion(list(as_text), as_text),
        )
    if len(table) == 0:
        raise ValueError(f"{source.name}: expected lines after the header, got none")

    def where(at: int) -> str:
        return f"line {_line(source, at)} of {source.name}"

    columns = {label: _label_column(table.column(label), label in texts) for label in labels}
    columns |= {number: _number_column(table.column(number), number, where) for number in numbers}
    return pa.table(columns), where


@contextmanager
def _explained(source: CsvFile) -> Iterator[None]:
    """Turn what Arrow raises into a message that names the file, and the likely reason."""
    try:
        yield
    except arrow().ArrowInvalid as error:
        reason = "it is empty" if "Empty CSV" in str(error) else str(error)
        if "UTF8" in reason:
            reason += "; save the file as UTF-8"
        with source.opened() as file:
            header = file.readline().decode(errors="replace")
        if header.count(";") > header.count(source.delimiter):
            reason += (
                "; its header looks separated by ';', where ',' (.csv) or tabs (.tsv) are read"
            )
        raise ValueError(f"{source.name}: expected a table: {reason}") from None


def _line(source: CsvFile, at: int) -> int:
    """Return the line, from 1, on which row `at` of a table ends: empty lines are no rows."""
    with io.TextIOWrapper(source.opened(), "utf-8", newline="") as file:
        reader = csv.reader(file, delimiter=source.delimiter)
        ends = (reader.line_num for row in reader if row)  # of the header, then of each row
        return next(islice(ends, at + 1, None))


def _label_column(column: Any, is_text: bool) -> Any:
    """Return strings, or integers if all may be, as a dictionary, so that each is read once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.dictionary_encode()
    dictionary = column.chunk(0).dictionary
    if is_text or not pc.all(pc.match_substring_regex(dictionary, INTEGER)).as_py():
        return column
    with suppress(pa.ArrowInvalid):  # beyond 64 bits: strings
        dictionary = dictionary.cast(pa.int64())
    parts = [pa.DictionaryArray.from_arrays(chunk.indices, dictionary) for chunk in column.chunks]
    return pa.chunked_array(parts)


def _number_column(column: Any, name: str, where: Where) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    def parsed(part: Any) -> Any:
        try:
            return pc.utf8_trim_whitespace(part).cast(pa.float64())
        except pa.ArrowInvalid:
            return None

    whole = parsed(column)
    if whole is not None:
        return whole
    first, last = 0, len(column)
    while last - first > 1:  # halve what holds the first that is no number
        middle = (first + last) // 2
        if parsed(column[first:middle]) is None:
            last = middle
        else:
            first = middle
    raise ValueError(
        f"column {name!r} must hold numbers, got {column[first].as_py()!r} at {where(first)}"
    )
