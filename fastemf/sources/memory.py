"""`Observations`: the source in memory, and `observe`, which builds it from any kind of input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fastemf.censoring import limits
from fastemf.features.reading import check_names, find_columns, read_log_features
from fastemf.features.schema import FeatureSchema, FeatureTable, check_feature_names
from fastemf.features.times import Times
from fastemf.inputs import file_lists, intervals, table_files, tables
from fastemf.inputs.columns import Where, position
from fastemf.inputs.entries import (
    EntryArrays,
    check_entries,
    check_lengths,
    check_same_shape,
    flat_weights,
    index_dtype,
    read_entries,
)
from fastemf.inputs.labels import Labels
from fastemf.sources.grouping import group, make_side, select_entries, sum_weights
from fastemf.sources.source import Side, Source
from fastemf.support.arrays import Array, Ints, Mask
from fastemf.support.memory import check_memory

FLAT = ("csr", "csc", "coo")  # sparse formats with one value per stored entry
FeatureReader = Callable[[int], FeatureTable]  # of the number of entries, in the given order
POINTER_BYTES = 32  # of each row and column: pointer, mass, and counts


@dataclass(frozen=True, eq=False)
class Observations(Source):
    """All observed entries of an (m, n) matrix in memory, by row and by column."""

    shape: tuple[int, int]
    by_row: Side
    by_col: Side
    row_labels: Labels | None = None
    col_labels: Labels | None = None
    features: FeatureTable | None = None  # of the observations, in the order of `by_row`
    times: Times | None = None  # likewise

    def astype(self, dtype: np.dtype[Any]) -> Observations:
        """Convert the observations to another float type."""
        if dtype == self.dtype:
            return self
        row, col = (
            replace(
                side,
                values=side.values.astype(dtype),
                weights=side.weights.astype(dtype),
                half_widths=side.half_widths.astype(dtype),
            )
            for side in (self.by_row, self.by_col)
        )
        return replace(self, by_row=row, by_col=col)

    def map_values(self, function: Callable[[Array], Array]) -> Observations:
        """Replace the values by ``function(values)``, in their type."""
        by_row, by_col = (side.map_values(function) for side in (self.by_row, self.by_col))
        return replace(self, by_row=by_row, by_col=by_col)

    def subset(self, mask: Mask) -> Observations:
        """Return the observations where `mask`, in the order of ``by_row``, is true.

        The result is bitwise identical to observing only those entries.
        """
        if mask.shape != (self.size,) or not mask.any():
            raise ValueError(
                f"mask must keep at least one of the {self.size} observations, one bool each"
            )
        of_col = np.empty_like(mask)
        of_col[self.places_by_col()] = mask
        by_row, by_col = select_entries(self.by_row, mask), select_entries(self.by_col, of_col)
        features = None if self.features is None else self.features.select(mask)
        times = None if self.times is None else self.times.select(mask)
        return replace(self, by_row=by_row, by_col=by_col, features=features, times=times)

    def reweight(self, weights: Array) -> Observations:
        """Replace the weights by others, in the order of ``by_row``."""
        of_col = np.empty_like(weights)
        of_col[self.places_by_col()] = weights
        by_row, by_col = (
            replace(side, weights=own, mass=sum_weights(side.indptr, own))
            for side, own in ((self.by_row, weights), (self.by_col, of_col))
        )
        return replace(self, by_row=by_row, by_col=by_col)

    def places_by_col(self) -> Ints:
        """Return the place in ``by_col`` of each entry of ``by_row``."""
        row, col = self.by_row, self.by_col
        # Entries of one cell are in the same order on both sides, so sorting both sides by
        # column, then row, aligns them.
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
    values: tables.ValueNames = None,
    labels: tables.Sides | None = None,
    censored: Any = None,
    n_threads: int = 1,
    progress: bool = False,
    features: Any = None,
    takes_intervals: bool = False,
) -> Observations:
    """Group the observed entries of `R` by row and by column, in linear time.

    The row side of a CSR matrix (the column side of a CSC matrix) shares the arrays of the matrix
    if their types allow it; they are never written to.

    Parameters
    ----------
    R
        A SciPy sparse matrix or array of any format, a dense array with NaN for missing values, a
        masked array, a tuple ``(rows, cols, values)``, a table, the path of a file with one of
        these, or `Observations` (returned unchanged).
    weights
        Positive weights in the form of `R`: one number per stored entry for triplets, CSR, CSC and
        COO; a sparse matrix with the same stored entries for any sparse `R`; an array of the same
        shape for a dense `R`; the name of a column, or one number per row, for a table.
    shape
        Numbers of rows and columns, for triplets; the default is the largest index + 1.
    rows, cols, values
        Column names of a table; two names of `values` are the ends of intervals. Without them a
        pandas DataFrame is a matrix with labels.
    labels
        Labels of rows and columns of an earlier fit, which determine the positions of a table's
        rows or of triplets; other labels are an error. None for a side with new labels.
    censored
        Which values are censored, as in `fastemf.complete`.
    n_threads
        Threads; the result does not depend on it.
    progress
        Whether to show a progress bar while a file is read.
    features
        Side features of the observations: names of columns of a table, or a schema with names of
        columns, which may be absent; for triplets, CSR, CSC and COO an (n, p) array or a dict of
        arrays, with one value per stored entry. Fits ignore them.
    takes_intervals
        Whether values may be intervals.

    Raises
    ------
    TypeError, ValueError, IndexError
        With the parameter, the rule and the value received, and the position of a value that is
        not finite; errors in a file name the file.
    MemoryError
        There are too many rows and columns for the memory.
    """
    if isinstance(R, Source) and not isinstance(R, Observations):
        raise TypeError(
            f"R must be in memory here, got a {type(R).__name__}: only fits, levels "
            "and quantiles read it block by block"
        )
    names: tables.ColumnNames = (rows, cols, values)
    of_intervals = intervals.is_intervals(R, values)
    if not takes_intervals:
        intervals.refuse_intervals(R, values)
    if of_intervals and censored is not None:
        raise ValueError(
            f"censored must be None for intervals, whose ends are the limits; got {censored!r:.200}"
        )
    again = censored is not None or features is not None or of_intervals
    if again and tables.is_table(R) and not tables.is_frame(R):
        R = tables.as_read(R)  # a stream can be read only once
    if not file_lists.is_source(R):
        given = (shape, names, labels, n_threads, tables.table_row)
        if of_intervals:
            return _observe_intervals(R, weights, *given, features)
        observed = _observe(R, weights, *given, features)
        return _mark_censored(observed, R, censored, *given)
    numbers = [] if of_intervals else [values]
    numbers += [weights] if isinstance(weights, str) else []
    sides = zip((rows, cols), labels or (), strict=False)
    texts = [name for name, side in sides if side is not None and side.kind == "str"]
    columns = [rows, cols] + ([censored] if isinstance(censored, str) else [])
    listed: list[str] = []
    if isinstance(features, FeatureSchema):
        R, listed = find_columns(R, features)
        texts += features.texts
    elif features is not None:
        listed = check_names(features)
    if isinstance(values, tuple):
        listed = [*listed, *(name for name in values if name not in listed)]
    with table_files.naming(R):
        content, where = table_files.read_file(
            R, columns, numbers, texts, n_threads, progress, listed
        )
        of_file = (shape, names, labels, n_threads, where)
        if of_intervals:
            return _observe_intervals(content, weights, *of_file, features)
        observed = _observe(content, weights, *of_file, features)
        return _mark_censored(observed, content, censored, *of_file)


def _observe_intervals(
    R: Any, weights: Any, shape: Any, names: tables.ColumnNames, labels: tables.Sides | None,
    n_threads: int, where: Where, features: Any = None,
) -> Observations:  # fmt: skip
    """Group intervals in memory: their middles as values, with codes and half-widths."""
    if isinstance(R, tuple):
        found = intervals.parse_arrays(R[2])
        R = (R[0], R[1], found.values)
    elif tables.is_table(R) and isinstance(names[2], tuple):
        R, ends = tables.as_read(R), names[2]
        found = intervals.read_bounds(R, ends, where)
        names = names[0], names[1], " to ".join(ends)
        R = R.append_column(names[2], tables.arrow().array(found.values))
    else:
        raise ValueError(
            f"values must name two columns of a table, got {names[2]} with R of type "
            f"{type(R).__name__}"
        )
    given = (shape, names, labels, n_threads, where)
    observed = _observe(R, weights, *given, features)
    # Positions in the given order, from 1, are read like weights.
    placed = _observe(R, np.arange(1.0, found.values.size + 1), *given)
    by_row, by_col = (
        replace(side, censored=found.codes[order], half_widths=found.half_widths[order])
        for side, order in (
            (observed.by_row, placed.by_row.weights.astype(np.int64) - 1),
            (observed.by_col, placed.by_col.weights.astype(np.int64) - 1),
        )
    )
    return replace(observed, by_row=by_row, by_col=by_col)


def _mark_censored(observed: Observations, R: Any, censored: Any, *given: Any) -> Observations:
    """Set the codes of censored observations, given `censored` in any form."""
    if censored is None:
        return observed
    sides = (observed.by_row, observed.by_col)
    limit = limits.parse_limit(censored)
    if limit is not None:
        codes = [limit.codes(side.values) for side in sides]
    elif isinstance(R, Observations):
        raise ValueError("censored must not be given with observations, which have their own")
    elif limits.is_codes_matrix(censored) and not tables.is_frame(R):
        if observed.row_labels is not None and (tables.is_table(R) or isinstance(R, tuple)):
            raise ValueError(
                "censored must be a column or a mark for each observation if R has labels, got a "
                "matrix"
            )
        row, col = sides
        shape = observed.shape
        codes = [
            limits.parse_cell_codes(censored, shape, row.keys, row.indices),
            limits.parse_cell_codes(censored, shape, col.indices, col.keys),
        ]
    else:
        # Codes, shifted to be positive, are read like weights: one per observation.
        placed = _observe(R, codes_as_weights(R, censored, observed.size), *given)
        codes = [np.asarray(s.weights - 2, np.int8) for s in (placed.by_row, placed.by_col)]
    by_row, by_col = (replace(s, censored=c) for s, c in zip(sides, codes, strict=True))
    return replace(observed, by_row=by_row, by_col=by_col)


def codes_as_weights(R: Any, censored: Any, size: int) -> Any:
    """Return the codes of `size` observations, shifted to 1 to 3, in the form of weights."""
    if tables.is_frame(R) and limits.is_codes_matrix(censored):
        if tables.is_frame(censored) and not (
            censored.index.equals(R.index) and censored.columns.equals(R.columns)
        ):
            raise ValueError("censored must have the index and the columns of R")
        marks = limits.codes_matrix(censored)
        if marks.shape != R.shape:
            raise ValueError(f"censored must have R's shape {R.shape}, got {marks.shape}")
        codes = limits.parse_codes(marks.ravel()).reshape(marks.shape)
        return type(R)(codes + 2.0, index=R.index, columns=R.columns)
    if isinstance(censored, str):
        if not tables.is_table(R):
            raise ValueError(f"censored can name a column of a table only, got {censored!r}")
        [censored] = tables.select_columns(R, [censored])
    if not (tables.is_table(R) or isinstance(R, tuple) or getattr(R, "format", "") in FLAT):
        raise ValueError("censored must be a matrix of R's shape, got one dimension")
    lines = limits.parse_codes(censored)
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
    features: Any = None,
) -> Observations:
    """Group entries in memory; `where` describes the position of a table's row in messages."""
    read = None
    if features is not None:
        is_matrix = tables.is_frame(R) and names == (None, None, None)
        if tables.is_table(R) and not is_matrix and not isinstance(features, FeatureSchema):
            check_feature_names(check_names(features), (), (), names)
        table = None if is_matrix else R
        read = partial(read_log_features, table, features, where=where)
    if tables.is_table(R):
        if shape is not None:
            raise ValueError(
                f"shape is for triplets; labels determine that of a table, got {shape}"
            )
        known = labels or (None, None)
        if tables.is_frame(R) and names == (None, None, None):
            found = tables.from_frame(R, weights, known)
        else:
            found = tables.from_table(R, *names, weights, known, n_threads, where)
        return _group_labelled(found, n_threads, read)
    if names != (None, None, None):
        raise ValueError(
            f"rows, cols and values name the columns of a table, got {names} with R of type "
            f"{type(R).__name__}"
        )
    if labels is not None and isinstance(R, tuple) and len(R) == 3:
        if shape is not None:
            raise ValueError(f"shape must not be given with triplets of labels, got {shape}")
        found = tables.from_columns(
            R[0], R[1], np.asarray(R[2]), weights, labels, (None, None), n_threads, position
        )
        return _group_labelled(found, n_threads, read)
    if isinstance(R, Observations):
        if weights is not None or features is not None:
            what = "features" if weights is None else "weights"
            raise ValueError(f"{what} must not be given with observations, which have their own")
        check_same_shape(shape, R.shape)
        return R
    return _group_both(read_entries(R, weights, shape), n_threads, read)


