"""`sense`: low-rank matrices from linear measurements under the expectile loss."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastemf.fitting import fit_data
from fastemf.inputs.value_check import check_size, check_totals
from fastemf.kernels.threads import single_threaded_blas
from fastemf.loss import split_squares
from fastemf.models.entities import Entities
from fastemf.models.factorization import Factorization
from fastemf.operators import Entries, Operator
from fastemf.operators.conversion import as_operator
from fastemf.sensing.cost import check_cost
from fastemf.sensing.regression import design_of, overflow_error, solve_regression
from fastemf.sensing.start import measured_factors
from fastemf.solver.alternation import alternate
from fastemf.solver.checkpoint import open_checkpoint
from fastemf.solver.records import HalfSweep, Ridge, SweepRecord
from fastemf.solver.settings import Checkpoint, Settings, Solver, as_checkpoint, as_solver
from fastemf.sources.open_source import Data, open_source
from fastemf.support.arrays import Array, Floats, Mask
from fastemf.support.validation import check_dtype, check_integer, check_rank
from fastemf.support.warn import warn

NO_NAMES = (None, None, None)  # names of columns, for data frames only


def sense(
    A: Any,
    b: ArrayLike,
    omega: float,
    k: int,
    *,
    weights: ArrayLike | None = None,
    shape: tuple[int, int] | None = None,
    reg: Any = 0.0,
    init: Any = "spectral",
    tol: float = 1e-5,
    max_iter: int = 100,
    solver: str | Solver = "auto",
    random_state: Any = 0,
    n_jobs: int | None = -1,
    callback: Callable[[SweepRecord], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
) -> Factorization:
    """Recover a low-rank matrix from linear measurements under the expectile loss.

    Minimizes ``Σ v |ω − 1(r < 0)| r² + λ (‖X‖² + ‖Y‖²)`` over ``M̂ = X Yᵀ``, where
    r_i = b_i − <A_i, M̂>, by alternating exact solves.

    Parameters
    ----------
    A
        The measurements: an operator of `fastemf.operators`, an array of shape (p, m, n), a scipy
        sparse matrix or `LinearOperator` of shape (p, m·n) whose rows are the flattened A_i, or any
        object with the methods of `fastemf.operators.Operator`.
    b
        The p measured values. The fit is computed in float32 if both A and b are float32, else in
        float64.
    omega
        Expectile level in (0, 1), as in `fastemf.complete`.
    k
        Rank, from 1 to min(m, n).
    weights
        Positive weights of the measurements; a weight of 2 is equivalent to repeating the
        measurement.
    shape
        (m, n), for a sparse matrix or a `LinearOperator`.
    reg
        Plain ridge λ; 0, the default, is the paper's problem.
    init
        ``"spectral"`` (SVD of Σ b_i A_i), ``"random"``, a pair (X, Y), or an earlier
        `Factorization`.
    tol, max_iter
        As in `fastemf.complete`.
    solver
        A `fastemf.Solver` with expert settings. Its ``method`` must be ``"auto"``, and its
        ``reg_scaling`` is ignored: the ridge is plain.
    random_state
        Seed or numpy Generator for the start. The same seed gives bitwise identical results,
        for any n_jobs.
    n_jobs, callback, progress, checkpoint
        As in `fastemf.complete`.

    Returns
    -------
    Factorization
        The fitted model, with ``reg_scaling="plain"`` and no intercepts, because general linear
        measurements do not belong to rows and columns. ``fit.measure(A)`` returns the fitted
        measurements.

    Raises
    ------
    fastemf.CheckpointError, FileExistsError
        As in `fastemf.complete`.
    MemoryError
        The fit needs more memory than is available; the message states how much.
    ValueError, FloatingPointError
        A parameter is invalid, or squares of the measurements overflow or underflow, so that A or
        b must be rescaled.

    Warns
    -----
    ConvergenceWarning
        `max_iter` sweeps did not reach `tol`, or a sweep increased the objective by rounding.
    UserWarning
        There are fewer measurements than degrees of freedom, k (m + n − k), or one sweep is
        estimated to take more than ten minutes (see `fastemf.sensing.cost`).

    Notes
    -----
    The paper proves recovery for operators with the restricted isometry property, such as
    `fastemf.operators.Gaussian` and `Rademacher`. `fastemf.measurements_needed` estimates the
    number of measurements that the theory requires, and the number that suffices in practice. A
    half step solves m·k or n·k equations at once: by a Cholesky decomposition for up to 5792
    unknowns in float64 (256 MiB), and by conjugate gradients for more, to the same minimum. With
    `fastemf.operators.Entries` the fit equals `fastemf.complete` with a plain ridge, and the
    theory does not apply.

    The other parameters of `fastemf.complete` apply to entries of a matrix only: names of columns,
    ``reg="auto"``, `intercepts`, `client` and `validation`.

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
    if isinstance(reg, str):
        raise ValueError(
            "reg must be a number >= 0 for linear measurements, which have no counts of rows and "
            f"columns, got {reg!r}"
        )
    check_integer(k, "k", minimum=1)  # 0 would need intercepts
    settings = Settings(
        omega=omega, k=k, reg=reg, init=init, tol=tol, max_iter=max_iter,
        solver=_check_solver(solver), random_state=random_state, n_jobs=n_jobs, callback=callback,
        progress=progress, checkpoint=as_checkpoint(checkpoint),
    )  # fmt: skip
    rng = settings.generator()
    n_threads = settings.n_threads

    A = as_operator(A, shape)
    p, m, n = A.shape
    k = check_rank(k, (m, n))
    b = _check_measurements(b, p)
    dtype = np.dtype(np.float32) if A.dtype == b.dtype == np.float32 else np.dtype(np.float64)
    _warn_if_undetermined(p, m, n, k)
    if isinstance(A, Entries):
        with open_source((A.rows, A.cols, b), weights, (m, n), NO_NAMES, None, n_jobs) as source:
            return fit_data(Data(source), settings, rng).model

    check_cost(A, k, dtype, n_threads)
    engine = SensingEngine(A, b, settings.omega, weights=weights, dtype=dtype, n_threads=n_threads)
    X, Y = measured_factors(init, A, engine.b, engine.weights, k, dtype, rng, n_threads)
    count = engine.gain(X, Y) * float(m * n) ** 0.5 if settings.anneals else 1.0
    schedule = settings.numbered_ridge(count)
    kept = open_checkpoint(settings, lambda: [engine.digest()])
    end = alternate(engine, lambda _: (X, Y), schedule, settings, checkpoint=kept)
    return Factorization(
        rows=Entities(end.X),
        cols=Entities(end.Y),
        omega=settings.omega,
        mu=0.0,
        reg=end.ridge.factors,
        reg_scaling="plain",
        intercept_reg=0.0,
        scale=engine.size,
        converged=end.converged,
        history=end.history,
    )


