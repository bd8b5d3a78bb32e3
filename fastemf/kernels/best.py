"""The best of each row of a block of predictions, and all that rounding may hide among them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.vectors import at_least, lanes_of

__all__ = ["Screened", "list_best"]


class Screened(NamedTuple):
    """Predictions that are off by at most `margin`, and what is found among them.

    The best are the largest of `sign` times the values; those that are not finite count as none.
    """

    values: NDArray[Any]
    sign: float
    margin: NDArray[np.float64]  # of each row
    tops: NDArray[Any]  # scratch: the best of every so many columns; may be empty
    heap: NDArray[np.float64]  # (rows, n): scratch
    places: NDArray[np.int64]  # the columns found, in order
    counts: NDArray[np.int64]  # how many there are; one more than there is room for means many


@helper()
def _replace_smallest(heap, i, v):
    """Put v in the place of the smallest of a heap, at its root."""
    n, at = heap.shape[1], 0
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and heap[i, child + 1] < heap[i, child]:
            child += 1
        if heap[i, child] >= v:
            break
        heap[i, at] = heap[i, child]
        at = child
    heap[i, at] = v


@helper()
def _kept(i, count, sign, bound, values, places):
    """Keep those of the columns listed that are within the bound, and return how many."""
    kept = 0
    for a in range(count):
        if sign * values[i, places[i, a]] >= bound:
            places[i, kept] = places[i, a]
            kept += 1
    return kept


@helper()
def _floor(i, sign, values, tops, heap):
    """Find what n values of a row reach: n of the best of columns s, s + strips, …, for some s.

    A quarter of the columns show it nearly as well as all, which have yet to come from memory.
    """
    strips, n = tops.size, heap.shape[1]
    for s in range(strips):
        tops[s] = -np.inf
    for c in range(0, values.shape[1] // (4 * strips) * strips, strips):
        some = values[i, c : c + strips]  # LLVM makes vectors of what counts from zero
        for s in range(strips):
            v = sign * some[s]
            tops[s] = v if (v > tops[s]) & (v < np.inf) else tops[s]
    for s in range(strips):
        if tops[s] > heap[i, 0]:
            _replace_smallest(heap, i, np.float64(tops[s]))
    found = heap[i, 0]
    for a in range(n):
        heap[i, a] = -np.inf
    return found


@unit()
def list_best(first, last, screened):
    """List all that may be among the n best of rows first … last − 1."""
    values, margin, heap = screened.values, screened.margin, screened.heap
    places, counts, n = screened.places, screened.counts, screened.heap.shape[1]
    tops = screened.tops
    lanes, (_, wide), room = lanes_of(values), values.shape, screened.places.shape[1]
    number = values.dtype.type
    sign, whole = number(screened.sign), wide // lanes * lanes
    for i in range(first, last):
        for a in range(n):
            heap[i, a] = -np.inf
        # The n best so far are in a heap, with the worst of them at its root. What is listed comes
        # near to it: two values that are both off by the margin may have changed places. From a
        # floor on, few ever enter the heap.
        floor = _floor(i, sign, values, tops, heap) if tops.size else -np.inf
        bound, count, lost = number(floor - 2 * margin[i]), 0, 0
        for c in range(0, wide, lanes):
            found = (1 << min(lanes, wide - c)) - 1
            if c < whole:
                found = at_least(values, i, c, sign, bound)
            j = c
            while found:
                v = np.float64(sign * values[i, j])
                if found & 1 and v >= bound and -np.inf < v < np.inf:
                    if v > heap[i, 0]:
                        _replace_smallest(heap, i, v)
                        bound = number(max(heap[i, 0], floor) - 2 * margin[i])
                    if count == room:
                        count = _kept(i, count, sign, bound, values, places)
                    if count < room:
                        places[i, count] = j
                        count += 1
                    else:
                        lost += 1
                found >>= 1
                j += 1
        counts[i] = _kept(i, count, sign, bound, values, places) if lost == 0 else room + 1
