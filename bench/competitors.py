"""The competitors, behind one small interface.

All but implicit minimize the same function, ½ Σ r² + λ (‖X‖² + ‖Y‖²): fastemf at omega = 0.5 with
a plain ridge. A competitor whose loss has no ½ is given 2λ.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from bench.objective import objective

SLOW = 5.0  # seconds of a fit with one sweep, above which a sweep is timed only once
LONG = 30.0  # seconds of a fit, above which a curve gets no further points

Factors = tuple[np.ndarray, np.ndarray]


class Point(NamedTuple):
    """State of a fit after some sweeps; the seconds include set-up."""

    sweeps: int
    seconds: float
    objective: float


class Competitor(Protocol):
    """One implementation."""

    name: str
    exact: bool  # solves every row exactly, so that the operations of a sweep are known

    def prepare(self, R: sp.csr_matrix) -> Any:
        """Convert the data to the form that `sweep_seconds` takes."""

    def sweep_seconds(self, data: Any, k: int, reg: float, threads: int) -> float:
        """Return the time of one full sweep, without set-up and compilation."""


class Fitter(Competitor, Protocol):
    """Competitor that minimizes the common function, so that objectives are comparable."""

    def fit(self, R: sp.csr_matrix, k: int, reg: float, threads: int, sweeps: int) -> Factors:
        """Return the factors after that many sweeps."""

    def curve(
        self, R: sp.csr_matrix, k: int, reg: float, threads: int, grid: Sequence[int]
    ) -> list[Point]:
        """Return the objective against time, up to the last of `grid` sweeps."""


def point(entry: Fitter, R: Any, k: int, reg: float, threads: int, sweeps: int) -> Point:
    """Fit from scratch with that many sweeps and compute the common objective."""
    began = time.perf_counter()
    X, Y = entry.fit(R, k, reg, threads, sweeps)
    seconds = time.perf_counter() - began
    return Point(sweeps, seconds, objective(R, X, Y, reg))


class Fastemf:
    """This library; single sweeps are timed with exact solves, fits with the given `solver`."""

    exact = True

    def __init__(self, omega: float = 0.5, solver: str = "auto") -> None:
        self.omega = omega
        self.solver = solver
        self.name = f"fastemf ω={omega:g}" if solver == "auto" else f"fastemf {solver}"

    def run(
        self, data: Any, k: int, reg: float, threads: int, sweeps: int, *, method: str = "auto",
        momentum: bool = True, **options: Any,
    ) -> Any:  # fmt: skip
        """Run `fastemf.complete` with a plain ridge of the same strength at every level."""
        import fastemf

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is stopped early
            return fastemf.complete(
                data, self.omega, k, reg=4 * self.omega * (1 - self.omega) * reg,
                solver=fastemf.Solver(method=method, momentum=momentum, reg_scaling="plain"),
                tol=0, max_iter=sweeps, n_jobs=threads, **options,
            )  # fmt: skip

    def prepare(self, R: Any) -> Any:
        """Group the entries by row and by column."""
        from fastemf.kernels.threads import count_threads
        from fastemf.sources.memory import observe

        return observe(R, n_threads=count_threads(-1))

    def sweep_seconds(self, data: Any, k: int, reg: float, threads: int) -> float:
        """Time exact sweeps from the third on; the first two change many signs."""
        fit = self.run(data, k, reg, threads, 4, method="exact", momentum=False, init="random")
        return min(record.seconds for record in fit.history[2:])

    def fit(self, R: Any, k: int, reg: float, threads: int, sweeps: int) -> Factors:
        """Fit with the default start and momentum."""
        fit = self.run(R, k, reg, threads, sweeps, method=self.solver)
        return fit.X, fit.Y

    def curve(self, R: Any, k: int, reg: float, threads: int, grid: Sequence[int]) -> list[Point]:
        """Record the wall-clock time of every sweep of one fit; check its last objective."""
        points: list[Point] = []

        def read(record: Any) -> None:
            held = record.objective if record.accepted else points[-1].objective
            points.append(Point(record.sweep, time.perf_counter() - began, held))

        began = time.perf_counter()
        fit = self.run(R, k, reg, threads, grid[-1], callback=read, method=self.solver)
        found = objective(R, fit.X, fit.Y, fit.reg, self.omega)
        if abs(found - points[-1].objective) > 1e-4 * found:
            raise ArithmeticError(f"reports {points[-1].objective:g}, its factors give {found:g}")
        return points


class _Refitted:
    """Fitter without callbacks: every point of its curve is a separate fit."""

    def curve(
        self: Any, R: Any, k: int, reg: float, threads: int, grid: Sequence[int]
    ) -> list[Point]:
        """Return a point for each number of sweeps in the grid, until one takes too long."""
        points: list[Point] = []
        for sweeps in grid:
            points.append(point(self, R, k, reg, threads, sweeps))
            if points[-1].seconds > LONG:
                break
        return points


class Cmfrec(_Refitted):
    """cmfrec's alternating least squares, no biases, no centring."""

    def __init__(self, use_cg: bool) -> None:
        self.use_cg, self.exact = use_cg, not use_cg
        self.name = "cmfrec CG" if use_cg else "cmfrec Cholesky"

    def prepare(self, R: Any) -> Any:
        """Convert to COO, the only form it takes."""
        import cmfrec  # noqa: F401  # imported before the first measurement

        return sp.coo_matrix(R)

    def fit(self, R: Any, k: int, reg: float, threads: int, sweeps: int) -> Factors:
        """Fit without the final Cholesky pass, which would be an additional sweep."""
        from cmfrec import CMF

        model = CMF(
            k=k, lambda_=2 * reg, method="als", use_cg=self.use_cg, finalize_chol=False,
            user_bias=False, item_bias=False, center=False, niter=sweeps, nthreads=threads,
            use_float=R.dtype == np.float32, verbose=False, precompute_for_predictions=False,
        )  # fmt: skip
        model.fit(sp.coo_matrix(R))
        return model.A_, model.B_

    def sweep_seconds(self, data: Any, k: int, reg: float, threads: int) -> float:
        """Time three additional sweeps, or one if it is slow: cmfrec reports no times."""

        def seconds(sweeps: int) -> float:
            began = time.perf_counter()
            self.fit(data, k, reg, threads, sweeps)
            return time.perf_counter() - began

        one = seconds(1)
        more = 1 if one > SLOW else 3
        if more > 1:
            one = min(one, seconds(1))  # too long a time would make the sweep look too fast
        sweep = (seconds(1 + more) - one) / more
        if sweep <= 0:
            raise ArithmeticError("the time of a sweep is lost in the noise of the set-up")
        return sweep