class SensingEngine:
    """Engine of the alternation for linear measurements."""

    def __init__(
        self,
        A: Operator,
        b: Array,
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
        with np.errstate(over="ignore"):
            self.size = float(np.sqrt(self.weights @ self.b**2 / self.mass))
        if self.b.any():
            check_totals("b", self.size, self.mass, self.mass, dtype)
        # An operator computes in its own type, whatever the type of the measurements.
        self.eps = max(float(np.finfo(kind).eps) for kind in (A.dtype, dtype))
        self.rounding = 16 * self.eps * self.size
        self.shape = A.shape[1:]
        self.dtype = dtype
        self._A = A
        self._n_threads = n_threads

    def gain(self, X: Array, Y: Array) -> float:
        """Compute Σ v <A_i, X Yᵀ>² / ‖X Yᵀ‖², which is 1 for an isometry."""
        measured = self._measure(X, Y)
        size = float(np.sum((X.T @ X).astype(np.float64) * (Y.T @ Y)))
        return float(self.weights @ measured**2) / size if size > 0 else 1.0

    def solve(self, axis: int, this: Array, other: Array, ridge: Ridge) -> HalfSweep:
        """Solve for X (axis 0) or Y (axis 1) given the other factor."""
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            start, wide = this.astype(np.float64).ravel(), other.astype(np.float64)
            gram, n_threads = wide.T @ wide, self._n_threads
            design = design_of(self._A, other, axis, n_threads)
            end = solve_regression(
                design, self.b, self.weights, start, self.omega, ridge.factors, gram, n_threads
            )
        return replace(
            end,
            factor=end.factor.reshape(this.shape).astype(this.dtype),
            inner_iterations=end.inner_iterations * this.shape[0],  # all rows take part in each
        )

    def evaluate(self, X: Array, Y: Array) -> HalfSweep:
        """Compute the loss at (X, Y)."""
        with np.errstate(over="ignore", invalid="ignore"):
            above, below = split_squares(self.b - self._measure(X, Y), self.weights)
        if not np.isfinite(above + below):
            raise overflow_error(X.dtype)
        return HalfSweep(X, above, below, 0.0, 0, 0, 0)

    def penalty(self, X: Array, Y: Array, ridge: Ridge) -> float:
        """Compute λ (‖X‖² + ‖Y‖²)."""
        squares = (float(np.sum(np.square(factor, dtype=np.float64))) for factor in (X, Y))
        return ridge.factors * sum(squares)

    def digest(self) -> str:
        """Hash the measurements, and the operator through its measurements of random factors."""
        _, m, n = self._A.shape
        rng = np.random.default_rng(0)
        measured = self._measure(rng.standard_normal((m, 1)), rng.standard_normal((n, 1)))
        about = repr((self._A.shape, self.dtype.str)).encode()
        found = hashlib.blake2b(about, digest_size=16)
        for part in (self.b, self.weights, measured):
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

    def _measure(self, X: Array, Y: Array) -> Floats:
        return np.asarray(self._A.forward(X, Y, n_jobs=self._n_threads), np.float64)


def _check_solver(solver: str | Solver) -> Solver:
    solver = as_solver(solver)
    if solver.method != "auto":
        raise ValueError(
            "solver must have method='auto' for linear measurements, which have no rows to solve "
            f"one by one, got method={solver.method!r}"
        )
    return replace(solver, reg_scaling="plain")


def _check_vector(values: Any, name: str, p: int) -> Array:
    """Return a finite vector with one value per measurement."""
    array = np.asarray(values)
    check_dtype(array.dtype, name)
    if array.shape != (p,):
        raise ValueError(
            f"{name} must have one value per measurement, shape ({p},), got {array.shape}"
        )
    _check_all(np.isfinite(array), array, f"{name} must be finite")
    return array


def _check_all(is_right: Mask, array: Array, rule: str) -> None:
    if not is_right.all():
        first = int(np.argmin(is_right))
        raise ValueError(f"{rule}, got {array[first]} at position {first}")


def _check_measurements(b: Any, p: int) -> Array:
    array = _check_vector(b, "b", p)
    dtype = check_dtype(array.dtype, "b")
    size = np.abs(array.astype(dtype, copy=False))
    first = int(np.argmax(size))
    check_size("b", float(size[first]), f"{array[first]} at position {first}", dtype)
    return array.astype(dtype)


def _check_weights(weights: Any, p: int) -> Floats:
    array = _check_vector(weights, "weights", p)
    _check_all(array > 0, array, "weights must be positive")
    return array.astype(np.float64)


def _warn_if_undetermined(p: int, m: int, n: int, k: int) -> None:
    dof = k * (m + n - k)
    if p < dof:
        warn(
            f"{p} measurements are fewer than the k (m + n - k) = {dof} degrees of freedom of a "
            f"{m} x {n} matrix of rank {k} and do not determine it; two to three times as many as "
            "the degrees of freedom usually suffice"
        )
