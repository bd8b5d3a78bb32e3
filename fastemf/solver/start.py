"""The start of a fit, which is all that is random in it beside validation cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastemf.inputs.entries import parts
from fastemf.kernels.entries import ProductArgs, multiply_rows
from fastemf.kernels.threads import launch, single_threaded_blas
from fastemf.kernels.vector_width import pad_columns
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.ridge import asymmetry
from fastemf.sources.source import Grouped, Side, Source
from fastemf.support.arrays import Array, Floats
from fastemf.support.validation import check_factor

OVERSAMPLING = 10
POWER_ITERATIONS = 1  # more change the start but not the fit: see `_spectral_start`
INTERCEPT_SWEEPS = 5

Factors = tuple[Array, Array]
Product = Callable[[Array], Array]


def starting_factors(
    init: Any, engine: CompletionEngine, k: int, rng: np.random.Generator, n_threads: int
) -> Factors:
    """Compute the factors of the start, with intercepts, if any, as the last column.

    `init` is ``"spectral"``, ``"random"`` or a pair (X, Y).
    """
    observations, mu = engine.observations, engine.mu
    m, n = observations.shape
    a, c = np.zeros((m, 1)), np.zeros((n, 1))
    if isinstance(init, tuple):
        X, Y = check_given_factors(init, observations.shape, k, observations.dtype)
    elif isinstance(init, str) and init in ("spectral", "random"):
        if mu is not None:
            a, c = _intercept_start(engine, observations, Ridge(0.0, asymmetry(engine.omega)))
        if k == 0:
            X, Y = np.zeros((m, 0)), np.zeros((n, 0))
        elif init == "spectral":
            offsets = None if mu is None else (mu + a[:, 0], c[:, 0])
            X, Y = _spectral_start(observations, k, engine.size, rng, n_threads, offsets)
        else:
            X, Y = _random_start(observations.shape, k, engine.size, rng)
    else:
        raise init_error(init)
    return extend_factors(engine, (X, Y), (a, c))


def extend_factors(engine: CompletionEngine, factors: Factors, intercepts: Factors) -> Factors:
    """Append intercepts where the engine has them, and set unobserved rows and columns to zero."""
    if engine.mu is not None:
        factors = (
            np.hstack([factors[0], intercepts[0]]), np.hstack([factors[1], intercepts[1]]),
        )  # fmt: skip
    # Zero is what unobserved rows end at, also where no sweep is an improvement.
    X, Y = (
        factor if mass.all() else np.where(mass[:, None] > 0, factor, 0)
        for factor, mass in zip(factors, engine.masses, strict=True)
    )
    dtype = engine.observations.dtype
    return np.ascontiguousarray(X, dtype), np.ascontiguousarray(Y, dtype)


def pad_rank(factors: Factors, rank: int, k: int) -> Factors:
    """Add columns of zeros to factors of a lower rank, before the intercepts."""
    wide = []
    for factor in factors:
        zeros = np.zeros((factor.shape[0], k - rank), factor.dtype)
        wide.append(np.hstack([factor[:, :rank], zeros, factor[:, rank:]]))
    return wide[0], wide[1]


def check_given_factors(
    init: tuple[Any, ...], shape: tuple[int, int], k: int, dtype: np.dtype[Any]
) -> Factors:
    """Check a pair (X, Y) given by the user."""
    if len(init) != 2:
        raise ValueError(f"init as a tuple must be the pair (X, Y), got {len(init)} items")
    X = check_factor(init[0], "init[0]", (shape[0], k), dtype)
    return X, check_factor(init[1], "init[1]", (shape[1], k), dtype)


def init_error(init: Any) -> ValueError:
    """Make the error for an invalid `init`."""
    return ValueError(
        f'init must be "spectral", "random", a pair (X, Y) or a Factorization, got {init!r}'
    )


def _spectral_start(
    observations: Source,
    k: int,
    rms: float,
    rng: np.random.Generator,
    n_threads: int,
    intercepts: tuple[Floats, Floats] | None = None,
) -> Factors:
    """Make balanced factors of the top-k SVD of the zero-filled matrix, rescaled by mn/p.

    With `intercepts` (row and column offsets) it is the matrix of their residuals. The SVD is a
    randomized range finder with one power iteration, in the data's precision: the sweeps correct
    the last digits, and the sparse products run on all threads, unlike those of ARPACK. On 4.5M
    entries after 15 sweeps F agreed to six digits for 1, 2, 4 and 7 power iterations and for svds.
    """
    m, n = observations.shape
    forward = _product(observations.by_row, intercepts, n_threads)
    backward = _product(observations.by_col, intercepts and intercepts[::-1], n_threads)
    U, d, V = top_svd(forward, backward, (m, n), k, rng, observations.dtype)
    d *= m * n / observations.mass
    return balanced_factors(U, d, V, k, rms, rng)


def top_svd(
    forward: Product,
    backward: Product,
    shape: tuple[int, int],
    k: int,
    rng: np.random.Generator,
    dtype: np.dtype[Any],
) -> tuple[Array, Floats, Array]:
    """Find U, d, V of the top-k SVD of S from products with S and Sᵀ; fewer if S has lower rank."""
    # With width min(m, n) the sketch spans everything.
    width = min(k + OVERSAMPLING, *shape)
    with single_threaded_blas():
        basis = rng.standard_normal((shape[1], width)).astype(dtype)
        for _ in range(POWER_ITERATIONS):
            basis = _thin_svd(backward(_thin_svd(forward(basis))[0]))[0]
        left, _, _ = _thin_svd(forward(basis))
        left, _, _ = _thin_svd(left)  # orthonormal to rounding, whatever the first was
        V, d, rotation = _thin_svd(backward(left))  # S ≈ left rotation diag(d) Vᵀ
        return left @ rotation[:, :k], d[:k], V[:, :k]


def balanced_factors(
    U: Array, d: Floats, V: Array, k: int, rms: float, rng: np.random.Generator
) -> Factors:
    """Make U √d and V √d, with small random columns up to k; `rms` is the size of an entry."""
    found = int(np.count_nonzero(d > 0))
    root = np.sqrt(d[:found]).astype(U.dtype)
    X, Y = U[:, :found] * root, V[:, :found] * root
    if found < k:  # a column that is zero on both sides would remain zero
        size = 1e-2 * np.sqrt(rms / k)
        X = np.hstack([X, size * rng.standard_normal((len(U), k - found))])
        Y = np.hstack([Y, size * rng.standard_normal((len(V), k - found))])
    return X, Y


def _thin_svd(Z: Array) -> tuple[Array, Floats, Array]:
    """Compute U, d, V of a tall Z ≈ U diag(d) Vᵀ, through the eigenvectors of ZᵀZ.

    This only takes matrix products, and much less time than a QR decomposition. Singular values
    below the square root of eps are lost, and left out.
    """
    gram = np.zeros((Z.shape[1], Z.shape[1]))
    for first in range(0, Z.shape[0], 1 << 14):  # in float64, but never all of it
        part = Z[first : first + (1 << 14)].astype(np.float64, copy=False)
        gram += part.T @ part
    # Near the ends of the range LAPACK would scale by a number that rounds.
    exponent = np.frexp(np.abs(gram).max())[1] // 2
    squares, V = np.linalg.eigh(np.ldexp(gram, -2 * exponent))
    squares, V = squares[::-1], V[:, ::-1]
    least = max(
        16 * Z.shape[1] * float(np.finfo(np.float64).eps), float(np.finfo(Z.dtype).eps) ** 2
    )
    kept = max(1, int(np.count_nonzero(squares > least * squares[0])))
    d, V = np.ldexp(np.sqrt(np.maximum(squares[:kept], 0)), exponent), V[:, :kept]
    scale = np.where(d > 0, d, 1)
    return Z @ (V / scale).astype(Z.dtype), d, V.astype(Z.dtype)


def _random_start(shape: tuple[int, int], k: int, rms: float, rng: np.random.Generator) -> Factors:
    """Draw normal factors whose product has about the root mean square of the data."""
    size = np.sqrt(rms / np.sqrt(k))
    return size * rng.standard_normal((shape[0], k)), size * rng.standard_normal((shape[1], k))


def _intercept_start(engine: CompletionEngine, observations: Source, ridge: Ridge) -> Factors:
    """Fit row and column intercepts without factors, as (m, 1) and (n, 1)."""
    m, n = observations.shape
    rows = np.zeros((m, 1), observations.dtype)
    cols = np.zeros((n, 1), observations.dtype)
    for _ in range(INTERCEPT_SWEEPS):
        cols = engine.solve(1, cols, rows, ridge).factor
        rows = engine.solve(0, rows, cols, ridge).factor
    return rows.astype(np.float64), cols.astype(np.float64)


def _product(side: Grouped, intercepts: tuple[Floats, Floats] | None, n_threads: int) -> Product:
    """Make the product with the zero-filled matrix of weighted residuals of `intercepts`."""
    this, others = (np.empty(0), np.empty(0)) if intercepts is None else intercepts
    # In memory these values are kept; data on disk are there because memory is short.
    kept = _weighted_residuals(side, others, this) if isinstance(side, Side) else None

    def times(dense: Array) -> Array:
        n_rows, width = side.indptr.size - 1, dense.shape[1]
        whole: Array | None = None
        for rows, out in side.each(
            _times_block, (dense, others), (this,), width, kept, n_threads=n_threads
        ):
            if whole is None:
                if rows.stop == n_rows:
                    return np.asarray(out)
                # Padded as a block is, so that dense algebra uses the same strides.
                whole = pad_columns(np.empty((n_rows, width), dense.dtype))[:, :width]
            whole[rows] = out
        assert whole is not None  # a matrix has at least one row
        return whole

    return times


def _times_block(
    block: Side,
    dense: Array,
    others: Floats,
    this: Floats,
    width: int,
    kept: Array | None,
    n_threads: int,
) -> Array:
    """Compute a block's rows of the product."""
    values = _weighted_residuals(block, others, this) if kept is None else kept
    out = np.empty((block.indptr.size - 1, dense.shape[1]), dense.dtype)
    runs = block.runs(8 * n_threads)
    product = ProductArgs(block.indptr, block.indices, values, dense, out)
    launch(multiply_rows, n_threads, runs, product)
    return out[:, :width]


def _weighted_residuals(block: Side, others: Floats, this: Floats) -> Array:
    """Compute the weighted residuals of intercepts in a block."""
    if not (others.size or block.weights.size):
        return block.values
    left = block.values.copy()
    keys = block.keys if others.size else None
    for part in parts(block.size):
        if keys is not None:
            left[part] = left[part] - (this[keys[part]] + others[block.indices[part]])
        if block.weights.size:
            left[part] *= block.weights[part]
    return left
