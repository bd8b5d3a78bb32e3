"""The half step of linear measurements: one expectile regression for all entries of a factor.

With the other factor fixed, measurement i is d_i · x, where x is the flattened factor with N = m·k
or n·k unknowns, and d_i = vec(A_i Y) or vec(A_iᵀ X) is a row of the design D. The half step
minimizes

    f(x) = Σ v_i w(r_i) r_i² + λ ‖x‖²,     r = b − D x,

by the safeguarded Newton method of the row solves. With fixed signs f has the Hessian 2H,
H = Dᵀ V W D + λ I, and the gradient −2g. The step p solves H p = g and is accepted by the rule of
`fastemf.kernels.newton`. After the first H only measurements whose residual changed sign are
corrected.

H is stored densely if it takes at most `GRAM_BYTES`; otherwise p is computed by conjugate
gradients, which need D only through the operator. D is stored if it fits into `DESIGN_BYTES` and
computed again for every pass otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import scipy.linalg

from fastemf.kernels.newton import bound_of_f, is_solved, rounding_of
from fastemf.loss import expectile_loss, sign_weights, split_squares, weight_change
from fastemf.operators import Operator
from fastemf.solver.records import HalfSweep, norm
from fastemf.support.arrays import Array, Floats, Ints

DESIGN_BYTES = 1 << 28
GRAM_BYTES = 1 << 28  # N = 5792 in float64
BLOCK_BYTES = 1 << 25  # rows of D that are weighted or computed at a time
PANEL = 256  # columns of the Gram matrix per task, fixed, so that sums do not depend on threads
WORK_PER_THREAD = 1e8  # multiply-adds, a few milliseconds; less does not justify a thread
MAX_NEWTON = 1000  # at extreme levels a step may change the sign of one residual only
ENOUGH = 60  # steps, if they gain no more than the rounding error of f
MAX_CG = 500
CG_TOLERANCE = 1e-4  # of the preconditioned residual: each Newton step gains four digits

Vector = Floats


class Design(Protocol):
    """The p × N matrix D, in memory or streamed."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def times(self, x: Vector) -> Vector:
        """Compute D x."""

    def adjoint(self, u: Vector) -> Vector:
        """Compute Dᵀ u."""

    def rows(self, which: Ints) -> Array:
        """Return some rows of D, as a new array."""


class _InMemory:
    """D in memory."""

    def __init__(self, D: Array) -> None:
        self._D = D
        self.shape = D.shape
        self.dtype = D.dtype

    def times(self, x: Vector) -> Vector:
        return np.asarray(self._D @ x.astype(self.dtype, copy=False), np.float64)

    def adjoint(self, u: Vector) -> Vector:
        return np.asarray(u.astype(self.dtype, copy=False) @ self._D, np.float64)

    def rows(self, which: Ints) -> Array:
        return self._D[which]


class _Streamed:
    """D through the operator, computed again for every pass."""

    def __init__(self, A: Operator, other: Array, side: int, n_threads: int) -> None:
        self._A, self._other, self._side, self._n_threads = A, other, side, n_threads
        self._size = (A.shape[1 + side], other.shape[1])
        self.shape = (A.shape[0], self._size[0] * self._size[1])
        self.dtype = other.dtype

    def times(self, x: Vector) -> Vector:
        this = x.reshape(self._size).astype(self.dtype, copy=False)
        X, Y = (this, self._other) if self._side == 0 else (self._other, this)
        return np.asarray(self._A.forward(X, Y, n_jobs=self._n_threads), np.float64)

    def adjoint(self, u: Vector) -> Vector:
        done = self._A.adjoint_times(u, self._other, self._side, n_jobs=self._n_threads)
        return np.asarray(done, np.float64).ravel()

    def rows(self, which: Ints) -> Array:
        return self._A.design(self._other, self._side, which, n_jobs=self._n_threads)


def design_of(A: Operator, other: Array, side: int, n_threads: int) -> Design:
    """Return the design of one side given the other factor, in memory if small enough."""
    streamed = _Streamed(A, other, side, n_threads)
    if not fits_design(*streamed.shape, streamed.dtype):
        return streamed
    return _InMemory(A.design(other, side, n_jobs=n_threads))


def fits_design(p: int, size: int, dtype: np.dtype[Any]) -> bool:
    """Return whether D, of p measurements and `size` unknowns, fits into `DESIGN_BYTES`."""
    return p * size * dtype.itemsize <= DESIGN_BYTES


