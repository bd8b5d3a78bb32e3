"""Entries of sparse and dense matrices and triplets, in one common form.

Observed are: every stored entry of a sparse matrix, zeros included; every value of a dense array
that is not NaN; every unmasked value of a masked array; every triplet. Repeated (row, column) pairs
stay separate observations, in the given order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.inputs.value_check import ValueCheck, check_weights
from fastemf.support.validation import check_dtype, check_indices, check_shape
from fastemf.support.warn import warn

PART = 1 << 16  # entries


class EntryArrays(NamedTuple):
    """Entries in the given order, in contiguous, writeable arrays of types that kernels accept."""

    shape: tuple[int, int]
    rows: NDArray[Any]  # of each entry; empty if there are `pointers`
    cols: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any]  # empty if every weight is one
    pointers: NDArray[np.int64] | None = None  # of a matrix compressed by row
    transposed: bool = False  # whether rows are the columns of the caller
    where: Callable[[int], str] | None = None  # describes the position of a table's entry

    @property
    def names(self) -> tuple[str, str]:
        """Names of rows and columns from the caller's point of view."""
        return ("column", "row") if self.transposed else ("row", "column")

    def place(self, entry: int) -> str:
        """Describe the position of an entry, for messages, with the caller's row first."""
        if self.where is not None:
            return self.where(entry)
        row = (
            self.rows[entry]
            if self.pointers is None
            else (np.searchsorted(self.pointers, entry, side="right") - 1)
        )
        places = zip(self.names, (int(row), int(self.cols[entry])), strict=True)
        return ", ".join(f"{name} {at}" for name, at in sorted(places, reverse=True))


def read_entries(R: Any, weights: Any = None, shape: Any = None) -> EntryArrays:
    """Read any input without labels; see `fastemf.sources.memory.observe`."""
    if sp.issparse(R):
        found, v = _from_sparse(R, weights)
    elif isinstance(R, tuple):
        found, v = _from_triplets(R, weights, shape)
    else:
        found, v = _from_dense(R, weights)
    check_same_shape(shape, found.shape[::-1] if found.transposed else found.shape)
    return check_entries(found, v)


def check_entries(found: EntryArrays, v: NDArray[Any] | None) -> EntryArrays:
    """Check entries and weights, and convert them to types that kernels accept."""
    given = found.shape[::-1] if found.transposed else found.shape
    if found.values.size == 0:
        raise ValueError(
            f"R must hold at least one observation, got none (shape {given}): "
            "observations are the stored entries of a sparse R, and the non-NaN values of a dense R"
        )
    dtype = check_dtype(found.values.dtype, "R")
    index = index_dtype(given)
    # SciPy does not check the indices of a matrix.
    rows, cols = (
        _as_index(array, f"{name} indices", size, index)
        for array, name, size in zip(found[1:3], found.names, found.shape, strict=True)
    )
    with np.errstate(over="ignore"):  # the check rejects infinity
        weights = _writeable(found.weights if v is None else v, dtype)
    found = found._replace(rows=rows, cols=cols, weights=weights)
    check = ValueCheck(dtype)
    for part in parts(found.values.size):
        place = partial(_place, found, part.start)
        check.see(found.values[part], place)
        if v is not None:
            check_weights(weights[part], v[part], place)
    check.finish()
    return found._replace(values=_writeable(found.values, dtype))


def index_dtype(shape: tuple[int, int]) -> np.dtype[Any]:
    """Return the type of indices: 32 bits if they suffice."""
    return np.dtype(np.int32 if max(shape) <= np.iinfo(np.int32).max else np.int64)


def check_positions(shape: tuple[int, ...], size: int) -> None:
    """Raise an error if the largest indices are so large that they must be identifiers."""
    if max(shape) > 1000 * (size + 1000):
        raise ValueError(
            f"rows and cols must be positions from 0; the largest is {max(shape) - 1} for "
            f"{size} observations, so these look like identifiers: number them with "
            "np.unique(ids, return_inverse=True), or pass shape= if they are positions"
        )


