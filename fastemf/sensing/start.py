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
        apply, adjoint = _adjoint_products(A, weights * b, n_threads)
        products = _checked(apply, dtype), _checked(adjoint, dtype)
        U, d, V = top_svd(*products, (m, n), k, rng, np.dtype(np.float64))
        d = np.ldexp(d, -np.frexp(d[0])[1])  # an exact scale, near which A measures its own size
        measured = _measured(A, U * d, V, weights, dtype, n_threads)
        size = float(weights @ measured**2)
        d *= float(weights @ (b * measured)) / size if size > 0 else 1.0  # brings it closest to b
        X, Y = balanced_factors(U, d, V, k, float(np.linalg.norm(d)) / float(m * n) ** 0.5, rng)
    elif isinstance(init, str) and init == "random":
        X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
        measured = _measured(A, X, Y, weights, dtype, n_threads)
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


def _checked(product: Product, dtype: np.dtype[Any]) -> Product:
    """Make the same product, which raises where what it makes cannot be squared."""

    def checked(dense: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            done = product(dense)
            _check_squares(done, float(np.sum(np.square(done, dtype=np.float64))), dtype)
        return done

    return checked


def _measured(
    A: Operator,
    X: NDArray[np.float64],
    Y: NDArray[np.float64],
    weights: NDArray[np.float64],
    dtype: np.dtype[Any],
    n_threads: int,
) -> NDArray[np.float64]:
    """Measure X Yᵀ, and check that what is found can be squared."""
    with np.errstate(over="ignore", invalid="ignore"):
        measured = np.asarray(A.forward(X, Y, n_jobs=n_threads), np.float64)
        _check_squares(measured, float(weights @ measured**2), dtype)
    return measured


def _check_squares(values: NDArray[Any], squares: float, dtype: np.dtype[Any]) -> None:
    if not np.isfinite(squares) or (squares == 0 and values.any()):
        size = "large" if squares else "small"
        raise ValueError(
            f"A is too {size} for {dtype} beside b: the squares of what A measures must neither "
            f"overflow nor vanish, and the largest is {np.abs(values).max():.3g}; rescale A or b"
        )
