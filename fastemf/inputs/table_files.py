"""Tables and sparse matrices in files, by extension, and CSV on standard streams."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fastemf.inputs.columns import Where, one_line
from fastemf.inputs.csv_files import DELIMITERS, CsvFile, csv_bytes, csv_names, read_csv
from fastemf.inputs.sparse_files import MATRICES, read_matrix
from fastemf.inputs.tables import arrow, check_names, table_row
from fastemf.support.atomic_file import replace_file

WRITTEN = (*DELIMITERS, ".parquet")
PACKED = {".gz": "gzip", ".zst": "zstd"}  # suffixes of compressed CSV
PACKED_TABLES = {
    f"{plain}{ending}": delimiter for plain, delimiter in DELIMITERS.items() for ending in PACKED
}
TEXTS = DELIMITERS | PACKED_TABLES  # delimiters by suffix
TABLES = (*WRITTEN, *PACKED_TABLES, ".jsonl")
FORMATS = (*TABLES, *MATRICES)


class FromFile(NamedTuple):
    """Content of a file."""

    content: Any  # an Arrow table or a SciPy sparse matrix
    where: Where  # describes the position of a row


@contextmanager
def naming(source: Any) -> Iterator[None]:
    """Add the name of a file to errors about its content."""
    try:
        yield
    except (TypeError, ValueError, IndexError, MemoryError) as error:
        name = name_of(source)
        if name in str(error):
            raise
        # Subclasses such as UnicodeDecodeError take other arguments.
        kinds = (TypeError, IndexError, MemoryError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"{name}: {error}") from None


def is_source(R: Any) -> bool:
    """Return whether `R` is a path, ``"-"`` or an open file."""
    return isinstance(R, (str, os.PathLike)) or hasattr(R, "read")


def is_table_source(source: Any) -> bool:
    """Return whether a source is a table file by its suffix, standard input or an open file.

    Examples
    --------
    >>> from fastemf.inputs.table_files import is_table_source
    >>> is_table_source("log.csv"), is_table_source("R.mtx")
    (True, False)
    """
    if not isinstance(source, (str, os.PathLike)) or source == "-":
        return True
    return Path(source).name.lower().endswith(TABLES)


def read_file(
    source: Any, labels: Sequence[Any], numbers: Sequence[Any], texts: Sequence[Any] = ()
) -> FromFile:
    r"""Read columns of the table in a file, or the matrix in a file.

    Parameters
    ----------
    source
        A path that ends in .csv or .tsv (optionally followed by .gz or .zst), .jsonl, .parquet,
        .mtx, .mtx.gz or .npz (of SciPy), ``"-"`` for CSV on standard input, or an open CSV file,
        whose optional attributes `delimiter` and `decimal` describe its format.
    labels, numbers
        Names of the columns of labels and of numbers.
    texts
        Columns of labels that stay strings, even if all labels of a CSV file are integers.

    Raises
    ------
    ValueError
        A column is missing, a value is not a number, or the file is empty or damaged.

    Examples
    --------
    >>> import io
    >>> from fastemf.inputs import table_files
    >>> log = io.StringIO("client,ms\neu-7,12.5\n")
    >>> table_files.read_file(log, labels=["client"], numbers=["ms"]).content.to_pylist()
    [{'client': 'eu-7', 'ms': 12.5}]
    """
    text = _csv_in(source)
    if text is not None:
        return FromFile(*read_csv(text, labels, numbers, texts))
    path, extension = _existing(source)
    if extension == ".parquet":
        return _read_parquet(path, [*labels, *numbers])
    if extension == ".jsonl":
        return _read_lines(path, [*labels, *numbers])
    return FromFile(read_matrix(path, extension), table_row)


def column_names(source: Any) -> list[str] | None:
    r"""Return the column names of the table in a file; None for a file with a matrix.

    `source` is as in `read_file`; an open file is read to its end.

    Examples
    --------
    >>> import io
    >>> from fastemf.inputs import table_files
    >>> table_files.column_names(io.StringIO("client,ms\neu-7,12.5\n"))
    ['client', 'ms']
    """
    text = _csv_in(source)
    if text is not None:
        return csv_names(text)
    path, extension = _existing(source)
    if extension == ".jsonl":
        return list(_lines(path).column_names)
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
        stdout = getattr(sys.stdout, "buffer", sys.stdout)  # UTF-8, independent of the terminal
        file: Any = stdout if isinstance(target, str) else target
        text = csv_bytes(table, ",")
        if isinstance(file, io.TextIOBase):
            file.write(text.decode())
        else:
            file.write(text)
        return
    extension = _extension(Path(target), WRITTEN)
    with replace_file(target, "a table") as whole:
        if extension in DELIMITERS:
            whole.write(csv_bytes(table, DELIMITERS[extension]))
        elif extension == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, whole)
        else:
            raise ValueError(f"no table can be written as {extension}")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise an error if no table can be written to a path of this name."""
    _extension(Path(path), WRITTEN)


