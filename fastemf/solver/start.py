"""The factors that a fit starts from. They are all that is random, but for what is held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.entries import parts
from fastemf.inputs.labels import Labels
from fastemf.kernels.products import SparseProduct, multiply
from fastemf.kernels.threads import launch, single_threaded_blas
from fastemf.kernels.width import padded
from fastemf.observations.source import Grouped, Side, Source
from fastemf.solver.axis import Axis
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.ridge import asymmetry
from fastemf.support.validation import check_factor

__all__ = [
    "EarlierModel",
    "balanced_factors",
    "given_factors",
    "grown_factors",
    "starting_factors",
    "top_svd",
    "unknown_init",
    "widened",
]

OVERSAMPLING = 10
POWER_ITERATIONS = 1  # more change the start but not the fit: see `_spectral_start`
INTERCEPT_SWEEPS = 5

Factors = tuple[NDArray[Any], NDArray[Any]]
Product = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class EarlierModel:
    """A model to start from: its rows and columns, and the mu they are around (0 without one)."""

    axes: tuple[Axis, Axis]
    mu: float


def starting_factors(
    init: Any,
    engine: CompletionEngine,
    k: int,
    rng: np.random.Generator,
    n_threads: int,
) -> Factors:
    """Find factors to start from, with the intercepts, where there are any, as last column.

    `init` is ``"spectral"``, ``"random"``, a pair (X, Y) or an `EarlierModel`.
    """
    observations, mu = engine.observations, engine.mu
    m, n = observations.shape
    a, c = np.zeros((m, 1)), np.zeros((n, 1))
    if isinstance(init, EarlierModel):
        labels = (observations.row_labels, observations.col_labels)
        X, Y, a, c = grown_factors(init, observations.shape, k, mu, rng, labels)
    elif isinstance(init, tuple):
        X, Y = given_factors(init, observations.shape, k, observations.dtype)
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
        raise unknown_init(init)
    if mu is not None:
        X, Y = np.hstack([X, a]), np.hstack([Y, c])
    # What is never observed is zero from the start, which is the end where no sweep is an advance.
    X, Y = (
        factor if mass.all() else np.where(mass[:, None] > 0, factor, 0)
        for factor, mass in zip((X, Y), engine.masses, strict=True)
    )
    dtype = observations.dtype
    return np.ascontiguousarray(X, dtype), np.ascontiguousarray(Y, dtype)


def widened(factors: Factors, rank: int, k: int) -> Factors:
    """Add columns of zeros to factors of a lower rank, before the intercepts."""
    wide = []
    for factor in factors:
        zeros = np.zeros((factor.shape[0], k - rank), factor.dtype)
        wide.append(np.hstack([factor[:, :rank], zeros, factor[:, rank:]]))
    return wide[0], wide[1]


def given_factors(
    init: tuple[Any, ...], shape: tuple[int, int], k: int, dtype: np.dtype[Any]
) -> Factors:
    """Check a pair (X, Y) that the user gave."""
    if len(init) != 2:
        raise ValueError(f"init as a tuple must be the pair (X, Y), got {len(init)} items")
    X = check_factor(init[0], "init[0]", (shape[0], k), dtype)
    return X, check_factor(init[1], "init[1]", (shape[1], k), dtype)


def unknown_init(init: Any) -> ValueError:
    """Make the error for an `init` that cannot be started from."""
    return ValueError(
        f'init must be "spectral", "random", a pair (X, Y) or a Factorization, got {init!r}'
    )


def grown_factors(
    earlier: EarlierModel,
    shape: tuple[int, int],
    k: int,
    mu: float | None,
    rng: np.random.Generator,
    labels: tuple[Labels | None, Labels | None] = (None, None),
) -> tuple[NDArray[np.float64], ...]:
    """Take over an earlier model's X, Y, a and c, with small random rows for those it never saw."""
    if earlier.axes[0].k != k:
        raise ValueError(f"init has rank {earlier.axes[0].k}, k is {k}; they must be equal")
    if mu is None and earlier.axes[0].has_intercepts:
        raise ValueError("init has intercepts; pass intercepts=True to start from it")
    parts: list[NDArray[np.float64]] = []
    columns: list[NDArray[np.float64]] = []
    for axis, (known, size) in enumerate(zip(earlier.axes, shape, strict=True)):
        # Rows that both have: their places in the model, and in the data.
        theirs, ours = _matched(earlier.axes, axis, labels[axis], shape)
        column = np.zeros((size, 1))
        if known.intercepts is not None:
            column[ours, 0] = known.intercepts[theirs]
        if axis == 0 and mu is not None:
            column[ours] += earlier.mu - mu
        columns.append(column)
        # Not zero: a cell that is new in both directions would stay zero for ever.
        total = np.sum(np.square(known.factor, dtype=np.float64))
        small = 1e-2 * np.sqrt(total / max(1, known.factor.size))
        grown = small * rng.standard_normal((size, k))
        seen = ~np.isin(theirs, known.unseen)
        grown[ours[seen]] = known.factor[theirs[seen]]
        parts.append(grown)
    return (*parts, *columns)


