"""`Observations`: the source in memory, of one block, made from whatever a user hands over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs import table_files, tables
from fastemf.inputs.censoring import cap_of, codes_of_cells, codes_of_lines, is_by_cell, matrix_of
from fastemf.inputs.columns import Where, position
from fastemf.inputs.entries import (
    EntryArrays,
    check_entries,
    check_same_shape,
    flat_weights,
    read_entries,
)
from fastemf.inputs.labels import Labels
from fastemf.kernels.entries import Counting, Placing, count_keys, place_entries
from fastemf.kernels.threads import launch
from fastemf.observations.source import Side, Source
from fastemf.support.memory import check_memory

__all__ = ["Observations", "group", "kept_entries", "observe"]

FLAT = ("csr", "csc", "coo")  # sparse formats that keep their values in one array
POINTER_BYTES = 32  # of each row and column: where its entries begin, their mass, and counting


@dataclass(frozen=True, eq=False)
class Observations(Source):
    """All observed entries of an (m, n) matrix in memory, by row and by column."""

    shape: tuple[int, int]
    by_row: Side
    by_col: Side
    row_labels: Labels | None = None
    col_labels: Labels | None = None

    def astype(self, dtype: np.dtype[Any]) -> Observations:
        """Convert the observations to another float type."""
        if dtype == self.dtype:
            return self
        row, col = (
            replace(side, values=side.values.astype(dtype), weights=side.weights.astype(dtype))
            for side in (self.by_row, self.by_col)
        )
        return replace(self, by_row=row, by_col=col)

    def subset(self, mask: NDArray[np.bool_]) -> Observations:
        """Return the observations where `mask`, in the order of ``by_row``, is true.

        Shape, types, weights and order stay: bitwise identical to observing those entries alone.
        """
        if mask.shape != (self.size,) or not mask.any():
            raise ValueError(
                f"mask must keep at least one of the {self.size} observations, one bool each"
            )
        of_col = np.empty_like(mask)
        of_col[self.places_by_col()] = mask
        by_row, by_col = kept_entries(self.by_row, mask), kept_entries(self.by_col, of_col)
        return replace(self, by_row=by_row, by_col=by_col)

    def places_by_col(self) -> NDArray[np.int64]:
        """Find the place in ``by_col`` of each entry of ``by_row``."""
        row, col = self.by_row, self.by_col
        # Entries of one cell are in the same order on both sides, so sorting each side by
        # column, then row, lays one beside the other.
        places = np.empty(self.size, np.int64)
        places[np.argsort(row.indices, kind="stable")] = np.lexsort((col.indices, col.keys))
        return places


def observe(
    R: Any,
    *,
    weights: Any = None,
    shape: Any = None,
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    labels: tables.Sides | None = None,
    censored: Any = None,
    n_threads: int = 1,
) -> Observations:
    """Group the observed entries of `R` by row and by column, in linear time.

    The row side of a CSR matrix (the column side of a CSC one) holds the matrix's
    own arrays where their types allow it: nobody writes to them.

    Parameters
    ----------
    R
        A scipy sparse matrix or array of any format, a dense array with NaN for
        missing, a masked array, a tuple ``(rows, cols, values)``, a table, the path of a
        file with one of these, or an `Observations` (returned as it is).
    weights
        Positive weight of each observation in the form of `R`: for triplets and
        for CSR, CSC and COO one number per stored entry; for any sparse `R` a
        sparse matrix with the same stored entries; for a dense `R` an array of
        its shape; for a table the name of a column, or one number per line.
    shape
        Rows and columns, for triplets; the default is the largest index + 1.
    rows, cols, values
        Names of a table's columns. A pandas table without them is a matrix with labels.
    labels
        Of an earlier fit, for rows and for columns: a table or triplets are placed by them,
        and a label that is not among them is an error; None for a side whose labels are new.
    censored
        Which values are known to lie at or beyond what was recorded, as in `fastemf.complete`.
    n_threads
        Threads; the result does not depend on it.

    Raises
    ------
    TypeError, ValueError, IndexError
        With the parameter, the rule and the value received; a value that is not
        finite is named by its row and column, and what is wrong in a file by the file.
    MemoryError
        There are more rows and columns than memory has room for.
    """
    if isinstance(R, Source) and not isinstance(R, Observations):
        raise TypeError(
            f"R must be in memory here, got a {type(R).__name__}: only fits, levels "
            "and quantiles read it block by block"
        )
    names = (rows, cols, values)
    if censored is not None and tables.is_table(R) and not tables.is_frame(R):
        R = tables.as_read(R)  # a stream can be read once
    if not table_files.is_source(R):
        told = (shape, names, labels, n_threads, tables.table_row)
        return _marked(_observe(R, weights, *told), R, censored, *told)
    numbers = [values] + ([weights] if isinstance(weights, str) else [])
    sides = zip((rows, cols), labels or (), strict=False)
    texts = [name for name, side in sides if side is not None and side.kind == "str"]
    columns = [rows, cols] + ([censored] if isinstance(censored, str) else [])
    with table_files.naming(R):
        content, where = table_files.read_file(R, columns, numbers, texts)
        of_file = (shape, names, labels, n_threads, where)
        return _marked(_observe(content, weights, *of_file), content, censored, *of_file)


def _marked(observed: Observations, R: Any, censored: Any, *given: Any) -> Observations:
    """Mark the observations that are censored, in whatever form `censored` says which."""
    if censored is None:
        return observed
    sides = (observed.by_row, observed.by_col)
    cap = cap_of(censored)
    if cap is not None:
        codes = [cap.codes(side.values) for side in sides]
    elif isinstance(R, Observations):
        raise ValueError("censored belongs to the data: observations that are built have theirs")
    elif is_by_cell(censored) and not tables.is_frame(R):
        if observed.row_labels is not None and (tables.is_table(R) or isinstance(R, tuple)):
            raise ValueError(
                "censored must be a column or a mark for each observation where R has labels, got "
                "a matrix"
            )
        row, col = sides
        shape = observed.shape
        codes = [
            codes_of_cells(censored, shape, row.keys, row.indices),
            codes_of_cells(censored, shape, col.indices, col.keys),
        ]
    else:
        marks = _marks_in_form(R, censored, observed.size)
        # They take the way of weights to their places: positive numbers, one per observation.
        placed = _observe(R, marks, *given)
        codes = [np.asarray(s.weights - 2, np.int8) for s in (placed.by_row, placed.by_col)]
    by_row, by_col = (replace(s, censored=c) for s, c in zip(sides, codes, strict=True))
    return replace(observed, by_row=by_row, by_col=by_col)


def _marks_in_form(R: Any, censored: Any, size: int) -> Any:
    """Return the codes of `size` observations, from 1 to 3, in the form that weights have."""
    if tables.is_frame(R) and is_by_cell(censored):
        if tables.is_frame(censored) and not (
            censored.index.equals(R.index) and censored.columns.equals(R.columns)
        ):
            raise ValueError("censored must have the index and the columns of R, got others")
        marks = matrix_of(censored)
        if marks.shape != R.shape:
            raise ValueError(f"censored must have R's shape {R.shape}, got {marks.shape}")
        codes = codes_of_lines(marks.ravel()).reshape(marks.shape)
        return type(R)(codes + 2.0, index=R.index, columns=R.columns)
    if isinstance(censored, str):
        if not tables.is_table(R):
            raise ValueError(f"censored names a column, and R is no table; got {censored!r}")
        [censored] = tables.select_columns(R, [censored])
    if not (tables.is_table(R) or isinstance(R, tuple) or getattr(R, "format", "") in FLAT):
        raise ValueError("censored must be a matrix of R's shape, which is one, got one dimension")
    lines = codes_of_lines(censored)
    if lines.size != size:
        raise ValueError(f"censored must mark each of the {size} observations, got {lines.size}")
    return lines + 2.0


def _observe(
    R: Any,
    weights: Any,
    shape: Any,
    names: tables.ColumnNames,
    labels: tables.Sides | None,
    n_threads: int,
    where: Where,
) -> Observations:
    """Observe what is in memory; `where` a line of a table was, for messages."""
    if tables.is_table(R):
        if shape is not None:
            raise ValueError(f"shape is for triplets; a table has that of its labels, got {shape}")
        known = labels or (None, None)
        if tables.is_frame(R) and names == (None, None, None):
            found = tables.from_frame(R, weights, known)
        else:
            found = tables.from_table(R, *names, weights, known, n_threads, where)
        return _labelled(found, n_threads)
    if names != (None, None, None):
        raise ValueError(
            f"rows, cols and values name the columns of a table, got {names} with R of type "
            f"{type(R).__name__}"
        )
    if labels is not None and isinstance(R, tuple) and len(R) == 3:
        if shape is not None:
            raise ValueError(f"triplets of labels have the shape of the labels, got shape={shape}")
        found = tables.from_columns(
            R[0], R[1], np.asarray(R[2]), weights, labels, (None, None), n_threads, position
        )
        return _labelled(found, n_threads)
    if isinstance(R, Observations):
        if weights is not None:
            raise ValueError("weights belong to the data: observations that are built have theirs")
        check_same_shape(shape, R.shape)
        return R
    return _grouped_both(read_entries(R, weights, shape), n_threads)


def _labelled(found: tables.Labelled, n_threads: int) -> Observations:
    row_labels, col_labels, rows, cols, values, v, where = found
    if not rows.shape == cols.shape == values.shape or values.ndim != 1:
        raise ValueError(
            "rows, cols and values must be one-dimensional and of equal length, got shapes "
            f"{rows.shape}, {cols.shape} and {values.shape}"
        )
    shape = (len(row_labels), len(col_labels))
    given = EntryArrays(shape, rows, cols, values, np.empty(0), where=where)
    entries = check_entries(given, None if v is None else flat_weights(v, values.size))
    grouped = _grouped_both(entries, n_threads)
    return replace(grouped, row_labels=row_labels, col_labels=col_labels)


def _grouped_both(entries: EntryArrays, n_threads: int) -> Observations:
    shape, rows, cols, values, v, pointers, transposed, _ = entries
    check_memory(
        POINTER_BYTES * sum(shape),
        f"a matrix of {shape[transposed]} rows and {shape[1 - transposed]} columns",
        "number those that are observed from 0, without gaps, or pass a table with labels",
    )
    if pointers is None:
        by_row = group(rows, cols, None, values, v, shape[0], n_threads)
    else:
        by_row = _side(pointers, cols, values, v)
    by_col = group(cols, rows, pointers, values, v, shape[1], n_threads)
    if transposed:
        return Observations(shape[::-1], by_col, by_row)
    return Observations(shape, by_row, by_col)


def _side(
    indptr: NDArray[np.int64], indices: NDArray[Any], values: NDArray[Any], weights: NDArray[Any]
) -> Side:
    side = Side(indptr, indices, values, weights, np.diff(indptr).astype(np.float64))
    if weights.size:
        side.mass[:] = np.bincount(side.keys, weights=weights, minlength=side.mass.size)
    return side


def kept_entries(side: Side, mask: NDArray[np.bool_]) -> Side:
    """Return the entries of a side where `mask` is true, in their order."""
    indptr = np.zeros_like(side.indptr)
    np.cumsum(np.bincount(side.keys[mask], minlength=indptr.size - 1), out=indptr[1:])
    weights, codes = (part[mask] if part.size else part for part in (side.weights, side.censored))
    kept = _side(indptr, side.indices[mask], side.values[mask], weights)
    return replace(kept, censored=codes)


def group(
    keys: NDArray[Any],
    others: NDArray[Any],
    pointers: NDArray[np.int64] | None,
    values: NDArray[Any],
    weights: NDArray[Any],
    n: int,
    n_threads: int,
) -> Side:
    """Sort by key, by counting and stably: entries stay in the given order within a key.

    Each thread counts, and later places, the keys of its own run of entries; where it starts
    within each key follows from the counts of the runs before, so the outcome is that of one
    run. What the entries' other index is, `others` or the row `pointers` say.
    """
    n_runs = max(1, min(n_threads, keys.size // n))  # tables no larger than the entries
    runs = np.arange(n_runs + 1, dtype=np.int64)
    bounds = runs * keys.size // n_runs
    table = np.zeros((n_runs, n), np.int64)
    launch(count_keys, n_threads, runs, Counting(bounds, keys, table))
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(table.sum(axis=0), out=indptr[1:])
    before = indptr[:-1].copy()
    for counts in table:  # from counts to places
        counts[:], before = before, before + counts
    indices, b, v = np.empty_like(keys), np.empty_like(values), np.empty_like(weights)
    given = (np.empty(0, np.int64) if pointers is None else pointers, others, values, weights)
    launch(place_entries, n_threads, runs, Placing(bounds, keys, *given, table, indices, b, v))
    return _side(indptr, indices, b, v)
