"""What a tile of a Gram matrix is summed from."""

from __future__ import annotations

from collections import namedtuple

__all__ = ["CORNER", "Pass", "RowArrays", "Run", "Summands"]

CORNER = 8  # columns of a corner tile before its corner, which has half as many

Summands = namedtuple(
    "Summands",
    [
        "source",  # packed rows of the other factor
        "weights",  # of the observations
        "r",  # residuals of the observations
        "gram",  # the matrix that is added to
        "g",  # the gradient that is added to
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
        "ahead",  # where in `indices` the rows to prefetch begin
    ],
)

RowArrays = namedtuple(
    "RowArrays",
    [
        "other",  # the other factor
        "indices",  # of the observations' rows in it
        "values",  # to prefetch, beside the indices
        "x",  # where the rows of the batch are
        "v",  # weights of the observations
        "r",  # their values, which become residuals
        "w",  # becomes v times the residuals' weight
        "gram",  # the matrix that is added to
        "g",  # the gradient that is added to
    ],
)

Pass = namedtuple(
    "Pass",
    [
        "first",  # first observation in `indices`
        "at",  # first observation in v, r and w
        "count",  # observations
        "keep",  # 0 overwrites, 1 adds
        "weighted",  # 0 where all of v are one
        "top",  # first row of `gram`
        "lane",  # row of `x` and `g`
    ],
)
