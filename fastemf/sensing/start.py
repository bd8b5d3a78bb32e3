"""Where a fit of linear measurements starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.operators import Operator
from fastemf.solver.start import (
    EarlierModel,
    Factors,
    Product,
    balanced_factors,
    given_factors,
    grown_factors,
    top_svd,
    unknown_init,
)

__all__ = ["measured_factors"]

FORMED_ENTRIES = 1 << 19  # Σ b_i A_i up to this size is formed once instead of applied four times


def measured_factors(
    init: Any,
    A: Operator,
    b: NDArray[np.float64],
    weights: NDArray[np.float64],
    k: int,
    dtype: np.dtype[Any],
    rng: np.random.Generator,
    n_threads: int,
) -> Factors:
    """Find factors to start from, given linear measurements instead of entries.

    `init` is as in `fastemf.solver.start.starting_factors`. The spectral start is the top-k SVD
    of Σ v_i b_i A_i; it and the random one are scaled so that their measurements fit b best.
    """
    _, m, n = A.shape
    if isinstance(init, EarlierModel):
        X, Y, *_ = grown_factors(init, (m, n), k, None, rng)
    elif isinstance(init, tuple):
        X, Y = given_factors(init, (m, n), k, dtype)
    elif isinstance(init, str) and init == "spectral":
        products = _adjoint_products(A, weights * b, n_threads)
        U, d, V = top_svd(*products, (m, n), k, rng, np.dtype(np.float64))
        d *= _scale_to_fit(A, U * d, V, b, weights, n_threads)
        X, Y = balanced_factors(U, d, V, k, float(np.linalg.norm(d)) / float(m * n) ** 0.5, rng)
    elif isinstance(init, str) and init == "random":
        X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
        measured = np.asarray(A.forward(X, Y, n_jobs=n_threads), np.float64)
        root = float(weights @ b**2 / (weights @ measured**2)) ** 0.25 if measured.any() else 1.0
        X, Y = root * X, root * Y
    else:
        raise unknown_init(init)
    return np.ascontiguousarray(X, dtype), np.ascontiguousarray(Y, dtype)


def _adjoint_products(
    A: Operator, b: NDArray[np.float64], n_threads: int
) -> tuple[Product, Product]:
    """Make the products with S = Σ b_i A_i and with its transpose."""
    _, m, n = A.shape
    if m * n <= FORMED_ENTRIES:
        side = int(m < n)  # the narrower identity
        S = np.asarray(A.adjoint_times(b, np.eye(min(m, n)), side, n_jobs=n_threads), np.float64)
        S = S.T if side else S
        return lambda dense: S @ dense, lambda dense: S.T @ dense

    def product(side: int) -> Product:
        return lambda dense: np.asarray(
            A.adjoint_times(b, dense, side, n_jobs=n_threads), np.float64
        )

    return product(0), product(1)


def _scale_to_fit(
    A: Operator,
    X: NDArray[np.float64],
    Y: NDArray[np.float64],
    b: NDArray[np.float64],
    weights: NDArray[np.float64],
    n_threads: int,
) -> float:
    """Find the factor that brings the measurements of X Yᵀ closest to b."""
    measured = np.asarray(A.forward(X, Y, n_jobs=n_threads), np.float64)
    size = float(weights @ measured**2)
    return float(weights @ (b * measured)) / size if size > 0 else 1.0
