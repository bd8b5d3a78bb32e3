"""The best of rows, found among predictions of some columns after the other, and put in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.vectors import Terms, add_terms, at_least, count_bits, lanes_of, lowest
from fastemf.kernels.width import STRETCH

__all__ = [
    "Added",
    "Gathered",
    "Listed",
    "Screened",
    "Sorting",
    "gather_listed",
    "list_best",
    "sort_listed",
]


# A floor is sought by steps that begin with so many mean deviations and are halved so often.
STEP, HALVINGS = 2.5, 6
FLOOR_COLUMNS = 4 * STRETCH  # the columns it is sought among, which are gone through each time


class Added(NamedTuple):
    """What tables add to the predictions of some rows, as two sums.

    One is of products of a row's and a column's numbers. The other is over pieces between two
    knots: each takes the slopes of row and column times the way that the prediction is short of its
    end, none beyond it, and all its length before its beginning.
    """

    below: NDArray[np.float64]  # all that a row gets is between this
    above: NDArray[np.float64]  # and this
    low: NDArray[Any]  # the knots at both ends of the pieces
    high: NDArray[Any]
    row_terms: NDArray[Any]  # (rows, terms)
    col_terms: NDArray[Any]  # (tiles · terms, columns of a tile)
    row_slopes: NDArray[Any]  # (rows, pieces)
    col_slopes: NDArray[Any]  # (tiles · pieces, columns of a tile)


class Listed(NamedTuple):
    """What may be among the n best of each row, as far as columns have been looked at."""

    heap: NDArray[np.float64]  # (rows, n): the best so far, with the worst of them at the root
    bounds: NDArray[np.float64]  # what comes near enough to that
    counts: NDArray[np.int64]  # of columns; one more than there is room for means too many
    places: NDArray[np.int64]  # (rows, room): the columns, in order
    near: NDArray[Any]  # their predictions, times `sign`


class Screened(NamedTuple):
    """Predictions of a tile's columns, which with what is added are off by at most `margin`.

    The best are the largest of `sign` times the values; those that are not finite count as none.
    Nothing is added in rows whose margin is infinite.
    """

    values: NDArray[Any]  # (rows, columns of a tile), in whole stretches
    n_cols: int  # of all tiles
    sign: float
    margin: NDArray[np.float64]  # of each row
    added: Any
    listed: Any


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
def _kept(i, count, bound, places, near):
    """Keep those of the columns listed that are within the bound, and return how many."""
    kept = 0
    for a in range(count):
        if near[i, a] >= bound:
            places[i, kept] = places[i, a]
            near[i, kept] = near[i, a]
            kept += 1
    return kept


@helper()
def _append(i, j, v, count, bound, places, near):
    """List one more column where there is room, and return how many there are."""
    room = places.shape[1]
    if count == room:
        count = _kept(i, count, bound, places, near)
    if count < room:
        places[i, count] = j
        near[i, count] = v
        return count + 1
    return room + 1


@helper()
def _reached(values, i, whole, sign, bound):
    """Count the values of a row, of whole stretches, that reach a bound."""
    count = 0
    for c in range(0, whole, STRETCH):
        count += count_bits(at_least(values, i, c, sign, bound))
    return count


@helper()
def _floor(values, i, whole, sign, n):
    """Find what n values of a row reach and few more do; make those NaN that are not finite.

    It is sought upwards from the mean without a branch that depends on a value. Processors guess
    where branches go: each value that enters a heap is a wrong guess or two, and from such a floor
    on few do.
    """
    number = values.dtype.type
    row, share, mean, spread = values[i, :whole], number(1 / whole), number(0), number(0)
    for c in range(whole):
        v = row[c]
        is_finite = (v > -np.inf) & (v < np.inf)
        row[c] = v if is_finite else np.nan
        mean += share * (v if is_finite else number(0))
    for c in range(whole):
        off = abs(row[c] - mean)
        spread += share * (off if off < np.inf else number(0))
    floor, step = sign * mean, number(STEP) * spread
    if _reached(values, i, whole, sign, floor) < n:
        return number(-np.inf)
    for _ in range(HALVINGS):
        higher = floor + step
        floor = higher if _reached(values, i, whole, sign, higher) >= n else floor
        step *= number(0.5)
    return floor


@helper()
def _add_where(values, i, c, tile, found, terms):
    """Add what tables give to the vectors of a stretch that have a bit set."""
    lanes = lanes_of(values)
    for at in range(0, STRETCH, lanes):
        if (found >> at) & ((1 << lanes) - 1):
            add_terms(values, i, c + at, tile, terms)


@helper()
def _bound(heap, i, floor, margin):
    """Compute what comes near the worst of the n best so far, or near the floor.

    Two values that are both off by the margin may have changed places.
    """
    return max(heap[i, 0], floor) - 2 * margin[i]


@unit()
def list_best(first, last, tile, screened):
    """List all of a tile's columns that may be among the n best of rows first … last − 1.

    Tiles come in order, from 0 on.
    """
    values, margin, added = screened.values, screened.margin, screened.added
    below, above, row_terms = added.below, added.above, added.row_terms
    terms = Terms(
        added.low, added.high, row_terms, added.col_terms, added.row_slopes, added.col_slopes
    )
    heap, bounds, counts = screened.listed.heap, screened.listed.bounds, screened.listed.counts
    places, near = screened.listed.places, screened.listed.near
    number, begin, (n, room) = (
        values.dtype.type,
        tile * values.shape[1],
        (heap.shape[1], places.shape[1]),
    )
    wide, sign = min(values.shape[1], screened.n_cols - begin), number(screened.sign)
    for i in range(first, last):
        is_added, floor, slack = row_terms.shape[1] > 0 and margin[i] < np.inf, -np.inf, 0.0
        if tile == 0:
            counts[i] = 0
            for a in range(n):
                heap[i, a] = -np.inf
            if is_added:  # everywhere, as nothing is known yet
                for c in range(0, wide, STRETCH):
                    _add_where(values, i, c, tile, -1, terms)
                is_added = False
            if wide >= STRETCH:
                whole = min(wide, FLOOR_COLUMNS) // STRETCH * STRETCH
                floor = np.float64(_floor(values, i, whole, sign, n))
            bounds[i] = _bound(heap, i, floor, margin)
        if is_added:  # where something may come near with it
            slack = above[i] if sign > 0 else -below[i]
        bound, least, count = number(bounds[i]), number(bounds[i] - slack), counts[i]
        for c in range(0, wide, STRETCH):
            found = at_least(values, i, c, sign, least)
            if wide - c < STRETCH:  # after the last column there may be anything
                found &= (1 << (wide - c)) - 1
            if found and is_added:
                _add_where(values, i, c, tile, found, terms)
                found &= at_least(values, i, c, sign, bound)
            while found:
                j = c + lowest(found)
                found &= found - 1
                v = np.float64(sign * values[i, j])
                if v >= bound and -np.inf < v < np.inf:
                    if v > heap[i, 0]:
                        _replace_smallest(heap, i, v)
                        bounds[i] = _bound(heap, i, floor, margin)
                        bound, least = number(bounds[i]), number(bounds[i] - slack)
                    if count <= room:
                        count = _append(i, begin + j, number(v), count, bound, places, near)
        if begin + wide == screened.n_cols and count <= room:
            count = _kept(i, count, bound, places, near)
        counts[i] = count


class Gathered(NamedTuple):
    """What is listed of some rows, one row after the other."""

    listed: Any
    rows: NDArray[np.int64]  # what the rows are called
    starts: NDArray[np.int64]  # (rows + 1,): where each one's cells begin
    i: NDArray[np.int64]  # the cells
    j: NDArray[np.int64]
    near: NDArray[Any]  # what is nearly predicted there, times `sign`


@unit()
def gather_listed(first, last, gathered):
    """Gather what is listed of rows first … last − 1, but for too many."""
    listed = gathered.listed
    counts, places, near = listed.counts, listed.places, listed.near
    rows, starts, i, j = gathered.rows, gathered.starts, gathered.i, gathered.j
    total, values = 0, gathered.near
    for r in range(first, last):
        starts[r] = total
        count = counts[r] if counts[r] <= places.shape[1] else 0
        for a in range(count):
            i[total], j[total], values[total] = rows[r], places[r, a], near[r, a]
            total += 1
    starts[last] = total


class Sorting(NamedTuple):
    """Predictions of cells, row after row, and where the best of each row go, best first."""

    starts: NDArray[np.int64]  # (rows + 1,): where each one's cells begin
    j: NDArray[np.int64]  # columns, in order within a row
    found: NDArray[Any]
    sign: float  # the best are the largest of `sign` times what is found
    order: NDArray[np.int64]  # (2, cells): scratch
    to: NDArray[np.int64]  # rows of those below
    cols: NDArray[np.int64]
    values: NDArray[Any]


@helper()
def _merge(order, side, first, middle, last, sign, found):
    """Merge two runs that are in order into the other side; of equal ones the first comes first."""
    a, b = first, middle
    for at in range(first, last):
        is_left = a < middle
        if is_left and b < last:
            is_left = sign * found[order[side, a]] >= sign * found[order[side, b]]
        if is_left:
            order[1 - side, at] = order[side, a]
            a += 1
        else:
            order[1 - side, at] = order[side, b]
            b += 1


@unit()
def sort_listed(first, last, sorting):
    """Put the finite cells of rows first … last − 1 in order, and write the best of them."""
    starts, j, found, order = sorting.starts, sorting.j, sorting.found, sorting.order
    to, cols, values, sign = sorting.to, sorting.cols, sorting.values, sorting.sign
    for r in range(first, last):
        begin, end = starts[r], starts[r]
        for cell in range(starts[r], starts[r + 1]):
            if -np.inf < found[cell] < np.inf:
                order[0, end] = cell
                end += 1
        side, run = 0, 1
        while run < end - begin:
            for at in range(begin, end, 2 * run):
                middle = min(at + run, end)
                _merge(order, side, at, middle, min(middle + run, end), sign, found)
            side, run = 1 - side, 2 * run
        for a in range(min(end - begin, cols.shape[1])):
            cell = order[side, begin + a]
            cols[to[r], a], values[to[r], a] = j[cell], found[cell]
