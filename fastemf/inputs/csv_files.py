"""Tables in CSV files, with commas or tabs between columns, and on standard streams.

The labels of a column are integers if all of them are in canonical form (``7``, ``-12``), else
strings: one label such as ``007`` is enough. Dates are strings. An empty field is a null, while
``""`` is an empty string.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import IO, Any, NamedTuple

from fastemf.inputs.columns import Where, one_line, shortened
from fastemf.inputs.tables import arrow, check_names

DELIMITERS = {".csv": ",", ".tsv": "\t"}
INTEGER = r"^(0|-?[1-9][0-9]*)$"

# First bytes of files that are often mistaken for CSV. No UTF-8 text begins with these,
FOREIGN = {
    b"\x1f\x8b": "is compressed by gzip: unpack it",
    b"BZh9": "is compressed by bzip2: unpack it",
    b"\xfd7zXZ": "is compressed by xz: unpack it",
    b"(\xb5/\xfd": "is compressed by zstd: unpack it",
    b"PK\x03\x04": "is a zip archive or an Excel workbook: unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook: save the sheet as CSV",
    b"\xff\xfe": "is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "is UTF-16 text: save it as UTF-8",
    b"ARROW1\0\0": "is a Feather file: save it as Parquet",
}
# and a table rarely begins with these.
SUSPECT = {
    b"PAR1": "it looks like Parquet: rename it to .parquet",
    b"%%MatrixMarket": "it looks like a Matrix Market file: rename it to .mtx",
    b"SQLite format 3": "it looks like an SQLite database",
    b"{": "it looks like JSON",
    b"[": "it looks like JSON",
    b"<": "it looks like HTML or XML",
}
HEAD = 1 << 12  # bytes inspected to guess the kind of a file
REPLACED = "\ufffd"  # replaces bytes that are not UTF-8
SAVE_AS_UTF8 = "; save the file as UTF-8"
USUAL_BLOCK = 1 << 20  # bytes parsed at a time,
LONGEST_BLOCK = 1 << 24  # at most; no line may be longer


class CsvFile(NamedTuple):
    """A CSV table that can be read any number of times."""

    opened: Callable[[], IO[bytes]]
    name: str  # for messages
    delimiter: str
    decimal: str = "."  # point of numbers


def is_integer_text(text: str) -> bool:
    """Return whether a string is an integer in canonical form."""
    return re.fullmatch(INTEGER, text) is not None


def parsing(delimiter: str) -> Any:
    """Return the parse options of Arrow."""
    arrow()
    from pyarrow import csv as arrow_csv

    return arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def conversion(wanted: Sequence[str], types: Mapping[str, Any], decimal: str = ".") -> Any:
    """Return the convert options of Arrow: columns, types and nulls."""
    from pyarrow import csv as arrow_csv

    return arrow_csv.ConvertOptions(
        include_columns=list(wanted),
        column_types=dict(types),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        decimal_point=decimal,
    )


def csv_bytes(table: Any, delimiter: str) -> bytes:
    """Return an Arrow table as CSV."""
    from pyarrow import csv as arrow_csv

    out = io.BytesIO()
    arrow_csv.write_csv(table, out, arrow_csv.WriteOptions(delimiter=delimiter))
    return out.getvalue()


def csv_names(source: CsvFile) -> list[str]:
    """Read the names of the columns; bytes that are not UTF-8 are replaced by `REPLACED`."""
    pa = arrow()
    head = _head(source)
    for first, what in FOREIGN.items():
        if head.startswith(first):
            raise ValueError(f"{source.name}: expected a table in UTF-8 text, but it {what}")
    with _explained(source):
        try:
            return _names(source, USUAL_BLOCK)
        except pa.ArrowInvalid:  # the header may be longer
            return _names(source, LONGEST_BLOCK)


def _names(source: CsvFile, block: int) -> list[str]:
    from pyarrow import csv as arrow_csv

    with source.opened() as file:
        reader = arrow_csv.open_csv(
            file,
            read_options=arrow_csv.ReadOptions(block_size=block),
            parse_options=parsing(source.delimiter),
        )
        return [_name(field) for field in reader.schema]


def _name(field: Any) -> str:
    try:
        return str(field.name)
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


def check_header(source: CsvFile, wanted: Sequence[Any]) -> None:
    """Raise an error if columns are missing, with a guess at the kind of the file."""
    present = csv_names(source)
    try:
        check_names(wanted, present, source.name)
    except ValueError as error:
        encoding = SAVE_AS_UTF8 if any(REPLACED in name for name in present) else ""
        raise ValueError(f"{error}{encoding}{_likely_reason(source)}") from None


def read_csv(
    source: CsvFile, labels: Sequence[Any], numbers: Sequence[Any], texts: Sequence[Any]
) -> tuple[Any, Where]:
    """Read columns as an Arrow table; also return a function that describes the line of a row.

    `texts` are columns of labels that stay strings, even if all of them are integers.
    """
    pa = arrow()
    from pyarrow import csv as arrow_csv

    check_header(source, [*labels, *numbers])
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
    columns |= {
        number: _number_column(table.column(number), number, where, source.decimal)
        for number in numbers
    }
    return pa.table(columns), where


@contextmanager
def _explained(source: CsvFile) -> Iterator[None]:
    """Turn errors of Arrow into errors that name the file and the likely reason."""
    pa = arrow()
    try:
        yield
    except pa.ArrowMemoryError as error:
        raise MemoryError(f"{source.name}: {error}") from None
    # UnicodeDecodeError from names and messages; OSError from damaged compressed files.
    except (pa.ArrowException, UnicodeDecodeError, OSError, EOFError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        reason = "it is empty" if "Empty CSV" in str(error) else one_line(str(error))
        if isinstance(error, UnicodeDecodeError) or "UTF8" in reason or REPLACED in reason:
            reason += SAVE_AS_UTF8
        raise ValueError(
            f"{source.name}: expected a table: {reason}{_likely_reason(source)}"
        ) from None


def _head(source: CsvFile) -> bytes:
    try:
        with source.opened() as file:
            return file.read(HEAD)
    except OSError as error:
        if error.errno is not None:
            raise
        return b""  # damaged; reading the table will report it


def _likely_reason(source: CsvFile) -> str:
    """Guess why a file could not be read; return an empty string without a guess."""
    head = _head(source).removeprefix(codecs.BOM_UTF8)
    for first, what in SUSPECT.items():
        if head.lstrip().startswith(first):
            return f"; {what}"
    if b"\0" in head:
        return "; it contains NUL bytes, so it is not UTF-8 text"
    header = head.splitlines()[0] if head else b""
    if header.count(b";") > header.count(source.delimiter.encode()):
        return (
            "; its header seems to be separated by ';' instead of ',' (.csv) or tabs (.tsv): in a "
            "shell, use --sep ';', and --decimal , if numbers have commas"
        )
    return ""


def _line(source: CsvFile, at: int) -> int:
    """Return the line, from 1, on which row `at` of a table ends; empty lines are not rows."""
    usual = csv.field_size_limit(sys.maxsize)  # the default is far below the limit of Arrow
    try:
        # Other columns may hold any bytes.
        with io.TextIOWrapper(source.opened(), "utf-8", errors="replace", newline="") as file:
            reader = csv.reader(file, delimiter=source.delimiter)
            ends = (reader.line_num for row in reader if row)  # of the header, then of each row
            return next(islice(ends, at + 1, None), reader.line_num)
    finally:
        csv.field_size_limit(usual)


def _label_column(column: Any, is_text: bool) -> Any:
    """Return strings, or integers if all of them are, as a dictionary column."""
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


def _number_column(column: Any, name: str, where: Where, decimal: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    def parsed(part: Any) -> Any:
        if decimal != ".":
            part = pc.replace_substring(pc.replace_substring(part, ".", " "), decimal, ".")
        try:
            return pc.utf8_trim_whitespace(part).cast(pa.float64())
        except pa.ArrowInvalid:
            return None

    whole = parsed(column)
    if whole is not None:
        return whole
    first, last = 0, len(column)
    while last - first > 1:  # bisect for the first value that is not a number
        middle = (first + last) // 2
        if parsed(column[first:middle]) is None:
            last = middle
        else:
            first = middle
    raise ValueError(
        f"column {name!r} must hold numbers, got {shortened(repr(column[first].as_py()))} at "
        f"{where(first)}"
    )