def parts(size: int) -> Iterator[slice]:
    """Yield slices of a long array that fit into the cache, so that temporary arrays are small."""
    for first in range(0, size, PART):
        yield slice(first, first + PART)


# --- input formats -------------------------------------------------------------------------

_NONE = np.empty(0)
_Weighted = tuple[EntryArrays, NDArray[Any] | None]  # and the weights as given


def _from_sparse(R: Any, weights: Any) -> _Weighted:
    if R.ndim != 2:
        raise ValueError(f"R must have two dimensions, got shape {R.shape}")
    check_dtype(R.dtype, "R")
    if sp.issparse(weights):
        check_weights_shape(weights, R.shape)
    if R.format == "csc":
        # CSC is read as its transpose in CSR, after its pointers are checked.
        _check_compressed(R)
        check_indices(R.indices, "row indices", R.shape[0], widen=False)
        found, v = _from_sparse(R.T, weights.T if sp.issparse(weights) else weights)
        return found._replace(transposed=True), v
    rows, cols, values, pointers = _stored_entries(R)
    v = None
    if sp.issparse(weights):
        check_dtype(weights.dtype, "weights")
        v_rows, v_cols, v, v_pointers = _stored_entries(weights.asformat(R.format))
        same = np.array_equal(v_rows, rows) and np.array_equal(v_cols, cols)
        if pointers is not None and v_pointers is not None:
            same = same and np.array_equal(v_pointers, pointers)
        if not same:
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
        v = flat_weights(weights, values.size)
    shape = (int(R.shape[0]), int(R.shape[1]))
    return EntryArrays(shape, rows, cols, values, _NONE, pointers), v


def _stored_entries(
    R: Any,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[np.int64] | None]:
    """Return rows, columns and values as stored, and the pointers of CSR instead of rows.

    SciPy's conversions would sum repeated entries and drop some zeros.
    """
    if R.format == "dia":
        parts = []
        for offset, diagonal in zip(R.offsets, R.data, strict=True):
            start = max(0, int(offset))
            cols = np.arange(start, max(start, min(R.shape[1], R.shape[0] + offset, diagonal.size)))
            parts.append((cols - offset, cols, diagonal[cols]))
        joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
        return (joined[0], joined[1], joined[2], None) if parts else _stored_entries(R.tocoo())
    if R.format == "csr":
        pointers = _check_compressed(R)
        size = int(pointers[-1])
        return np.empty(0, R.indices.dtype), R.indices[:size], R.data[:size], pointers
    coo = R if R.format == "coo" else R.tocoo(copy=False)
    if not coo.row.shape == coo.col.shape == coo.data.shape:
        raise ValueError("R must have as many rows and columns as values stored; R is corrupt")
    return coo.row, coo.col, coo.data, None


def _check_compressed(R: Any) -> NDArray[np.int64]:
    """Check the pointers of a matrix, which SciPy does not; wrong ones lead out of bounds."""
    n = R.shape[0] if R.format == "csr" else R.shape[1]
    indptr = np.array(R.indptr, np.int64)
    if indptr.size != n + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError(
            f"R.indptr must start at 0, not decrease and have length {n + 1}; R is corrupt"
        )
    if indptr[-1] > min(R.indices.size, R.data.size):
        raise ValueError(
            f"R.indptr ends at {indptr[-1]}, beyond its {R.data.size} stored values; R is corrupt"
        )
    return indptr


