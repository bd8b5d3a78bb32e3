"""What tables over statistics of a cell add to its prediction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit

__all__ = ["OF_COL", "OF_PRODUCT", "OF_ROW", "TableStack", "Tabled", "add_tables"]

OF_ROW, OF_COL, OF_PRODUCT = range(3)  # what a statistic is of


class TableStack(NamedTuple):
    """Several tables, of different sizes: `most` is the largest."""

    of: NDArray[np.int64]  # (tables, 2): what the first and the second statistic is of
    knots: NDArray[np.float64]  # (tables, 2, most)
    sizes: NDArray[np.int64]  # (tables, 2)
    values: NDArray[np.float64]  # (tables, most, most)


class Tabled(NamedTuple):
    """Cells, what a model predicts there without tables, and the tables.

    Cells are pairs of `rows` and `cols`; or where `cols` is empty, all those of `rows`, in order.
    Statistics of rows and columns come as their places among the knots, two columns for
    each table; the product's place is found here.
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    row_places: NDArray[np.float64]
    col_places: NDArray[np.float64]
    tables: TableStack
    constant: float  # what is in the predictions beside the product
    out: NDArray[Any]


@helper()
def _place(t, side, i, j, product, tabled):
    """Find where a cell lies among the knots of one side of a table."""
    of = tabled.tables.of[t, side]
    if of == OF_ROW:
        return tabled.row_places[i, 2 * t + side]
    if of == OF_COL:
        return tabled.col_places[j, 2 * t + side]
    knots, last = tabled.tables.knots, tabled.tables.sizes[t, side] - 1
    if last == 0 or product <= knots[t, side, 0]:
        return 0.0
    for a in range(last):
        above = knots[t, side, a + 1]
        if product < above:
            below = knots[t, side, a]
            return a + (product - below) / (above - below)
    return np.float64(last)


@unit()
def add_tables(first, last, tabled):
    """Add what the tables say to the predictions of cells first … last − 1."""
    out, rows, cols, n_cols = tabled.out, tabled.rows, tabled.cols, tabled.col_places.shape[0]
    V, sizes = tabled.tables.values, tabled.tables.sizes
    for e in range(first, last):
        if cols.size:
            i, j = rows[e], cols[e]
        else:
            i, j = rows[e // n_cols], e % n_cols
        product = np.float64(out[e]) - tabled.constant
        total = 0.0
        for t in range(V.shape[0]):
            x, y = _place(t, 0, i, j, product, tabled), _place(t, 1, i, j, product, tabled)
            a, c = int(x), int(y)
            b, d = min(a + 1, sizes[t, 0] - 1), min(c + 1, sizes[t, 1] - 1)
            near = V[t, a, c] + (y - c) * (V[t, a, d] - V[t, a, c])
            far = V[t, b, c] + (y - c) * (V[t, b, d] - V[t, b, c])
            total += near + (x - a) * (far - near)
        out[e] += total