def _matched(
    axes: tuple[Axis, Axis], axis: int, labels: Labels | None, shape: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the rows that both model and data have: by label where both have some, else by index."""
    known = axes[axis]
    if known.labels is None or labels is None:
        if known.size > shape[axis]:
            sizes = axes[0].size, axes[1].size
            raise ValueError(f"init has shape {sizes}, larger than the data's {shape}")
        same = np.arange(known.size)
        return same, same
    found = known.labels.positions(labels.values, what=("row labels", "column labels")[axis])
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
    """Make balanced factors of the top-k SVD of the zero-filled matrix, rescaled by mn/p.

    With `intercepts` (row and column offsets) the matrix is what those leave of the
    observations. The SVD is a randomised range finder with one power iteration, in the data's
    precision: the alternation repairs the last digits, and the sparse products run on all
    threads, while ARPACK's are serial and many. On 4.5M entries after 15 sweeps F agreed to six
    digits for 1, 2, 4 and 7 power iterations and for svds.
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
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any]]:
    """Find U, d, V of the top-k SVD of S, known by its products S· and Sᵀ·.

    They are fewer than k where S has fewer.
    """
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
    U: NDArray[Any],
    d: NDArray[np.float64],
    V: NDArray[Any],
    k: int,
    rms: float,
    rng: np.random.Generator,
) -> Factors:
    """Make U √d and V √d, filled up to k small random columns; `rms` is an entry's size."""
    found = int(np.count_nonzero(d > 0))
    root = np.sqrt(d[:found]).astype(U.dtype)
    X, Y = U[:, :found] * root, V[:, :found] * root
    if found < k:  # a column that is zero on both sides would stay zero
        size = 1e-2 * np.sqrt(rms / k)
        X = np.hstack([X, size * rng.standard_normal((len(U), k - found))])
        Y = np.hstack([Y, size * rng.standard_normal((len(V), k - found))])
    return X, Y


def _thin_svd(Z: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any]]:
    """Compute U, d, V of a tall Z ≈ U diag(d) Vᵀ, through the eigenvectors of ZᵀZ.

    This takes matrix products only, and much less time than a QR decomposition. Singular values
    below the square root of rounding are lost that way, and left out.
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
    """Draw normal factors whose product has about the data's root mean square."""
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


def _product(
    side: Grouped,
    intercepts: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    n_threads: int,
) -> Product:
    """Make the product with the zero-filled matrix of what `intercepts` leave, times weights."""
    this, others = (np.empty(0), np.empty(0)) if intercepts is None else intercepts
    # In memory these values are worth keeping; data on disk are there because memory is short.
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
                # It is padded as a block is, so that dense algebra sees the same strides.
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
    """Compute a block's rows of the product."""
    values = _values_left(block, others, this) if kept is None else kept
    out = np.empty((block.indptr.size - 1, dense.shape[1]), dense.dtype)
    runs = block.runs(8 * n_threads)
    product = SparseProduct(block.indptr, block.indices, values, dense, out)
    launch(multiply, n_threads, runs, product)
    return out[:, :width]


def _values_left(
    block: Side, others: NDArray[np.float64], this: NDArray[np.float64]
) -> NDArray[Any]:
    """Compute what intercepts leave of a block's values, times the weights."""
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
