"""Tables and sparse matrices in files, by extension; CSV on standard streams too.

Labels of a CSV file are integers where all of a column are written as integers are (``7``,
``-12``); one that is not, such as ``007``, makes the column strings, dates included. Parquet
files have types of their own.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from fastemf.inputs.columns import Where
from fastemf.inputs.tables import arrow, check_names, table_row
from fastemf.support.whole_file import replacing

__all__ = [
    "FORMATS",
    "FromFile",
    "check_writable",
    "column_names",
    "is_source",
    "read_file",
    "write_table",
]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
TABLES = (*DELIMITERS, ".parquet")
MATRICES = (".mtx", ".mtx.gz", ".npz")
FORMATS = (*TABLES, *MATRICES)
INTEGER = r"^(0|-?[1-9][0-9]*)$"


class FromFile(NamedTuple):
    """Content of a file."""

    content: Any  # an Arrow table, or a scipy sparse matrix
    where: Where  # a line of the table is


def is_source(R: Any) -> bool:
    """Return whether `R` is a path, ``"-"`` or an open file."""
    return isinstance(R, (str, os.PathLike)) or hasattr(R, "read")


def read_file(
    source: Any, labels: Sequence[Any], numbers: Sequence[Any], texts: Sequence[Any] = ()
) -> FromFile:
    r"""Read the columns named from a file's table, or the matrix it holds.

    Parameters
    ----------
    source
        A path that ends in .csv, .tsv, .parquet, .mtx, .mtx.gz or .npz (of scipy), ``"-"``
        for CSV on standard input, or an open file with CSV.
    labels, numbers
        Names of the columns that hold labels, and of those that hold numbers.
    texts
        Those of the labels that are strings even where all of a CSV file look like integers.

    Raises
    ------
    ValueError
        A column is missing; a value is not a number (its line is named); the file is empty or
        damaged.

    Examples
    --------
    >>> import io
    >>> from fastemf.inputs import table_files
    >>> log = io.StringIO("client,ms\neu-7,12.5\n")
    >>> table_files.read_file(log, labels=["client"], numbers=["ms"]).content.to_pylist()
    [{'client': 'eu-7', 'ms': 12.5}]
    """
    csv = _csv_in(source)
    if csv is not None:
        return _read_csv(csv, labels, numbers, texts)
    path, extension = _existing(source)
    if extension == ".parquet":
        return _read_parquet(path, [*labels, *numbers])
    return FromFile(_read_matrix(path, extension), table_row)


def column_names(source: Any) -> list[str] | None:
    r"""Return the names of the columns of a file's table; None for a file with a matrix.

    `source` is as in `read_file`; an open file is read to its end.

    Examples
    --------
    >>> import io
    >>> from fastemf.inputs import table_files
    >>> table_files.column_names(io.StringIO("client,ms\neu-7,12.5\n"))
    ['client', 'ms']
    """
    csv = _csv_in(source)
    if csv is not None:
        return _csv_names(csv)
    path, extension = _existing(source)
    if extension != ".parquet":
        return None
    with _parquet(path) as file:
        return list(file.schema_arrow.names)


def write_table(target: Any, columns: Mapping[str, Any]) -> None:
    """Write columns of equal length as a table.

    Parameters
    ----------
    target
        A path that ends in .csv, .tsv or .parquet, ``"-"`` for CSV on standard output, or
        an open file for CSV.
    columns
        Arrays by name.

    Examples
    --------
    >>> import io
    >>> from fastemf.inputs import table_files
    >>> out = io.StringIO()
    >>> table_files.write_table(out, {"client": ["eu-7"], "ms": [12.5]})
    >>> print(out.getvalue())
    "client","ms"
    "eu-7",12.5
    <BLANKLINE>
    """
    table = arrow().table(dict(columns))
    if not isinstance(target, (str, os.PathLike)) or target == "-":
        stdout = getattr(sys.stdout, "buffer", sys.stdout)  # UTF-8 whatever a terminal speaks
        file: Any = stdout if isinstance(target, str) else target
        text = _csv_of(table, ",")
        if isinstance(file, io.TextIOBase):
            file.write(text.decode())
        else:
            file.write(text)
        return
    extension = _extension(Path(target), TABLES)
    with replacing(target, "a table") as whole:
        if extension in DELIMITERS:
            whole.write(_csv_of(table, DELIMITERS[extension]))
        else:
            from pyarrow import parquet

            parquet.write_table(table, whole)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a name that no table can be written to, before there is one."""
    _extension(Path(path), TABLES)


def _existing(source: Any) -> tuple[Path, str]:
    path = Path(source)
    if path.is_dir():
        raise IsADirectoryError(
            f"{path}: expected a file, got a folder; a store can be fitted, at one level or "
            "several, and nothing else"
        )
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    return path, _extension(path, FORMATS)


