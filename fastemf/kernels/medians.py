"""Weighted medians of groups of entries by quickselect."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit


class MedianArgs(NamedTuple):
    """Values and weights by group, and the array for the medians; weights may be empty."""

    indptr: NDArray[np.int64]
    values: NDArray[Any]
    weights: NDArray[Any]
    out: NDArray[np.float64]


@helper()
def _swap(array, i, j):
    array[i], array[j] = array[j], array[i]


@helper()
def _median(b, v, count, half):
    """Return the value at which half of the weight is reached; b and v are reordered."""
    low, high, below = (
        0,
        count,
        0.0,
    )  # the median is among low … high − 1; `below` is the weight below
    pivot, reached, state = np.float64(b[0]), 0.0, 1
    while low < high:
        state = (
            state * 1103515245 + 12345
        ) & 0x7FFFFFFF  # a random pivot, so that sorted data are not a bad case
        chosen = b[low + (state >> 8) % (high - low)]
        # low … less − 1 are below the pivot, less … at − 1 equal, more … high − 1 above.
        less, at, more = low, low, high
        lighter, equal = 0.0, 0.0
        while at < more:
            w = np.float64(v[at]) if v.size else 1.0
            if b[at] < chosen:
                lighter += w
                _swap(b, less, at)
                if v.size:
                    _swap(v, less, at)
                less += 1
                at += 1
            elif b[at] > chosen:
                more -= 1
                _swap(b, at, more)
                if v.size:
                    _swap(v, at, more)
            else:
                equal += w
                at += 1
        if less > low and below + lighter >= half:
            high = less
            continue
        below += lighter + equal
        pivot, reached = np.float64(chosen), below
        if below >= half:
            break
        low = more
    if reached > half:
        return pivot
    above = np.inf  # exactly half of the weight is at or below the pivot
    for e in range(count):
        if pivot < b[e] < above:
            above = np.float64(b[e])
    return pivot if above == np.inf else 0.5 * (pivot + above)


@unit(allocates=True)
def fill_medians(first, last, groups):
    """Write the medians of groups first … last − 1; NaN for empty groups."""
    indptr, values, weights, out = groups.indptr, groups.values, groups.weights, groups.out
    longest = 0
    for i in range(first, last):
        longest = max(longest, indptr[i + 1] - indptr[i])
    b = np.empty(longest, values.dtype)
    v = np.empty(longest if weights.size else 0, weights.dtype)
    for i in range(first, last):
        begin, count = indptr[i], indptr[i + 1] - indptr[i]
        if count == 0:
            out[i] = np.nan
            continue
        total = 0.0
        for e in range(count):
            b[e] = values[begin + e]
            if weights.size:
                v[e] = weights[begin + e]
            total += np.float64(v[e]) if weights.size else 1.0
        out[i] = _median(b, v, count, 0.5 * total)
