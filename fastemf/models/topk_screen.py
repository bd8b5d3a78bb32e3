"""Approximate predictions of whole rows by matrix products, with a bound on their error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastemf.kernels.corrections import OF_COL, OF_PRODUCT, OF_ROW
from fastemf.kernels.threads import single_threaded_blas
from fastemf.kernels.topk import CorrectionTerms
from fastemf.models.entities import Entities
from fastemf.support.arrays import Array, Floats, Ints
from fastemf.tuning.corrections import OF, Correction, Corrections

TILE_COLUMNS = 256  # so that a tile of many rows stays in second-level cache


class ApproximateRows(NamedTuple):
    """Predictions of some rows, one tile of columns at a time."""

    margin: Floats  # bound on the error, by row
    width: int  # columns of a tile; the last one is padded
    fill: Callable[[int, Array], None]  # writes the products of a tile
    added: CorrectionTerms  # to the products


Screen = Callable[[Ints], ApproximateRows]  # of known rows


def make_screen(
    axes: tuple[Entities, Entities],
    constant: float,
    factors: tuple[Array, Array],
    offsets: tuple[Array, Array],
) -> Screen:
    """Return a function that predicts known rows approximately.

    Factors and intercepts are one matrix product. Correction tables are added only to cells that
    may be among the best.
    """
    (X, Y), (a, c), (rows, cols) = factors, offsets, axes
    dtype, limit = X.dtype, _largest_sum(X.dtype)
    right = [Y] if a.size == 0 else [Y, np.ones((c.size, 1), dtype), c[:, None]]
    product = _Product(np.column_stack(right), dtype)
    sums, extra, nothing = None, 0.0, no_corrections(dtype)
    if rows.effects is not None:
        tables = rows.effects.corrections
        sums = _CorrectionSums(tables)
        with single_threaded_blas():  # whose idle threads would spin on the cores
            of_cols = sums.terms_of(cols.knot_positions, OF_COL)
        # The kernel interpolates in another order; a position among eight knots loses three bits.
        extra = 64 * float(np.finfo(np.float64).eps) * tables.largest + sums.left_out
        corrections = _ScreenedCorrections(product, sums, of_cols, constant, tables.largest)

    def screen(i: Ints) -> ApproximateRows:
        sides = [X[i]] if a.size == 0 else [X[i], a[i, None], np.ones((i.size, 1), dtype)]
        left = np.column_stack(sides)
        with np.errstate(over="ignore", invalid="ignore"):
            size = product.sizes(left)
            if sums is None:
                error, added = product.rounding(size), nothing
            else:
                of_rows = sums.terms_of(rows.knot_positions[i], OF_ROW)
                size, error = corrections.bounds(of_rows, size)
                added = corrections.terms_of(of_rows)
        # An intermediate overflow does not imply that the prediction overflows.
        lost = ~(size < limit)
        left[lost] = 0.0

        def fill(tile: int, out: Array) -> None:
            np.matmul(left, product.tiles[tile], out=out)

        return ApproximateRows(np.where(lost, np.inf, error + extra), TILE_COLUMNS, fill, added)

    return screen


def no_corrections(dtype: np.dtype[Any]) -> CorrectionTerms:
    """Return the terms of a model without correction tables."""
    knots, none = np.empty(0, dtype), np.empty((0, 0), dtype)
    return CorrectionTerms(np.empty(0), np.empty(0), knots, knots, none, none, none, none)


class _Product:
    """Matrix products in the precision of a model, tile by tile, with error bounds.

    Another order of summation changes a sum of n terms by at most n roundings of the sum of their
    absolute values, plus the smallest subnormal number for each underflow. The bounds are four
    times that: twice for the two orders, and twice for safety.
    """

    def __init__(self, right: Array, dtype: np.dtype[Any]) -> None:
        self.dtype, self._n_terms = dtype, right.shape[1]
        self._eps, self.least = (
            float(number) for number in (np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal)
        )
        self._largest = np.abs(right).max(axis=0, initial=0.0).astype(np.float64)
        self.tiles = _split_tiles(right, dtype)

    def sizes(self, left: Array) -> Floats:
        """Bound the sum of the absolute values of the terms of each row."""
        return np.asarray(np.abs(left).astype(np.float64) @ self._largest)

    def rounding(self, size: Floats, more: int = 0) -> Floats:
        """Bound the rounding error of sums of these sizes, with `more` additional terms."""
        return np.asarray(4 * (self._n_terms + more + 4) * (self._eps * size + self.least))


class _SideTerms(NamedTuple):
    """The contribution of some rows, or some columns, to the sums of the corrections."""

    linear: Floats  # (items, terms)
    rises: Floats  # (items, pieces)
    below: Floats  # lower bound of the corrections of an item's cells
    above: Floats  # upper bound


class _OrientedCorrection(NamedTuple):
    """A table with its sides in the order product, row, column."""

    of: tuple[int, int]
    columns: tuple[int, int]  # of the knot positions
    table: Correction

    @classmethod
    def each(cls, tables: Corrections) -> list[_OrientedCorrection]:
        """Orient all tables."""
        order, oriented = (OF_PRODUCT, OF_ROW, OF_COL), []
        for t, table in enumerate(tables.each):
            one, other = (OF[name] for name in table.over)
            if order.index(one) <= order.index(other):
                oriented.append(cls((one, other), (2 * t, 2 * t + 1), table))
            else:
                transposed = Correction(table.over[::-1], table.knots[::-1], table.values.T)
                oriented.append(cls((other, one), (2 * t + 1, 2 * t), transposed))
        return oriented


class _CorrectionSums:
    """The correction tables of a fit as two sums.

    A table over a row and a column is bilinear in their interpolation weights. A table over the
    product and one side is linear between two knots of the product, and its rise there depends on
    that side alone. So all tables together are ``Σ linear(row) · linear(column)``, with their
    values at the last knot of the product, minus a sum over the pieces between knots of
    ``rises(row) + rises(column)`` times the proportion of the piece above the product.

    Attributes
    ----------
    low, high
        The knots at both ends of the pieces. Tables with equal knots of the product share them.
    left_out
        Bound on the error: a table over the product alone is replaced by its mid-range.
    """

    def __init__(self, tables: Corrections) -> None:
        self._tables = _OrientedCorrection.each(tables)
        self._slots: dict[tuple[float, ...], slice] = {}
        low, high, self.left_out = [np.empty(0)], [np.empty(0)], 0.0
        count = 0
        for of, _, table in self._tables:
            if of == (OF_PRODUCT, OF_PRODUCT):
                self.left_out += float(np.ptp(table.values)) / 2
            elif of[0] == OF_PRODUCT and tuple(table.knots[0]) not in self._slots:
                knots = table.knots[0]
                self._slots[tuple(knots)] = slice(count, count + knots.size - 1)
                low.append(knots[:-1])
                high.append(knots[1:])
                count += low[-1].size
        self.low, self.high = np.concatenate(low), np.concatenate(high)

    def terms_of(self, positions: Floats, of: int) -> _SideTerms:
        """Compute the terms of rows (`of` is `OF_ROW`) or columns at these knot positions."""
        linear, ones = [], np.ones((positions.shape[0], 1))
        rises = np.zeros((positions.shape[0], self.low.size))
        below, above = np.zeros((2, positions.shape[0]))
        for kinds, columns, table in self._tables:
            x, y = (positions[:, column] for column in columns)
            V = table.values
            ends = V.reshape(1, -1)  # whose range contains the corrections
            if kinds == (OF_ROW, OF_COL) and of == OF_ROW:
                linear.append(ends := _interpolation_weights(x, V.shape[0]) @ V)
            elif kinds == (OF_ROW, OF_COL):
                linear.append(_interpolation_weights(y, V.shape[1]))
            elif kinds == (OF_PRODUCT, OF_PRODUCT):
                linear.append(ones * (V.max() + V.min()) / 2 if of == OF_ROW else ones)
            elif kinds[1] != of:
                linear.append(ones)
            elif kinds[0] == of:
                linear.append(ends := table.between(x, y)[:, None])
            else:
                ends = _interpolation_weights(y, V.shape[1]) @ V.T
                linear.append(ends[:, -1:])
                rises[:, self._slots[tuple(table.knots[0])]] += np.diff(ends, axis=1)
            below += ends.min(axis=1)
            above += ends.max(axis=1)
        return _SideTerms(np.column_stack(linear), rises, below, above)


class _ScreenedCorrections:
    """Corrections in the precision of the product, and bounds on the error of both together."""

    def __init__(
        self,
        product: _Product,
        sums: _CorrectionSums,
        cols: _SideTerms,
        constant: float,
        largest: float,
    ) -> None:
        dtype = product.dtype
        self._product, self._linear = product, _Product(cols.linear, dtype)
        ends = np.stack([sums.low, sums.high]) + constant
        # Products that matter, and their distances to a knot, are well within these bounds.
        bound = 2 * _largest_sum(dtype)
        low, high = rounded = np.clip(ends, -bound, bound).astype(dtype)
        length = high.astype(np.float64) - low
        # Knots move by their rounding and that of the constant.
        moved = np.abs(rounded - ends).max(axis=0)
        moved += 2 * np.finfo(np.float64).eps * (np.abs(ends).max(axis=0) + abs(constant))
        # Pieces with a slope that overflows are left out.
        with np.errstate(all="ignore"):
            steep = ~(2 * largest / length < _largest_sum(dtype))
        self._moved, self._length = np.where(steep, np.inf, moved), np.where(steep, np.inf, length)
        self._width, self._lost = sums.high - sums.low, (2 * product.least * length).sum()
        self._largest_rise = np.abs(cols.rises).max(axis=0, initial=0.0)
        none = np.empty((0, 0), dtype)
        self._of_cols = CorrectionTerms(
            np.empty(0), np.empty(0), low, high,
            none, np.concatenate(self._linear.tiles),
            none, np.concatenate(_split_tiles(self._slopes(cols), dtype)),
        )  # fmt: skip

    def _slopes(self, terms: _SideTerms) -> Array:
        return (terms.rises / self._length).astype(self._product.dtype)

    def terms_of(self, rows: _SideTerms) -> CorrectionTerms:
        """Return the corrections of the products of some rows."""
        dtype = self._product.dtype
        # Predictions are compared in the precision of the model.
        rounding = 4 * float(np.finfo(dtype).eps) * np.maximum(-rows.below, rows.above)
        return self._of_cols._replace(
            below=rows.below - rounding, above=rows.above + rounding,
            row_terms=rows.linear.astype(dtype), row_slopes=self._slopes(rows),
        )  # fmt: skip

    def bounds(self, rows: _SideTerms, size: Floats) -> tuple[Floats, Floats]:
        """Bound the sizes of all terms and the error of their sum, given those of the products.

        The proportion of a piece changes by the error of the product over the length of the piece,
        and by at most 1, however close two knots are.
        """
        error = self._product.rounding(size)
        rises = np.abs(rows.rises) + self._largest_rise
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            change = (error[:, None] + self._moved) / self._width
        change[~(change < 1)] = 1.0
        size = size + self._linear.sizes(rows.linear) + rises.sum(axis=1)
        error = error + np.sum(rises * change, axis=1) + self._lost
        return size, error + self._linear.rounding(size, 4 * self._largest_rise.size)


def _interpolation_weights(positions: Floats, n_knots: int) -> Floats:
    """Compute the weight of each knot in a linear interpolation: (items, knots)."""
    at, every = positions.astype(np.int64), np.arange(positions.size)
    weights = np.zeros((positions.size, n_knots))
    weights[every, at] = 1 - (positions - at)
    weights[every, np.minimum(at + 1, n_knots - 1)] += positions - at
    return weights


def _largest_sum(dtype: np.dtype[Any]) -> float:
    """Return a bound below which sums do not overflow in any order."""
    return float(np.finfo(dtype).max) / 16


def _split_tiles(right: Array, dtype: np.dtype[Any]) -> list[Array]:
    """Transpose, and split into tiles of columns; the last one is padded with zeros."""
    tiles, width = [], TILE_COLUMNS
    for first in range(0, right.shape[0], width):
        part = right[first : first + width]
        tile = np.zeros((right.shape[1], width), dtype)
        tile[:, : part.shape[0]] = part.T
        tiles.append(tile)
    return tiles
