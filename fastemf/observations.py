"""The observed entries, by row and by column: the one place that understands input formats.

What counts as observed: every stored entry of a sparse matrix, zeros included;
everything but NaN in a dense array; everything unmasked in a masked one; every
triplet. Repeated (row, column) pairs stay separate observations, in the order
given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.entry_kernels import group
from fastemf.validation import check_dtype, check_indices, check_integer
from fastemf.warn import warn

__all__ = ["Observations", "Side", "observe"]


@dataclass(frozen=True, eq=False)
class Side:
    """Entries grouped by row (or, for the other side, by column).

    Attributes
    ----------
    indptr : int64 array, length groups + 1
    indices : int32 or int64 array, the index on the other side
    values : float32 or float64 array
    weights : array of the same dtype, empty where every weight is one
    mass : float64 array, summed weight of each group (its count without weights)
    """

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any]
    mass: NDArray[np.float64]

    @property
    def keys(self) -> NDArray[Any]:
        """The group of each entry."""
        groups = np.arange(self.indptr.size - 1, dtype=self.indices.dtype)
        return np.repeat(groups, np.diff(self.indptr))


@dataclass(frozen=True, eq=False)
class Observations:
    """All observed entries of an (m, n) matrix, by row and by column."""

    shape: tuple[int, int]
    by_row: Side
    by_col: Side

    @property
    def size(self) -> int:
        """Number of observations."""
        return int(self.by_row.values.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The float type everything is computed in."""
        return self.by_row.values.dtype

    @property
    def mass(self) -> float:
        """Summed weights: the number of observations where there are none."""
        return float(np.sum(self.by_row.mass))

    def rms(self, level: float = 0.0) -> float:
        """Root mean square of the values around a level, in float64."""
        squares = np.square(self.by_row.values.astype(np.float64) - level)
        v = self.by_row.weights
        return float(np.sqrt(np.sum(squares * v if v.size else squares) / self.mass))


class _Triplets(NamedTuple):
    """Any input in one common form, entries in the order given."""

    shape: tuple[int, int]
    rows: NDArray[Any]
    cols: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any] | None


def observe(R: Any, *, weights: Any = None, shape: Any = None) -> Observations:
    """Group the observed entries of `R` by row and by column, in linear time.

    Parameters
    ----------
    R
        A scipy sparse matrix or array of any format, a dense array with NaN for
        missing, a masked array, a tuple ``(rows, cols, values)``, or an
        `Observations` (returned as it is).
    weights
        Positive weight of each observation in the form of `R`: for triplets and
        for CSR, CSC and COO one number per stored entry; for any sparse `R` a
        sparse matrix with the same stored entries; for a dense `R` an array of
        its shape.
    shape
        Rows and columns, for triplets; the default is the largest index + 1.

    Raises
    ------
    TypeError, ValueError, IndexError
        With the parameter, the rule and the value received; a value that is not
        finite is named by its row and column.
    """
    if isinstance(R, Observations):
        if weights is not None:
            raise ValueError("weights belong to the data: observations that are built have theirs")
        _check_same_shape(shape, R.shape)
        return R
    if sp.issparse(R):
        found = _from_sparse(R, weights)
    elif isinstance(R, tuple):
        found = _from_triplets(R, weights, shape)
    else:
        found = _from_dense(R, weights)
    _check_same_shape(shape, found.shape)
    return _build(found)


# --- input formats -------------------------------------------------------------------------


def _from_sparse(R: Any, weights: Any) -> _Triplets:
    if R.ndim != 2:
        raise ValueError(f"R must have two dimensions, got shape {R.shape}")
    check_dtype(R.dtype, "R")
    rows, cols, values = _stored_entries(R)
    v = None
    if sp.issparse(weights):
        check_dtype(weights.dtype, "weights")
        if weights.shape != R.shape:
            raise ValueError(f"weights must have the shape of R, {R.shape}, got {weights.shape}")
        v_rows, v_cols, v = _stored_entries(weights.asformat(R.format))
        if not (np.array_equal(v_rows, rows) and np.array_equal(v_cols, cols)):
            raise ValueError(
                "weights must store exactly the entries that R stores, in the same order; "
                f"got {v.size} stored weights for {values.size} stored values"
            )
    elif weights is not None:
        if R.format not in ("csr", "csc", "coo"):
            raise TypeError(
                f"weights for a sparse R in {R.format} format must be a sparse matrix with the "
                "same stored entries (or convert R to CSR, CSC or COO)"
            )
        v = _flat_weights(weights, values.size)
    return _Triplets((int(R.shape[0]), int(R.shape[1])), rows, cols, values, v)