def fits_gram(size: int, dtype: np.dtype[Any]) -> bool:
    """Return whether H, of `size` unknowns, fits into `GRAM_BYTES`."""
    return size**2 * dtype.itemsize <= GRAM_BYTES


def solve_regression(
    design: Design,
    b: Vector,
    v: Vector,
    start: Vector,
    omega: float,
    ridge: float,
    precondition: Floats,
    n_threads: int,
) -> HalfSweep:
    """Minimize f from `start`; the result is a flat vector too. Limit BLAS to one thread.

    Parameters
    ----------
    b, v
        Measurements and their weights.
    ridge
        λ.
    precondition
        k × k matrix Q: for near-isometric operators H is about a multiple of I ⊗ Q.
    """
    eps = float(np.finfo(design.dtype).eps)
    x = start.copy()
    r, f, w = _state(design, b, v, x, omega, ridge)
    if not np.isfinite(f):
        raise overflow_error(design.dtype)
    g = design.adjoint(w * r) - ridge * x
    gradient = 2 * norm(g)
    # The rounding error of f depends on the size of the terms of the residuals.
    noise = 256 * eps**2 * (float(v @ b**2) + float(v @ (b - r) ** 2) + f)
    newton: _Gram | _Krylov
    if fits_gram(design.shape[1], design.dtype):
        newton = _Gram(design, w, ridge, n_threads)
    else:
        newton = _Krylov(design, w, ridge, precondition)
    iterations = flips = searches = 0
    projected = False
    for _ in range(MAX_NEWTON):
        p, kept = newton.direction(g)
        if isinstance(newton, _Gram) and kept == 0 and not projected:
            # The measurements do not determine x: take the minimum-norm solution, with equal f.
            projected = True
            x = newton.project(x)
            r, f, changed = _state(design, b, v, x, omega, ridge)
            newton.update(w, changed)
            w = changed
            g = design.adjoint(w * r) - ridge * x
            continue
        predicted = float(g @ p)
        rounding = rounding_of(f, noise, eps)
        s = design.times(p)
        bound = bound_of_f(f, predicted, rounding, full=True)
        step, trial, searched = _choose_step(x, r, p, s, v, omega, ridge, bound)
        searches += searched
        iterations += 1
        if not trial <= bound_of_f(f, predicted, rounding, full=False):  # x is optimal to rounding
            break
        x, r, f = x + step * p, r - step * s, trial
        changed = v * sign_weights(r, omega)
        flipped = int(np.count_nonzero(changed != w))
        flips += flipped
        if is_solved(predicted, rounding, noise, flipped, step, kept**2 > eps):
            break
        if iterations >= ENOUGH and predicted <= rounding:
            break
        newton.update(w, changed)
        w = changed
        g = design.adjoint(w * r) - ridge * x
    above, below = split_squares(r, v)
    return HalfSweep(x, above, below, gradient, iterations, flips, searches)


def _choose_step(
    x: Vector, r: Vector, p: Vector, s: Vector, v: Vector, omega: float, ridge: float, bound: float
) -> tuple[float, float, bool]:
    """Return a step along p, f there, and whether a line search was needed to get below `bound`."""
    f = expectile_loss(r - s, omega, v) + ridge * float(np.sum((x + p) ** 2))
    if f <= bound:  # not if it overflowed
        return 1.0, f, False
    step = _line_search(r, s, v, omega, ridge * float(x @ p), ridge * float(p @ p))
    moved = x + step * p
    return step, expectile_loss(r - step * s, omega, v) + ridge * float(moved @ moved), True


def gram_matrix(design: Design, weights: Vector, n_threads: int) -> Array:
    """Compute the upper triangle of Dᵀ diag(weights) D, weights >= 0, in blocks."""
    size = design.shape[1]
    gram = np.zeros((size, size), design.dtype)
    _add_products(gram, design, np.arange(weights.size), np.sqrt(weights), 1, n_threads)
    return gram


