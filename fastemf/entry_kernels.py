"""Compiled passes over single entries: grouping, products, predictions. One cache unit."""

from __future__ import annotations

import numpy as np
from numba import prange

from fastemf.jit import kernel


@kernel()
def group(keys, others, values, weights, indptr, out_others, out_values, out_weights):
    """Stable counting sort: entries by key, in their given order within a key.

    `indptr` arrives as zeros of length groups + 1 and leaves as row pointers.
    """
    for e in range(keys.size):
        indptr[keys[e] + 1] += 1
    for i in range(1, indptr.size):
        indptr[i] += indptr[i - 1]
    fill = indptr[:-1].copy()
    for e in range(keys.size):
        at = fill[keys[e]]
        fill[keys[e]] = at + 1
        out_others[at] = others[e]
        out_values[at] = values[e]
        if weights.size:
            out_weights[at] = weights[e]


@kernel()
def _pairs_predict(first, last, rows, cols, X, Y, row_offset, col_offset, out):
    for e in range(first, last):
        i, j = rows[e], cols[e]
        total = X.dtype.type(0)
        for a in range(X.shape[1]):
            total += X[i, a] * Y[j, a]
        if row_offset.size:
            total += row_offset[i] + col_offset[j]
        out[e] = total


@kernel(parallel=True)
def predict_pairs(blocks, rows, cols, X, Y, row_offset, col_offset, out):
    """out[e] = row_offset + col_offset + x_row · y_col; both offsets may be empty."""
    for b in prange(blocks.size - 1):
        _pairs_predict(blocks[b], blocks[b + 1], rows, cols, X, Y, row_offset, col_offset, out)


@kernel()
def _rows_times(first, last, indptr, indices, values, weights, dense, out):
    for i in range(first, last):
        for a in range(dense.shape[1]):
            out[i, a] = 0
        for e in range(indptr[i], indptr[i + 1]):
            value = np.float64(values[e])
            if weights.size:
                value *= weights[e]
            j = indices[e]
            for a in range(dense.shape[1]):
                out[i, a] += value * dense[j, a]


@kernel(parallel=True)
def times(blocks, indptr, indices, values, weights, dense, out):
    """Out = S dense, where S sums the (weighted) entries of each cell and is zero elsewhere."""
    for b in prange(blocks.size - 1):
        _rows_times(blocks[b], blocks[b + 1], indptr, indices, values, weights, dense, out)


# (parallel, serial) pairs for threads.launch
PREDICT_PAIRS = (predict_pairs, _pairs_predict)
TIMES = (times, _rows_times)
