"""Predictions of whole rows by matrix products, fast, and how far off they are at most."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.frames import pack
from fastemf.kernels.pieces import TILE_COLUMNS, PieceCols, PieceRows, Pieces, add_pieces
from fastemf.kernels.tables import OF_COL, OF_ROW
from fastemf.kernels.threads import launch, single_threaded_blas
from fastemf.model.table_parts import Parts, TableParts
from fastemf.solver.axis import Axis

__all__ = ["Screen", "make_screen"]

# It fills an array with predictions of whole rows, and returns by how much those of each are off.
Screen = Callable[[NDArray[np.int64], NDArray[Any]], NDArray[np.float64]]


class _Product:
    """Matrix products in the precision of a model, tile by tile, and what they are off by.

    The order of the sums is not that of another way to compute them: one of n terms is off by n
    roundings of the sum of their sizes, and by the smallest number there is for each that is too
    small to have all its digits. Both count four times, for the other way and for good measure.
    """

    def __init__(self, right: NDArray[Any], dtype: np.dtype[Any], width: int) -> None:
        self.dtype, self._n_terms = dtype, right.shape[1]
        self._eps, self.least = (
            float(number) for number in (np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal)
        )
        self._reach = np.abs(right).max(axis=0, initial=0.0).astype(np.float64)
        self.tiles = _tiles(right, dtype, width)

    def fill(self, left: NDArray[Any], tile: int, out: NDArray[Any]) -> None:
        """Multiply with the columns of one tile."""
        np.matmul(left.astype(self.dtype, copy=False), self.tiles[tile], out=out)

    def sizes(self, left: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of the sizes of the terms of a row, at most."""
        return np.asarray(np.abs(left).astype(np.float64) @ self._reach)

    def rounding(self, size: NDArray[np.float64], more: int = 0) -> NDArray[np.float64]:
        """Bound what sums of such sizes, with some more terms, are off by."""
        return np.asarray(4 * (self._n_terms + more + 4) * (self._eps * size + self.least))


class _PieceSum:
    """A product and what tables over it add, and by how much their sum is off."""

    def __init__(
        self, product: _Product, parts: TableParts, cols: Parts, constant: float, largest: float
    ) -> None:
        dtype = product.dtype
        self._product, self._linear = product, _Product(cols.linear, dtype, TILE_COLUMNS)
        ends = np.stack([parts.low, parts.high]) + constant
        # A product that counts is well within such bounds, and so is its distance to a knot.
        bound = 2 * _limit(dtype)
        low, high = laid = np.clip(ends, -bound, bound).astype(dtype)
        length = high.astype(np.float64) - low
        # Knots have moved by the rounding of their precision and of the constant.
        moved = np.abs(laid - ends).max(axis=0)
        moved += 2 * np.finfo(np.float64).eps * (np.abs(ends).max(axis=0) + abs(constant))
        # Slopes that are no number are left out.
        with np.errstate(all="ignore"):
            steep = ~(2 * largest / length < _limit(dtype))
        self._moved, self._length = np.where(steep, np.inf, moved), np.where(steep, np.inf, length)
        self._width, self._lost = parts.high - parts.low, (2 * product.least * length).sum()
        self._reach = np.abs(cols.rises).max(axis=0, initial=0.0)
        self._cols = [
            pack(PieceCols(np.ascontiguousarray(low), np.ascontiguousarray(high), tile.ravel()))
            for tile in _tiles(self._sloped(cols), dtype, TILE_COLUMNS)
        ]
        self._own = threading.local()  # memory that is mapped once, not for every block

    def _sloped(self, parts: Parts) -> NDArray[Any]:
        return (parts.rises / self._length).astype(self._product.dtype)

    def fill(self, left: NDArray[Any], rows: Parts, out: NDArray[Any]) -> None:
        """Predict, some columns at a time: products are in the cache when pieces are added."""
        if not hasattr(self._own, "room") or self._own.room.shape[1] < left.shape[0]:
            self._own.room = np.empty((2, left.shape[0], TILE_COLUMNS), out.dtype)
        products, part = self._own.room[:, : left.shape[0]]
        left, linear = (side.astype(out.dtype, copy=False) for side in (left, rows.linear))
        slopes = self._sloped(rows)
        packed = pack(
            PieceRows(products, part, slopes if slopes.any() else slopes[:, :0].copy(), out)
        )
        every = np.array([0, left.shape[0]])
        for tile, cols in enumerate(self._cols):
            self._product.fill(left, tile, products)
            self._linear.fill(linear, tile, part)
            launch(add_pieces, 1, every, Pieces(packed, cols, tile * TILE_COLUMNS))

    def bounds(
        self, rows: Parts, size: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bound the sizes of all terms, and what their sum is off by, given those of the products.

        A piece's share moves by the product's error over the piece's length, and never by more than
        all of it, however near two knots are.
        """
        off = self._product.rounding(size)
        rises = np.abs(rows.rises) + self._reach
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = (off[:, None] + self._moved) / self._width
        share[~(share < 1)] = 1.0
        size = size + self._linear.sizes(rows.linear) + rises.sum(axis=1)
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
    parts, beside, tabled = None, 0.0, False
    if rows.levels is not None:
        tables = rows.levels.tables
        parts = TableParts(tables)
        with single_threaded_blas():  # whose threads would wait on the cores that ranks need
            of_cols = parts.at(cols.table_places, OF_COL)
        # Interpolated in another order; a place among eight knots has three digits fewer.
        beside = 64 * float(np.finfo(np.float64).eps) * tables.largest + parts.left_out
        tabled = parts.low.size > 0
        if not tabled:
            right.append(of_cols.linear)
    product = _Product(
        np.column_stack(right), dtype, TILE_COLUMNS if tabled else c.size or Y.shape[0]
    )
    pieces = None
    if parts is not None and tabled:
        pieces = _PieceSum(product, parts, of_cols, constant, tables.largest)

    def screened(i: NDArray[np.int64], out: NDArray[Any]) -> NDArray[np.float64]:
        sides = [X[i]] if a.size == 0 else [X[i], a[i, None], np.ones((i.size, 1), dtype)]
        of_rows = None if parts is None else parts.at(rows.table_places[i], OF_ROW)
        if of_rows is not None and pieces is None:
            sides.append(of_rows.linear)
        left = np.column_stack(sides)
        with np.errstate(over="ignore", invalid="ignore"):
            size = product.sizes(left)
            if of_rows is None or pieces is None:
                product.fill(left, 0, out)
                off = product.rounding(size)
            else:
                pieces.fill(left, of_rows, out)
                size, off = pieces.bounds(of_rows, size)
        # What may not be a number on the way may be one in the end.
        lost = ~(size < limit)
        out[lost] = 0.0
        return np.where(lost, np.inf, off + beside)

    return screened


def _limit(dtype: np.dtype[Any]) -> float:
    """Bound sums that are numbers whatever their order."""
    return float(np.finfo(dtype).max) / 16


def _tiles(right: NDArray[Any], dtype: np.dtype[Any], width: int) -> list[NDArray[Any]]:
    """Transpose, and cut into tiles of as many columns; the last one is filled up with zeros."""
    tiles = []
    for first in range(0, right.shape[0], width):
        part = right[first : first + width]
        tile = np.zeros((right.shape[1], width), dtype)
        tile[:, : part.shape[0]] = part.T
        tiles.append(tile)
    return tiles
