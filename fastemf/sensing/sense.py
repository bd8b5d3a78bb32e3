"""`sense`: a low-rank ω-expectile fit to linear measurements of a matrix, in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf.completion import complete
from fastemf.kernels.threads import count_threads, single_threaded_blas
from fastemf.model.factorization import Factorization
from fastemf.operators import Entries, Operator, as_operator
from fastemf.sensing.regression import design_of, overflow_error, solve_regression
from fastemf.sensing.start import measured_factors
from fastemf.solver.axis import Axis
from fastemf.solver.fitting import alternate
from fastemf.solver.records import HalfSweep, Ridge, SweepRecord
from fastemf.solver.ridge import AnnealedRidge, FixedRidge, RidgeSchedule
from fastemf.solver.start import EarlierModel
from fastemf.support.validation import (
    check_dtype,
    check_flag,
    check_integer,
    check_level,
    check_number,
    check_rank,
    check_rng,
)
from fastemf.support.warn import warn

__all__ = ["sense"]


def sense(
    A: Any,
    b: ArrayLike,
    omega: float,
    k: int,
    *,
    shape: tuple[int, int] | None = None,
    weights: ArrayLike | None = None,
    reg: Any = 0.0,
    init: Any = "spectral",
    tol: float = 1e-5,
    max_iter: int = 100,
    momentum: bool = True,
    anneal: bool = True,
    orthogonalize: bool = False,
    random_state: Any = 0,
    n_jobs: int | None = -1,
    callback: Callable[[SweepRecord], Any] | None = None,
    progress: bool = False,
) -> Factorization:
    """Recover a low-rank matrix from linear measurements under the expectile loss.

    Minimises ``Σ v |ω − 1(r < 0)| r² + λ (‖X‖² + ‖Y‖²)`` over ``M̂ = X Yᵀ``, where
    r_i = b_i − <A_i, M̂>, by alternating exact solves.

    Parameters
    ----------
    A
        The measurements: an operator of `fastemf.operators`, an array (p, m, n), a
        scipy sparse matrix or `LinearOperator` of shape (p, m·n) whose rows are the
        A_i row by row, or anything with the methods of `fastemf.operators.Operator`.
    b
        The p measured values. Computed in float32 where both A and b are, else in
        float64.
    omega
        Expectile level in (0, 1), as in `fastemf.complete`.
    k
        Rank, from 1 to min(m, n).
    shape
        (m, n), for a sparse matrix or a `LinearOperator`.
    weights
        Positive weight of each measurement; weight two is the measurement twice.
    reg
        Plain ridge λ. 0, the default, is the paper's problem.
    init
        ``"spectral"`` (SVD of Σ b_i A_i), ``"random"``, a pair (X, Y), or an earlier
        `Factorization`.
    tol, max_iter, momentum, anneal, orthogonalize
        As in `fastemf.complete`; ``orthogonalize`` needs ``reg=0``.
    random_state
        Seed or numpy Generator for the start. Same seed, same bits, for any n_jobs.
    n_jobs, callback, progress
        As in `fastemf.complete`.

    Returns
    -------
    Factorization
        With ``reg_scaling="plain"`` and no intercepts: both are about the entries of
        rows and columns, which a general map does not have. ``fit.measure(A)`` gives
        the fitted measurements.

    Warns
    -----
    ConvergenceWarning
        When `max_iter` sweeps did not reach `tol`.
    UserWarning
        When there are fewer measurements than degrees of freedom k (m + n − k).

    Notes
    -----
    The paper proves recovery for maps with the restricted isometry property, of which
    `fastemf.operators.Gaussian` and `Rademacher` are examples;
    `fastemf.measurements_needed` says how many measurements that takes, and how many
    suffice in practice. A half step solves m·k or n·k equations at once: by Cholesky's
    decomposition up to 5792 of them in float64 (256 MiB), beyond that by conjugate gradients,
    to the same minimum. Of `fastemf.operators.Entries` this is `fastemf.complete` with
    a plain ridge, and nothing is proved.

    Examples
    --------
    >>> import numpy as np, fastemf
    >>> M = np.outer(np.arange(1.0, 6.0), np.ones(4))
    >>> A = fastemf.operators.Gaussian(40, M.shape, seed=0)
    >>> b = A.forward(M, np.eye(4))
    >>> fit = fastemf.sense(A, b, omega=0.1, k=1)
    >>> bool(np.allclose(fit.to_dense(), M))
    True
    """
    omega = check_level(omega)
    if isinstance(reg, str):
        raise ValueError(
            "reg must be a number >= 0 for linear measurements: a ridge that follows rows' counts "
            f"has no meaning for a general map, got {reg!r}"
        )
    reg = check_number(reg, "reg")
    momentum = check_flag(momentum, "momentum")
    anneal = check_flag(anneal, "anneal")
    if check_flag(orthogonalize, "orthogonalize"):
        if reg != 0:
            raise ValueError(f"orthogonalize=True needs reg=0, got reg={reg!r}")
        momentum = anneal = False
    tol = check_number(tol, "tol")
    max_iter = check_integer(max_iter, "max_iter", minimum=1)
    rng = check_rng(random_state)
    n_threads = count_threads(n_jobs)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {callback!r}")
    check_flag(progress, "progress")

    A = as_operator(A, shape)
    p, m, n = A.shape
    k = check_rank(k, (m, n))
    b = _check_measurements(b, p)
    dtype = np.dtype(np.float32) if A.dtype == b.dtype == np.float32 else np.dtype(np.float64)
    _warn_if_undetermined(p, m, n, k)
    if isinstance(A, Entries):
        return complete(
            (A.rows, A.cols, b), omega, k, shape=(m, n), weights=weights, reg=reg,
            reg_scaling="plain", init=init, tol=tol, max_iter=max_iter, momentum=momentum,
            anneal=anneal, orthogonalize=orthogonalize, random_state=rng, n_jobs=n_jobs,
            callback=callback, progress=progress,
        )  # fmt: skip

    engine = SensingEngine(A, b, omega, weights=weights, dtype=dtype, n_threads=n_threads)
    if isinstance(init, Factorization):
        init = EarlierModel(init.axes, init.mu)
    X, Y = measured_factors(init, A, engine.b, engine.weights, k, dtype, rng, n_threads)
    schedule: RidgeSchedule
    if reg == 0 and anneal:
        schedule = AnnealedRidge(omega, k, engine.gain(X, Y) * float(m * n) ** 0.5)
    else:
        schedule = FixedRidge(reg, omega)

    end = alternate(
        engine, lambda: (X, Y), schedule, tol=tol, max_iter=max_iter, momentum=momentum,
        orthogonalize=orthogonalize, callback=callback, progress=progress,
    )  # fmt: skip
    return Factorization(
        rows=Axis(end.X),
        cols=Axis(end.Y),
        omega=omega,
        mu=0.0,
        reg=end.ridge.factors,
        reg_scaling="plain",
        intercept_reg=0.0,
        scale=engine.scale,
        converged=end.converged,
        history=end.history,
    )


class SensingEngine:
    """Half steps over linear measurements: the alternation's engine."""

    def __init__(
        self,
        A: Operator,
        b: NDArray[Any],
        omega: float,
        *,
        weights: ArrayLike | None,
        dtype: np.dtype[Any],
        n_threads: int,
    ) -> None:
        self.omega = omega
        self.b = b.astype(np.float64)
        self.weights = np.ones(b.size) if weights is None else _check_weights(weights, b.size)
        self.mass = float(self.weights.sum())
        self.scale = float(np.sqrt(self.weights @ self.b**2 / self.mass))
        self.rounding = 16 * float(np.finfo(dtype).eps) * self.scale
        self._A = A
        self._n_threads = n_threads

    def gain(self, X: NDArray[Any], Y: NDArray[Any]) -> float:
        """Σ v <A_i, X Yᵀ>² over ‖X Yᵀ‖²: 1 for an isometry."""
        measured = self._measure(X, Y)
        size = float(np.sum((X.T @ X).astype(np.float64) * (Y.T @ Y)))
        return float(self.weights @ measured**2) / size if size > 0 else 1.0

    def solve(self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge) -> HalfSweep:
        """Best X (axis 0) or Y (axis 1) given the other factor."""
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            wide = other.astype(np.float64)
            end = solve_regression(
                design_of(self._A, other, axis, self._n_threads),
                self.b,
                self.weights,
                this.astype(np.float64).ravel(),
                self.omega,
                ridge.factors,
                wide.T @ wide,
                self._n_threads,
            )
        return replace(
            end,
            factor=end.factor.reshape(this.shape).astype(this.dtype),
            inner_iterations=end.inner_iterations * this.shape[0],  # every row took part in each
        )

    def evaluate(self, X: NDArray[Any], Y: NDArray[Any]) -> HalfSweep:
        """Loss at (X, Y), moving nothing."""
        with np.errstate(over="ignore", invalid="ignore"):
            r = self.b - self._measure(X, Y)
            squares = self.weights * r**2
        if not np.isfinite(squares.sum()):
            raise overflow_error(X.dtype)
        above, below = float(squares[r >= 0].sum()), float(squares[r < 0].sum())
        return HalfSweep(X, above, below, 0.0, 0, 0, 0)

    def penalty(self, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge) -> float:
        """λ (‖X‖² + ‖Y‖²)."""
        squares = (float(np.sum(np.square(factor, dtype=np.float64))) for factor in (X, Y))
        return ridge.factors * sum(squares)

    def orthonormal(self, factor: NDArray[Any]) -> NDArray[Any]:
        """Q of the factor's QR decomposition."""
        with single_threaded_blas():
            return np.linalg.qr(factor)[0]

    def _measure(self, X: NDArray[Any], Y: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(self._A.forward(X, Y, n_jobs=self._n_threads), np.float64)


def _check_measurements(b: Any, p: int) -> NDArray[Any]:
    array = np.asarray(b)
    dtype = check_dtype(array.dtype, "b")
    if array.shape != (p,):
        raise ValueError(f"b must have one value per measurement, shape ({p},), got {array.shape}")
    finite = np.isfinite(array)
    if not finite.all():
        first = int(np.argmin(finite))
        raise ValueError(f"b must be finite, got {array[first]} at position {first}")
    size = np.abs(array.astype(dtype, copy=False))
    first, limits = int(np.argmax(size)), np.finfo(dtype)
    if size[first] > 0 and not np.sqrt(limits.tiny) < size[first] < np.sqrt(limits.max):
        raise ValueError(
            f"b is too {'large' if size[first] > 1 else 'small'} for {dtype}: the squares of its "
            f"values must neither overflow nor vanish, and the largest is {array[first]} at "
            f"position {first}; rescale b" + (" or pass float64" if dtype == np.float32 else "")
        )
    return array.astype(dtype)


def _check_weights(weights: Any, p: int) -> NDArray[np.float64]:
    array = np.asarray(weights)
    check_dtype(array.dtype, "weights")
    if array.shape != (p,):
        raise ValueError(
            f"weights must have one value per measurement, shape ({p},), got {array.shape}"
        )
    right = np.isfinite(array) & (array > 0)
    if not right.all():
        first = int(np.argmin(right))
        raise ValueError(
            f"weights must be finite and positive, got {array[first]} at position {first}"
        )
    return array.astype(np.float64)


def _warn_if_undetermined(p: int, m: int, n: int, k: int) -> None:
    dof = k * (m + n - k)
    if p < dof:
        warn(
            f"{p} measurements are fewer than the k (m + n - k) = {dof} degrees of freedom of a "
            f"{m} x {n} matrix of rank {k}: they do not determine it; two to three times "
            "as many as those usually do"
        )
