"""Data that a fit is asked about: read as `complete` reads them, placed by the fit's labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs import table_files, tables
from fastemf.inputs.columns import Where, position
from fastemf.inputs.entries import EntryArrays, check_entries, check_positions, flat_weights
from fastemf.inputs.tables import ColumnNames, is_frame, is_table, select_columns
from fastemf.kernels.threads import count_threads
from fastemf.model.prediction import Axes
from fastemf.observations.memory import Observations, observe
from fastemf.observations.source import Side
from fastemf.support.validation import check_indices

__all__ = [
    "CellValues",
    "label_columns",
    "named_columns",
    "read_cells",
    "read_observations",
    "read_seen",
]

NO_NAMES: ColumnNames = (None, None, None)


class CellValues(NamedTuple):
    """Observations that a fit is judged by, in the order given or by row."""

    rows: NDArray[Any]  # positions in the fit, -1 for a label that it does not have
    cols: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any] | None

    def known(self) -> CellValues:
        """Return the observations of labels that the fit has."""
        kept = (self.rows >= 0) & (self.cols >= 0)
        weights = None if self.weights is None else self.weights[kept]
        return CellValues(self.rows[kept], self.cols[kept], self.values[kept], weights)


def named_columns(axes: Axes, value_name: str | None, R: Any, names: ColumnNames) -> ColumnNames:
    """Complete the names of a table's columns by those that a fit's labels and values came from.

    A pandas table without names to read is a matrix, unless it has all three columns.
    """
    ours = (axes[0].name, axes[1].name, value_name)
    if axes[0].labels is None or None in ours:
        return names
    if names == NO_NAMES:
        if table_files.is_source(R):
            has_lines = table_files.is_table_source(R)
        elif is_frame(R):
            has_lines = all(name in R.columns for name in ours)
        else:
            has_lines = is_table(R)
        if not has_lines:
            return names
    rows, cols, values = (
        own if name is None else name for name, own in zip(names, ours, strict=True)
    )
    return rows, cols, values


def read_observations(
    axes: Axes,
    R: Any,
    names: ColumnNames = NO_NAMES,
    weights: Any = None,
    shape: Any = None,
    censored: Any = None,
    *,
    new: int | None = None,
    n_jobs: int = -1,
) -> Observations:
    """Observe `R` in the order of a fit's rows and columns, and check that it fits them.

    Tables and triplets are placed by the labels of the fit, where it has them; a matrix
    without labels is in the fit's order. `names` are by default the columns that those labels
    came from. The axis `new`, if there is one, is not the fit's: it has the size and the
    labels of the data.
    """
    n_threads = count_threads(n_jobs)
    sizes = axes[0].size, axes[1].size
    sides = (None if new == 0 else axes[0].labels, None if new == 1 else axes[1].labels)
    if axes[0].labels is None:
        if names != NO_NAMES:
            raise ValueError(f"the fit has no labels to place a table by, got columns {names}")
        if shape is None and _is_triplets(R):
            shape = sizes if new is None else _grown(sizes, new, R[new])
        observed = observe(R, weights=weights, shape=shape, censored=censored, n_threads=n_threads)
    else:
        rows, cols, values = _by_default(axes, names)
        observed = observe(
            R, weights=weights, shape=shape, rows=rows, cols=cols, values=values, labels=sides,
            censored=censored, n_threads=n_threads,
        )  # fmt: skip
    for ours, theirs in zip(sides, (observed.row_labels, observed.col_labels), strict=True):
        if ours is None or theirs is None or ours is theirs:
            continue
        if not np.array_equal(ours.values, theirs.values):
            raise ValueError("the observations have other labels than the fit")
    _check_shape(observed.shape, sizes, new)
    return observed


def read_cells(
    axes: Axes,
    R: Any,
    names: ColumnNames,
    weights: Any,
    shape: Any,
    *,
    strict: bool,
    n_jobs: int = -1,
) -> CellValues:
    """Read observations to judge a fit by, without grouping them where they have labels.

    Unless `strict`, labels that the fit does not have are at -1.
    """
    labelled = axes[0].labels is not None and not isinstance(R, Observations)
    where: Where = tables.table_row
    if labelled and table_files.is_source(R):
        rows, cols, values = named = _by_default(axes, names)
        numbers = [values] + ([weights] if isinstance(weights, str) else [])
        with table_files.naming(R):
            content, where = table_files.read_file(R, [rows, cols], numbers, _texts(axes, named))
            return _read_cells(axes, content, named, weights, shape, strict, n_jobs, where)
    if labelled:
        return _read_cells(axes, R, names, weights, shape, strict, n_jobs, where)
    return _of_side(read_observations(axes, R, names, weights, shape, n_jobs=n_jobs).by_row)


def _read_cells(
    axes: Axes,
    R: Any,
    names: ColumnNames,
    weights: Any,
    shape: Any,
    strict: bool,
    n_jobs: int,
    where: Where,
) -> CellValues:
    sides, n_threads = (axes[0].labels, axes[1].labels), count_threads(n_jobs)
    if is_frame(R) and names == NO_NAMES:
        found = tables.from_frame(R, weights, sides, strict=strict)
    elif is_table(R):
        named = _by_default(axes, names)
        found = tables.from_table(R, *named, weights, sides, n_threads, where, strict=strict)
    elif _is_triplets(R):
        given = np.asarray(R[2])
        found = tables.from_columns(
            R[0], R[1], given, weights, sides, (None, None), n_threads, position, strict=strict
        )
    else:
        return _of_side(read_observations(axes, R, names, weights, shape, n_jobs=n_jobs).by_row)
    i, j, values, v = found.rows, found.cols, found.values, found.weights
    checked = check_entries(
        EntryArrays(
            (axes[0].size, axes[1].size), np.maximum(i, 0), np.maximum(j, 0), values, np.empty(0),
            where=found.where,
        ),
        None if v is None else flat_weights(v, values.size),
    )  # fmt: skip
    return CellValues(i, j, checked.values, None if v is None else checked.weights)


def _of_side(side: Side) -> CellValues:
    weights = side.weights if side.weights.size else None
    return CellValues(side.keys, side.indices, side.values, weights)


def _by_default(axes: Axes, names: ColumnNames) -> ColumnNames:
    """Fill in the names of the columns that the fit's labels came from."""
    rows, cols, values = names
    if values is not None:
        rows = axes[0].name if rows is None else rows
        cols = axes[1].name if cols is None else cols
    return rows, cols, values