def _extension(path: Path, formats: tuple[str, ...]) -> str:
    for extension in formats:
        if path.name.lower().endswith(extension):
            return extension
    raise ValueError(f"{path}: the name must end in {', '.join(formats)}")


# --- CSV -----------------------------------------------------------------------------------


def _csv_of(table: Any, delimiter: str) -> bytes:
    from pyarrow import csv as arrow_csv

    out = io.BytesIO()
    arrow_csv.write_csv(table, out, arrow_csv.WriteOptions(delimiter=delimiter))
    return out.getvalue()


class _Csv(NamedTuple):
    opened: Callable[[], IO[bytes]]
    name: str
    delimiter: str


def _csv_in(source: Any) -> _Csv | None:
    """Find a source's CSV; None for files in other formats."""
    if isinstance(source, (str, os.PathLike)) and source != "-":
        path, extension = _existing(source)
        if extension not in DELIMITERS:
            return None
        return _Csv(lambda: path.open("rb"), str(path), DELIMITERS[extension])
    file = sys.stdin.buffer if isinstance(source, str) else source
    text = file.read()
    content = text.encode() if isinstance(text, str) else text
    name = "standard input" if source == "-" else str(getattr(source, "name", "the file"))
    return _Csv(lambda: io.BytesIO(content), name, ",")


@contextmanager
def _parsing(csv: _Csv) -> Iterator[None]:
    try:
        yield
    except arrow().ArrowInvalid as error:
        reason = "it is empty" if "Empty CSV" in str(error) else str(error)
        if "UTF8" in reason:
            reason += "; save the file as UTF-8"
        with csv.opened() as file:
            header = file.readline().decode(errors="replace")
        if header.count(";") > header.count(csv.delimiter):
            reason += (
                "; its header looks separated by ';', where ',' (.csv) or tabs (.tsv) are read"
            )
        raise ValueError(f"{csv.name}: expected a table: {reason}") from None


def _csv_names(csv: _Csv) -> list[str]:
    arrow()
    from pyarrow import csv as arrow_csv

    parse = arrow_csv.ParseOptions(delimiter=csv.delimiter, newlines_in_values=True)
    with _parsing(csv), csv.opened() as file:
        return list(arrow_csv.open_csv(file, parse_options=parse).schema.names)


def _read_csv(
    csv: _Csv, labels: Sequence[Any], numbers: Sequence[Any], texts: Sequence[Any]
) -> FromFile:
    pa = arrow()
    from pyarrow import csv as arrow_csv

    name, opened = csv.name, csv.opened
    check_names([*labels, *numbers], _csv_names(csv), name)
    wanted = list(dict.fromkeys([*labels, *numbers]))
    convert = arrow_csv.ConvertOptions(
        include_columns=wanted,
        column_types=dict.fromkeys(wanted, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = arrow_csv.ParseOptions(delimiter=csv.delimiter, newlines_in_values=True)
    with _parsing(csv), opened() as file:
        table = arrow_csv.read_csv(file, parse_options=parse, convert_options=convert)
    if len(table) == 0:
        raise ValueError(f"{name}: expected lines after the header, got none")

    def where(at: int) -> str:
        return f"line {_line(opened, csv.delimiter, at)} of {name}"

    columns = {label: _label_column(table.column(label), label in texts) for label in labels}
    columns |= {number: _number_column(table.column(number), number, where) for number in numbers}
    return FromFile(pa.table(columns), where)


def _line(opened: Callable[[], IO[bytes]], delimiter: str, at: int) -> int:
    """Return the line, from 1, on which row `at` of a table ends: empty lines are no rows."""
    with io.TextIOWrapper(opened(), "utf-8", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
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


# --- other formats -------------------------------------------------------------------------


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    pa = arrow()
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: expected a Parquet file: {error}") from None


def _read_parquet(path: Path, names: Sequence[Any]) -> FromFile:
    with _parquet(path) as file:
        check_names(names, file.schema_arrow.names, str(path))
        table = file.read(columns=list(dict.fromkeys(names)))
    if len(table) == 0:
        raise ValueError(f"{path}: expected rows, got none")
    return FromFile(table, table_row)


def _read_matrix(path: Path, extension: str) -> Any:
    import scipy.io
    import scipy.sparse

    try:
        if extension == ".npz":
            return scipy.sparse.load_npz(path)
        return scipy.io.mmread(path)
    except Exception as error:  # whatever the bytes make scipy, zipfile or zlib raise
        kind = "a sparse matrix of scipy" if extension == ".npz" else "a Matrix Market file"
        raise ValueError(f"{path}: expected {kind}: {error}") from None
