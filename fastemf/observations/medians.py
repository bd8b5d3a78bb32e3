"""Medians of each row's or column's values, in one pass, wherever the entries are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.medians import Groups, fill_medians
from fastemf.kernels.threads import launch
from fastemf.observations.source import Grouped, Side

__all__ = ["median", "medians_of"]

RUNS_PER_THREAD = 8


def medians_of(side: Grouped, n_threads: int) -> NDArray[np.float64]:
    """Compute the median of each group's values, NaN for a group without any.

    It is the value at which half of the group's weight is reached, or the middle of two. Blocks
    hold whole groups, and a group's entries are in one order wherever they are kept, so the bits
    do not depend on that.
    """
    out = np.empty(side.mass.size)
    for groups, found in side.each(_medians_block, (), (), n_threads=n_threads):
        out[groups] = found
    return out


def median(values: NDArray[Any], weights: NDArray[Any] | None = None) -> float:
    """Compute the median of values, by weight where there are weights; NaN where there are none."""
    out = np.empty(1)
    v = np.empty(0, values.dtype) if weights is None else weights
    ends = np.array([0, values.size])
    launch(fill_medians, 1, np.arange(2), Groups(ends, np.ascontiguousarray(values), v, out))
    return float(out[0])


def _medians_block(block: Side, n_threads: int) -> NDArray[np.float64]:
    out = np.empty(block.indptr.size - 1)
    runs = block.runs(RUNS_PER_THREAD * n_threads)
    frame = Groups(block.indptr, block.values, block.weights, out)
    launch(fill_medians, n_threads, runs, frame)
    return out
