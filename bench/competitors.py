"""Who is timed, behind one small interface: seconds of one sweep, and factors after n sweeps.

All minimise the same function: ½ Σ r² + λ (‖X‖² + ‖Y‖²) (fastemf at omega = 0.5 with a plain
ridge). A competitor without a ½ is given 2λ.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp


class Competitor(Protocol):
    """One implementation."""

    name: str

    def sweep_seconds(self, R: sp.csr_matrix, k: int, reg: float, threads: int) -> float:
        """Time of one full sweep, set-up and compilation apart."""

    def fit(
        self, R: sp.csr_matrix, k: int, reg: float, threads: int, sweeps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Factors after that many sweeps."""


class Fastemf:
    """This library, exact solves."""

    def __init__(self, omega: float = 0.5) -> None:
        self.omega = omega
        self.name = f"fastemf ω={omega:g}"

    def _run(self, R: Any, k: int, reg: float, threads: int, sweeps: int, momentum: bool) -> Any:
        import fastemf

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fastemf.complete(
                R, self.omega, k, reg=reg, reg_scaling="plain", momentum=momentum, tol=0,
                max_iter=sweeps, n_jobs=threads,
            )  # fmt: skip

    def sweep_seconds(self, R: Any, k: int, reg: float, threads: int) -> float:
        """From the third sweep on: the first ones move many signs."""
        fit = self._run(R, k, reg, threads, 5, momentum=False)
        return min(record.seconds for record in fit.history[2:])

    def fit(self, R: Any, k: int, reg: float, threads: int, sweeps: int) -> Any:
        """With momentum, as a user would."""
        fit = self._run(R, k, reg, threads, sweeps, momentum=True)
        return fit.X, fit.Y


class Cmfrec:
    """cmfrec's alternating least squares, no biases, no centring."""

    def __init__(self, use_cg: bool) -> None:
        self.use_cg = use_cg
        self.name = "cmfrec CG" if use_cg else "cmfrec Cholesky"

    def fit(self, R: Any, k: int, reg: float, threads: int, sweeps: int) -> Any:
        """Without the final Cholesky pass, which would be one more sweep."""
        from cmfrec import CMF

        model = CMF(
            k=k, lambda_=2 * reg, method="als", use_cg=self.use_cg, finalize_chol=False,
            user_bias=False, item_bias=False, center=False, niter=sweeps, nthreads=threads,
            use_float=R.dtype == np.float32, verbose=False, precompute_for_predictions=False,
        )  # fmt: skip
        model.fit(sp.coo_matrix(R))
        return model.A_, model.B_

    def sweep_seconds(self, R: Any, k: int, reg: float, threads: int) -> float:
        """It reports no times: the difference between four sweeps and one, a third of it."""
        import cmfrec  # noqa: F401  # not in the first measurement

        times = []
        for sweeps in (1, 4):
            began = time.perf_counter()
            self.fit(R, k, reg, threads, sweeps)
            times.append(time.perf_counter() - began)
        return (times[1] - times[0]) / 3


class NumpyReference:
    """What a careful user writes in an afternoon: one solve per row, one thread."""

    name = "NumPy loop"

    def fit(self, R: Any, k: int, reg: float, threads: int, sweeps: int) -> Any:
        """Random start."""
        rng = np.random.default_rng(0)
        X, Y = rng.random((R.shape[0], k)), rng.random((R.shape[1], k))
        C = R.tocsc()
        for _ in range(sweeps):
            for this, other, S in ((Y, X, C), (X, Y, R)):
                for i in range(len(this)):
                    part = slice(S.indptr[i], S.indptr[i + 1])
                    B = other[S.indices[part]]
                    H = B.T @ B + 2 * reg * np.eye(k)
                    this[i] = np.linalg.solve(H, B.T @ S.data[part])
        return X, Y

    def sweep_seconds(self, R: Any, k: int, reg: float, threads: int) -> float:
        """One sweep."""
        began = time.perf_counter()
        self.fit(R, k, reg, threads, 1)
        return time.perf_counter() - began


class Null:
    """Does nothing: what the harness itself costs."""

    name = "nothing"

    def fit(self, R: Any, k: int, reg: float, threads: int, sweeps: int) -> Any:
        """Zeros."""
        return np.zeros((R.shape[0], k)), np.zeros((R.shape[1], k))

    def sweep_seconds(self, R: Any, k: int, reg: float, threads: int) -> float:
        """The time of two clock readings."""
        began = time.perf_counter()
        return time.perf_counter() - began


COMPETITORS: list[Competitor] = [
    Fastemf(0.5),
    Fastemf(0.1),
    Cmfrec(use_cg=False),
    Cmfrec(use_cg=True),
    NumpyReference(),
    Null(),
]