def _texts(axes: Axes, names: ColumnNames) -> list[str | None]:
    """List the label columns of a CSV file that hold strings, whatever they look like."""
    sides = zip(names[:2], axes, strict=True)
    return [name for name, axis in sides if axis.labels is not None and axis.labels.kind == "str"]


def _is_triplets(R: Any) -> bool:
    return isinstance(R, tuple) and len(R) == 3


def _grown(sizes: tuple[int, int], new: int, indices: Any) -> tuple[int, int]:
    """Find the shape of triplets of which one axis is new."""
    given = check_indices(indices, ("rows", "cols")[new], None)
    count = int(np.max(given, initial=0)) + 1
    check_positions((count,), given.size)
    return (count, sizes[1]) if new == 0 else (sizes[0], count)


def _check_shape(found: tuple[int, int], sizes: tuple[int, int], new: int | None) -> None:
    if new is None:
        if found != sizes:
            raise ValueError(f"R must have the fit's shape {sizes}, got {found}")
    elif found[1 - new] != sizes[1 - new]:
        what = ("columns", "rows")[new]
        raise ValueError(
            f"R_new must have the fit's {sizes[1 - new]} {what} for axis={new}, got shape {found}"
        )


def label_columns(axes: Axes, table: Any) -> list[Any]:
    """Pick the two columns of a table that hold labels of rows and of columns."""
    if axes[0].labels is None:
        raise TypeError("the fit has no labels to look a table up by: pass rows and cols")
    names = [axis.name for axis in axes]
    if None in names:
        raise ValueError("the labels of the fit have no column names: pass rows and cols")
    return select_columns(table, names)


def read_seen(axes: Axes, seen: Any) -> Side | None:
    """Read by row the entries of data whose values do not matter; None where there are none."""
    if seen is None:
        return None
    if _is_mask(seen):
        raise TypeError(
            "seen must be the data and not a mask of them, as every cell of a dense boolean "
            "array counts as observed; got dtype bool; pass R, or scipy.sparse.csr_array(mask)"
        )
    try:
        seen = _from_file(axes, seen)
        if _has_label_columns(axes, seen):
            rows, cols = label_columns(axes, seen)
            seen = (rows, cols, np.ones(len(rows)))
        if axes[0].labels is not None and _is_triplets(seen):
            # Columns that the fit does not have are not listed anyway.
            i, j = axes[0].positions(seen[0], "rows"), axes[1].positions(seen[1], "cols")
            known = (i >= 0) & (j >= 0)
            if not known.any():
                return None
            found = i[known], j[known], np.ones(np.count_nonzero(known))
            return observe(found, shape=(axes[0].size, axes[1].size)).by_row
        return read_observations(axes, seen).by_row
    except (IndexError, TypeError, ValueError) as error:
        raise type(error)(f"seen is read as R of complete(), and {error}") from None


def _from_file(axes: Axes, seen: Any) -> Any:
    """Read the label columns of a file with a table, for a fit with labels; else return it."""
    if not table_files.is_source(seen) or axes[0].labels is None:
        return seen
    names = (axes[0].name, axes[1].name, None)
    return table_files.read_file(seen, list(names[:2]), [], _texts(axes, names)).content


def _has_label_columns(axes: Axes, table: Any) -> bool:
    """Tell whether a table has lines of labels; one of pandas may be a matrix."""
    if axes[0].labels is None or not is_table(table):
        return False
    return not is_frame(table) or all(axis.name in table.columns for axis in axes)


def _is_mask(R: Any) -> bool:
    """Tell whether R is a dense matrix of booleans."""
    if is_frame(R):
        return all(getattr(dtype, "kind", "") == "b" for dtype in R.dtypes)
    return isinstance(R, np.ndarray) and not np.ma.isMaskedArray(R) and R.dtype.kind == "b"
