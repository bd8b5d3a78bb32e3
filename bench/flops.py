"""Useful floating-point operations of a sweep, and the rate of the matrix product."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

GEMM_SIZE = 1024


def sweep_flops(R: sp.csr_matrix, k: int) -> float:
    """Return Σ over rows and columns of d·k² + k³/3: a triangle of the Gram matrix, a Cholesky."""
    rows = np.diff(R.indptr)
    cols = np.bincount(R.indices, minlength=R.shape[1])
    lengths = np.concatenate([rows, cols])
    lengths = lengths[lengths > 0]
    return float(lengths.sum() * float(k) ** 2 + lengths.size * k**3 / 3)


def gemm_seconds(dtype: str, n: int = GEMM_SIZE) -> float:
    """Time NumPy's product of two n × n matrices on one thread: the best of three."""
    A = np.random.default_rng(0).random((n, n)).astype(dtype)
    times = []
    with threadpool_limits(1):
        for _ in range(4):  # the first one initializes the library
            began = time.perf_counter()
            A @ A
            times.append(time.perf_counter() - began)
    return min(times[1:])


def gemm_rate(seconds: float, n: int = GEMM_SIZE) -> float:
    """Return the operations per second of a product that takes that long."""
    return 2 * n**3 / seconds


def roofline_fraction(flops: float, seconds: float, threads: int, gemm: float) -> float:
    """Return the rate as a fraction of `threads` times that of the matrix product."""
    return flops / seconds / (threads * gemm)
