"""The half step of linear measurements: one expectile regression in all entries of a factor.

With the other factor fixed, measurement i is d_i · x, where x is the flattened
factor (N = m·k or n·k unknowns) and d_i = vec(A_i Y) or vec(A_iᵀ X) a row of the design D.
The half step minimises

    f(x) = Σ v_i w(r_i) r_i² + λ ‖x‖²,     r = b − D x,

by the safeguarded Newton method of the row solves: with the signs frozen f has
Hessian 2H, H = Dᵀ V W D + λ I, and gradient −2g; the step p solves H p = g and is taken by the
rule of `fastemf.kernels.newton`. After the first H only measurements whose sign flipped are
corrected.

H is held densely where that takes at most `GRAM_BYTES`; beyond that p comes from
conjugate gradients, which need D only through the operator. D itself is held while
it fits into `DESIGN_BYTES` and drawn again for every pass otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fastemf.kernels.newton import bound_of_f, is_solved, rounding_of
from fastemf.loss import sign_weights
from fastemf.operators import Operator
from fastemf.solver.records import HalfSweep, norm

__all__ = [
    "Design", "design_of", "gram_matrix", "holds_design", "holds_gram", "overflow_error",
    "solve_regression",
]  # fmt: skip

DESIGN_BYTES = 1 << 28
GRAM_BYTES = 1 << 28  # N = 5792 in float64
BLOCK_BYTES = 1 << 25  # rows of D that are weighted or drawn at once
PANEL = 256  # columns of the Gram matrix per task, fixed, so that sums do not depend on threads
WORK_PER_THREAD = 1e8  # multiply-adds, a few milliseconds: less is not worth waking a thread for
MAX_NEWTON = 1000  # at extreme levels a step may do no more than change the sign of one residual
ENOUGH = 60  # steps, once they gain no more than the rounding of f
MAX_CG = 500
CG_TOLERANCE = 1e-4  # on the preconditioned residual: each Newton step gains four digits

Vector = NDArray[np.float64]


class Design(Protocol):
    """The p × N matrix D, held or not."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def times(self, x: Vector) -> Vector:
        """Compute D x."""

    def adjoint(self, u: Vector) -> Vector:
        """Compute Dᵀ u."""

    def rows(self, which: NDArray[np.int64]) -> NDArray[Any]:
        """Return some rows of D, as a new array."""


class _Held:
    """D in memory."""

    def __init__(self, D: NDArray[Any]) -> None:
        self._D = D
        self.shape = D.shape
        self.dtype = D.dtype

    def times(self, x: Vector) -> Vector:
        return np.asarray(self._D @ x.astype(self.dtype, copy=False), np.float64)

    def adjoint(self, u: Vector) -> Vector:
        return np.asarray(u.astype(self.dtype, copy=False) @ self._D, np.float64)

    def rows(self, which: NDArray[np.int64]) -> NDArray[Any]:
        return self._D[which]


class _Streamed:
    """D through the operator, drawn again for every pass."""

    def __init__(self, A: Operator, other: NDArray[Any], side: int, n_threads: int) -> None:
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

    def rows(self, which: NDArray[np.int64]) -> NDArray[Any]:
        return self._A.design(self._other, self._side, which, n_jobs=self._n_threads)


def design_of(A: Operator, other: NDArray[Any], side: int, n_threads: int) -> Design:
    """Make the design of one side given the other factor, held if it is small enough."""
    streamed = _Streamed(A, other, side, n_threads)
    if not holds_design(*streamed.shape, streamed.dtype):
        return streamed
    return _Held(A.design(other, side, n_jobs=n_threads))


def holds_design(p: int, size: int, dtype: np.dtype[Any]) -> bool:
    """Tell whether D, of p measurements and `size` unknowns, is held."""
    return p * size * dtype.itemsize <= DESIGN_BYTES


