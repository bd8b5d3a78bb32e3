"""What a tile of a Gram matrix is summed from."""

from __future__ import annotations

from collections import namedtuple

__all__ = ["Run", "Summands"]

Summands = namedtuple(
    "Summands",
    [
        "source",  # packed rows of the other factor
        "weights",  # of the observations
        "r",  # their residuals
        "gram",  # what is added to
        "g",
        "indices",  # of the rows of `other` to prefetch
        "other",
    ],
)

Run = namedtuple(
    "Run",
    [
        "at",  # first row of `source`
        "first",  # observation in `weights` and `r`
        "count",
        "keep",  # 0 overwrites
        "top",  # first row of `gram`
        "lane",  # row of `g`
        "ahead",  # place in `indices` of the next rows
    ],
)
