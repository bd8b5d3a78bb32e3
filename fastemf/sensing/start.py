"""Starting points of fits to linear measurements."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastemf.models.factorization import Factorization
from fastemf.models.grown_start import grow_factors
from fastemf.operators import Operator
from fastemf.solver.start import (
    Factors,
    Product,
    balanced_factors,
    check_given_factors,
    init_error,
    top_svd,
)
from fastemf.support.arrays import Array, Floats

FORMED_ENTRIES = 1 << 19  # up to this size Σ b_i A_i is formed once instead of applied four times


def measured_factors(
    init: Any,
    A: Operator,
    b: Floats,
    weights: Floats,
    k: int,
    dtype: np.dtype[Any],
    rng: np.random.Generator,
    n_threads: int,
) -> Factors:
    """Return starting factors for linear measurements.

    `init` is as in `fastemf.solver.start.starting_factors`. The spectral start is the top-k SVD of
    Σ v_i b_i A_i. Spectral and random starts are scaled so that their measurements fit b best.
    """
    _, m, n = A.shape
    if isinstance(init, Factorization):
        X, Y, *_ = grow_factors(init.axes, (m, n), k, rng, offset=None)
    elif isinstance(init, tuple):
        X, Y = check_given_factors(init, (m, n), k, dtype)
    elif isinstance(init, str) and init == "spectral":
        apply, adjoint = _adjoint_products(A, weights * b, n_threads)
        products = _with_check(apply, dtype), _with_check(adjoint, dtype)
        U, d, V = top_svd(*products, (m, n), k, rng, np.dtype(np.float64))
        d = np.ldexp(d, -np.frexp(d[0])[1])  # exact scaling to about 1
        measured = _measure(A, U * d, V, weights, dtype, n_threads)
        size = float(weights @ measured**2)
        d *= float(weights @ (b * measured)) / size if size > 0 else 1.0  # best fit to b
        X, Y = balanced_factors(U, d, V, k, float(np.linalg.norm(d)) / float(m * n) ** 0.5, rng)
    elif isinstance(init, str) and init == "random":
        X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
        measured = _measure(A, X, Y, weights, dtype, n_threads)
        root = float(weights @ b**2 / (weights @ measured**2)) ** 0.25 if measured.any() else 1.0
        X, Y = root * X, root * Y
    else:
        raise init_error(init)
    return np.ascontiguousarray(X, dtype), np.ascontiguousarray(Y, dtype)


def _adjoint_products(A: Operator, b: Floats, n_threads: int) -> tuple[Product, Product]:
    """Return the products with S = Σ b_i A_i and with its transpose."""
    _, m, n = A.shape
    if m * n <= FORMED_ENTRIES:
        side = int(m < n)  # the narrower identity
        S = np.asarray(A.adjoint_times(b, np.eye(min(m, n)), side, n_jobs=n_threads), np.float64)
        S = S.T if side else S
        return lambda dense: S @ dense, lambda dense: S.T @ dense

    def product(side: int) -> Product:
        return lambda M: np.asarray(A.adjoint_times(b, M, side, n_jobs=n_threads), np.float64)

    return product(0), product(1)


def _with_check(product: Product, dtype: np.dtype[Any]) -> Product:
    """Return the same product with a check that squares of its result are finite."""

    def multiply(dense: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            done = product(dense)
            _check_squares(done, float(np.sum(np.square(done, dtype=np.float64))), dtype)
        return done

    return multiply


def _measure(
    A: Operator, X: Floats, Y: Floats, weights: Floats, dtype: np.dtype[Any], n_threads: int
) -> Floats:
    """Measure X Yᵀ, and check that the squares are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        measured = np.asarray(A.forward(X, Y, n_jobs=n_threads), np.float64)
        _check_squares(measured, float(weights @ measured**2), dtype)
    return measured


def _check_squares(values: Array, squares: float, dtype: np.dtype[Any]) -> None:
    if not np.isfinite(squares) or (squares == 0 and values.any()):
        size = "large" if squares else "small"
        raise ValueError(
            f"A is too {size} for {dtype}: squares of its measurements must neither overflow nor "
            f"underflow, and the largest value is {np.abs(values).max():.3g}; rescale A or b"
        )
