"""The function that every fitter minimizes, in plain NumPy."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fastemf.loss import expectile_loss

CHUNK = 1 << 18  # entries at a time: their factors at k = 64 take 128 MB


def objective(
    R: sp.csr_matrix, X: np.ndarray, Y: np.ndarray, reg: float, omega: float = 0.5,
    chunk: int = CHUNK,
) -> float:  # fmt: skip
    """Return Σ |ω − 1(r < 0)| r² + λ (‖X‖² + ‖Y‖²), in float64."""
    rows = np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))
    total = 0.0
    for first in range(0, R.nnz, chunk):
        part = slice(first, first + chunk)
        A, B = X[rows[part]], Y[R.indices[part]]
        r = R.data[part] - np.einsum("ij,ij->i", A, B, dtype=np.float64)
        total += expectile_loss(r, omega)
    squares = sum(float(np.sum(np.square(factor, dtype=np.float64))) for factor in (X, Y))
    return total + reg * squares
