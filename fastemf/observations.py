"""The observed entries, by row and by column: what the sweeps go through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.entries import check_same_shape, parts, read_entries
from fastemf.entry_kernels import COUNT, PLACE
from fastemf.threads import launch

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
        v, total = self.by_row.weights, 0.0
        for part in parts(self.size):
            squares = np.square(self.by_row.values[part].astype(np.float64) - level)
            total += float(np.sum(squares * v[part] if v.size else squares))
        return float(np.sqrt(total / self.mass))

    def astype(self, dtype: np.dtype[Any]) -> Observations:
        """The same observations in another float type."""
        if dtype == self.dtype:
            return self
        row, col = (
            replace(side, values=side.values.astype(dtype), weights=side.weights.astype(dtype))
            for side in (self.by_row, self.by_col)
        )
        return replace(self, by_row=row, by_col=col)

    def subset(self, mask: NDArray[np.bool_]) -> Observations:
        """The observations where `mask`, in the order of ``by_row``, is true.

        Same shape, types, weights and order: the same bits as observing those entries alone.
        """
        if mask.shape != (self.size,) or not mask.any():
            raise ValueError(
                f"mask must keep at least one of the {self.size} observations, one bool each"
            )
        row, col = self.by_row, self.by_col
        # Entries of one cell are in the same order on both sides, so sorting each side by
        # column, then row, lays one beside the other.
        on_row = np.argsort(row.indices, kind="stable")
        on_col = np.lexsort((col.indices, col.keys))
        of_col = np.empty_like(mask)
        of_col[on_col] = mask[on_row]
        return replace(self, by_row=_kept(row, mask), by_col=_kept(col, of_col))


def observe(R: Any, *, weights: Any = None, shape: Any = None, n_threads: int = 1) -> Observations:
    """Group the observed entries of `R` by row and by column, in linear time.

    The row side of a CSR matrix (the column side of a CSC one) holds the matrix's
    own arrays where their types allow it: nobody writes to them.

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
    n_threads
        Threads; the result does not depend on it.

    Raises
    ------
    TypeError, ValueError, IndexError
        With the parameter, the rule and the value received; a value that is not
        finite is named by its row and column.
    """
    if isinstance(R, Observations):
        if weights is not None:
            raise ValueError("weights belong to the data: observations that are built have theirs")
        check_same_shape(shape, R.shape)
        return R
    shape, rows, cols, values, v, pointers, transposed = read_entries(R, weights, shape)
    if pointers is None:
        by_row = _grouped(rows, cols, None, values, v, shape[0], n_threads)
    else:
        by_row = _side(pointers, cols, values, v)
    by_col = _grouped(cols, rows, pointers, values, v, shape[1], n_threads)
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


def _kept(side: Side, mask: NDArray[np.bool_]) -> Side:
    indptr = np.zeros_like(side.indptr)
    np.cumsum(np.bincount(side.keys[mask], minlength=indptr.size - 1), out=indptr[1:])
    weights = side.weights[mask] if side.weights.size else side.weights
    return _side(indptr, side.indices[mask], side.values[mask], weights)


def _grouped(
    keys: NDArray[Any],
    others: NDArray[Any],
    pointers: NDArray[np.int64] | None,
    values: NDArray[Any],
    weights: NDArray[Any],
    n: int,
    n_threads: int,
) -> Side:
    """Stable counting sort by key: entries stay in the given order within a key.

    Each thread counts, and later places, the keys of its own run of entries; where it starts
    within each key follows from the counts of the runs before, so the outcome is that of one
    run. What the entries' other index is, `others` or the row `pointers` say.
    """
    n_runs = max(1, min(n_threads, keys.size // n))  # tables no larger than the entries
    runs = np.arange(n_runs + 1, dtype=np.int64)
    bounds = runs * keys.size // n_runs
    table = np.zeros((n_runs, n), np.int64)
    launch(COUNT, n_threads, runs, bounds, keys, table)
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(table.sum(axis=0), out=indptr[1:])
    before = indptr[:-1].copy()
    for counts in table:  # from counts to places
        counts[:], before = before, before + counts
    indices, b, v = np.empty_like(keys), np.empty_like(values), np.empty_like(weights)
    given = (np.empty(0, np.int64) if pointers is None else pointers, others, values, weights)
    launch(PLACE, n_threads, runs, bounds, keys, *given, table, indices, b, v)
    return _side(indptr, indices, b, v)
