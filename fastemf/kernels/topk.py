"""Top-k search: candidates of each row from tiles of predictions, then sorting."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.simd import add_terms, at_least, count_bits, lanes_of, lowest
from fastemf.kernels.simd.operands import Terms
from fastemf.kernels.vector_width import STRETCH

# The search for a floor starts with this many mean deviations and halves the step this often.
STEP, HALVINGS = 2.5, 6
FLOOR_COLUMNS = 4 * STRETCH  # columns that the search for a floor uses


class CorrectionTerms(NamedTuple):
    """Corrections of the predictions of some rows, as two sums.

    The first sums products of row terms and column terms. The second is over pieces between two
    knots: each piece contributes the slope of row and column times the part of the piece that is
    above the prediction.
    """

    below: NDArray[np.float64]  # lower bound of the corrections of a row
    above: NDArray[np.float64]  # upper bound
    low: NDArray[Any]  # knots at the ends of the pieces
    high: NDArray[Any]
    row_terms: NDArray[Any]  # (rows, terms)
    col_terms: NDArray[Any]  # (tiles · terms, columns of a tile)
    row_slopes: NDArray[Any]  # (rows, pieces)
    col_slopes: NDArray[Any]  # (tiles · pieces, columns of a tile)


class Candidates(NamedTuple):
    """Candidates for the n best columns of each row, among the columns searched so far."""

    heap: NDArray[np.float64]  # (rows, n): the n best values so far, the worst at the root
    bounds: NDArray[np.float64]  # least value of a candidate
    counts: NDArray[np.int64]  # of candidates; capacity + 1 means too many
    places: NDArray[np.int64]  # (rows, capacity): the columns, in order
    near: NDArray[Any]  # their approximate predictions, times `sign`


class ScreenArgs(NamedTuple):
    """Predictions of the columns of a tile; with corrections their error is at most `margin`.

    The best are the largest of `sign` times the values; values that are not finite are ignored.
    Rows with an infinite margin are not corrected.
    """

    values: NDArray[Any]  # (rows, columns of a tile), padded to whole stretches
    n_cols: int  # of all tiles
    sign: float
    margin: NDArray[np.float64]  # by row
    added: Any
    listed: Any


@helper()
def _replace_smallest(heap, i, v):
    """Replace the smallest value of a heap, at its root, by v."""
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
def _prune(i, count, bound, places, near):
    """Remove candidates below the bound, and return the number of the others."""
    kept = 0
    for a in range(count):
        if near[i, a] >= bound:
            places[i, kept] = places[i, a]
            near[i, kept] = near[i, a]
            kept += 1
    return kept


@helper()
def _append(i, j, v, count, bound, places, near):
    """Append a candidate if there is room, and return the number of candidates."""
    room = places.shape[1]
    if count == room:
        count = _prune(i, count, bound, places, near)
    if count < room:
        places[i, count] = j
        near[i, count] = v
        return count + 1
    return room + 1


@helper()
def _count_at_least(values, i, whole, sign, bound):
    """Count the values of a row that reach a bound, in whole stretches."""
    count = 0
    for c in range(0, whole, STRETCH):
        count += count_bits(at_least(values, i, c, sign, bound))
    return count


@helper()
def _floor(values, i, whole, sign, n):
    """Find a floor that n values of a row reach, and few more; set infinite values to NaN.

    The search starts at the mean and has no branch that depends on a value. Each value that enters
    a heap costs a branch misprediction or two; with the floor few values do.
    """
    number = values.dtype.type
    row, weight, mean, spread = values[i, :whole], number(1 / whole), number(0), number(0)
    for c in range(whole):
        v = row[c]
        is_finite = (v > -np.inf) & (v < np.inf)
        row[c] = v if is_finite else np.nan
        mean += weight * (v if is_finite else number(0))
    for c in range(whole):
        off = abs(row[c] - mean)
        spread += weight * (off if off < np.inf else number(0))
    floor, step = sign * mean, number(STEP) * spread
    if _count_at_least(values, i, whole, sign, floor) < n:
        return number(-np.inf)
    for _ in range(HALVINGS):
        higher = floor + step
        floor = higher if _count_at_least(values, i, whole, sign, higher) >= n else floor
        step *= number(0.5)
    return floor


@helper()
def _add_where(values, i, c, tile, found, terms):
    """Add corrections to the vectors of a stretch that have a bit set."""
    lanes = lanes_of(values)
    for at in range(0, STRETCH, lanes):
        if (found >> at) & ((1 << lanes) - 1):
            add_terms(values, i, c + at, tile, terms)


@helper()
def _bound(heap, i, floor, margin):
    """Return the least value of a candidate, given the n best so far and the floor.

    Two values with errors up to the margin may be in the wrong order.
    """
    return max(heap[i, 0], floor) - 2 * margin[i]


@unit()
def screen_tile(first, last, tile, screened):
    """Collect the candidates of a tile for rows first … last − 1; tiles come in order, from 0."""
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
            if is_added:  # correct all columns of the first tile
                for c in range(0, wide, STRETCH):
                    _add_where(values, i, c, tile, -1, terms)
                is_added = False
            if wide >= STRETCH:
                whole = min(wide, FLOOR_COLUMNS) // STRETCH * STRETCH
                floor = np.float64(_floor(values, i, whole, sign, n))
            bounds[i] = _bound(heap, i, floor, margin)
        if is_added:  # correct columns that may become candidates
            slack = above[i] if sign > 0 else -below[i]
        bound, least, count = number(bounds[i]), number(bounds[i] - slack), counts[i]
        for c in range(0, wide, STRETCH):
            found = at_least(values, i, c, sign, least)
            if wide - c < STRETCH:  # values after the last column are undefined
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
            count = _prune(i, count, bound, places, near)
        counts[i] = count


class GatherArgs(NamedTuple):
    """The candidates of some rows as cells, row by row."""

    listed: Any
    rows: NDArray[np.int64]  # numbers of the rows
    starts: NDArray[np.int64]  # (rows + 1,): where the cells of each row begin
    i: NDArray[np.int64]  # the cells
    j: NDArray[np.int64]
    near: NDArray[Any]  # approximate predictions, times `sign`


@unit()
def gather_candidates(first, last, gathered):
    """Copy the candidates of rows first … last − 1, except rows with too many."""
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


class SortArgs(NamedTuple):
    """Predictions of cells, row by row, and arrays for the best of each row, best first."""

    starts: NDArray[np.int64]  # (rows + 1,): where the cells of each row begin
    j: NDArray[np.int64]  # columns, in order within a row
    found: NDArray[Any]
    sign: float  # the best are the largest of `sign` times `found`
    order: NDArray[np.int64]  # (2, cells): scratch
    to: NDArray[np.int64]  # rows of `cols` and `values`
    cols: NDArray[np.int64]
    values: NDArray[Any]


@helper()
def _merge(order, side, first, middle, last, sign, found):
    """Merge two sorted runs into the other side, stably."""
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
def sort_candidates(first, last, sorting):
    """Sort the finite cells of rows first … last − 1, and write the best."""
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