def _group_labelled(
    found: tables.Labelled, n_threads: int, read: FeatureReader | None
) -> Observations:
    row_labels, col_labels, rows, cols, values, v, where = found
    check_lengths(rows, cols, values)
    shape = (len(row_labels), len(col_labels))
    given = EntryArrays(shape, rows, cols, values, np.empty(0), where=where)
    entries = check_entries(given, None if v is None else flat_weights(v, values.size))
    grouped = _group_both(entries, n_threads, read)
    return replace(grouped, row_labels=row_labels, col_labels=col_labels)


def _group_both(entries: EntryArrays, n_threads: int, read: FeatureReader | None) -> Observations:
    """Group entries on both sides, and their features, if any, by row."""
    shape, rows, cols, values, v, pointers, transposed, _ = entries
    check_memory(
        POINTER_BYTES * sum(shape),
        f"a matrix of {shape[transposed]} rows and {shape[1 - transposed]} columns",
        "number rows and columns from 0 without gaps, or pass a table with labels",
    )
    if pointers is None:
        by_row = group(rows, cols, None, values, v, shape[0], n_threads)
    else:
        by_row = make_side(pointers, cols, values, v)
    by_col = group(cols, rows, pointers, values, v, shape[1], n_threads)
    features = None if read is None else _by_row(read(values.size), entries, n_threads)
    if transposed:
        return Observations(shape[::-1], by_col, by_row, features=features)
    return Observations(shape, by_row, by_col, features=features)


def _by_row(features: FeatureTable, entries: EntryArrays, n_threads: int) -> FeatureTable:
    """Return the features of entries in the order of the entries grouped by the caller's rows."""
    if entries.pointers is not None and not entries.transposed:
        return features
    keys = entries.cols if entries.transposed else entries.rows
    n = entries.shape[entries.transposed]
    keys = keys.astype(index_dtype((keys.size, n)), copy=False)
    places = np.arange(keys.size, dtype=keys.dtype)
    order = group(keys, places, None, entries.values, entries.weights, n, n_threads).indices
    return features.select(order)