class Implicit:
    """implicit's alternating least squares: another loss, over *all* cells, so times only."""

    exact = False

    def __init__(self, use_cg: bool) -> None:
        self.use_cg = use_cg
        self.name = f"implicit {'CG' if use_cg else 'Cholesky'} (other loss)"

    def prepare(self, R: Any) -> Any:
        """Convert to CSR, the form it takes."""
        from implicit.cpu.als import AlternatingLeastSquares  # noqa: F401

        return R

    def sweep_seconds(self, data: Any, k: int, reg: float, threads: int) -> float:
        """Use the times it reports, without the first; it requires single-threaded BLAS."""
        from implicit.cpu.als import AlternatingLeastSquares

        times: list[float] = []
        with threadpool_limits(1, user_api="blas"):
            model = AlternatingLeastSquares(
                factors=k, regularization=reg, dtype=data.dtype, use_cg=self.use_cg,
                iterations=3, num_threads=threads, random_state=0,
            )  # fmt: skip
            model.fit(data, show_progress=False, callback=lambda _, spent, __: times.append(spent))
        return min(times[1:])


class NumpyReference(_Refitted):
    """Simple NumPy loop: one solve per row, one thread."""

    name = "NumPy loop"
    exact = True

    def prepare(self, R: Any) -> Any:
        """Return the matrix by row and by column."""
        return R, R.tocsc()

    def fit(self, R: Any, k: int, reg: float, threads: int, sweeps: int) -> Factors:
        """Fit from a random start."""
        rng = np.random.default_rng(0)
        X, Y = rng.random((R.shape[0], k)), rng.random((R.shape[1], k))
        X, Y = X.astype(R.dtype), Y.astype(R.dtype)
        C = R.tocsc()
        for _ in range(sweeps):
            self._sweep(R, C, X, Y, reg)
        return X, Y

    def sweep_seconds(self, data: Any, k: int, reg: float, threads: int) -> float:
        """Time one sweep."""
        R, C = data
        X, Y = np.ones((R.shape[0], k), R.dtype), np.ones((R.shape[1], k), R.dtype)
        with threadpool_limits(1, user_api="blas"):
            began = time.perf_counter()
            self._sweep(R, C, X, Y, reg)
            return time.perf_counter() - began

    @staticmethod
    def _sweep(R: Any, C: Any, X: np.ndarray, Y: np.ndarray, reg: float) -> None:
        ridge = 2 * reg * np.eye(X.shape[1], dtype=X.dtype)
        for this, other, S in ((Y, X, C), (X, Y, R)):
            for i in range(len(this)):
                part = slice(S.indptr[i], S.indptr[i + 1])
                B = other[S.indices[part]]
                this[i] = np.linalg.solve(B.T @ B + ridge, B.T @ S.data[part])


class Null:
    """Competitor that does nothing, to show the overhead of the harness."""

    name = "nothing"
    exact = False

    def prepare(self, R: Any) -> Any:
        """Return the data unchanged."""
        return R

    def sweep_seconds(self, data: Any, k: int, reg: float, threads: int) -> float:
        """Return the time of two clock readings."""
        began = time.perf_counter()
        return time.perf_counter() - began


COMPETITORS: tuple[Competitor, ...] = (
    Fastemf(0.5),
    Fastemf(0.1),
    Fastemf(0.9),
    Cmfrec(use_cg=False),
    Cmfrec(use_cg=True),
    Implicit(use_cg=False),
    Implicit(use_cg=True),
    NumpyReference(),
    Null(),
)
