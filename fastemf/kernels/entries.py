"""Passes over single entries: grouping by key, prediction, sparse products."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import unit
from fastemf.kernels.simd import lanes_of, make_weighted_sum


class CountArgs(NamedTuple):
    """Keys of entries in runs: run b is entries bounds[b] … bounds[b + 1] − 1."""

    bounds: NDArray[np.int64]
    keys: NDArray[Any]
    table: NDArray[np.int64]  # counts by run and key


@unit()
def count_keys(first, last, counting):
    """Count the entries of each key in table[run, key], for some runs."""
    bounds, keys, table = counting.bounds, counting.keys, counting.table
    for run in range(first, last):
        for e in range(bounds[run], bounds[run + 1]):
            table[run, keys[e]] += 1


class PlacementArgs(NamedTuple):
    """Entries in runs, and arrays for the entries sorted by key.

    The stored index is `others` or, if `pointers` are given, the row that contains the entry.
    """

    bounds: NDArray[np.int64]
    keys: NDArray[Any]
    pointers: NDArray[np.int64]
    others: NDArray[Any]
    values: NDArray[Any]
    weights: NDArray[Any]
    table: NDArray[np.int64]  # next position by run and key
    out_others: NDArray[Any]
    out_values: NDArray[Any]
    out_weights: NDArray[Any]


@unit()
def place_entries(first, last, placing):
    """Copy each entry of some runs to the next position of its key."""
    bounds, keys, pointers = placing.bounds, placing.keys, placing.pointers
    others, values, weights = placing.others, placing.values, placing.weights
    table, out_others = placing.table, placing.out_others
    out_values, out_weights = placing.out_values, placing.out_weights
    for run in range(first, last):
        row = 0
        if pointers.size:  # find the row that contains the first entry of the run
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


class PredictArgs(NamedTuple):
    """Cells, a low-rank model, and the array for its predictions; both offsets may be empty."""

    rows: NDArray[np.integer]
    cols: NDArray[np.integer]
    X: NDArray[Any]
    Y: NDArray[Any]
    row_offset: NDArray[Any]
    col_offset: NDArray[Any]
    out: NDArray[Any]


@unit()
def predict_cells(first, last, cells):
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


_weighted_sum_1, _weighted_sum_3 = make_weighted_sum(1), make_weighted_sum(3)


class ProductArgs(NamedTuple):
    """The product out = S dense; S is the zero-filled matrix with repeated entries summed."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    values: NDArray[Any]
    dense: NDArray[Any]  # padded to whole vectors
    out: NDArray[Any]  # likewise


@unit()
def multiply_rows(first, last, product):
    """Compute rows first … last − 1 of a product."""
    indptr, indices, values = product.indptr, product.indices, product.values
    dense, out = product.dense, product.out
    lanes = lanes_of(dense)
    for i in range(first, last):
        a = 0
        while a + 3 * lanes <= dense.shape[1]:
            _weighted_sum_3(indices, values, indptr[i], indptr[i + 1], dense, out, i, a)
            a += 3 * lanes
        while a < dense.shape[1]:
            _weighted_sum_1(indices, values, indptr[i], indptr[i + 1], dense, out, i, a)
            a += lanes
