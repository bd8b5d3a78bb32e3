"""Predictions of whole rows by matrix products, fast, and how far off they are at most."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.pieces import Pieces, add_pieces, by_columns
from fastemf.kernels.tables import OF_COL, OF_ROW
from fastemf.kernels.threads import launch
from fastemf.model.table_parts import Parts, TableParts
from fastemf.solver.axis import Axis

__all__ = ["Screen", "make_screen"]

# It fills an array with predictions of whole rows, and returns by how much those of each are off.
Screen = Callable[[NDArray[np.int64], NDArray[Any]], NDArray[np.float64]]


class _Product:
    """A matrix product in the precision of a model, and by how much it is off.

    The order of the sums is not that of another way to compute them: one of n terms is off by n
    roundings of the sum of their sizes, and by the smallest number there is for each that is too
    small to have all its digits. Both count four times, for the other way and for good measure.
    """

    def __init__(self, right: NDArray[Any], dtype: np.dtype[Any]) -> None:
        self.dtype, self._n_terms = dtype, right.shape[1]
        self._eps, self.least = (
            float(number) for number in (np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal)
        )
        self._reach = np.abs(right).max(axis=0, initial=0.0).astype(np.float64)
        self._turned = np.ascontiguousarray(right.T, dtype)

    def fill(self, left: NDArray[Any], out: NDArray[Any]) -> NDArray[np.float64]:
        """Multiply, and return the sum of the sizes of the terms of a row, at most."""
        np.matmul(left.astype(self.dtype, copy=False), self._turned, out=out)
        return np.asarray(np.abs(left).astype(np.float64) @ self._reach)

    def rounding(self, size: NDArray[np.float64], more: int = 0) -> NDArray[np.float64]:
        """Bound what sums of such sizes, with some more terms, are off by."""
        return np.asarray(4 * (self._n_terms + more + 4) * (self._eps * size + self.least))


class _PieceSum:
    """What tables over the product add to it, and by how much that is off."""

    def __init__(
        self, parts: TableParts, cols: Parts, constant: float, largest: float, dtype: np.dtype[Any]
    ) -> None:
        self._linear = _Product(cols.linear, dtype)
        ends = np.stack([parts.low, parts.high]) + constant
        # A product that counts is well within such bounds, and so is its distance to a knot.
        bound = _limit(dtype) * 2
        low, high = laid = np.clip(ends, -bound, bound).astype(dtype)
        length = high.astype(np.float64) - low
        # Knots have moved by the rounding of their precision and of the constant.
        moved = np.abs(laid - ends).max(axis=0, initial=0.0)
        moved += (
            2 * np.finfo(np.float64).eps * (np.abs(ends).max(axis=0, initial=0.0) + abs(constant))
        )
        # Slopes that are no number are left out.
        with np.errstate(all="ignore"):
            steep = ~(2 * largest / length < _limit(dtype))
        self._moved, self._length = np.where(steep, np.inf, moved), np.where(steep, np.inf, length)
        self._width, self._lost = parts.high - parts.low, 2 * self._linear.least * length.sum()
        self._low, self._high = (np.ascontiguousarray(end) for end in laid)
        self._reach = np.abs(cols.rises).max(axis=0, initial=0.0)
        self._slopes = by_columns(self._sloped(cols).T)
        self._own = threading.local()  # memory that is mapped once, not for every block

    def _sloped(self, parts: Parts) -> NDArray[Any]:
        return (parts.rises / self._length).astype(self._linear.dtype)

    def add(
        self,
        rows: Parts,
        products: NDArray[Any],
        size: NDArray[np.float64],
        off: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Add to products of such sizes that are off by so much; return both of the sums.

        A piece's share moves by the product's error over the piece's length, and never by more than
        all of it, however near two knots are.
        """
        if not hasattr(self._own, "room") or self._own.room.size < products.size:
            self._own.room = np.empty(products.size, products.dtype)
        part = self._own.room[: products.size].reshape(products.shape)
        size = size + self._linear.fill(rows.linear, part)
        frame = Pieces(products, part, self._sloped(rows), self._slopes, self._low, self._high)
        launch(add_pieces, 1, np.array([0, products.shape[0]]), frame)
        rises = np.abs(rows.rises) + self._reach
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = (off[:, None] + self._moved) / self._width
        share[~(share < 1)] = 1.0
        size = size + rises.sum(axis=1)
        off = off + np.sum(rises * share, axis=1) + self._lost
        return size, off + self._linear.rounding(size, 4 * self._reach.size)


def make_screen(
    axes: tuple[Axis, Axis],
    constant: float,
    factors: tuple[NDArray[Any], NDArray[Any]],
    offsets: tuple[NDArray[Any], NDArray[Any]],
) -> Screen:
    """Make what predicts whole rows, all known, fast: up to a margin for each row.

    Factors, intercepts and tables over row and column are one matrix product; tables over the
    product are added to it piece by piece.
    """
    (X, Y), (a, c), (rows, cols) = factors, offsets, axes
    dtype, limit = X.dtype, _limit(X.dtype)
    right = [Y] if a.size == 0 else [Y, np.ones((c.size, 1), dtype), c[:, None]]
    parts, pieces, beside = None, None, 0.0
    if rows.levels is not None:
        tables = rows.levels.tables
        parts = TableParts(tables)
        of_cols = parts.at(cols.table_places, OF_COL)
        # Interpolated in another order; a place among eight knots has three digits fewer.
        beside = 64 * float(np.finfo(np.float64).eps) * tables.largest + parts.left_out
        if parts.low.size:
            pieces = _PieceSum(parts, of_cols, constant, tables.largest, dtype)
        else:
            right.append(of_cols.linear)
    product = _Product(np.column_stack(right), dtype)

    def screened(i: NDArray[np.int64], out: NDArray[Any]) -> NDArray[np.float64]:
        left = [X[i]] if a.size == 0 else [X[i], a[i, None], np.ones((i.size, 1), dtype)]
        of_rows = None if parts is None else parts.at(rows.table_places[i], OF_ROW)
        if of_rows is not None and pieces is None:
            left.append(of_rows.linear)
        with np.errstate(over="ignore", invalid="ignore"):
            size = product.fill(np.column_stack(left), out)
            off = product.rounding(size)
            if of_rows is not None and pieces is not None:
                size, off = pieces.add(of_rows, out, size, off)
        # What may not be a number on the way may be one in the end.
        lost = ~(size < limit)
        out[lost] = 0.0
        return np.where(lost, np.inf, off + beside)

    return screened


def _limit(dtype: np.dtype[Any]) -> float:
    """Bound sums that are numbers whatever their order."""
    return float(np.finfo(dtype).max) / 16
