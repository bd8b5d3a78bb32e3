"""Cuts of the rows into runs that fit into memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["cuts_within"]


def cuts_within(budget: int, indptr: NDArray[np.int64], entry: int, row: int) -> NDArray[np.int64]:
    """Return the boundaries of the longest runs of at most `budget` bytes, or of one row.

    An entry takes `entry` bytes and a row takes `row`.
    """
    cost = indptr * entry + row * np.arange(indptr.size)
    cuts = [0]
    while cuts[-1] < indptr.size - 1:
        last = int(np.searchsorted(cost, cost[cuts[-1]] + budget, side="right")) - 1
        cuts.append(max(last, cuts[-1] + 1))
    return np.array(cuts, np.int64)
