"""Corrections of predictions: bilinear interpolation in tables over two statistics of a cell."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit

OF_ROW, OF_COL, OF_PRODUCT = range(3)  # kinds of statistics


class CorrectionStack(NamedTuple):
    """Several correction tables, padded to the largest size `most`."""

    of: NDArray[np.int64]  # (tables, 2): kinds of the two statistics
    knots: NDArray[np.float64]  # (tables, 2, most)
    sizes: NDArray[np.int64]  # (tables, 2)
    values: NDArray[np.float64]  # (tables, most, most)


class CorrectedCells(NamedTuple):
    """Cells, their predictions without corrections, and the correction tables.

    Cells are pairs of `rows` and `cols`; if `cols` is empty, all cells of `rows` in order.
    Statistics of rows and columns are given as positions among the knots, two columns for each
    table. The position of the product is computed here.
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    row_places: NDArray[np.float64]
    col_places: NDArray[np.float64]
    tables: CorrectionStack
    constant: float  # the part of the predictions besides the product
    out: NDArray[Any]


@helper()
def _place(t, side, i, j, product, cells):
    """Return the position of a cell among the knots of one side of a table."""
    of = cells.tables.of[t, side]
    if of == OF_ROW:
        return cells.row_places[i, 2 * t + side]
    if of == OF_COL:
        return cells.col_places[j, 2 * t + side]
    knots, last = cells.tables.knots, cells.tables.sizes[t, side] - 1
    if last == 0 or product <= knots[t, side, 0]:
        return 0.0
    for a in range(last):
        above = knots[t, side, a + 1]
        if product < above:
            below = knots[t, side, a]
            return a + (product - below) / (above - below)
    return np.float64(last)


@unit()
def add_corrections(first, last, cells):
    """Add the corrections to the predictions of cells first … last − 1."""
    out, rows, cols, n_cols = cells.out, cells.rows, cells.cols, cells.col_places.shape[0]
    V, sizes = cells.tables.values, cells.tables.sizes
    for e in range(first, last):
        if cols.size:
            i, j = rows[e], cols[e]
        else:
            i, j = rows[e // n_cols], e % n_cols
        product = np.float64(out[e]) - cells.constant
        total = 0.0
        for t in range(V.shape[0]):
            x, y = _place(t, 0, i, j, product, cells), _place(t, 1, i, j, product, cells)
            a, c = int(x), int(y)
            b, d = min(a + 1, sizes[t, 0] - 1), min(c + 1, sizes[t, 1] - 1)
            near = V[t, a, c] + (y - c) * (V[t, a, d] - V[t, a, c])
            far = V[t, b, c] + (y - c) * (V[t, b, d] - V[t, b, c])
            total += near + (x - a) * (far - near)
        out[e] += total
