"""What a store is built from, chunk by chunk: Parquet, CSV, tables, arrays, an iterator.

Nothing is held but the chunk at hand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.validation import check_dtype

__all__ = ["Chunk", "Chunks", "Names", "read_chunks"]


class Chunk(NamedTuple):
    """Some entries, as they came."""

    name: str  # where they came from, for messages
    first: int  # number of the first entry there
    rows: Any
    cols: Any
    values: Any
    weights: Any = None

    def place(self, entry: int) -> str:
        """Where an entry is, for a message."""
        return f"entry {self.first + entry} of {self.name}"

    def pieces(self, length: int) -> Iterator[Chunk]:
        """At most `length` entries at a time."""
        for first in range(0, len(self.values), length):
            part = slice(first, first + length)
            columns = [None if column is None else column[part] for column in self[2:]]
            yield Chunk(self.name, self.first + first, *columns)


@dataclass(frozen=True)
class Chunks:
    """All chunks of a source, to be read once."""

    entries: Iterable[Chunk]
    size: int | None  # number of entries, where it is known before they are read
    value_dtype: np.dtype[Any] | None  # likewise

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.entries)


class Names(NamedTuple):
    """Which columns of a table are meant."""

    rows: Any
    cols: Any
    values: Any
    weights: Any

    def given(self) -> list[str]:
        """Those that are needed, each of them a string."""
        for field, name in zip(("rows", "cols", "values"), self, strict=False):
            if not isinstance(name, str):
                raise TypeError(f"{field} must name a column of the table, got {name!r}")
        if self.weights is not None and not isinstance(self.weights, str):
            raise TypeError(f"weights must name a column of the table, got {self.weights!r}")
        return [name for name in self if name is not None]


def read_chunks(source: Any, names: Names, length: int) -> Chunks:
    """Open a source of any kind; chunks have about `length` entries where that can be chosen."""
    if isinstance(source, tuple):
        _refuse_names(names._replace(weights=None), "triplets")
        return _from_triplets(source, names.weights)
    if isinstance(source, (str, os.PathLike)):
        return _from_files(_files_in(Path(source)), names, length)
    if isinstance(source, list) and source and isinstance(source[0], (str, os.PathLike)):
        return _from_files([Path(path) for path in source], names, length)
    if isinstance(source, Iterator):
        return Chunks(_from_iterator(source, names), None, None)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
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
    return Chunk(name, 0, *arrays)


def _from_iterator(source: Iterator[Any], names: Names) -> Iterator[Chunk]:
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
        elif hasattr(item, "__arrow_c_stream__") or hasattr(item, "__arrow_c_array__"):
            yield _table_chunk(name, item, names)
        else:
            raise TypeError(
                f"{name} must be a tuple (rows, cols, values) or a table, got {type(item).__name__}"
            )


def _refuse_names(names: Names, what: str) -> None:
    for field, name in zip(Names._fields, names, strict=True):
        if name is not None:
            raise ValueError(f"{field} names a column of a table, but source has {what}")


# --- tables --------------------------------------------------------------------------------


def _arrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise ModuleNotFoundError("tables need pyarrow: pip install 'fastemf[table]'") from None
    return pyarrow


def _table_chunk(name: str, table: Any, names: Names, first: int = 0) -> Chunk:
    pa = _arrow()
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        try:
            table = pa.table(table)
        except (TypeError, ValueError, pa.ArrowInvalid) as error:
            raise TypeError(f"{name} must be a table with named columns: {error}") from None
    wanted = names.given()
    _check_columns(wanted, table.schema.names, name)
    columns = []
    for column_name in wanted:
        column = table.column(column_name)
        where = f"column {column_name!r} of {name}"
        if column.null_count:
            import pyarrow.compute as pc

            entry = first + pc.index(pc.is_null(column), True).as_py()
            raise ValueError(
                f"{where} must have no nulls, got {column.null_count}, the first at entry {entry}; "
                "leave missing entries out"
            )
        columns.append(_as_numpy(column, where))
    return Chunk(name, first, *columns)


def _as_numpy(column: Any, where: str) -> NDArray[Any]:
    kind = column.type
    if str(kind).startswith(("decimal", "list", "struct", "map")):
        raise TypeError(f"{where} has type {kind}; expected numbers")
    parts = column.chunks if hasattr(column, "chunks") else [column]
    arrays = [part.to_numpy(zero_copy_only=False) for part in parts]
    if len(arrays) == 1:
        return np.asarray(arrays[0])
    return np.concatenate(arrays) if arrays else np.empty(0, kind.to_pandas_dtype())


def _check_columns(wanted: list[str], present: list[str], name: str) -> None:
    for column in wanted:
        if present.count(column) != 1:
            times = "no" if column not in present else "more than one"
            listed = ", ".join(map(repr, present)) or "none"
            raise ValueError(f"{name} has {times} column {column!r}; it has {listed}")


# --- files ---------------------------------------------------------------------------------


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    shown = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    kinds = [[file for file in shown if _is_csv(file) == csv] for csv in (False, True)]
    kinds[0] = [file for file in kinds[0] if file.suffix == ".parquet"]
    if all(kinds):
        raise ValueError(
            f"{path} holds both Parquet and CSV files, such as {kinds[0][0].name} and "
            f"{kinds[1][0].name}; give a list of those that are meant"
        )
    files = kinds[0] or kinds[1]
    if not files:
        raise FileNotFoundError(f"{path} holds no .parquet or .csv files")
    return files


def _is_csv(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".csv.gz"))


def _from_files(paths: list[Path], names: Names, length: int) -> Chunks:
    wanted = names.given()
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
    kinds = {_is_csv(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError("source must list Parquet files or CSV files, got both")
    if kinds.pop():
        return Chunks(_read_csv(paths, names, wanted, length), None, np.dtype(np.float64))
    size, value_dtype = _check_parquet(paths, wanted)
    return Chunks(_read_parquet(paths, names, wanted, length), size, value_dtype)


def _parquet_file(path: Path) -> Any:
    pa = _arrow()
    from pyarrow import parquet

    try:
        # Buffering ahead holds whole row groups more; so does a data set's scanner.
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: cannot be read as Parquet: {error}") from None


def _check_parquet(paths: list[Path], wanted: list[str]) -> tuple[int, np.dtype[Any]]:
    """Number of entries, and the type of their values, which all files share."""
    size = 0
    first: Any = None
    for path in paths:
        with _parquet_file(path) as file:
            schema = file.schema_arrow
            _check_columns(wanted, schema.names, str(path))
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
    paths: list[Path], names: Names, wanted: list[str], length: int
) -> Iterator[Chunk]:
    pa = _arrow()
    for path in paths:
        with _parquet_file(path) as file:
            for group in range(file.num_row_groups):
                name, done = f"{path}, row group {group}", 0
                try:
                    for batch in file.iter_batches(length, row_groups=[group], columns=wanted):
                        yield _table_chunk(name, batch, names, done)
                        done += len(batch)
                except (pa.ArrowException, OSError) as error:
                    if isinstance(error, (pa.ArrowException, pa.ArrowIOError)):
                        raise ValueError(f"{name}: cannot be read: {error}") from None
                    raise


def _read_csv(paths: list[Path], names: Names, wanted: list[str], length: int) -> Iterator[Chunk]:
    pa = _arrow()
    from pyarrow import csv

    numbers = [name for name in (names.values, names.weights) if name is not None]
    types = dict.fromkeys(numbers, pa.float64())
    for path in paths:
        convert = csv.ConvertOptions(
            include_columns=wanted, column_types=types, strings_can_be_null=True
        )
        options = csv.ReadOptions(block_size=max(1 << 16, min(1 << 24, 16 * length)))
        done = 0
        try:
            with csv.open_csv(path, read_options=options, convert_options=convert) as reader:
                for batch in reader:
                    yield _table_chunk(str(path), batch, names, done)
                    done += len(batch)
        except pa.ArrowKeyError as error:
            raise ValueError(f"{path}: {error.args[0]}") from None
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"{path}: cannot be read as CSV after line {done + 1}: {error}"
            ) from None
