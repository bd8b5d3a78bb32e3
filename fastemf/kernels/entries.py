"""Compiled passes over single entries: grouping, predictions. One cache unit."""

from __future__ import annotations

import numpy as np
from numba import prange

from fastemf.kernels.compilation import kernel


@kernel()
def _runs_count(first, last, bounds, keys, table):
    for run in range(first, last):
        for e in range(bounds[run], bounds[run + 1]):
            table[run, keys[e]] += 1


@kernel(parallel=True)
def count_keys(runs, bounds, keys, table):
    """table[run, key] += entries of that key among those from bounds[run] to bounds[run + 1]."""
    for b in prange(runs.size - 1):
        _runs_count(runs[b], runs[b + 1], bounds, keys, table)


@kernel()
def _runs_place(
    first, last, bounds, keys, pointers, others, values, weights, table,
    out_others, out_values, out_weights,
):  # fmt: skip
    for run in range(first, last):
        row = 0
        if pointers.size:
            row = np.searchsorted(pointers, bounds[run], side="right") - 1
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


@kernel(parallel=True)
def place_entries(
    runs, bounds, keys, pointers, others, values, weights, table,
    out_others, out_values, out_weights,
):  # fmt: skip
    """Copy each entry to the next place of its key; table[run, key] says where a run starts.

    The index to keep is `others`, or, where there are `pointers`, the row they put the entry in.
    """
    for b in prange(runs.size - 1):
        _runs_place(
            runs[b], runs[b + 1], bounds, keys, pointers, others, values, weights, table,
            out_others, out_values, out_weights,
        )  # fmt: skip


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


# (parallel, serial) pairs for threads.launch
COUNT = (count_keys, _runs_count)
PLACE = (place_entries, _runs_place)
PREDICT_PAIRS = (predict_pairs, _pairs_predict)
