"""Where a fit starts. All randomness of a fit is here, drawn from one generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.entries import parts
from fastemf.inputs.labels import Labels
from fastemf.kernels.products import SparseProduct, multiply
from fastemf.kernels.threads import balanced, launch, single_threaded_blas
from fastemf.kernels.width import padded
from fastemf.model.factorization import Factorization
from fastemf.observations.source import Grouped, Side, Source
from fastemf.operators import Operator
from fastemf.solver.half_sweep import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.ridge import asymmetry
from fastemf.support.validation import check_factor

__all__ = ["measured_factors", "starting_factors"]

OVERSAMPLING = 10
POWER_ITERATIONS = 1  # more change the start but not the fit: after 15 sweeps F agrees to 6 digits
INTERCEPT_SWEEPS = 5

FORMED_ENTRIES = 1 << 19  # Σ b_i A_i up to this size is formed once instead of applied four times

Factors = tuple[NDArray[Any], NDArray[Any]]
Product = Callable[[NDArray[Any]], NDArray[Any]]


def starting_factors(
    init: Any,
    engine: CompletionEngine,
    observations: Source,
    k: int,
    level: float | None,
    rng: np.random.Generator,
    n_threads: int,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Factors to start from, with the intercepts as last column where `level` is given."""
    m, n = observations.shape
    a, c = np.zeros((m, 1)), np.zeros((n, 1))
    if isinstance(init, Factorization):
        labels = (observations.row_labels, observations.col_labels)
        X, Y, a, c = _grown(init, observations.shape, k, level, rng, labels)
    elif isinstance(init, tuple):
        X, Y = _given(init, observations.shape, k, observations.dtype)
    elif isinstance(init, str) and init in ("spectral", "random"):
        if level is not None:
            a, c = _intercept_start(engine, observations, Ridge(0.0, asymmetry(engine.omega)))
        if init == "spectral":
            offsets = None if level is None else (level + a[:, 0], c[:, 0])
            X, Y = _spectral_start(observations, k, engine.size, rng, n_threads, offsets)
        else:
            X, Y = _random_start(observations.shape, k, engine.size, rng)
    else:
        raise _unknown(init)
    if level is not None:
        X, Y = np.hstack([X, a]), np.hstack([Y, c])
    dtype = observations.dtype
    return np.ascontiguousarray(X, dtype), np.ascontiguousarray(Y, dtype)


