"""Useful floating-point operations of a sweep, and what the machine could do at best."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits


def sweep_flops(R: sp.csr_matrix, k: int) -> float:
    """Σ over rows and columns of d·k² + k³/3: one triangle of the Gram matrix, one Cholesky."""
    rows = np.diff(R.indptr)
    cols = np.bincount(R.indices, minlength=R.shape[1])
    lengths = np.concatenate([rows, cols])
    lengths = lengths[lengths > 0]
    return float(lengths.sum() * float(k) ** 2 + lengths.size * k**3 / 3)


def gemm_rate(dtype: str, n: int = 1024, repeats: int = 3) -> float:
    """Operations per second of NumPy's matrix product on one thread: the best of a few."""
    A = np.random.default_rng(0).random((n, n)).astype(dtype)
    best = np.inf
    with threadpool_limits(1):
        A @ A
        for _ in range(repeats):
            began = time.perf_counter()
            A @ A
            best = min(best, time.perf_counter() - began)
    return 2 * n**3 / best


def roofline_fraction(flops: float, seconds: float, threads: int, gemm: float) -> float:
    """Share of `threads` times the matrix product's rate."""
    return flops / seconds / (threads * gemm)
