"""Named tuples of arrays and numbers that vector operations take as one argument."""

from __future__ import annotations

from collections import namedtuple

CORNER = 8  # columns of a corner tile before its corner, which is half as wide

Summands = namedtuple(
    "Summands",
    [
        "source",  # packed rows of the other factor
        "weights",  # of the observations
        "r",  # residuals of the observations
        "gram",  # Gram matrix, accumulated
        "g",  # gradient, accumulated
        "indices",  # of the rows of `other` to prefetch
        "other",  # the other factor
    ],
)

Run = namedtuple(
    "Run",
    [
        "at",  # first row of `source`
        "first",  # first observation in `weights` and `r`
        "count",  # observations
        "keep",  # 0 overwrites, 1 adds
        "top",  # first row of `gram`
        "lane",  # row of `g`
        "ahead",  # first element of `indices` to prefetch
    ],
)

RowArrays = namedtuple(
    "RowArrays",
    [
        "other",  # the other factor
        "indices",  # its rows, by observation
        "values",  # to prefetch
        "x",  # current points of the batch
        "v",  # weights of the observations
        "r",  # values, overwritten by residuals
        "w",  # overwritten by v times the sign weight
        "gram",  # Gram matrix, accumulated
        "g",  # gradient, accumulated
    ],
)

Pass = namedtuple(
    "Pass",
    [
        "first",  # first observation in `indices`
        "at",  # first observation in v, r and w
        "count",  # observations
        "keep",  # 0 overwrites, 1 adds
        "weighted",  # 0 if all of v are one
        "top",  # first row of `gram`
        "lane",  # row of `x` and `g`
    ],
)

Terms = namedtuple(
    "Terms",
    [
        "low",  # knots where pieces begin
        "high",  # knots where pieces end
        "row_terms",  # (rows, terms)
        "col_terms",  # (tiles · terms, columns of a tile), multiplied by row_terms
        "row_slopes",  # (rows, pieces)
        "col_slopes",  # (tiles · pieces, columns of a tile), added to row_slopes
    ],
)