def holds_gram(size: int, dtype: np.dtype[Any]) -> bool:
    """Tell whether H, of `size` unknowns, is held."""
    return size**2 * dtype.itemsize <= GRAM_BYTES


def solve_regression(
    design: Design,
    b: Vector,
    v: Vector,
    start: Vector,
    omega: float,
    ridge: float,
    precondition: NDArray[np.float64],
    n_threads: int,
) -> HalfSweep:
    """Minimise f from `start`; the factor found is flat, as that is. Limit BLAS to one thread.

    Parameters
    ----------
    b, v
        Measurements and their weights.
    ridge
        λ.
    precondition
        k × k matrix Q: H is about a multiple of I ⊗ Q where the operator is near an isometry.
    """
    eps = float(np.finfo(design.dtype).eps)
    x = start.copy()
    r, f, w = _state(design, b, v, x, omega, ridge)
    if not np.isfinite(f):
        raise overflow_error(design.dtype)
    g = design.adjoint(w * r) - ridge * x
    gradient = 2 * norm(g)
    # The rounding of f follows the size of what the residuals are differences of.
    noise = 256 * eps**2 * (float(v @ b**2) + float(v @ (b - r) ** 2) + f)
    newton: _Gram | _Krylov
    if holds_gram(design.shape[1], design.dtype):
        newton = _Gram(design, w, ridge, n_threads)
    else:
        newton = _Krylov(design, w, ridge, precondition)
    iterations = flips = searches = 0
    projected = False
    for _ in range(MAX_NEWTON):
        p, kept = newton.direction(g)
        if isinstance(newton, _Gram) and kept == 0 and not projected:
            # The measurements do not determine x: take that of minimum norm. f stays what it was.
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
        step, trial = 1.0, _objective(r - s, v, omega) + ridge * float(np.sum((x + p) ** 2))
        if not trial <= bound_of_f(f, predicted, rounding, full=True):  # nor where it overflowed
            searches += 1
            step = _line_search(r, s, v, omega, ridge * float(x @ p), ridge * float(p @ p))
            moved = x + step * p
            trial = _objective(r - step * s, v, omega) + ridge * float(moved @ moved)
        iterations += 1
        if not trial <= bound_of_f(f, predicted, rounding, full=False):  # x is as good as it gets
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
    squares = v * r**2
    above = float(np.sum(squares[r >= 0]))
    below = float(np.sum(squares[r < 0]))
    return HalfSweep(x, above, below, gradient, iterations, flips, searches)


def gram_matrix(design: Design, weights: Vector, n_threads: int) -> NDArray[Any]:
    """Form the upper triangle of Dᵀ diag(weights) D, weights >= 0, in blocks of measurements."""
    size = design.shape[1]
    gram = np.zeros((size, size), design.dtype)
    _add_products(gram, design, np.arange(weights.size), np.sqrt(weights), 1, n_threads)
    return gram


def _add_products(
    gram: NDArray[Any],
    design: Design,
    which: NDArray[np.int64],
    scales: Vector,
    sign: int,
    n_threads: int,
) -> None:
    """Add ± Σ scales² d dᵀ over some rows d of D to the panels on and above the diagonal.

    Blocks and panels have fixed sizes and a panel adds its blocks in order, so the
    sums do not depend on the threads.
    """
    size = gram.shape[0]
    cuts = [*range(0, size, PANEL), size]
    panels = [slice(first, last) for first, last in pairwise(cuts)]
    tasks = [(a, b) for i, a in enumerate(panels) for b in panels[i:]]

    def add(rows: NDArray[Any], task: tuple[slice, slice]) -> None:
        a, b = task
        product = rows[:, a].T @ rows[:, b]
        (np.add if sign > 0 else np.subtract)(gram[a, b], product, out=gram[a, b])

    with ThreadPoolExecutor(n_threads) as pool:  # starts no thread before it is given a task
        for some in _blocks(which, size * gram.itemsize):
            rows = design.rows(which[some])
            rows *= scales[some, None].astype(rows.dtype)
            worth_it = n_threads > 1 and rows.size * size > WORK_PER_THREAD
            share = pool.map if worth_it else map
            list(share(partial(add, rows), tasks))


