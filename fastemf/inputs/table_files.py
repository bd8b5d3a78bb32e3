"""Tables and sparse matrices in files, by extension; CSV on standard streams too."""

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
from fastemf.support.whole_file import replacing

__all__ = [
    "FORMATS",
    "TEXTS",
    "FromFile",
    "check_regular",
    "check_writable",
    "column_names",
    "is_source",
    "is_table_source",
    "name_of",
    "read_file",
    "text_in",
    "write_table",
]

WRITTEN = (*DELIMITERS, ".parquet")
PACKED = {".gz": "gzip", ".zst": "zstd"}  # endings after that of CSV
PACKED_TABLES = {
    f"{plain}{ending}": delimiter for plain, delimiter in DELIMITERS.items() for ending in PACKED
}
TEXTS = DELIMITERS | PACKED_TABLES  # what separates the columns, by ending
TABLES = (*WRITTEN, *PACKED_TABLES, ".jsonl")
FORMATS = (*TABLES, *MATRICES)


class FromFile(NamedTuple):
    """Content of a file."""

    content: Any  # an Arrow table, or a scipy sparse matrix
    where: Where  # a line of the table is


@contextmanager
def naming(source: Any) -> Iterator[None]:
    """Let every error about the content of a file name it."""
    try:
        yield
    except (TypeError, ValueError, IndexError, MemoryError) as error:
        name = name_of(source)
        if name in str(error):
            raise
        # Not always the error's own type: that of a decoder takes other arguments.
        kinds = (TypeError, IndexError, MemoryError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"{name}: {error}") from None


def is_source(R: Any) -> bool:
    """Return whether `R` is a path, ``"-"`` or an open file."""
    return isinstance(R, (str, os.PathLike)) or hasattr(R, "read")


def is_table_source(source: Any) -> bool:
    """Return whether a source is a file with a table by its name, standard input or an open file.

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
    r"""Read the columns named from a file's table, or the matrix it holds.

    Parameters
    ----------
    source
        A path that ends in .csv or .tsv (or these and .gz or .zst), .jsonl, .parquet, .mtx,
        .mtx.gz or .npz (of scipy), ``"-"`` for CSV on standard input, or an open file with CSV,
        whose attributes `delimiter` and `decimal`, where it has them, say how it is written.
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
    r"""Return the names of the columns of a file's table; None for a file with a matrix.

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
        stdout = getattr(sys.stdout, "buffer", sys.stdout)  # UTF-8 whatever a terminal speaks
        file: Any = stdout if isinstance(target, str) else target
        text = csv_bytes(table, ",")
        if isinstance(file, io.TextIOBase):
            file.write(text.decode())
        else:
            file.write(text)
        return
    extension = _extension(Path(target), WRITTEN)
    with replacing(target, "a table") as whole:
        if extension in DELIMITERS:
            whole.write(csv_bytes(table, DELIMITERS[extension]))
        elif extension == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, whole)
        else:
            raise ValueError(f"no table can be written as {extension}")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a name that no table can be written to, before there is one."""
    _extension(Path(path), WRITTEN)


def text_in(path: Path, delimiter: str | None = None, decimal: str | None = None) -> CsvFile | None:
    """Return a file's CSV, written as its ending says but for what is told; None for no CSV."""
    for ending, usual in TEXTS.items():
        if path.name.lower().endswith(ending):
            return CsvFile(lambda: _opened(path), str(path), delimiter or usual, decimal or ".")
    return None


def check_regular(path: Path, instead: str = "") -> None:
    """Refuse what is no file, or none that can be read twice; `instead` ends the message."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():  # a pipe cannot be read twice, and a device may have no end
        raise OSError(f"{path}: expected a regular file{instead}")


def _opened(path: Path) -> Any:
    """Open the text of a CSV file, unpacked if it is packed by gzip or zstd."""
    file: Any = path.open("rb")  # says in the system's words why it cannot be read
    if path.is_file():  # Arrow's own needs no lock of Python's; a pipe is not opened again
        file.close()
        file = arrow().OSFile(os.fsencode(path))
    packing = PACKED.get(path.suffix.lower())
    return file if packing is None else arrow().CompressedInputStream(file, packing)


def _existing(source: Any) -> tuple[Path, str]:
    path = Path(source)
    if path.is_dir():
        raise IsADirectoryError(
            f"{path}: expected a file, got a folder; a store can be fitted, by fit, levels, "
            "quantiles and update --all, and nothing else"
        )
    check_regular(path, "; CSV from a pipe is read as -")
    return path, _extension(path, FORMATS)


def _extension(path: Path, formats: tuple[str, ...]) -> str:
    for extension in formats:
        if path.name.lower().endswith(extension):
            return extension
    raise ValueError(f"{path}: the name must end in {', '.join(formats)}")


def _csv_in(source: Any) -> CsvFile | None:
    """Find a source's CSV; None for files in other formats."""
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
    """Return what messages call a source."""
    if isinstance(source, (str, os.PathLike)):
        return "standard input" if source == "-" else str(Path(source))
    return str(getattr(source, "name", "the file"))


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    pa = arrow()
    from pyarrow import parquet

    try:
        # By its bytes, which Arrow takes as they are, a name need not be text in UTF-8.
        with pa.OSFile(os.fsencode(path)) as bytes_, parquet.ParquetFile(bytes_) as file:
            yield file
    except pa.ArrowMemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a Parquet file: {one_line(str(error))}") from None


def _lines(path: Path) -> Any:
    """Read a file with an object of JSON on each line."""
    pa = arrow()
    from pyarrow import json

    try:
        with pa.OSFile(os.fsencode(path)) as file:
            return json.read_json(file)
    except pa.ArrowMemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: expected an object of JSON on each line: {one_line(str(error))}"
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
        table.validate(full=True)  # text that is no UTF-8 would be found out by who uses it
    if len(table) == 0:
        raise ValueError(f"{path}: expected rows, got none")
    return FromFile(table, lambda at: f"row {at} of {path} (from 0)")
