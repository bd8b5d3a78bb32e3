"""Tables with columns of row labels, column labels and values, and labelled matrices.

pyarrow (the extra ``table``) reads any table that supports ``__arrow_c_stream__``. Neither pandas
nor polars is imported. A pandas DataFrame without given column names is a matrix: index × columns,
NaN for missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import Where, check_nulls, concatenated, first_null, shortened, such_as
from fastemf.inputs.database import import_extra
from fastemf.inputs.entries import check_weights_shape, warn_of_triplets
from fastemf.inputs.labels import Labels, check_known
from fastemf.support.validation import check_dtype

LISTED = 50  # names of columns in a message

Sides = tuple[Labels | None, Labels | None]  # of an earlier fit; None for new labels


ValueNames = str | tuple[str, str] | None  # one column, or the lower and upper ends of intervals
ColumnNames = tuple[str | None, str | None, ValueNames]  # of a table: rows, cols, values


class Labelled(NamedTuple):
    """Observations with the labels of both sides."""

    row_labels: Labels
    col_labels: Labels
    rows: NDArray[Any]  # positions among the labels
    cols: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any] | None
    where: Where | None  # describes the position of an observation


def is_table(R: Any) -> bool:
    """Return whether `R` is a table in memory."""
    return hasattr(R, "__arrow_c_stream__") or is_frame(R) or is_lazy(R)


def is_lazy(R: Any) -> bool:
    """Return whether a table is a LazyFrame of polars, which must be collected."""
    return hasattr(R, "collect_schema") and hasattr(R, "collect") and not hasattr(R, "to_arrow")


def is_frame(R: Any) -> bool:
    """Return whether a table can be a matrix with labels on both sides, as in pandas."""
    return hasattr(R, "index") and hasattr(R, "columns") and hasattr(R, "to_numpy")


def table_row(at: int) -> str:
    """Describe the position of a row of a table."""
    return f"row {at} of the table (from 0)"


def arrow() -> Any:
    """Import pyarrow, or raise an error that names the extra to install."""
    return import_extra("pyarrow")


# --- triplets ---------------------------------------------------------------------------------


def as_read(table: Any) -> Any:
    """Return a table as an Arrow table, which can be read repeatedly."""
    pa = arrow()
    table = table.collect() if is_lazy(table) else table
    if isinstance(table, (pa.Table, pa.RecordBatch)):
        return table
    try:
        return pa.table(table)
    except (TypeError, ValueError) as error:
        raise TypeError(f"R must be a table with named columns: {error}") from None


def select_columns(table: Any, names: Sequence[Any]) -> list[Any]:
    """Return columns of a table as Arrow columns, or as Series of pandas."""
    if is_frame(table):
        arrow()
        check_names(names, list(table.columns))
        return [table[name] for name in names]
    table = as_read(table)
    check_names(names, table.column_names)
    return [table.column(name) for name in names]


def from_table(
    table: Any, rows: Any, cols: Any, values: Any, weights: Any, sides: Sides, n_threads: int,
    where: Where = table_row, *, strict: bool = True,
) -> Labelled:  # fmt: skip
    """Read observations from the rows of a table; `weights` may be a column or an array."""
    names: list[Any] = [rows, cols, values] + ([weights] if isinstance(weights, str) else [])
    if rows is not None and rows == cols:
        raise ValueError(f"rows and cols must name two columns, got {rows!r} for both")
    columns = select_columns(table, names)
    if len(columns[0]) == 0:
        raise ValueError("R must hold at least one observation, got a table without rows")
    read = [numbers(c, name, where) for c, name in zip(columns[2:], names[2:], strict=True)]
    if isinstance(weights, str):
        weights = read[1]
    return from_columns(
        columns[0], columns[1], read[0], weights, sides, (rows, cols), n_threads, where,
        strict=strict,
    )  # fmt: skip


def from_columns(
    rows: Any, cols: Any, values: NDArray[Any], weights: Any, sides: Sides,
    names: tuple[str | None, str | None], n_threads: int, where: Where, *, strict: bool = True,
) -> Labelled:  # fmt: skip
    """Read observations from columns of labels, both sides in parallel.

    Labels unknown to an earlier fit are an error or, unless `strict`, have position -1.
    """

    def read(axis: int) -> tuple[Labels, NDArray[Any]]:
        column, known, name = (rows, cols)[axis], sides[axis], names[axis]
        what = ("rows", "cols")[axis] if name is None else f"column {name!r}"
        if known is None:
            return Labels.encode(column, name, what=what, where=where)
        return known, known.positions(column, what=what, where=where)

    with ThreadPoolExecutor(min(2, n_threads)) as pool:
        (row_labels, i), (col_labels, j) = pool.map(read, (0, 1))
    if strict:
        check_known((i, rows, "rows"), (j, cols, "cols"))
    return Labelled(row_labels, col_labels, i, j, values, weights, where)


def check_names(names: Sequence[Any], present: list[Any], table: str = "the table") -> None:
    """Raise an error for column names that a table lacks or has more than once."""
    listed = ", ".join(shortened(repr(name), 60) for name in present[:LISTED]) or "none"
    if len(present) > LISTED:
        listed += f", … {len(present) - LISTED} more"
    for name in names:
        if name is None:
            raise ValueError(
                f"rows=, cols= and values= must name columns of {table}; it has {listed}"
            )
        if not isinstance(name, str):
            raise TypeError(f"column names must be strings, got {name!r}")
        if present.count(name) != 1:
            times = "no" if name not in present else "more than one"
            raise ValueError(f"{table} has {times} column {name!r}; it has {listed}")


def numbers(column: Any, name: str, where: Where) -> NDArray[Any]:
    """Return the values of a column, without a copy if Arrow has one chunk."""
    pa = arrow()
    what = f"column {name!r}"
    if hasattr(column, "iloc"):
        try:
            column = pa.array(column, from_pandas=True)
        except (TypeError, ValueError, NotImplementedError) as error:  # also those of pyarrow
            raise TypeError(f"{what} must hold numbers: {error}") from None
    check_nulls(column.null_count, lambda: first_null(column), what, where)
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise TypeError(f"{what} must hold numbers, got type {kind}{such_as(column, 0, where)}")
    values = concatenated(column)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
        check_nulls(int(np.count_nonzero(missing)), lambda: int(np.argmax(missing)), what, where)
    return values


# --- labelled matrices -------------------------------------------------------------------------


def from_frame(frame: Any, weights: Any, sides: Sides, *, strict: bool = True) -> Labelled:
    """Read the observations of a DataFrame as a matrix: all values except NaN."""
    matrix = _matrix(frame, "R")
    if matrix.size == 0:
        raise ValueError(f"R must hold at least one observation, got shape {matrix.shape}")
    warn_of_triplets(matrix)
    i, j = np.nonzero(~np.isnan(matrix))
    v = None
    if weights is not None:
        if is_frame(weights) and not (
            weights.index.equals(frame.index) and weights.columns.equals(frame.columns)
        ):
            raise ValueError("weights must have the index and the columns of R")
        v = _matrix(weights, "weights") if is_frame(weights) else np.asarray(weights)
        check_weights_shape(v, matrix.shape)
        v = v[i, j]
    found = from_columns(
        np.asarray(frame.index), np.asarray(frame.columns), matrix[i, j], v, sides,
        (_name(frame.index), _name(frame.columns)), 1, table_row, strict=strict,
    )  # fmt: skip
    _check_distinct(found.rows[found.rows >= 0], found.row_labels, "index")
    _check_distinct(found.cols[found.cols >= 0], found.col_labels, "columns")
    return found._replace(rows=found.rows[i], cols=found.cols[j], where=None)


def _check_distinct(places: NDArray[Any], labels: Labels, side: str) -> None:
    """Raise an error for repeated labels, because a matrix has no repeated observations."""
    counts = np.bincount(places)
    if counts.max(initial=0) > 1:
        label = labels.values[np.argmax(counts > 1)]
        times = counts[np.argmax(counts > 1)]
        raise ValueError(
            f"the {side} of R as a matrix must have distinct labels, got {label!r} {times} times; "
            "rename or drop one, or pass repeated observations as triplets, with rows=, cols= and "
            "values="
        )


def _matrix(frame: Any, name: str) -> NDArray[Any]:
    array = np.asarray(frame.to_numpy())
    others = [
        (c, t) for c, t in zip(frame.columns, frame.dtypes, strict=True) if t.kind not in "biuf"
    ]
    if others:
        raise TypeError(
            f"{name} must hold real numbers, got column {others[0][0]!r} of dtype {others[0][1]}"
            "; if its columns are labels and values, name them by rows=, cols= and values="
        )
    if array.dtype == object:  # nullable numbers
        array = np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    check_dtype(array.dtype, name)
    return array


def _name(index: Any) -> str | None:
    name = getattr(index, "name", None)
    return name if isinstance(name, str) else None