def _stored_entries(R: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Rows, columns and values as stored: scipy would sum repeats and drop some zeros."""
    if R.format == "dia":
        parts = []
        for offset, diagonal in zip(R.offsets, R.data, strict=True):
            start = max(0, int(offset))
            cols = np.arange(start, max(start, min(R.shape[1], R.shape[0] + offset, diagonal.size)))
            parts.append((cols - offset, cols, diagonal[cols]))
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        return (joined[0], joined[1], joined[2]) if parts else _stored_entries(R.tocoo())
    if R.format in ("csr", "csc"):
        _check_compressed(R)
        n = R.shape[0] if R.format == "csr" else R.shape[1]
        size = int(R.indptr[-1])
        keys = np.repeat(np.arange(n), np.diff(R.indptr))
        others = R.indices[:size]
        rows, cols = (keys, others) if R.format == "csr" else (others, keys)
        return rows, cols, R.data[:size]
    coo = R if R.format == "coo" else R.tocoo(copy=False)
    if not coo.row.shape == coo.col.shape == coo.data.shape:
        raise ValueError(
            "R must have as many rows, columns and values stored, got "
            f"{coo.row.size}, {coo.col.size} and {coo.data.size}; R is corrupt"
        )
    return coo.row, coo.col, coo.data


def _check_compressed(R: Any) -> None:
    """Scipy trusts its own index arrays; a kernel that follows a wrong one reads foreign memory."""
    n = R.shape[0] if R.format == "csr" else R.shape[1]
    indptr = np.asarray(R.indptr)
    if indptr.size != n + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError(
            f"R.indptr must start at 0, never fall and have length {n + 1}; R is corrupt"
        )
    if indptr[-1] > min(R.indices.size, R.data.size):
        raise ValueError(
            f"R.indptr ends at {indptr[-1]}, beyond its {R.data.size} stored values; R is corrupt"
        )


def _from_triplets(R: tuple[Any, ...], weights: Any, shape: Any) -> _Triplets:
    if len(R) != 3:
        hint = "; scipy's (values, (rows, cols)) is another order" if len(R) == 2 else ""
        raise ValueError(f"R as a tuple must be (rows, cols, values), got {len(R)} items{hint}")
    values = np.asarray(R[2])
    check_dtype(values.dtype, "values")
    m, n = (None, None) if shape is None else _check_shape(shape)
    rows = check_indices(R[0], "rows", None)
    cols = check_indices(R[1], "cols", None)
    if m is not None and n is not None and rows.size and cols.size:
        if rows.max() < n and cols.max() < m and not (rows.max() < m and cols.max() < n):
            raise IndexError(
                f"rows go up to {rows.max()} and cols up to {cols.max()}, too far for shape "
                f"({m}, {n}); are the two swapped?"
            )
        rows, cols = check_indices(rows, "rows", m), check_indices(cols, "cols", n)
    if not rows.ndim == cols.ndim == values.ndim == 1 or not rows.size == cols.size == values.size:
        raise ValueError(
            "rows, cols and values must be one-dimensional and of equal length, got shapes "
            f"{rows.shape}, {cols.shape} and {values.shape}"
        )
    if values.size == 0:
        raise ValueError("R must hold at least one observation, got none")
    if m is None or n is None:
        m, n = int(rows.max()) + 1, int(cols.max()) + 1
        if max(m, n) > 1000 * (values.size + 1000):
            raise ValueError(
                f"rows and cols must be positions from 0; the largest is {max(m, n) - 1} for "
                f"{values.size} observations, so these look like identifiers: number them with "
                "np.unique(ids, return_inverse=True), or give shape= if they are right"
            )
    v = None if weights is None else _flat_weights(weights, values.size)
    return _Triplets((m, n), rows, cols, values, v)


def _from_dense(R: Any, weights: Any) -> _Triplets:
    try:
        array = R if isinstance(R, np.ma.MaskedArray) else np.asarray(R)
    except ValueError as error:
        raise ValueError(f"R must be a matrix with rows of equal length: {error}") from None
    check_dtype(array.dtype, "R")
    if array.ndim != 2:
        raise ValueError(f"R must have two dimensions, got shape {array.shape}")
    values = np.asarray(array)
    if 3 in values.shape and values.size >= 60:
        _warn_of_a_table(values if values.shape[1] == 3 else values.T)
    if isinstance(array, np.ma.MaskedArray):
        observed = ~np.ma.getmaskarray(array)
    else:
        observed = ~np.isnan(values)
    rows, cols = np.nonzero(observed)
    v = None
    if weights is not None:
        if sp.issparse(weights):
            raise TypeError("weights for a dense R must be an array of its shape, got a sparse one")
        v = np.asarray(weights)
        check_dtype(v.dtype, "weights")
        if v.shape != values.shape:
            raise ValueError(f"weights must have the shape of R, {values.shape}, got {v.shape}")
        v = v[rows, cols]
    return _Triplets(values.shape, rows, cols, values[rows, cols], v)


def _warn_of_a_table(columns: NDArray[Any]) -> None:
    """A log of (row, column, value) lines is also a matrix with three columns."""
    ids = columns[:, :2]
    if (ids >= 0).all() and (ids == np.floor(ids)).all() and (np.diff(ids, axis=0) != 0).any():
        warn(
            f"R has shape {columns.shape} with integers in two of three columns; if these are "
            "(row, column, value) lines, pass the tuple (rows, cols, values) instead"
        )


def _flat_weights(weights: Any, size: int) -> NDArray[Any]:
    v = np.asarray(weights)
    check_dtype(v.dtype, "weights")
    if v.shape != (size,):
        raise ValueError(f"weights must be one per observation, shape ({size},), got {v.shape}")
    return v


def _check_shape(shape: Any) -> tuple[int, int]:
    try:
        m, n = shape
    except (TypeError, ValueError):
        raise ValueError(f"shape must be (rows, columns), got {shape!r}") from None
    return check_integer(m, "shape[0]", minimum=1), check_integer(n, "shape[1]", minimum=1)


def _check_same_shape(shape: Any, actual: tuple[int, int]) -> None:
    if shape is not None and _check_shape(shape) != actual:
        raise ValueError(f"shape must be that of R, {actual}, got {tuple(shape)}")


# --- the frozen structure ------------------------------------------------------------------


def _build(found: _Triplets) -> Observations:
    (m, n), rows, cols, values, weights = found
    if values.size == 0:
        raise ValueError(
            f"R must hold at least one observation, got none (shape {found.shape}): "
            "in a sparse R every stored entry is one, in a dense R everything but NaN"
        )
    dtype = check_dtype(values.dtype, "R")
    index = np.dtype(np.int32 if max(m, n) <= np.iinfo(np.int32).max else np.int64)
    # Indices of a scipy matrix are trusted by scipy alone.
    rows = check_indices(rows, "row indices", m)
    cols = check_indices(cols, "column indices", n)
    _check_values(values, rows, cols, dtype)
    if weights is None:
        v = np.empty(0, dtype)
    else:
        with np.errstate(over="ignore"):  # to infinity, which is refused
            v = np.ascontiguousarray(weights, dtype)
        _check_weights(weights, v, rows, cols)
    b = np.ascontiguousarray(values, dtype)
    rows = np.ascontiguousarray(rows, index)
    cols = np.ascontiguousarray(cols, index)
    return Observations((m, n), _side(rows, cols, b, v, m), _side(cols, rows, b, v, n))


def _side(
    keys: NDArray[Any], others: NDArray[Any], values: NDArray[Any], weights: NDArray[Any], n: int
) -> Side:
    indptr = np.zeros(n + 1, np.int64)
    # Kernels compile once per combination of types, and read-only is a type of its own.
    given = (np.require(array, requirements="W") for array in (keys, others, values, weights))
    indices, b, v = np.empty_like(others), np.empty_like(values), np.empty_like(weights)
    group(*given, indptr, indices, b, v)
    mass = np.diff(indptr).astype(np.float64)
    if weights.size:
        mass = np.bincount(keys, weights=weights, minlength=n).astype(np.float64)
    return Side(indptr, indices, b, v, mass)


def _check_values(
    values: NDArray[Any], rows: NDArray[Any], cols: NDArray[Any], dtype: np.dtype[Any]
) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        first = int(np.argmin(finite))
        raise ValueError(
            f"R must be finite where it is observed, got {values[first]} at row {rows[first]}, "
            f"column {cols[first]}; leave missing entries out of triplets and of a sparse R"
        )
    size = np.abs(values.astype(dtype, copy=False))
    first = int(np.argmax(size))
    limits = np.finfo(dtype)
    if size[first] > 0 and not np.sqrt(limits.tiny) < size[first] < np.sqrt(limits.max):
        raise ValueError(
            f"R is too {'large' if size[first] > 1 else 'small'} for {dtype}: the squares of its "
            f"values must neither overflow nor vanish, and the largest is {values[first]} at row "
            f"{rows[first]}, column {cols[first]}; rescale R"
            + (" or pass float64" if dtype == np.float32 else "")
        )
    zeros = int(np.count_nonzero(values == 0))
    if 2 * zeros > values.size:
        warn(
            f"{zeros} of {values.size} observations are zero. Stored zeros count as observed; "
            "if they mean missing, leave them out (R.eliminate_zeros() for a sparse R, NaN in a "
            "dense one)"
        )


def _check_weights(
    weights: NDArray[Any], cast: NDArray[Any], rows: NDArray[Any], cols: NDArray[Any]
) -> None:
    right = np.isfinite(cast) & (cast > 0)
    if not right.all():
        first = int(np.argmin(right))
        raise ValueError(
            f"weights must be finite and positive in {cast.dtype}, got {weights[first]} at row "
            f"{rows[first]}, column {cols[first]}; leave out what should not count (NaN in a dense "
            "R, not a mask of weights)"
        )
