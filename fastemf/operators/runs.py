"""Measurements cut into runs: for threads, and for sums in an order that does not change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADJOINT_CHUNKS", "adjoint_runs", "even_runs", "thread_runs"]

BLOCKS_PER_THREAD = 8
ADJOINT_CHUNKS = 32  # fixed, so that the sum over them is the same for any number of threads


def even_runs(size: int, n_parts: int) -> NDArray[np.int64]:
    """Return the boundaries of at most `n_parts` runs of about equal length."""
    return np.unique(np.linspace(0, size, min(size, n_parts) + 1).astype(np.int64))


def thread_runs(size: int, n_threads: int) -> NDArray[np.int64]:
    """Return the boundaries of the runs that threads take in turn."""
    return even_runs(size, BLOCKS_PER_THREAD * n_threads)


def adjoint_runs(p: int) -> NDArray[np.int64]:
    """Return the boundaries of runs of measurements whose adjoints are added up in order."""
    return even_runs(p, ADJOINT_CHUNKS)
