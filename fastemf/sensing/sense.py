"""`sense`, which fits a low-rank matrix to linear measurements under the expectile loss."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf import completion
from fastemf.inputs.value_check import check_size, check_totals
from fastemf.kernels.threads import single_threaded_blas
from fastemf.model.factorization import Factorization
from fastemf.operators import Entries, Operator
from fastemf.operators.conversion import as_operator
from fastemf.sensing.cost import check_cost
from fastemf.sensing.regression import design_of, overflow_error, solve_regression
from fastemf.sensing.start import measured_factors
from fastemf.solver.axis import Axis
from fastemf.solver.checkpoint import checkpoint_of
from fastemf.solver.fitting import alternate
from fastemf.solver.opening import Data, open_source
from fastemf.solver.records import HalfSweep, Ridge, SweepRecord
from fastemf.solver.settings import Settings
from fastemf.solver.start import EarlierModel
from fastemf.support.validation import check_dtype, check_integer, check_rank
from fastemf.support.warn import warn

__all__ = ["sense"]

NO_NAMES = (None, None, None)  # measurements are not a table with columns


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
    momentum: bool = True,
    anneal: bool = True,
    orthogonalize: bool = False,
    random_state: Any = 0,
    n_jobs: int | None = -1,
    callback: Callable[[SweepRecord], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
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
        The p measured values. The fit is computed in float32 where both A and b are, else in
        float64.
    omega
        Expectile level in (0, 1), as in `fastemf.complete`.
    k
        Rank, from 1 to min(m, n).
    weights
        Positive weight of each measurement; weight two is the measurement twice.
    shape
        (m, n), for a sparse matrix or a `LinearOperator`.
    reg
        Plain ridge λ; 0, the default, is the paper's problem.
    init
        ``"spectral"`` (SVD of Σ b_i A_i), ``"random"``, a pair (X, Y), or an earlier
        `Factorization`.
    tol, max_iter, momentum, anneal, orthogonalize
        As in `fastemf.complete`; ``orthogonalize`` needs ``reg=0``.
    random_state
        Seed or numpy Generator for the start. The same seed gives bitwise identical results,
        for any n_jobs.
    n_jobs, callback, progress, checkpoint, checkpoint_every, resume
        As in `fastemf.complete`.

    Returns
    -------
    Factorization
        It has ``reg_scaling="plain"`` and no intercepts: both are about the entries of
        rows and columns, which a general map does not have. ``fit.measure(A)`` gives
        the fitted measurements.

    Raises
    ------
    fastemf.CheckpointError, FileExistsError
        As in `fastemf.complete`.
    MemoryError
        The fit would take more memory than there is; the message says how much.
    ValueError, FloatingPointError
        Beside what is wrong with a parameter: squares of what A measures overflow or vanish, and
        A or b must be rescaled.

    Warns
    -----
    ConvergenceWarning
        When `max_iter` sweeps did not reach `tol`, or rounding made a sweep raise the objective.
    UserWarning
        When there are fewer measurements than degrees of freedom k (m + n − k), and when one
        sweep is estimated to take more than ten minutes (2.5e8 normal numbers are drawn a second
        and thread; `fastemf.sensing.cost` has the rule).

    Notes
    -----
    The paper proves recovery for maps with the restricted isometry property, of which
    `fastemf.operators.Gaussian` and `Rademacher` are examples;
    `fastemf.measurements_needed` says how many measurements that takes, and how many
    suffice in practice. A half step solves m·k or n·k equations at once: by Cholesky's
    decomposition up to 5792 of them in float64 (256 MiB), beyond that by conjugate gradients,
    to the same minimum. With `fastemf.operators.Entries` this is `fastemf.complete` with
    a plain ridge, and nothing is proved.

    What `fastemf.complete` takes beside these is about entries: names of columns, counts of rows
    and columns (``reg="auto"``, `reg_scaling`), `intercepts`, the `solver` of a row, and a
    `client` with blocks of rows. Nor is there `validation`: a map measures all at once, and none
    of it can be held out.

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
            "reg must be a number >= 0 for linear measurements: a ridge that follows rows' counts "
            f"has no meaning for a general map, got {reg!r}"
        )
    check_integer(k, "k", minimum=1)  # a map has no intercepts that could be a model alone
    settings = Settings(
        omega=omega, k=k, reg=reg, reg_scaling="plain", init=init, tol=tol, max_iter=max_iter,
        momentum=momentum, anneal=anneal, orthogonalize=orthogonalize,
        random_state=random_state, n_jobs=n_jobs, callback=callback, progress=progress,
        checkpoint=checkpoint, checkpoint_every=checkpoint_every, resume=resume,
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
            return completion.fit(Data(source), settings, rng)

    check_cost(A, k, dtype, n_threads)
    engine = SensingEngine(A, b, settings.omega, weights=weights, dtype=dtype, n_threads=n_threads)
    if isinstance(init, Factorization):
        init = EarlierModel(init.axes, init.mu)
    X, Y = measured_factors(init, A, engine.b, engine.weights, k, dtype, rng, n_threads)
    count = engine.gain(X, Y) * float(m * n) ** 0.5 if settings.anneals else 1.0
    schedule = settings.numbered_ridge(count)
    kept = checkpoint_of(settings, lambda: [engine.digest()])
    end = alternate(engine, lambda _: (X, Y), schedule, settings, kept)
    return Factorization(
        rows=Axis(end.X),
        cols=Axis(end.Y),
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
        with np.errstate(over="ignore"):
            self.size = float(np.sqrt(self.weights @ self.b**2 / self.mass))
        if self.b.any():
            check_totals("b", self.size, self.mass, self.mass, dtype)
        # An operator measures in its own type, whatever that of the measurements.
        self.eps = max(float(np.finfo(kind).eps) for kind in (A.dtype, dtype))
        self.rounding = 16 * self.eps * self.size
        self.shape = A.shape[1:]
        self.dtype = dtype
        self._A = A
        self._n_threads = n_threads

    def gain(self, X: NDArray[Any], Y: NDArray[Any]) -> float:
        """Compute Σ v <A_i, X Yᵀ>² / ‖X Yᵀ‖², which is 1 for an isometry."""
        measured = self._measure(X, Y)
        size = float(np.sum((X.T @ X).astype(np.float64) * (Y.T @ Y)))
        return float(self.weights @ measured**2) / size if size > 0 else 1.0

    def solve(self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge) -> HalfSweep:
        """Find the best X (axis 0) or Y (axis 1) given the other factor."""
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
        """Compute the loss at (X, Y) without moving anything."""
        with np.errstate(over="ignore", invalid="ignore"):
            r = self.b - self._measure(X, Y)
            squares = self.weights * r**2
        if not np.isfinite(squares.sum()):
            raise overflow_error(X.dtype)
        above, below = float(squares[r >= 0].sum()), float(squares[r < 0].sum())
        return HalfSweep(X, above, below, 0.0, 0, 0, 0)

    def penalty(self, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge) -> float:
        """Compute λ (‖X‖² + ‖Y‖²)."""
        squares = (float(np.sum(np.square(factor, dtype=np.float64))) for factor in (X, Y))
        return ridge.factors * sum(squares)

    def digest(self) -> str:
        """Hash the measurements, and of the map what it measures of random factors."""
        _, m, n = self._A.shape
        rng = np.random.default_rng(0)
        measured = self._measure(rng.standard_normal((m, 1)), rng.standard_normal((n, 1)))
        about = repr((self._A.shape, self.dtype.str)).encode()
        found = hashlib.blake2b(about, digest_size=16)
        for part in (self.b, self.weights, measured):
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

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
    first = int(np.argmax(size))
    check_size("b", float(size[first]), f"{array[first]} at position {first}", dtype)
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
