"""Functions of a product that are linear between knots, added to whole rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit

__all__ = ["AT_ONCE", "Pieces", "add_pieces"]

AT_ONCE = 4  # pieces of a pass over some columns: their number is a multiple of it
COLUMNS = 256  # whose slopes stay in the first-level cache from one row to the next


class Pieces(NamedTuple):
    """Products p, and what is added: a part that is there, and (s + t) · (p within low … high).

    `s` and `t` are a row's and a column's slopes, one for each piece; within low … high, p counts
    from low on.
    """

    products: NDArray[Any]  # (rows, cols); then the sums
    part: NDArray[Any]  # (rows, cols); then all that was added
    of_rows: NDArray[Any]  # (rows, pieces)
    of_cols: NDArray[Any]  # (pieces, cols)
    low: NDArray[Any]
    high: NDArray[Any]


@helper()
def _within(p, low, high):
    """Tell how far p has come on the way from low to high."""
    p = p if p > low else low
    return (p if p < high else high) - low


@unit()
def add_pieces(first, last, pieces):
    """Add to the products of rows first … last − 1."""
    products, part, low, high = pieces.products, pieces.part, pieces.low, pieces.high
    s, t, n_cols = pieces.of_rows, pieces.of_cols, pieces.products.shape[1]
    for begin in range(0, n_cols, COLUMNS):
        end = min(begin + COLUMNS, n_cols)
        for i in range(first, last):
            p, total = products[i, begin:end], part[i, begin:end]
            # Four in a pass, so that sums are not stored and loaded for each; slices, because LLVM
            # makes vectors of what counts from zero.
            for a in range(0, low.size, AT_ONCE):
                l0, l1, l2, l3 = low[a], low[a + 1], low[a + 2], low[a + 3]
                h0, h1, h2, h3 = high[a], high[a + 1], high[a + 2], high[a + 3]
                s0, s1, s2, s3 = s[i, a], s[i, a + 1], s[i, a + 2], s[i, a + 3]
                t0, t1 = t[a, begin:end], t[a + 1, begin:end]
                t2, t3 = t[a + 2, begin:end], t[a + 3, begin:end]
                for c in range(end - begin):
                    v = p[c]
                    total[c] += (
                        (s0 + t0[c]) * _within(v, l0, h0) + (s1 + t1[c]) * _within(v, l1, h1)
                        + (s2 + t2[c]) * _within(v, l2, h2) + (s3 + t3[c]) * _within(v, l3, h3)
                    )  # fmt: skip
            for c in range(end - begin):
                p[c] += total[c]
