"""Passes over single entries, which group them by key or predict them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import unit

__all__ = ["Cells", "Counting", "Placing", "count_keys", "fill_cells", "place_entries"]


class Counting(NamedTuple):
    """Keys of entries, counted in runs: run b is entries bounds[b] … bounds[b + 1] − 1."""

    bounds: NDArray[np.int64]
    keys: NDArray[Any]
    table: NDArray[np.int64]  # by run and key


@unit()
def count_keys(first, last, counting):
    """Add the entries of each key to table[run, key], for some runs."""
    bounds, keys, table = counting.bounds, counting.keys, counting.table
    for run in range(first, last):
        for e in range(bounds[run], bounds[run + 1]):
            table[run, keys[e]] += 1


class Placing(NamedTuple):
    """Entries in runs, and where to put them by key.

    The index to keep is `others`, or, where there are `pointers`, the row they put the entry in.
    """

    bounds: NDArray[np.int64]
    keys: NDArray[Any]
    pointers: NDArray[np.int64]
    others: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any]
    table: NDArray[np.int64]  # where each run starts within each key
    out_others: NDArray[Any]
    out_values: NDArray[Any]
    out_weights: NDArray[Any]


@unit()
def place_entries(first, last, placing):
    """Copy each entry of some runs to the next place of its key."""
    bounds, keys, pointers = placing.bounds, placing.keys, placing.pointers
    others, values, weights = placing.others, placing.values, placing.weights
    table, out_others = placing.table, placing.out_others
    out_values, out_weights = placing.out_values, placing.out_weights
    for run in range(first, last):
        row = 0
        if pointers.size:  # the last row that begins at the run's first entry or before
            above = pointers.size
            while above - row > 1:
                middle = (row + above) // 2
                if pointers[middle] <= bounds[run]:
                    row = middle
                else:
                    above = middle
        for e in range(bounds[run], bounds[run + 1]):
            at = table[run, keys[e]]
            table[run, keys[e]] = at + 1
            if pointers.size:
                while pointers[row + 1] <= e:
                    row += 1
                out_others[at] = row
            else:
                out_others[at] = others[e]
            out_values[at] = values[e]
            if weights.size:
                out_weights[at] = weights[e]


class Cells(NamedTuple):
    """Cells of a low-rank model and what it predicts there; both offsets may be empty."""

    rows: NDArray[np.integer]
    cols: NDArray[np.integer]
    X: NDArray[Any]
    Y: NDArray[Any]
    row_offset: NDArray[Any]
    col_offset: NDArray[Any]
    out: NDArray[Any]


@unit()
def fill_cells(first, last, cells):
    """Predict some cells: out[e] = row_offset + col_offset + x_row · y_col."""
    rows, cols, X, Y, out = cells.rows, cells.cols, cells.X, cells.Y, cells.out
    row_offset, col_offset = cells.row_offset, cells.col_offset
    for e in range(first, last):
        i, j = rows[e], cols[e]
        total = X.dtype.type(0)
        for a in range(X.shape[1]):
            total += X[i, a] * Y[j, a]
        if row_offset.size:
            total += row_offset[i] + col_offset[j]
        out[e] = total