def _add_products(
    gram: Array, design: Design, which: Ints, scales: Vector, sign: int, n_threads: int
) -> None:
    """Add ± Σ scales² d dᵀ over some rows d of D to the panels on and above the diagonal.

    Blocks and panels have fixed sizes, and a panel adds its blocks in order, so the sums do not
    depend on the number of threads.
    """
    size = gram.shape[0]
    cuts = [*range(0, size, PANEL), size]
    panels = [slice(first, last) for first, last in pairwise(cuts)]
    tasks = [(a, b) for i, a in enumerate(panels) for b in panels[i:]]

    def add(rows: Array, task: tuple[slice, slice]) -> None:
        a, b = task
        product = rows[:, a].T @ rows[:, b]
        (np.add if sign > 0 else np.subtract)(gram[a, b], product, out=gram[a, b])

    with ThreadPoolExecutor(n_threads) as pool:  # threads start with the first task
        for some in _blocks(which, size * gram.itemsize):
            rows = design.rows(which[some])
            rows *= scales[some, None].astype(rows.dtype)
            is_large = n_threads > 1 and rows.size * size > WORK_PER_THREAD
            run = pool.map if is_large else map
            list(run(partial(add, rows), tasks))


def _blocks(which: Ints, row_bytes: int) -> Iterator[slice]:
    length = max(1, BLOCK_BYTES // row_bytes)
    for first in range(0, which.size, length):
        yield slice(first, min(first + length, which.size))


class _Gram:
    """Dense H: exact Newton steps by Cholesky, or by eigenvectors if H is singular."""

    def __init__(self, design: Design, w: Vector, ridge: float, n_threads: int) -> None:
        self._design, self._ridge, self._n_threads = design, ridge, n_threads
        self._gram = gram_matrix(design, w, n_threads)
        self._factor()

    def update(self, before: Vector, after: Vector) -> None:
        """Correct H for the measurements whose weight changed."""
        change = after - before
        flipped = np.flatnonzero(change)
        if flipped.size == 0:
            return
        if 2 * flipped.size > change.size:  # computing H anew is cheaper
            self._gram = gram_matrix(self._design, after, self._n_threads)
        else:
            for sign in (1, -1):
                some = flipped[sign * change[flipped] > 0]
                scales = np.sqrt(np.abs(change[some]))
                _add_products(self._gram, self._design, some, scales, sign, self._n_threads)
        self._factor()

    def direction(self, g: Vector) -> tuple[Vector, float]:
        """Return the Newton step, and the smallest ratio of a pivot to its diagonal element.

        The ratio is 0 if H is singular.
        """
        if self._cholesky is not None:
            right = g.astype(self._gram.dtype)
            p = scipy.linalg.cho_solve((self._cholesky, True), right, check_finite=False)
            return np.asarray(p, np.float64), self._kept
        return self._vectors @ ((self._vectors.T @ g) / self._values), 0.0

    def project(self, x: Vector) -> Vector:
        """Project x onto the row space of D."""
        seen: Vector = self._vectors @ (self._vectors.T @ x)
        return seen

    def _factor(self) -> None:
        H = self._shift_diagonal()
        p, size = self._design.shape
        before = np.diagonal(H).astype(np.float64)
        # The floor is relative to the largest diagonal: a factor column of rounding errors is zero.
        floor = 64 * size * float(np.finfo(H.dtype).eps) * float(before.max())
        # With fewer measurements than unknowns H is singular unless the ridge prevents it.
        # Rounding errors must not decide that.
        short = p < size and self._ridge <= floor
        # H.T is in Fortran order, so that LAPACK makes no copy; its lower triangle is stored.
        L, failed = scipy.linalg.get_lapack_funcs("potrf", (H,))(H.T, lower=1, overwrite_a=1)
        pivots = np.diagonal(L).astype(np.float64) ** 2
        if not (short or failed) and pivots.min() > floor:
            self._cholesky, self._kept = L, float(np.min(pivots / before))
            return
        self._cholesky = None
        H = self._shift_diagonal()
        if not np.isfinite(H).all():
            raise overflow_error(H.dtype)
        values, vectors = scipy.linalg.eigh(H.T, lower=True, check_finite=False)
        seen = values > floor
        seen[: size - p if short else 0] = False  # eigenvalues ascend
        self._values = values[seen].astype(np.float64)
        self._vectors = vectors[:, seen].astype(np.float64)

    def _shift_diagonal(self) -> Array:
        H = self._gram.copy()
        np.einsum("ii->i", H)[:] += H.dtype.type(self._ridge)
        return H


class _Krylov:
    """Products with H: Newton steps by preconditioned conjugate gradients.

    Starting from zero, every iterate p has g·p > 0, so stopping early reduces the accuracy of the
    step but it remains a descent direction.
    """

    def __init__(self, design: Design, w: Vector, ridge: float, precondition: Floats) -> None:
        self._design, self._ridge, self._w = design, ridge, w
        values, self._vectors = np.linalg.eigh(precondition)
        self._values = np.maximum(values, 1e-10 * max(float(values[-1]), 1e-300))
        self._gain = 0.0

    def update(self, before: Vector, after: Vector) -> None:
        """Set the weights."""
        self._w = after

    def direction(self, g: Vector) -> tuple[Vector, float]:
        """Return the Newton step to a relative accuracy of `CG_TOLERANCE`, and its square."""
        floor = 64 * g.size * float(np.finfo(self._design.dtype).eps)
        if self._gain == 0.0:  # H ≈ gain · I ⊗ Q + λ I, matched along g
            self._gain = 1.0
            spread = self._estimate_curvature(g) - self._ridge * float(g @ g)
            curved = float(self._w @ self._design.times(g) ** 2)
            self._gain = curved / spread if spread > 0 and curved > 0 else 1.0
        p, residual = np.zeros_like(g), g.copy()
        z = self._precondition(residual)
        direction, size = z, float(residual @ z)
        if not np.isfinite(size):
            raise overflow_error(self._design.dtype)
        target = CG_TOLERANCE**2 * size
        for _ in range(MAX_CG):
            if not size > target:
                break
            image = self._design.adjoint(self._w * self._design.times(direction))
            image += self._ridge * direction
            curvature = float(direction @ image)
            # If H is singular to rounding, the rest of g is rounding error too.
            if not curvature > floor * self._estimate_curvature(direction):
                break
            step = size / curvature
            p = p + step * direction
            residual = residual - step * image
            z = self._precondition(residual)
            size, before = float(residual @ z), size
            direction = z + (size / before) * direction
        return p, CG_TOLERANCE**2

    def _estimate_curvature(self, x: Vector) -> float:
        """Estimate x · H x with the preconditioner."""
        turned = x.reshape(-1, self._values.size) @ self._vectors
        return float(np.sum(turned**2 * (self._gain * self._values + self._ridge)))

    def _precondition(self, g: Vector) -> Vector:
        turned = g.reshape(-1, self._values.size) @ self._vectors
        done = (turned / (self._gain * self._values + self._ridge)) @ self._vectors.T
        return np.asarray(done).ravel()


def overflow_error(dtype: np.dtype[Any]) -> FloatingPointError:
    """Return the error for sums that are not finite."""
    return FloatingPointError(
        f"the normal equations of a half step are not finite in {dtype}: the measurements or the "
        "factors are too large; rescale A or b, use float64, or raise reg"
    )


def _state(
    design: Design, b: Vector, v: Vector, x: Vector, omega: float, ridge: float
) -> tuple[Vector, float, Vector]:
    """Compute residuals, f and weights at x."""
    r = b - design.times(x)
    return r, expectile_loss(r, omega, v) + ridge * float(x @ x), v * sign_weights(r, omega)


def _line_search(
    r: Vector, s: Vector, v: Vector, omega: float, ridge_xp: float, ridge_pp: float
) -> float:
    """Find the t > 0 that minimizes Σ v w(r − t s) (r − t s)² + λ ‖x + t p‖².

    Half the negative derivative is a − t h between the breakpoints t = r / s, and
    falls; crossing one changes a by Δw s r and h by Δw s².
    """
    w = v * sign_weights(np.where(r == 0, -s, r), omega)  # just after 0
    crossing = np.flatnonzero(r * s > 0)
    at = r[crossing] / s[crossing]
    order = np.argsort(at, kind="stable")
    crossing, at = crossing[order], at[order]
    change = v[crossing] * weight_change(omega) * np.sign(r[crossing])
    a = np.cumsum(np.concatenate([[w @ (s * r) - ridge_xp], change * s[crossing] * r[crossing]]))
    h = np.cumsum(np.concatenate([[w @ s**2 + ridge_pp], change * s[crossing] ** 2]))
    piece = int(np.argmax(np.append(a[:-1] - at * h[:-1] <= 0, True)))
    return float(a[piece] / h[piece]) if h[piece] > 0 else 1.0
