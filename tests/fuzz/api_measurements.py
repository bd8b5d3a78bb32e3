"""Linear measurements for the API's fuzzer: operators of every kind, and what `sense` returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import api_checks as checks
import numpy as np
import scipy.sparse as sp
from api_cases import LEVELS, Data, pick
from row_oracle import Row, scaled
from scipy.sparse.linalg import aslinearoperator

import fastemf

KINDS = (
    "Gaussian", "Rademacher", "Dense", "array", "f4", "Sparse", "sparse", "Entries", "RankOne",
    "Linear", "own",
)  # fmt: skip


class Own:
    """An operator that a user wrote."""

    def __init__(self, dense: np.ndarray) -> None:
        self.dense, self.shape, self.dtype = dense, dense.shape, dense.dtype

    def forward(self, X: Any, Y: Any, *, n_jobs: int = -1) -> Any:
        return self.dense.reshape(self.shape[0], -1) @ (X @ Y.T).ravel()

    def adjoint_times(self, b: Any, factor: Any, side: int = 0, *, n_jobs: int = -1) -> Any:
        S = np.tensordot(b, self.dense, 1)
        return (S.T if side else S) @ factor

    def design(self, factor: Any, side: int, rows: Any = None, *, n_jobs: int = -1) -> Any:
        some = self.dense if rows is None else self.dense[rows]
        return ((some.transpose(0, 2, 1) if side else some) @ factor).reshape(len(some), -1)


def _operator(rng: np.random.Generator, shape: tuple[int, int], p: int) -> tuple[Any, Any, Any]:
    """Draw measurements: as handed over, the shape to give with it, and as a dense array."""
    m, n = shape
    kind = pick(rng, KINDS)
    if kind in ("Gaussian", "Rademacher"):
        A = getattr(fastemf.operators, kind)(p, shape, seed=int(rng.integers(9)))
        return A, None, A.to_dense()
    if kind == "Entries":
        rows, cols = rng.integers(0, m, p), rng.integers(0, n, p)
        dense = np.zeros((p, m, n))
        dense[np.arange(p), rows, cols] = 1
        return fastemf.operators.Entries(rows, cols, shape), None, dense
    if kind == "RankOne":
        U, V = rng.standard_normal((p, m)), rng.standard_normal((p, n))
        return fastemf.operators.RankOne(U, V), None, U[:, :, None] * V[:, None, :]
    dense = rng.standard_normal((p, m, n)) * 10.0 ** rng.uniform(-2, 2)
    if kind in ("Sparse", "sparse"):
        dense[rng.random(dense.shape) < 0.6] = 0
        flat = sp.csr_array(dense.reshape(p, -1))
        return (flat, shape, dense) if kind == "sparse" else (
            fastemf.operators.Sparse(flat, shape), None, dense
        )  # fmt: skip
    if kind == "own":
        return Own(dense), None, dense
    if kind == "Linear":
        return aslinearoperator(dense.reshape(p, -1)), shape, dense
    if kind == "f4":
        dense = dense.astype(np.float32)
        return dense, None, dense
    return (fastemf.operators.Dense(dense) if kind == "Dense" else dense), None, dense


def measure(rng: np.random.Generator, folder: Path) -> str:
    """Run `fastemf.sense` on drawn measurements, and check what it returns."""
    m, n = (int(size) for size in rng.integers(1, 9, 2))
    k = min(int(rng.geometric(0.5)), m, n)
    p = int(rng.integers(1, 4 * k * (m + n)))
    A, shape, dense = _operator(rng, (m, n), p)
    truth = rng.standard_normal((m, k)) @ rng.standard_normal((k, n))
    b = dense.reshape(p, -1) @ truth.ravel() + pick(rng, (0.0, 0.3)) * rng.standard_normal(p) ** 2
    extreme = rng.random() < 0.1
    with np.errstate(over="ignore"):
        b = (b * 10.0 ** (rng.uniform(-300, 300) if extreme else rng.uniform(-2, 2))).astype(
            dense.dtype if dense.dtype == np.float32 else np.float64
        )
    weights = None if rng.random() < 0.6 else 10.0 ** rng.uniform(-1, 1, p)
    omega = pick(rng, LEVELS)
    reg = pick(rng, (0, 0, 1e-6, 0.1))
    options = {
        "weights": weights, "shape": shape, "reg": reg, "tol": pick(rng, (0.0, 1e-5)),
        "init": pick(rng, ("spectral", "random")), "max_iter": int(pick(rng, (1, 5, 30))),
        "momentum": bool(rng.random() < 0.7), "anneal": bool(rng.random() < 0.7),
        "orthogonalize": bool(reg == 0 and rng.random() < 0.3),
        "random_state": int(rng.integers(9)),
    }  # fmt: skip
    size = float(np.abs(b).max())
    must_work = 1e-3 <= omega <= 0.999 and 1e-5 < size < 1e6
    before = checks.kept(b), dense.copy()
    fits = [
        checks.called(fastemf.sense, must_work, A, b, omega, k, **{"n_jobs": jobs, **options})
        for jobs in (1, 2)
    ]
    checks.check_untouched(b, before[0])
    assert np.array_equal(dense, before[1])
    if fits[0] is None:
        return "refused"
    fit = fits[0]
    checks.check_identical(*fits, "one thread and two")
    v = np.ones(p) if weights is None else weights
    as_data = Data(None, "", b.dtype, (m, n), np.zeros(p, int), np.zeros(p, int),
                   b.astype(np.float64), v)  # fmt: skip
    checks.check_fit(fit, as_data, exact=False, whole=False)
    _check_measured(fit, dense, b.astype(np.float64), v)
    measured = fit.measure(A, shape=shape)
    assert np.isfinite(measured).all()
    checks.check_file(fit, folder / "fit.npz")
    return "fitted"


def _check_measured(fit: Any, dense: Any, b: Any, v: Any) -> None:
    """The X step's normal equations vanish, all rows being one problem."""
    D = (dense.astype(np.float64) @ fit.Y.astype(np.float64)).reshape(b.size, -1)
    x, ridge = fit.X.astype(np.float64).ravel(), np.full(fit.X.size, float(fit.reg))
    parts = scaled(D, b, v, ridge, x, np.abs(b))
    if parts is None:
        return
    row = Row(0, *parts, fit.omega, 1 - fit.omega, float(np.finfo(fit.X.dtype).eps))
    # Where the ridge is beyond all that is measured the step from the start is the start itself,
    # and x what rounding left of their difference: F fell by all of it, to the rounding of that.
    drowned = np.diagonal(row.hessian(row.x)) - row.ridge <= row.eps * row.ridge
    fell = any(record.relative_decrease >= 1 - row.eps for record in checks.accepted(fit)[-1:])
    if fell and drowned.all():
        return
    left, terms = np.abs(row.gradient()), row.terms()
    if (left > checks.BACKWARD * x.size * row.eps * terms).any():
        gain, room = row.decrement(), row.room()
        assert gain <= room, (
            f"measurements: equations leave {np.max(left / terms):.3g} of their terms; a step "
            f"would gain {gain:.3g} of f = {row.f(row.x):.3g}, of which rounding is {room:.3g}"
        )
