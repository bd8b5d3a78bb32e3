"""Functions of a product that are linear between knots, added to whole rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit

__all__ = ["AT_ONCE", "Pieces", "add_pieces"]

AT_ONCE = 8  # pieces of a pass over some columns: their number is a multiple of it
COLUMNS = 512  # whose slopes stay in the first-level cache from one row to the next


class Pieces(NamedTuple):
    """Products p, and what is added to them: a part that is there, and what is left of rises.

    A piece has a slope, of the row and the column together, and takes it times the way that is left
    from p to the piece's end: none beyond it, and all its length before its beginning. It ends
    where the next one begins, but for the last of each `AT_ONCE`.
    """

    products: NDArray[Any]  # (rows, cols); then the sums
    part: NDArray[Any]  # (rows, cols); it is changed
    of_rows: NDArray[Any]  # (rows, pieces): slopes
    of_cols: NDArray[Any]  # `by_columns`: slopes
    low: NDArray[Any]
    high: NDArray[Any]


def by_columns(slopes: NDArray[Any]) -> NDArray[Any]:
    """Lay slopes, (pieces, cols), out as the kernel reads them: those of some columns at a time."""
    n_pieces, n_cols = slopes.shape
    whole = np.zeros((n_pieces, -(-n_cols // COLUMNS) * COLUMNS), slopes.dtype)
    whole[:, :n_cols] = slopes
    return np.ascontiguousarray(whole.reshape(n_pieces, -1, COLUMNS).swapaxes(0, 1)).ravel()


@helper()
def _beyond(p, knot):
    return p if p > knot else knot


@helper()
def _left(p, c, t, k0, k1, k2, k3, k4, k5, k6, k7, k8, s0, s1, s2, s3, s4, s5, s6, s7):
    """Sum what is left of eight rises in the c-th of some columns, which is negative."""
    q0, q1, q2, q3 = _beyond(p, k0), _beyond(p, k1), _beyond(p, k2), _beyond(p, k3)
    q4, q5, q6, q7 = _beyond(p, k4), _beyond(p, k5), _beyond(p, k6), _beyond(p, k7)
    return (
        (s0 + t[c]) * (q0 - q1)
        + (s1 + t[c + COLUMNS]) * (q1 - q2)
        + (s2 + t[c + 2 * COLUMNS]) * (q2 - q3)
        + (s3 + t[c + 3 * COLUMNS]) * (q3 - q4)
        + (s4 + t[c + 4 * COLUMNS]) * (q4 - q5)
        + (s5 + t[c + 5 * COLUMNS]) * (q5 - q6)
        + (s6 + t[c + 6 * COLUMNS]) * (q6 - q7)
        + (s7 + t[c + 7 * COLUMNS]) * (q7 - _beyond(p, k8))
    )


@helper()
def _eight(of, a):
    return of[a], of[a + 1], of[a + 2], of[a + 3], of[a + 4], of[a + 5], of[a + 6], of[a + 7]


@unit()
def add_pieces(first, last, pieces):
    """Add to the products of rows first … last − 1."""
    products, part, low, high = pieces.products, pieces.part, pieces.low, pieces.high
    s, t, n_cols, n_pieces = pieces.of_rows, pieces.of_cols, products.shape[1], low.size
    for begin in range(0, n_cols, COLUMNS):
        end = min(begin + COLUMNS, n_cols)
        for i in range(first, last):
            # LLVM makes vectors of what counts from zero: hence slices.
            p, more, of_row = products[i, begin:end], part[i, begin:end], s[i]
            for a in range(0, n_pieces, AT_ONCE):
                k0, k1, k2, k3, k4, k5, k6, k7 = _eight(low, a)
                s0, s1, s2, s3, s4, s5, s6, s7 = _eight(of_row, a)
                k8, at = high[a + 7], begin * n_pieces + a * COLUMNS
                some = t[at : at + AT_ONCE * COLUMNS]
                if a + AT_ONCE < n_pieces:
                    for c in range(end - begin):
                        more[c] += _left(
                            p[c], c, some, k0, k1, k2, k3, k4, k5, k6, k7, k8,
                            s0, s1, s2, s3, s4, s5, s6, s7,
                        )  # fmt: skip
                else:
                    for c in range(end - begin):
                        p[c] += more[c] + _left(
                            p[c], c, some, k0, k1, k2, k3, k4, k5, k6, k7, k8,
                            s0, s1, s2, s3, s4, s5, s6, s7,
                        )  # fmt: skip
