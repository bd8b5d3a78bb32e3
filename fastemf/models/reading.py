"""Data for the methods of a model: read as `complete` reads them, matched by label."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastemf.censoring.limits import CensoringLimit, parse_limit
from fastemf.features.reading import encode_columns, encode_given, find_columns
from fastemf.features.schema import FeatureSchema, SideFeatures
from fastemf.inputs import file_lists, table_files, tables
from fastemf.inputs.columns import Where, position
from fastemf.inputs.entries import EntryArrays, check_entries, check_positions, flat_weights
from fastemf.inputs.intervals import refuse_intervals
from fastemf.inputs.tables import ColumnNames, is_frame, is_table, select_columns
from fastemf.kernels.threads import count_threads
from fastemf.models.bilinear import Axes
from fastemf.sources.memory import Observations, codes_as_weights, observe
from fastemf.sources.source import Side
from fastemf.support.arrays import Array, Floats
from fastemf.support.validation import check_indices

NO_NAMES: ColumnNames = (None, None, None)


class CellValues(NamedTuple):
    """Observations to evaluate a model on, in the given order or by row."""

    rows: Array  # positions in the model, -1 for an unknown label
    cols: Array
    values: Array
    weights: Array | None
    features: Floats | None = None  # encoded side features; None if none were asked for
    labels: tuple[Any, Any] = (None, None)  # of rows and of columns; indices if there are none
    items: tuple[Floats | None, Floats | None] = (None, None)  # encoded features of both
    codes: Array | None = None  # of censored values; None if all are exact
    limit: CensoringLimit | None = None  # None also where each value has its own code

    @property
    def n_censored(self) -> int:
        """Number of censored values."""
        return 0 if self.codes is None else int(np.count_nonzero(self.codes))

    @property
    def side(self) -> SideFeatures:
        """All side features."""
        return SideFeatures(*self.items, self.features)

    def select_known(self) -> CellValues:
        """Return the observations with known labels."""
        kept = (self.rows >= 0) & (self.cols >= 0)
        weights, features, codes, *items = (
            None if part is None else part[kept]
            for part in (self.weights, self.features, self.codes, *self.items)
        )
        return CellValues(
            self.rows[kept], self.cols[kept], self.values[kept], weights, features,
            items=(items[0], items[1]), codes=codes, limit=self.limit,
        )  # fmt: skip


class GivenFeatures(NamedTuple):
    """Side features of observations to read for a model."""

    schema: FeatureSchema  # of the model
    given: Any = None  # for arrays and triplets: an (n, p) array, or a dict of arrays

    def of_table(self, table: Any, size: int, where: Where) -> Floats:
        """Encode the columns of a table."""
        if self.given is not None:
            raise ValueError("features must be columns of the table, and not given in addition")
        return encode_columns(self.schema, table, size, where)

    def by_row(self, observed: Observations) -> Floats:
        """Return the features of observations that were read with `given`."""
        if observed.features is None:
            return self.schema.encode({}, observed.size)
        return observed.features.recode(self.schema)


def named_columns(axes: Axes, value_name: str | None, R: Any, names: ColumnNames) -> ColumnNames:
    """Fill in missing column names of a table with those that the model was fitted from.

    A pandas data frame without given names is a matrix, unless it has all three columns.
    """
    refuse_intervals(R, names[2])
    ours = (axes[0].name, axes[1].name, value_name)
    if axes[0].labels is None or None in ours:
        return names
    if names == NO_NAMES:
        if file_lists.is_source(R):
            is_long = file_lists.is_table_source(R)
        elif is_frame(R):
            is_long = all(name in R.columns for name in ours)
        else:
            is_long = is_table(R)
        if not is_long:
            return names
    rows, cols = (b if a is None else a for a, b in zip(names[:2], ours[:2], strict=True))
    return rows, cols, value_name if names[2] is None else names[2]


def read_observations(
    axes: Axes,
    R: Any,
    names: ColumnNames = NO_NAMES,
    weights: Any = None,
    shape: Any = None,
    censored: Any = None,
    *,
    features: Any = None,
    new: int | None = None,
    beyond: bool = False,
    n_jobs: int = -1,
) -> Observations:
    """Open `R` in the order of a model's rows and columns, and check its shape and labels.

    Tables and triplets are matched by the labels of the model, if it has any; a matrix without
    labels is in the order of the model. The axis `new`, if given, has the size and the labels of
    the data instead. With `beyond`, data without labels may have more rows and columns than the
    model. `features` are as in `fastemf.sources.memory.observe`.
    """
    n_threads = count_threads(n_jobs)
    sizes = axes[0].size, axes[1].size
    sides = (None if new == 0 else axes[0].labels, None if new == 1 else axes[1].labels)
    if axes[0].labels is None:
        if names != NO_NAMES:
            raise ValueError(f"the fit has no labels to match a table by, got columns {names}")
        if shape is None and _is_triplets(R):
            shape = sizes
            for axis in (0, 1):
                if beyond or axis == new:
                    shape = _new_shape(shape, axis, R[axis], least=sizes[axis] if beyond else 0)
        observed = observe(
            R, weights=weights, shape=shape, censored=censored, n_threads=n_threads,
            features=features,
        )  # fmt: skip
    else:
        rows, cols, values = _default_names(axes, names)
        observed = observe(
            R, weights=weights, shape=shape, rows=rows, cols=cols, values=values, labels=sides,
            censored=censored, n_threads=n_threads, features=features,
        )  # fmt: skip
    for ours, theirs in zip(sides, (observed.row_labels, observed.col_labels), strict=True):
        if ours is None or theirs is None or ours is theirs:
            continue
        if not np.array_equal(ours.values, theirs.values):
            raise ValueError("the observations have other labels than the fit")
    _check_shape(observed.shape, sizes, new, beyond=beyond)
    return observed


def read_cells(
    axes: Axes, R: Any, names: ColumnNames, weights: Any, shape: Any, *, strict: bool,
    features: GivenFeatures | None = None, censored: Any = None,
) -> CellValues:  # fmt: skip
    """Read observations to evaluate a model on; labelled ones are not grouped by row.

    Unless `strict`, unknown labels and indices beyond the last are at -1. Columns of features that
    a table lacks are missing.
    """
    limit = parse_limit(censored)
    if axes[0].labels is None or isinstance(R, Observations):
        cells = _cells_by_row(axes, R, names, weights, shape, strict, features, censored)
    elif file_lists.is_source(R):
        cells = _read_file(axes, R, names, weights, shape, strict, features, censored)
    else:
        given = (shape, strict, tables.table_row, features, censored)
        cells = _read_labelled(axes, R, names, weights, *given)
    return cells._replace(limit=limit)


def _read_file(
    axes: Axes, R: Any, names: ColumnNames, weights: Any, shape: Any, strict: bool,
    features: GivenFeatures | None, censored: Any,
) -> CellValues:  # fmt: skip
    """Read a file, which may hold a matrix."""
    rows, cols, values = names = _default_names(axes, names)
    columns = [rows, cols] + ([censored] if isinstance(censored, str) else [])
    numbers = [values] + ([weights] if isinstance(weights, str) else [])
    texts = _text_columns(axes, names)
    listed: list[str] = []
    if features is not None:
        R, listed = find_columns(R, features.schema)
        texts += features.schema.texts
    with table_files.naming(R):
        content, where = table_files.read_file(R, columns, numbers, texts, features=listed)
        given = (shape, strict, where, features, censored)
        return _read_labelled(axes, content, names, weights, *given)


def _read_labelled(
    axes: Axes, R: Any, names: ColumnNames, weights: Any, shape: Any, strict: bool, where: Where,
    features: GivenFeatures | None, censored: Any,
) -> CellValues:  # fmt: skip
    """Read a table, labelled triplets, or a matrix."""
    again = features is not None or isinstance(censored, str)
    if again and is_table(R) and not is_frame(R):
        R = tables.as_read(R)  # a stream can be read only once
    encoded: Floats | None = None
    at: Any = slice(None)  # the cells of a matrix that are observed
    labels: tuple[Any, Any]
    sides, n_threads = (axes[0].labels, axes[1].labels), count_threads(-1)
    if is_frame(R) and names == NO_NAMES:
        found = tables.from_frame(R, weights, sides, strict=strict)
        at = np.nonzero(R.notna().to_numpy())
        labels = np.asarray(R.index)[at[0]], np.asarray(R.columns)[at[1]]
        if features is not None:
            encoded = encode_given(features.schema, features.given, found.values.shape)
    elif is_table(R):
        named = _default_names(axes, names)
        found = tables.from_table(R, *named, weights, sides, n_threads, where, strict=strict)
        labels = tuple(select_columns(R, named[:2]))
        if features is not None:
            encoded = features.of_table(R, found.values.size, where)
    elif _is_triplets(R):
        labels = R[0], R[1]
        found = tables.from_columns(
            R[0], R[1], np.asarray(R[2]), weights, sides, (None, None), n_threads, position,
            strict=strict,
        )  # fmt: skip
        if features is not None:
            encoded = encode_given(features.schema, features.given, found.values.shape)
    else:
        return _cells_by_row(axes, R, names, weights, shape, strict, features, censored)
    i, j, values, v = found.rows, found.cols, found.values, found.weights
    checked = check_entries(
        EntryArrays(
            (axes[0].size, axes[1].size), np.maximum(i, 0), np.maximum(j, 0), values, np.empty(0),
            where=found.where,
        ),
        None if v is None else flat_weights(v, values.size),
    )  # fmt: skip
    weights = None if v is None else checked.weights
    codes = _read_codes(R, censored, checked.values, at)
    return CellValues(i, j, checked.values, weights, encoded, labels, codes=codes)


def _read_codes(R: Any, censored: Any, values: Array, at: Any) -> Array | None:
    """Return the code of each observation; `at` selects those of a matrix."""
    limit = parse_limit(censored)
    if censored is None or limit is not None:
        return None if limit is None else limit.codes(values)
    shifted = np.asarray(codes_as_weights(R, censored, values.size))[at]
    return np.asarray(shifted - 2, np.int8)


def _cells_by_row(
    axes: Axes, R: Any, names: ColumnNames, weights: Any, shape: Any, strict: bool,
    features: GivenFeatures | None, censored: Any,
) -> CellValues:  # fmt: skip
    given, is_labelled = None if features is None else features.given, axes[0].labels is not None
    observed = read_observations(
        axes, R, names, weights, shape, censored, features=given,
        beyond=not strict and not is_labelled,
    )  # fmt: skip
    side, encoded = observed.by_row, None if features is None else features.by_row(observed)
    v = side.weights if side.weights.size else None
    i, j = labels = side.keys, side.indices
    if is_labelled:
        labels = axes[0].ids()[i], axes[1].ids()[j]
    else:
        i, j = axes[0].positions(i, "rows"), axes[1].positions(j, "cols")
    codes = side.censored if side.censored.size else None
    return CellValues(i, j, side.values, v, encoded, labels, codes=codes)


def _default_names(axes: Axes, names: ColumnNames) -> ColumnNames:
    """Fill in the names of the label columns if only the values have a name."""
    rows, cols, values = names
    if values is not None:
        rows = axes[0].name if rows is None else rows
        cols = axes[1].name if cols is None else cols
    return rows, cols, values


def _text_columns(axes: Axes, names: ColumnNames) -> list[str | None]:
    """List the label columns to read from a CSV file as strings, even if they look like numbers."""
    sides = zip(names[:2], axes, strict=True)
    return [name for name, axis in sides if axis.labels is not None and axis.labels.kind == "str"]


def _is_triplets(R: Any) -> bool:
    return isinstance(R, tuple) and len(R) == 3


def _new_shape(
    sizes: tuple[int, int], new: int, indices: Any, *, least: int = 0
) -> tuple[int, int]:
    """Return the shape of triplets with one new axis, of at least a given size."""
    given = check_indices(indices, ("rows", "cols")[new], None)
    count = max(int(np.max(given, initial=0)) + 1, least)
    check_positions((count,), given.size)
    return (count, sizes[1]) if new == 0 else (sizes[0], count)


def _check_shape(
    found: tuple[int, int], sizes: tuple[int, int], new: int | None, *, beyond: bool
) -> None:
    if beyond:
        if found[0] < sizes[0] or found[1] < sizes[1]:
            raise ValueError(f"R must have at least the fit's shape {sizes}, got {found}")
    elif new is None:
        if found != sizes:
            raise ValueError(f"R must have the fit's shape {sizes}, got {found}")
    elif found[1 - new] != sizes[1 - new]:
        what = ("columns", "rows")[new]
        raise ValueError(
            f"R_new must have the fit's {sizes[1 - new]} {what} for axis={new}, got shape {found}"
        )


def label_columns(axes: Axes, table: Any) -> list[Any]:
    """Return the label columns of a table."""
    if axes[0].labels is None:
        raise TypeError("the fit has no labels to match a table by: pass rows and cols")
    names = [axis.name for axis in axes]
    if None in names:
        raise ValueError("the labels of the fit have no column names: pass rows and cols")
    return select_columns(table, names)


def pair_columns(axes: Axes, table: Any, schema: FeatureSchema) -> tuple[Any, Any, Floats]:
    """Return the label columns of a table, and the features of its lines."""
    table = table if is_frame(table) else tables.as_read(table)  # a stream can be read only once
    rows, cols = label_columns(axes, table)
    return rows, cols, encode_columns(schema, table, len(rows))


def read_seen(axes: Axes, seen: Any) -> Side | None:
    """Read the observed cells of data by row, ignoring values; None if there are none."""
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
            # Unknown columns are never listed.
            i, j = axes[0].positions(seen[0], "rows"), axes[1].positions(seen[1], "cols")
            known = (i >= 0) & (j >= 0)
            if not known.any():
                return None
            cells = i[known], j[known], np.ones(np.count_nonzero(known))
            return observe(cells, shape=(axes[0].size, axes[1].size)).by_row
        return read_observations(axes, seen).by_row
    except (IndexError, TypeError, ValueError) as error:
        raise type(error)(f"seen is read as R of complete(), and {error}") from None


def _from_file(axes: Axes, seen: Any) -> Any:
    """Read the label columns of a table file, if the model has labels; return other data as is."""
    if not file_lists.is_source(seen) or axes[0].labels is None:
        return seen
    names = (axes[0].name, axes[1].name, None)
    return table_files.read_file(seen, list(names[:2]), [], _text_columns(axes, names)).content


def _has_label_columns(axes: Axes, table: Any) -> bool:
    """Return whether data are a table with label columns; a data frame may be a matrix."""
    if axes[0].labels is None or not is_table(table):
        return False
    return not is_frame(table) or all(axis.name in table.columns for axis in axes)


def _is_mask(R: Any) -> bool:
    """Return whether R is a dense boolean matrix."""
    if is_frame(R):
        return all(getattr(dtype, "kind", "") == "b" for dtype in R.dtypes)
    return isinstance(R, np.ndarray) and not np.ma.isMaskedArray(R) and R.dtype.kind == "b"