def measured_factors(
    init: Any,
    A: Operator,
    b: NDArray[np.float64],
    weights: NDArray[np.float64],
    k: int,
    dtype: np.dtype[Any],
    rng: np.random.Generator,
    n_threads: int,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Factors to start from, given linear measurements instead of entries.

    The spectral start is the top-k SVD of Σ v_i b_i A_i; it and the random one are
    scaled so that their measurements fit b best.
    """
    _, m, n = A.shape
    if isinstance(init, Factorization):
        X, Y, *_ = _grown(init, (m, n), k, None, rng)
    elif isinstance(init, tuple):
        X, Y = _given(init, (m, n), k, dtype)
    elif isinstance(init, str) and init == "spectral":
        products = _adjoint_products(A, weights * b, n_threads)
        U, d, V = _top_svd(*products, (m, n), k, rng, np.dtype(np.float64))
        d *= _scale_to_fit(A, U * d, V, b, weights, n_threads)
        X, Y = _balanced(U, d, V, k, float(np.linalg.norm(d)) / float(m * n) ** 0.5, rng)
    elif isinstance(init, str) and init == "random":
        X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
        measured = np.asarray(A.forward(X, Y, n_jobs=n_threads), np.float64)
        root = float(weights @ b**2 / (weights @ measured**2)) ** 0.25 if measured.any() else 1.0
        X, Y = root * X, root * Y
    else:
        raise _unknown(init)
    return np.ascontiguousarray(X, dtype), np.ascontiguousarray(Y, dtype)


def _adjoint_products(
    A: Operator, b: NDArray[np.float64], n_threads: int
) -> tuple[Product, Product]:
    """Products with S = Σ b_i A_i and with its transpose."""
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
    """The factor that brings the measurements of X Yᵀ closest to b."""
    measured = np.asarray(A.forward(X, Y, n_jobs=n_threads), np.float64)
    size = float(weights @ measured**2)
    return float(weights @ (b * measured)) / size if size > 0 else 1.0


def _given(init: tuple[Any, ...], shape: tuple[int, int], k: int, dtype: np.dtype[Any]) -> Factors:
    if len(init) != 2:
        raise ValueError(f"init as a tuple must be the pair (X, Y), got {len(init)} items")
    X = check_factor(init[0], "init[0]", (shape[0], k), dtype)
    return X, check_factor(init[1], "init[1]", (shape[1], k), dtype)


def _unknown(init: Any) -> ValueError:
    return ValueError(
        f'init must be "spectral", "random", a pair (X, Y) or a Factorization, got {init!r}'
    )


def _grown(
    fit: Factorization,
    shape: tuple[int, int],
    k: int,
    level: float | None,
    rng: np.random.Generator,
    labels: tuple[Labels | None, Labels | None] = (None, None),
) -> tuple[NDArray[np.float64], ...]:
    """An earlier fit's factors and intercepts, with small random rows for those it never saw."""
    if fit.k != k:
        raise ValueError(f"init has rank {fit.k}, k is {k}; they must be equal")
    if level is None and fit.row_intercepts is not None:
        raise ValueError("init has intercepts; pass intercepts=True to start from it")
    parts: list[NDArray[np.float64]] = []
    columns: list[NDArray[np.float64]] = []
    for axis, size in enumerate(shape):
        factor = (fit.X, fit.Y)[axis]
        # Where each row of the data was in the fit, and is in the data.
        theirs, ours = _matched(fit, axis, labels[axis], shape)
        column = np.zeros((size, 1))
        intercepts = (fit.row_intercepts, fit.col_intercepts)[axis]
        if intercepts is not None:
            column[ours, 0] = intercepts[theirs]
        if axis == 0 and level is not None:
            column[ours] += fit.mu - level
        columns.append(column)
        # Not zero: a cell that is new in both directions would stay zero for ever.
        small = 1e-2 * np.sqrt(np.mean(np.square(factor, dtype=np.float64)))
        grown = small * rng.standard_normal((size, k))
        seen = ~np.isin(theirs, (fit.unseen_rows, fit.unseen_cols)[axis])
        grown[ours[seen]] = factor[theirs[seen]]
        parts.append(grown)
    return (*parts, *columns)


def _matched(
    fit: Factorization, axis: int, labels: Labels | None, shape: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that an earlier fit and the data share: by label where both have them, else by index."""
    known = (fit.row_labels, fit.col_labels)[axis]
    if known is None or labels is None:
        if fit.shape[axis] > shape[axis]:
            raise ValueError(f"init has shape {fit.shape}, larger than the data's {shape}")
        same = np.arange(fit.shape[axis])
        return same, same
    found = known.positions(labels.values, what=("row labels", "column labels")[axis])
    ours = np.flatnonzero(found >= 0)
    return found[ours], ours


def _spectral_start(
    observations: Source,
    k: int,
    rms: float,
    rng: np.random.Generator,
    n_threads: int,
    intercepts: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> Factors:
    """Balanced factors of the top-k SVD of the zero-filled matrix, rescaled by mn/p.

    With `intercepts` (row and column offsets) of what those leave of the
    observations. A randomised range finder with one power iteration, in the
    data's precision: the alternation repairs the last digits, and its sparse
    products run on all threads, while ARPACK's are serial and many. On 4.5M
    entries after 15 sweeps F agreed to six digits for 1, 2, 4 and 7 power
    iterations and for svds.
    """
    m, n = observations.shape
    forward = _product(observations.by_row, intercepts, n_threads)
    backward = _product(observations.by_col, intercepts and intercepts[::-1], n_threads)
    U, d, V = _top_svd(forward, backward, (m, n), k, rng, observations.dtype)
    d *= m * n / observations.mass
    return _balanced(U, d, V, k, rms, rng)


def _top_svd(
    forward: Product,
    backward: Product,
    shape: tuple[int, int],
    k: int,
    rng: np.random.Generator,
    dtype: np.dtype[Any],
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any]]:
    """U, d, V of the top-k SVD of S, known by its products S· and Sᵀ·; fewer if S has fewer."""
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


def _balanced(
    U: NDArray[Any],
    d: NDArray[np.float64],
    V: NDArray[Any],
    k: int,
    rms: float,
    rng: np.random.Generator,
) -> Factors:
    """U √d and V √d, filled up to k small random columns; `rms` is an entry's size."""
    found = int(np.count_nonzero(d > 0))
    root = np.sqrt(d[:found]).astype(U.dtype)
    X, Y = U[:, :found] * root, V[:, :found] * root
    if found < k:  # a column that is zero on both sides would stay zero
        size = 1e-2 * np.sqrt(rms / k)
        X = np.hstack([X, size * rng.standard_normal((len(U), k - found))])
        Y = np.hstack([Y, size * rng.standard_normal((len(V), k - found))])
    return X, Y


def _thin_svd(Z: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any]]:
    """U, d, V of a tall Z ≈ U diag(d) Vᵀ, through the eigenvectors of ZᵀZ.

    Matrix products only, a fraction of a QR's time. Singular values below the
    square root of rounding are lost that way, and left out.
    """
    gram = np.zeros((Z.shape[1], Z.shape[1]))
    for first in range(0, Z.shape[0], 1 << 14):  # in float64, but never all of it
        part = Z[first : first + (1 << 14)].astype(np.float64, copy=False)
        gram += part.T @ part
    squares, V = np.linalg.eigh(gram)
    squares, V = squares[::-1], V[:, ::-1]
    least = max(
        16 * Z.shape[1] * float(np.finfo(np.float64).eps), float(np.finfo(Z.dtype).eps) ** 2
    )
    kept = max(1, int(np.count_nonzero(squares > least * squares[0])))
    d, V = np.sqrt(np.maximum(squares[:kept], 0)), V[:, :kept]
    scale = np.where(d > 0, d, 1)
    return Z @ (V / scale).astype(Z.dtype), d, V.astype(Z.dtype)


def _random_start(shape: tuple[int, int], k: int, rms: float, rng: np.random.Generator) -> Factors:
    """Normal factors whose product has about the data's root mean square."""
    size = np.sqrt(rms / np.sqrt(k))
    return size * rng.standard_normal((shape[0], k)), size * rng.standard_normal((shape[1], k))


def _intercept_start(engine: CompletionEngine, observations: Source, ridge: Ridge) -> Factors:
    """Row and column intercepts fitted without factors, as (m, 1) and (n, 1)."""
    m, n = observations.shape
    rows = np.zeros((m, 1), observations.dtype)
    cols = np.zeros((n, 1), observations.dtype)
    for _ in range(INTERCEPT_SWEEPS):
        cols = engine.solve(1, cols, rows, ridge).factor
        rows = engine.solve(0, rows, cols, ridge).factor
    return rows.astype(np.float64), cols.astype(np.float64)


def _product(
    side: Grouped,
    intercepts: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    n_threads: int,
) -> Product:
    """Products with the zero-filled matrix of what `intercepts` leave, times the weights."""
    this, others = (np.empty(0), np.empty(0)) if intercepts is None else intercepts
    # In memory it is worth keeping; from disk it would be what memory is short of.
    kept = _values_left(side, others, this) if isinstance(side, Side) else None

    def times(dense: NDArray[Any]) -> NDArray[Any]:
        n_rows, width = side.indptr.size - 1, dense.shape[1]
        whole: NDArray[Any] | None = None
        for rows, out in side.each(
            _times_block, (dense, others), (this,), width, kept, n_threads=n_threads
        ):
            if whole is None:
                if rows.stop == n_rows:
                    return np.asarray(out)
                # As wide as a block's: the dense algebra after it sees the same strides.
                whole = padded(np.empty((n_rows, width), dense.dtype))[:, :width]
            whole[rows] = out
        assert whole is not None  # a matrix has at least one row
        return whole

    return times


def _times_block(
    block: Side,
    dense: NDArray[Any],
    others: NDArray[np.float64],
    this: NDArray[np.float64],
    width: int,
    kept: NDArray[Any] | None,
    n_threads: int,
) -> NDArray[Any]:
    """A block's rows of the product."""
    values = _values_left(block, others, this) if kept is None else kept
    out = np.empty((block.indptr.size - 1, dense.shape[1]), dense.dtype)
    runs = balanced(np.diff(block.indptr) + 1.0, 8 * n_threads)
    product = SparseProduct(block.indptr, block.indices, values, dense, out)
    launch(multiply, n_threads, runs, product)
    return out[:, :width]


def _values_left(
    block: Side, others: NDArray[np.float64], this: NDArray[np.float64]
) -> NDArray[Any]:
    """What intercepts, the other side's and the block's, leave of its values, times the weights."""
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