def _blocks(which: NDArray[np.int64], row_bytes: int) -> Iterator[slice]:
    length = max(1, BLOCK_BYTES // row_bytes)
    for first in range(0, which.size, length):
        yield slice(first, min(first + length, which.size))


class _Gram:
    """H held densely: exact Newton steps by Cholesky, or by eigenvectors where H is singular."""

    def __init__(self, design: Design, w: Vector, ridge: float, n_threads: int) -> None:
        self._design, self._ridge, self._n_threads = design, ridge, n_threads
        self._gram = gram_matrix(design, w, n_threads)
        self._factor()

    def update(self, before: Vector, after: Vector) -> None:
        """Correct H by the measurements whose weight changed."""
        change = after - before
        flipped = np.flatnonzero(change)
        if flipped.size == 0:
            return
        if 2 * flipped.size > change.size:  # past that a fresh H is cheaper
            self._gram = gram_matrix(self._design, after, self._n_threads)
        else:
            for sign in (1, -1):
                some = flipped[sign * change[flipped] > 0]
                scales = np.sqrt(np.abs(change[some]))
                _add_products(self._gram, self._design, some, scales, sign, self._n_threads)
        self._factor()

    def direction(self, g: Vector) -> tuple[Vector, float]:
        """Solve for the Newton step; also return the smallest share of its diagonal a pivot kept.

        That share is 0 where H is singular.
        """
        if self._cholesky is not None:
            right = g.astype(self._gram.dtype)
            p = scipy.linalg.cho_solve((self._cholesky, True), right, check_finite=False)
            return np.asarray(p, np.float64), self._kept
        return self._vectors @ ((self._vectors.T @ g) / self._values), 0.0

    def project(self, x: Vector) -> Vector:
        """Project x onto what the measurements see."""
        seen: Vector = self._vectors @ (self._vectors.T @ x)
        return seen

    def _factor(self) -> None:
        H = self._shifted()
        p, size = self._design.shape
        before = np.diagonal(H).astype(np.float64)
        # The floor follows the largest diagonal: a factor column at rounding level counts as none.
        floor = 64 * size * float(np.finfo(H.dtype).eps) * float(before.max())
        # With fewer measurements than unknowns H is singular unless the ridge prevents it, and
        # rounding must not decide that.
        short = p < size and self._ridge <= floor
        # H.T has Fortran's order, so that LAPACK copies nothing; its lower triangle is ours.
        L, failed = scipy.linalg.get_lapack_funcs("potrf", (H,))(H.T, lower=1, overwrite_a=1)
        pivots = np.diagonal(L).astype(np.float64) ** 2
        if not (short or failed) and pivots.min() > floor:
            self._cholesky, self._kept = L, float(np.min(pivots / before))
            return
        self._cholesky = None
        H = self._shifted()
        if not np.isfinite(H).all():
            raise overflow_error(H.dtype)
        values, vectors = scipy.linalg.eigh(H.T, lower=True, check_finite=False)
        seen = values > floor
        seen[: size - p if short else 0] = False  # eigenvalues ascend
        self._values = values[seen].astype(np.float64)
        self._vectors = vectors[:, seen].astype(np.float64)

    def _shifted(self) -> NDArray[Any]:
        H = self._gram.copy()
        np.einsum("ii->i", H)[:] += H.dtype.type(self._ridge)
        return H


class _Krylov:
    """H only through products with it: Newton steps by preconditioned conjugate gradients.

    Started from zero, every iterate p has g·p > 0, so an early end costs digits of
    the step and never the descent.
    """

    def __init__(
        self, design: Design, w: Vector, ridge: float, precondition: NDArray[np.float64]
    ) -> None:
        self._design, self._ridge, self._w = design, ridge, w
        values, self._vectors = np.linalg.eigh(precondition)
        self._values = np.maximum(values, 1e-10 * max(float(values[-1]), 1e-300))
        self._gain = 0.0

    def update(self, before: Vector, after: Vector) -> None:
        """Take the new weights."""
        self._w = after

    def direction(self, g: Vector) -> tuple[Vector, float]:
        """Approach the Newton step to a relative accuracy of `CG_TOLERANCE`, without pivots."""
        floor = 64 * g.size * float(np.finfo(self._design.dtype).eps)
        if self._gain == 0.0:  # H ≈ gain · I ⊗ Q + λ I, matched along g
            self._gain = 1.0
            spread = self._expected(g) - self._ridge * float(g @ g)
            curved = float(self._w @ self._design.times(g) ** 2)
            self._gain = curved / spread if spread > 0 and curved > 0 else 1.0
        p, residual = np.zeros_like(g), g.copy()
        z = self._preconditioned(residual)
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
            # Where H is singular to rounding, what is left of g is rounding too.
            if not curvature > floor * self._expected(direction):
                break
            step = size / curvature
            p = p + step * direction
            residual = residual - step * image
            z = self._preconditioned(residual)
            size, before = float(residual @ z), size
            direction = z + (size / before) * direction
        return p, CG_TOLERANCE**2

    def _expected(self, x: Vector) -> float:
        """Estimate x · H x by the preconditioner."""
        turned = x.reshape(-1, self._values.size) @ self._vectors
        return float(np.sum(turned**2 * (self._gain * self._values + self._ridge)))

    def _preconditioned(self, g: Vector) -> Vector:
        turned = g.reshape(-1, self._values.size) @ self._vectors
        done = (turned / (self._gain * self._values + self._ridge)) @ self._vectors.T
        return np.asarray(done).ravel()


def overflow_error(dtype: np.dtype[Any]) -> FloatingPointError:
    """Make the error to raise where sums are not finite."""
    return FloatingPointError(
        f"the normal equations of a half step are not finite in {dtype}: the measurements or the "
        "factors are too large; rescale A or b, use float64, or raise reg"
    )


def _objective(r: Vector, v: Vector, omega: float) -> float:
    return float(np.sum(v * sign_weights(r, omega) * r**2))


def _state(
    design: Design, b: Vector, v: Vector, x: Vector, omega: float, ridge: float
) -> tuple[Vector, float, Vector]:
    """Compute residuals, f and weights at x."""
    r = b - design.times(x)
    return r, _objective(r, v, omega) + ridge * float(x @ x), v * sign_weights(r, omega)


def _line_search(
    r: Vector, s: Vector, v: Vector, omega: float, ridge_xp: float, ridge_pp: float
) -> float:
    """Find the t > 0 that minimises Σ v w(r − t s) (r − t s)² + λ ‖x + t p‖².

    Half the negative derivative is a − t h between the breakpoints t = r / s, and
    falls; crossing one changes a by Δw s r and h by Δw s².
    """
    below = (r < 0) | ((r == 0) & (s > 0))  # just after 0
    w = v * np.where(below, 1 - omega, omega)
    crossing = np.flatnonzero(r * s > 0)
    at = r[crossing] / s[crossing]
    order = np.argsort(at, kind="stable")
    crossing, at = crossing[order], at[order]
    change = v[crossing] * np.where(r[crossing] > 0, 1 - 2 * omega, 2 * omega - 1)
    a = np.cumsum(np.concatenate([[w @ (s * r) - ridge_xp], change * s[crossing] * r[crossing]]))
    h = np.cumsum(np.concatenate([[w @ s**2 + ridge_pp], change * s[crossing] ** 2]))
    piece = int(np.argmax(np.append(a[:-1] - at * h[:-1] <= 0, True)))
    return float(a[piece] / h[piece]) if h[piece] > 0 else 1.0
