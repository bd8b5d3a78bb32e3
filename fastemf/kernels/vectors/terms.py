"""What a vector of predictions gets from tables."""

from __future__ import annotations

from collections import namedtuple

__all__ = ["Terms"]

Terms = namedtuple(
    "Terms",
    [
        "low",  # the knots where pieces begin
        "high",  # and where they end
        "row_terms",  # (rows, terms): numbers of rows, and
        "col_terms",  # (tiles · terms, columns of a tile): those of columns that they multiply
        "row_slopes",  # (rows, pieces): slopes of rows, and
        "col_slopes",  # (tiles · pieces, columns of a tile): those of columns that are added
    ],
)