def _from_triplets(R: tuple[Any, ...], weights: Any, shape: Any) -> _Weighted:
    if len(R) != 3:
        hint = "; note that scipy uses (values, (rows, cols))" if len(R) == 2 else ""
        raise ValueError(f"R as a tuple must be (rows, cols, values), got {len(R)} items{hint}")
    values = np.asarray(R[2])
    check_dtype(values.dtype, "values")
    m, n = (None, None) if shape is None else check_shape(shape, "shape")
    rows = check_indices(R[0], "rows", None)
    cols = check_indices(R[1], "cols", None)
    if m is not None and n is not None and rows.size and cols.size:
        if rows.max() < n and cols.max() < m and not (rows.max() < m and cols.max() < n):
            beyond = (
                f"rows go up to {rows.max()} and cols up to {cols.max()}, beyond shape ({m}, {n})"
            )
            raise IndexError(f"{beyond}; are the two swapped?")
        rows, cols = check_indices(rows, "rows", m), check_indices(cols, "cols", n)
    check_lengths(rows, cols, values)
    if values.size == 0:
        raise ValueError("R must hold at least one observation, got none")
    if m is None or n is None:
        m, n = int(rows.max()) + 1, int(cols.max()) + 1
        check_positions((m, n), values.size)
    v = None if weights is None else flat_weights(weights, values.size)
    return EntryArrays((m, n), rows, cols, values, _NONE), v


def _from_dense(R: Any, weights: Any) -> _Weighted:
    try:
        array = R if isinstance(R, np.ma.MaskedArray) else np.asarray(R)
    except ValueError as error:
        raise ValueError(f"R must be a matrix with rows of equal length: {error}") from None
    check_dtype(array.dtype, "R")
    if array.ndim != 2:
        raise ValueError(f"R must have two dimensions, got shape {array.shape}")
    values = np.asarray(array)
    warn_of_triplets(values)
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
        check_weights_shape(v, values.shape)
        v = v[rows, cols]
    return EntryArrays(values.shape, rows, cols, values[rows, cols], _NONE), v


def warn_of_triplets(matrix: NDArray[Any]) -> None:
    """Warn about a matrix that looks like a list of (row, column, value) triplets."""
    if 3 not in matrix.shape or matrix.size < 60:
        return
    columns = matrix if matrix.shape[1] == 3 else matrix.T
    ids = columns[:, :2]
    if (ids >= 0).all() and (ids == np.floor(ids)).all() and (np.diff(ids, axis=0) != 0).any():
        warn(
            f"R has shape {columns.shape} with integers in two of three columns; if these are "
            "triplets, pass a tuple (rows, cols, values) instead, or for a table the names rows=, "
            "cols= and values="
        )


def check_lengths(*columns: NDArray[Any], of: str = "") -> None:
    """Raise an error unless the columns of entries are vectors of equal length."""
    shapes = [column.shape for column in columns]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1:
        raise ValueError(
            f"rows, cols and values{of} must be one-dimensional and of equal length, got shapes "
            f"{', '.join(map(str, shapes[:-1]))} and {shapes[-1]}"
        )


def check_weights_shape(weights: Any, shape: tuple[int, ...]) -> None:
    """Raise an error unless the weights of a matrix have its shape."""
    if weights.shape != shape:
        raise ValueError(f"weights must have the shape of R, {shape}, got {weights.shape}")


def flat_weights(weights: Any, size: int) -> NDArray[Any]:
    """Return weights as an array with one number per observation."""
    v = np.asarray(weights)
    check_dtype(v.dtype, "weights")
    if v.shape != (size,):
        raise ValueError(f"weights must be one per observation, shape ({size},), got {v.shape}")
    return v


def check_same_shape(shape: Any, actual: tuple[int, int]) -> None:
    """Raise an error if `shape` is given and differs from the actual shape."""
    if shape is not None and check_shape(shape, "shape") != actual:
        raise ValueError(f"shape must be that of R, {actual}, got {tuple(shape)}")


# --- checks ---------------------------------------------------------------------------------


def _writeable(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a writeable contiguous array; kernels would be compiled again for others."""
    return np.require(array, dtype, ("C", "W"))


def _as_index(indices: NDArray[Any], name: str, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    check_indices(indices, name, size, widen=False)
    return _writeable(indices, dtype)


def _place(found: EntryArrays, first: int, entry: int) -> str:
    return found.place(first + entry)
