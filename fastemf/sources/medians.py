"""Medians of the values of each row or column, in one pass over any source."""

from __future__ import annotations

import numpy as np

from fastemf.kernels.medians import MedianArgs, fill_medians
from fastemf.kernels.threads import launch
from fastemf.sources.source import Grouped, Side
from fastemf.support.arrays import Array, Floats

RUNS_PER_THREAD = 8


def group_medians(side: Grouped, n_threads: int) -> Floats:
    """Compute the weighted median of each group's values, NaN for an empty group.

    Blocks hold whole groups, and the order of a group's entries is the same in every source, so
    the result is bitwise identical for all sources.
    """
    out = np.empty(side.mass.size)
    for groups, found in side.each(_medians_block, (), (), n_threads=n_threads):
        out[groups] = found
    return out


def median(values: Array, weights: Array | None = None) -> float:
    """Compute the (weighted) median of values; NaN if there are none."""
    out = np.empty(1)
    v = np.empty(0, values.dtype) if weights is None else weights
    ends = np.array([0, values.size])
    launch(fill_medians, 1, np.arange(2), MedianArgs(ends, np.ascontiguousarray(values), v, out))
    return float(out[0])


def _medians_block(block: Side, n_threads: int) -> Floats:
    out = np.empty(block.indptr.size - 1)
    runs = block.runs(RUNS_PER_THREAD * n_threads)
    frame = MedianArgs(block.indptr, block.values, block.weights, out)
    launch(fill_medians, n_threads, runs, frame)
    return out
