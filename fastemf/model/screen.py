"""Predictions of whole rows by matrix products, fast, and how far off they are at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.best import Added
from fastemf.kernels.tables import OF_COL, OF_ROW
from fastemf.kernels.threads import single_threaded_blas
from fastemf.model.table_parts import Parts, TableParts
from fastemf.solver.axis import Axis

__all__ = ["TILE_COLUMNS", "Near", "Screen", "make_screen", "nothing_added"]

TILE_COLUMNS = 256  # so that products of many rows are in the second-level cache


class Near(NamedTuple):
    """Predictions of some rows, up to a margin for each, some columns at a time."""

    margin: NDArray[np.float64]
    width: int  # columns of a tile; the last one may have fewer, and anything after them
    fill: Callable[[int, NDArray[Any]], None]  # with what products predict for a tile
    added: Added  # to that


Screen = Callable[[NDArray[np.int64]], Near]  # of these rows, all of them known


class _Product:
    """Matrix products in the precision of a model, tile by tile, and what they are off by.

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
        self.tiles = _tiles(right, dtype)

    def sizes(self, left: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of the sizes of the terms of a row, at most."""
        return np.asarray(np.abs(left).astype(np.float64) @ self._reach)

    def rounding(self, size: NDArray[np.float64], more: int = 0) -> NDArray[np.float64]:
        """Bound what sums of such sizes, with some more terms, are off by."""
        return np.asarray(4 * (self._n_terms + more + 4) * (self._eps * size + self.least))


class _TableSum:
    """What tables add to a product, and by how much the sum of all is off."""

    def __init__(
        self, product: _Product, parts: TableParts, cols: Parts, constant: float, largest: float
    ) -> None:
        dtype = product.dtype
        self._product, self._linear = product, _Product(cols.linear, dtype)
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
        none = np.empty((0, 0), dtype)
        self._of_cols = Added(
            np.empty(0), np.empty(0), low, high,
            none, np.concatenate(self._linear.tiles),
            none, np.concatenate(_tiles(self._sloped(cols), dtype)),
        )  # fmt: skip

    def _sloped(self, parts: Parts) -> NDArray[Any]:
        return (parts.rises / self._length).astype(self._product.dtype)

    def added(self, rows: Parts) -> Added:
        """Return what is added to the products of such rows."""
        dtype = self._product.dtype
        # Predictions are compared in the precision of the model.
        rounding = 4 * float(np.finfo(dtype).eps) * np.maximum(-rows.below, rows.above)
        return self._of_cols._replace(
            below=rows.below - rounding, above=rows.above + rounding,
            row_terms=rows.linear.astype(dtype), row_slopes=self._sloped(rows),
        )  # fmt: skip

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

    Factors and intercepts are one matrix product; tables are left to be added to the cells that
    may be among the best with them.
    """
    (X, Y), (a, c), (rows, cols) = factors, offsets, axes
    dtype, limit = X.dtype, _limit(X.dtype)
    right = [Y] if a.size == 0 else [Y, np.ones((c.size, 1), dtype), c[:, None]]
    product = _Product(np.column_stack(right), dtype)
    parts, beside, nothing = None, 0.0, nothing_added(dtype)
    if rows.levels is not None:
        tables = rows.levels.tables
        parts = TableParts(tables)
        with single_threaded_blas():  # whose threads would wait on the cores that ranks need
            of_cols = parts.at(cols.table_places, OF_COL)
        # Interpolated in another order; a place among eight knots has three digits fewer.
        beside = 64 * float(np.finfo(np.float64).eps) * tables.largest + parts.left_out
        table_sum = _TableSum(product, parts, of_cols, constant, tables.largest)

    def screened(i: NDArray[np.int64]) -> Near:
        sides = [X[i]] if a.size == 0 else [X[i], a[i, None], np.ones((i.size, 1), dtype)]
        left = np.column_stack(sides)
        with np.errstate(over="ignore", invalid="ignore"):
            size = product.sizes(left)
            if parts is None:
                off, added = product.rounding(size), nothing
            else:
                of_rows = parts.at(rows.table_places[i], OF_ROW)
                size, off = table_sum.bounds(of_rows, size)
                added = table_sum.added(of_rows)
        # What may not be a number on the way may be one in the end.
        lost = ~(size < limit)
        left[lost] = 0.0

        def fill(tile: int, out: NDArray[Any]) -> None:
            np.matmul(left, product.tiles[tile], out=out)

        return Near(np.where(lost, np.inf, off + beside), TILE_COLUMNS, fill, added)

    return screened


def nothing_added(dtype: np.dtype[Any]) -> Added:
    """Make what is added where there are no tables."""
    knots, none = np.empty(0, dtype), np.empty((0, 0), dtype)
    return Added(np.empty(0), np.empty(0), knots, knots, none, none, none, none)


def _limit(dtype: np.dtype[Any]) -> float:
    """Bound sums that are numbers whatever their order."""
    return float(np.finfo(dtype).max) / 16


def _tiles(right: NDArray[Any], dtype: np.dtype[Any]) -> list[NDArray[Any]]:
    """Transpose, and cut into tiles of columns; the last one is filled up with zeros."""
    tiles, width = [], TILE_COLUMNS
    for first in range(0, right.shape[0], width):
        part = right[first : first + width]
        tile = np.zeros((right.shape[1], width), dtype)
        tile[:, : part.shape[0]] = part.T
        tiles.append(tile)
    return tiles