def text_in(path: Path, delimiter: str | None = None, decimal: str | None = None) -> CsvFile | None:
    """Return a CSV file, with the format of its suffix unless given; None for other files."""
    for ending, usual in TEXTS.items():
        if path.name.lower().endswith(ending):
            return CsvFile(lambda: _opened(path), str(path), delimiter or usual, decimal or ".")
    return None


def check_regular(path: Path, instead: str = "") -> None:
    """Raise an error unless a path is a regular file; `instead` ends the message."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():  # pipes cannot be read twice, and devices may be endless
        raise OSError(f"{path}: expected a regular file{instead}")


def _opened(path: Path) -> Any:
    """Open a CSV file, decompressed if it is compressed by gzip or zstd."""
    file: Any = path.open("rb")  # for the error message of the system
    if path.is_file():  # files of Arrow do not need the GIL; a pipe cannot be opened again
        file.close()
        file = arrow().OSFile(os.fsencode(path))
    packing = PACKED.get(path.suffix.lower())
    return file if packing is None else arrow().CompressedInputStream(file, packing)


def _existing(source: Any) -> tuple[Path, str]:
    path = Path(source)
    if path.is_dir():
        raise IsADirectoryError(
            f"{path}: expected a file, got a folder; only fit, levels, quantiles and "
            "update --all accept a store"
        )
    check_regular(path, "; CSV from a pipe is read as -")
    return path, _extension(path, FORMATS)


def _extension(path: Path, formats: tuple[str, ...]) -> str:
    for extension in formats:
        if path.name.lower().endswith(extension):
            return extension
    raise ValueError(f"{path}: the name must end in {', '.join(formats)}")


def _csv_in(source: Any) -> CsvFile | None:
    """Return the CSV of a source; None for files in other formats."""
    if isinstance(source, (str, os.PathLike)) and source != "-":
        return text_in(_existing(source)[0])
    if isinstance(source, str) and sys.stdin is None:
        raise ValueError("standard input is closed")
    file = sys.stdin.buffer if isinstance(source, str) else source
    text = file.read()
    content = text.encode() if isinstance(text, str) else text
    how = getattr(source, "delimiter", ","), getattr(source, "decimal", ".")
    return CsvFile(lambda: io.BytesIO(content), name_of(source), *how)


def name_of(source: Any) -> str:
    """Return the name of a source for messages."""
    if isinstance(source, (str, os.PathLike)):
        return "standard input" if source == "-" else str(Path(source))
    return str(getattr(source, "name", "the file"))


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    pa = arrow()
    from pyarrow import parquet

    try:
        # Passed as bytes, because a path need not be UTF-8.
        with pa.OSFile(os.fsencode(path)) as bytes_, parquet.ParquetFile(bytes_) as file:
            yield file
    except pa.ArrowMemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a Parquet file: {one_line(str(error))}") from None


def _lines(path: Path) -> Any:
    """Read a file with one JSON object per line."""
    pa = arrow()
    from pyarrow import json

    try:
        with pa.OSFile(os.fsencode(path)) as file:
            return json.read_json(file)
    except pa.ArrowMemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: expected one JSON object per line: {one_line(str(error))}"
        ) from None


def _read_lines(path: Path, names: Sequence[Any]) -> FromFile:
    table = _lines(path)
    check_names(names, table.column_names, str(path))
    table = table.select(list(dict.fromkeys(names)))
    table.validate(full=True)
    return FromFile(table, lambda at: f"line {at + 1} of {path}")


def _read_parquet(path: Path, names: Sequence[Any]) -> FromFile:
    with _parquet(path) as file:
        check_names(names, file.schema_arrow.names, str(path))
        table = file.read(columns=list(dict.fromkeys(names)))
        table.validate(full=True)  # strings may be invalid UTF-8
    if len(table) == 0:
        raise ValueError(f"{path}: expected rows, got none")
    return FromFile(table, lambda at: f"row {at} of {path} (from 0)")
