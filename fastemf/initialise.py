"""Where a fit starts. All randomness of a fit is here, drawn from one generator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.entry_kernels import TIMES
from fastemf.observations import Observations, Side
from fastemf.records import Ridge
from fastemf.sweep import CompletionEngine, balanced
from fastemf.threads import launch, single_threaded_blas

__all__ = ["intercept_start", "random_start", "spectral_start"]

OVERSAMPLING = 10
POWER_ITERATIONS = 4
INTERCEPT_SWEEPS = 5

Factors = tuple[NDArray[np.float64], NDArray[np.float64]]


def spectral_start(
    observations: Observations,
    k: int,
    rng: np.random.Generator,
    n_threads: int,
    intercepts: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> Factors:
    """Balanced factors of the top-k SVD of the zero-filled matrix, rescaled by mn/p.

    With `intercepts` (row and column offsets) of what those leave of the
    observations. A randomised range finder with a few power iterations: the
    alternation repairs the last digits, and its sparse products run on all
    threads, while ARPACK's are serial and many.
    """
    m, n = observations.shape
    by_row = _values_left(observations.by_row, intercepts)
    by_col = _values_left(observations.by_col, intercepts and intercepts[::-1])

    def forward(dense: NDArray[np.float64]) -> NDArray[np.float64]:
        return _times(observations.by_row, by_row, dense, n_threads)

    def backward(dense: NDArray[np.float64]) -> NDArray[np.float64]:
        return _times(observations.by_col, by_col, dense, n_threads)

    # With width min(m, n) the sketch spans everything, and the SVD is exact.
    width = min(k + OVERSAMPLING, m, n)
    with single_threaded_blas():
        sketch = forward(rng.standard_normal((n, width)))
        for _ in range(POWER_ITERATIONS):
            sketch = forward(np.linalg.qr(backward(np.linalg.qr(sketch)[0]))[0])
        left = np.linalg.qr(sketch)[0]
        V, d, Ut = np.linalg.svd(backward(left), full_matrices=False)  # S ≈ left Ut.T d V.T
        U = left @ Ut.T
    d = d[:k] * (m * n / observations.mass)
    root = np.sqrt(d)
    X, Y = U[:, :k] * root, V[:, :k] * root
    missing = ~(d > 1e-10 * d[0])
    if missing.any():  # a column that is zero on both sides would stay zero
        size = 1e-2 * np.sqrt(np.sqrt(observations.sum_of_squares() / observations.mass) / k)
        X[:, missing] = size * rng.standard_normal((m, int(missing.sum())))
        Y[:, missing] = size * rng.standard_normal((n, int(missing.sum())))
    return X, Y


def random_start(observations: Observations, k: int, rng: np.random.Generator) -> Factors:
    """Normal factors whose product has about the data's root mean square."""
    m, n = observations.shape
    rms = np.sqrt(observations.sum_of_squares() / observations.mass)
    size = np.sqrt(rms / np.sqrt(k))
    return size * rng.standard_normal((m, k)), size * rng.standard_normal((n, k))


def intercept_start(engine: CompletionEngine, observations: Observations, ridge: Ridge) -> Factors:
    """Row and column intercepts fitted without factors, as (m, 1) and (n, 1)."""
    m, n = observations.shape
    rows = np.zeros((m, 1), observations.dtype)
    cols = np.zeros((n, 1), observations.dtype)
    for _ in range(INTERCEPT_SWEEPS):
        cols = engine.solve(1, cols, rows, ridge).factor
        rows = engine.solve(0, rows, cols, ridge).factor
    return rows.astype(np.float64), cols.astype(np.float64)


def _values_left(
    side: Side, intercepts: tuple[NDArray[np.float64], NDArray[np.float64]] | None
) -> NDArray[Any]:
    if intercepts is None:
        return side.values
    this, other = intercepts
    return side.values - (this[side.keys] + other[side.indices])


def _times(
    side: Side, values: NDArray[Any], dense: NDArray[np.float64], n_threads: int
) -> NDArray[np.float64]:
    out = np.empty((side.indptr.size - 1, dense.shape[1]))
    blocks = balanced(np.diff(side.indptr) + 1.0, 8 * n_threads)
    dense = np.ascontiguousarray(dense)
    launch(TIMES, n_threads, blocks, side.indptr, side.indices, values, side.weights, dense, out)
    return out
