"""Input of a store, read chunk by chunk: Parquet and CSV files, tables, arrays, iterators.

Only one chunk is in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import (
    Where,
    check_nulls,
    concatenated,
    first_null,
    offers_arrow,
    one_line,
)
from fastemf.inputs.csv_files import LONGEST_BLOCK, CsvFile, check_header, conversion, parsing
from fastemf.inputs.table_files import check_regular, text_in
from fastemf.inputs.tables import arrow, as_arrow_table, check_names, numbers
from fastemf.inputs.value_check import check_weights
from fastemf.support.validation import check_dtype

LONGEST = 300  # characters of a message of Arrow, which may quote a whole field


class Chunk(NamedTuple):
    """Some entries of the input."""

    name: str  # of the origin, for messages
    first: int  # number of the first entry there
    rows: Any
    cols: Any
    values: Any
    weights: Any = None
    labels: tuple[str, str] | None = None  # column names, if rows and cols are labels
    is_text: bool = False  # whether labels are the strings of a CSV file

    def place(self, entry: int) -> str:
        """Describe the position of an entry, for messages."""
        return f"entry {self.first + entry} of {self.name}"

    def checked_weights(self, dtype: np.dtype[Any], place: Where) -> NDArray[Any]:
        """Return the checked weights in the type of the values; empty without weights."""
        if self.weights is None:
            return np.empty(0, dtype)
        check_dtype(self.weights.dtype, f"weights of {self.name}")
        with np.errstate(over="ignore"):  # the check rejects infinity
            cast = np.asarray(self.weights.astype(dtype))
        check_weights(cast, self.weights, place)
        return cast

    def pieces(self, length: int) -> Iterator[Chunk]:
        """Yield at most `length` entries at a time."""
        for first in range(0, len(self.values), length):
            part = slice(first, first + length)
            yield self._replace(
                first=self.first + first,
                rows=self.rows[part],
                cols=self.cols[part],
                values=self.values[part],
                weights=None if self.weights is None else self.weights[part],
            )


@dataclass(frozen=True)
class Chunks:
    """All chunks of the input, which can be read once."""

    entries: Iterable[Chunk]
    size: int | None  # number of entries, if known in advance
    value_dtype: np.dtype[Any] | None  # if known in advance

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.entries)


class TableColumns(NamedTuple):
    """Names of the columns of a table."""

    rows: Any
    cols: Any
    values: Any
    weights: Any
    positions: bool  # whether rows and cols hold positions instead of labels

    def fields(self) -> list[tuple[str, str]]:
        """Return the role and the name of each column."""
        found = zip(("rows", "cols", "values", "weights"), self, strict=False)
        return [(field, str(name)) for field, name in found if name is not None]

    def required_names(self) -> list[str]:
        """Return the names of the columns; raise an error if one is missing or not a string."""
        for field, name in zip(("rows", "cols", "values"), self, strict=False):
            if not isinstance(name, str):
                raise TypeError(f"{field} must name a column of the table, got {name!r}")
        if self.weights is not None and not isinstance(self.weights, str):
            raise TypeError(f"weights must name a column of the table, got {self.weights!r}")
        return [name for _, name in self.fields()]


def read_chunks(source: Any, names: TableColumns, length: int) -> Chunks:
    """Open input of any kind; chunks of files have about `length` entries.

    A list may contain `CsvFile` objects, for files whose format differs from their suffix.
    """
    if isinstance(source, tuple):
        _refuse_names(names._replace(weights=None), "triplets")
        return _from_triplets(source, names.weights)
    if isinstance(source, (str, os.PathLike)):
        return _from_files(files_in(Path(source)), names, length)
    if isinstance(source, list) and source and isinstance(source[0], (str, os.PathLike, CsvFile)):
        files = [file if isinstance(file, CsvFile) else Path(file) for file in source]
        return _from_files(files, names, length)
    if isinstance(source, Iterator):
        return Chunks(_from_iterator(source, names), None, None)
    if offers_arrow(source):
        whole = _table_chunk("the table", source, names)
        return Chunks([whole], len(whole.values), check_dtype(whole.values.dtype, "values"))
    raise TypeError(
        "source must be a Parquet or CSV file, a list of them, a folder of them, a table, a tuple "
        f"(rows, cols, values) or an iterator of such chunks, got {type(source).__name__}"
    )


# --- arrays and iterators ------------------------------------------------------------------


def _from_triplets(source: tuple[Any, ...], weights: Any) -> Chunks:
    if len(source) != 3:
        raise ValueError(f"source as a tuple must be (rows, cols, values), got {len(source)} items")
    chunk = _array_chunk("the triplets", (*source, weights))
    return Chunks([chunk], len(chunk.values), check_dtype(chunk.values.dtype, "values"))


def _array_chunk(name: str, columns: Sequence[Any]) -> Chunk:
    arrays = [None if column is None else np.asarray(column) for column in columns]
    shapes = [array.shape for array in arrays if array is not None]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1:
        raise ValueError(
            f"rows, cols and values (and weights) of {name} must be one-dimensional and of equal "
            f"length, got shapes {', '.join(map(str, shapes))}"
        )
    rows, cols, values, *weights = arrays
    return Chunk(name, 0, rows, cols, values, weights[0] if weights else None)


def _from_iterator(source: Iterator[Any], names: TableColumns) -> Iterator[Chunk]:
    for number, item in enumerate(source):
        name = f"chunk {number}"
        if isinstance(item, tuple):
            _refuse_names(names, "chunks of arrays")
            if len(item) not in (3, 4):
                raise ValueError(
                    f"{name} as a tuple must be (rows, cols, values) or (rows, cols, values, "
                    f"weights), got {len(item)} items"
                )
            yield _array_chunk(name, item)
        elif offers_arrow(item):
            yield _table_chunk(name, item, names)
        else:
            raise TypeError(
                f"{name} must be a tuple (rows, cols, values) or a table, got {type(item).__name__}"
            )


def _refuse_names(names: TableColumns, what: str) -> None:
    for field, _ in names.fields():
        raise ValueError(f"{field} names a column of a table, but source has {what}")


# --- tables --------------------------------------------------------------------------------


def _table_chunk(
    name: str, table: Any, names: TableColumns, first: int = 0, *, is_text: bool = False
) -> Chunk:
    table = as_arrow_table(table, name)
    wanted = names.required_names()
    check_names(wanted, table.schema.names, name)
    here = Chunk(name, first, None, None, None)
    columns = {field: table.column(column) for field, column in names.fields()}
    try:
        values, *weights = (
            numbers(columns[field], getattr(names, field), here.place)
            for field in ("values", "weights")
            if field in columns
        )
    except TypeError as error:
        raise TypeError(f"{error} ({name})") from None
    rows, cols = columns["rows"], columns["cols"]
    found = here._replace(
        rows=rows, cols=cols, values=values, weights=weights[0] if weights else None
    )
    if not names.positions:
        return found._replace(labels=(names.rows, names.cols), is_text=is_text)
    return found._replace(
        rows=_positions(rows, names.rows, here.place), cols=_positions(cols, names.cols, here.place)
    )


def _positions(column: Any, name: str, where: Where) -> NDArray[Any]:
    check_nulls(column.null_count, lambda: first_null(column), f"column {name!r}", where)
    return concatenated(column)


# --- files ---------------------------------------------------------------------------------


def files_in(path: Path) -> list[Path]:
    """List the Parquet or CSV files in a folder; return a file as the only one."""
    if not path.is_dir():
        return [path]
    shown = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    kinds = [
        [file for file in shown if (text_in(file) is not None) == csv] for csv in (False, True)
    ]
    kinds[0] = [file for file in kinds[0] if file.suffix == ".parquet"]
    if all(kinds):
        raise ValueError(
            f"{path} holds both Parquet and CSV files, such as {kinds[0][0].name} and "
            f"{kinds[1][0].name}; pass a list of files instead"
        )
    files = kinds[0] or kinds[1]
    if not files:
        raise FileNotFoundError(f"{path} holds no .parquet, .csv or .tsv files")
    return files


def _from_files(files: Sequence[Path | CsvFile], names: TableColumns, length: int) -> Chunks:
    wanted = names.required_names()
    texts: list[CsvFile] = []
    paths: list[Path] = []
    for file in files:
        if isinstance(file, Path):
            check_regular(file)
        text = text_in(file) if isinstance(file, Path) else file
        if text is not None:
            texts.append(text)
        elif isinstance(file, Path):
            paths.append(file)
    if texts and paths:
        raise ValueError("source must list Parquet files or CSV files, got both")
    if texts:
        for text in texts:
            check_header(text, wanted)
        return Chunks(_read_csv(texts, names, wanted, length), None, np.dtype(np.float64))
    size, value_dtype = _check_parquet(paths, wanted)
    return Chunks(_read_parquet(paths, names, wanted, length), size, value_dtype)


@contextmanager
def _reading(place: str) -> Iterator[None]:
    """Turn errors of Arrow into one line that begins with the place."""
    pa = arrow()
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{place}: {one_line(str(error), LONGEST)}") from None


def _parquet_file(path: Path) -> Any:
    arrow()
    from pyarrow import parquet

    with _reading(f"{path}: cannot be read as Parquet"):
        # Read-ahead would keep more row groups in memory.
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def _check_parquet(paths: list[Path], wanted: list[str]) -> tuple[int, np.dtype[Any]]:
    """Return the number of entries and the type of the values, common to all files."""
    size = 0
    first: Any = None
    for path in paths:
        with _reading(f"{path}: cannot be read as Parquet"), _parquet_file(path) as file:
            schema = file.schema_arrow
            check_names(wanted, schema.names, str(path))
            types = [schema.field(name).type for name in wanted]
            size += file.metadata.num_rows
        first = first or types
        for name, before, here in zip(wanted, first, types, strict=True):
            if before != here:
                raise ValueError(
                    f"column {name!r} must have one type in all files, got {before} in {paths[0]} "
                    f"and {here} in {path}"
                )
    is_single = str(first[2]) == "float"
    return size, np.dtype(np.float32 if is_single else np.float64)


def _read_parquet(
    paths: list[Path], names: TableColumns, wanted: list[str], length: int
) -> Iterator[Chunk]:
    for path in paths:
        with _parquet_file(path) as file:
            total = 0
            for group in range(file.num_row_groups):
                name, done = f"{path}, row group {group}", 0
                with _reading(f"{name}: cannot be read"):
                    batches = file.iter_batches(length, row_groups=[group], columns=wanted)
                while True:
                    with _reading(f"{name}: cannot be read"):
                        batch = next(batches, None)
                        if batch is None:
                            break
                        batch.validate(full=True)  # strings may be invalid UTF-8
                        chunk = _table_chunk(name, batch, names, done)
                    yield chunk
                    done += len(batch)
                total += done
            if total != file.metadata.num_rows:
                raise ValueError(
                    f"{path}: cannot be read as Parquet: it has {total} entries instead of "
                    f"{file.metadata.num_rows}"
                )


def _read_csv(
    texts: list[CsvFile], names: TableColumns, wanted: list[str], length: int
) -> Iterator[Chunk]:
    pa = arrow()
    from pyarrow import csv

    side = pa.int64() if names.positions else pa.string()
    types = dict.fromkeys(wanted, pa.float64()) | dict.fromkeys(names[:2], side)
    options = csv.ReadOptions(block_size=max(1 << 16, min(LONGEST_BLOCK, 16 * length)))
    for text in texts:
        done = 0
        with text.opened() as file:
            with _reading(f"{text.name}: cannot be read as CSV"):
                reader = csv.open_csv(
                    file,
                    read_options=options,
                    parse_options=parsing(text.delimiter),
                    convert_options=conversion(wanted, types, text.decimal),
                )
            with reader:
                while True:
                    with _reading(f"{text.name}: cannot be read as CSV after entry {done}"):
                        batch = next(reader, None)
                        if batch is None:
                            break
                        chunk = _table_chunk(text.name, batch, names, done, is_text=True)
                    yield chunk
                    done += len(batch)
