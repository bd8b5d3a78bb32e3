"""Functions of a product that are linear between knots, added for some columns of many rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit

__all__ = ["AT_ONCE", "TILE_COLUMNS", "PieceCols", "PieceRows", "Pieces", "add_pieces"]

AT_ONCE = 8  # pieces of a pass over the columns: their number is a multiple of it
TILE_COLUMNS = 256  # so that many rows' products are in the second-level cache


class PieceRows(NamedTuple):
    """Products of rows with the columns of a tile, what else they get, and the rows' slopes."""

    products: NDArray[Any]  # (rows, TILE_COLUMNS)
    part: NDArray[Any]  # (rows, TILE_COLUMNS); it is changed
    slopes: NDArray[Any]  # (rows, pieces), or (rows, 0) where rows have none
    out: NDArray[Any]  # (rows, all columns)


class PieceCols(NamedTuple):
    """The knots at both ends of the pieces, and the slopes of columns."""

    low: NDArray[Any]
    high: NDArray[Any]
    slopes: NDArray[Any]  # (pieces · TILE_COLUMNS,): its length is a constant to the compiler


class Pieces(NamedTuple):
    """Rows and the columns from `begin` on, at most `TILE_COLUMNS`.

    A piece takes the slopes of row and column times the way that the product is short of its end:
    none beyond it, and all its length before its beginning. It ends where the next one begins, but
    for the last of each `AT_ONCE`.
    """

    rows: Any
    cols: Any
    begin: int


@helper()
def _beyond(p, knot):
    return p if p > knot else knot


@helper()
def _short(p, c, k, s, t):
    """Sum what eight pieces between the knots k take in the c-th column, as a negative number."""
    q0, q1, q2, q3 = _beyond(p, k[0]), _beyond(p, k[1]), _beyond(p, k[2]), _beyond(p, k[3])
    q4, q5, q6, q7 = _beyond(p, k[4]), _beyond(p, k[5]), _beyond(p, k[6]), _beyond(p, k[7])
    return (
        (s[0] + t[c]) * (q0 - q1)
        + (s[1] + t[c + TILE_COLUMNS]) * (q1 - q2)
        + (s[2] + t[c + 2 * TILE_COLUMNS]) * (q2 - q3)
        + (s[3] + t[c + 3 * TILE_COLUMNS]) * (q3 - q4)
        + (s[4] + t[c + 4 * TILE_COLUMNS]) * (q4 - q5)
        + (s[5] + t[c + 5 * TILE_COLUMNS]) * (q5 - q6)
        + (s[6] + t[c + 6 * TILE_COLUMNS]) * (q6 - q7)
        + (s[7] + t[c + 7 * TILE_COLUMNS]) * (q7 - _beyond(p, k[8]))
    )


@helper()
def _eight(of, a):
    return of[a], of[a + 1], of[a + 2], of[a + 3], of[a + 4], of[a + 5], of[a + 6], of[a + 7]


@helper()
def _pass(p, more, to, is_last, k, s, t):
    """Add eight pieces to what is there, in one row."""
    # LLVM makes vectors of what counts from zero, in arrays of one dimension.
    if is_last:
        for c in range(to.size):
            to[c] = p[c] + more[c] + _short(p[c], c, k, s, t)
    else:
        for c in range(to.size):
            more[c] += _short(p[c], c, k, s, t)


@unit()
def add_pieces(first, last, pieces):
    """Write the sums of products, parts and pieces of rows first … last − 1."""
    rows, cols, begin = pieces.rows, pieces.cols, pieces.begin
    products, part, slopes, out = rows.products, rows.part, rows.slopes, rows.out
    low, high, of_cols, n_pieces = cols.low, cols.high, cols.slopes, cols.low.size
    end, o = min(begin + TILE_COLUMNS, out.shape[1]), out.dtype.type(0)
    for i in range(first, last):
        p, more, to = products[i], part[i], out[i, begin:end]
        for a in range(0, n_pieces, AT_ONCE):
            k0, k1, k2, k3, k4, k5, k6, k7 = _eight(low, a)
            k, is_last = (k0, k1, k2, k3, k4, k5, k6, k7, high[a + 7]), a + AT_ONCE == n_pieces
            t = of_cols[a * TILE_COLUMNS : (a + AT_ONCE) * TILE_COLUMNS]
            if slopes.size:
                _pass(p, more, to, is_last, k, _eight(slopes[i], a), t)
            else:  # an addition less for each
                _pass(p, more, to, is_last, k, (o, o, o, o, o, o, o, o), t)
