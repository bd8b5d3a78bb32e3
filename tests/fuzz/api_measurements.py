"""Linear measurements for the API fuzzer: operators of every kind, and the fits of `sense`."""

import api_checks as checks
import numpy as np
import scipy.sparse as sp
from api_cases import LEVELS, Data, pick
from operator_examples import KINDS, UserDefined, make_operator
from row_oracle import Row, scaled
from scipy.sparse.linalg import aslinearoperator

import fastemf

FORMS = ("array", "matrix", "LinearOperator", "user-defined")


def draw_operator(rng, shape, p):
    """Draw an operator; return it, the shape to pass with it, and the dense array."""
    kind = pick(rng, (*KINDS, *FORMS))
    if kind in KINDS:
        A, dense = make_operator(kind, p, shape, int(rng.integers(9)))
        return A, None, dense
    dense = make_operator(pick(rng, ("dense", "sparse")), p, shape, int(rng.integers(9)))[1]
    dense *= 10.0 ** rng.uniform(-2, 2)
    flat = sp.csr_array(dense.reshape(p, -1))
    if kind in ("matrix", "LinearOperator"):
        return flat if kind == "matrix" else aslinearoperator(flat), shape, dense
    return dense if kind == "array" else UserDefined(dense), None, dense


def measure(rng, folder):
    """Run `fastemf.sense` on drawn measurements and check the fit."""
    m, n = (int(size) for size in rng.integers(1, 9, 2))
    k = min(int(rng.geometric(0.5)), m, n)
    p = int(rng.integers(1, 4 * k * (m + n)))
    A, shape, dense = draw_operator(rng, (m, n), p)
    truth = rng.standard_normal((m, k)) @ rng.standard_normal((k, n))
    b = dense.reshape(p, -1) @ truth.ravel() + pick(rng, (0.0, 0.3)) * rng.standard_normal(p) ** 2
    exponent = rng.uniform(-300, 300) if rng.random() < 0.1 else rng.uniform(-2, 2)
    with np.errstate(over="ignore"):
        b = (b * 10.0**exponent).astype(A.dtype)
    weights = None if rng.random() < 0.6 else 10.0 ** rng.uniform(-1, 1, p)
    omega = pick(rng, LEVELS)
    reg = pick(rng, (0, 0, 1e-6, 0.1))
    options = {
        "weights": weights, "shape": shape, "reg": reg, "tol": pick(rng, (0.0, 1e-5)),
        "init": pick(rng, ("spectral", "random")), "max_iter": int(pick(rng, (1, 5, 30))),
        "solver": fastemf.Solver(
            momentum=bool(rng.random() < 0.7), anneal=bool(rng.random() < 0.7),
            orthogonalize=bool(reg == 0 and rng.random() < 0.3),
        ),
        "random_state": int(rng.integers(9)),
    }  # fmt: skip
    size = float(np.abs(b).max())
    must_work = 1e-3 <= omega <= 0.999 and 1e-5 < size < 1e6
    with checks.unchanged(b, dense, weights):
        fit, other = checks.call_with_threads(fastemf.sense, must_work, A, b, omega, k, **options)
    checks.check_identical(fit, other, "one thread and two")
    v = np.ones(p) if weights is None else weights
    values, none = b.astype(np.float64), np.zeros(p, int)
    as_data = Data(None, "", b.dtype, (m, n), none, none, values, v)
    checks.check_fit(fit, as_data, exact=False, whole=False)
    _check_measured(fit, dense, values, v)
    assert np.isfinite(fit.measure(A, shape=shape)).all()
    checks.check_file(fit, folder / "fit.npz")


def _check_measured(fit, dense, b, v):
    """The normal equations of X vanish; all its rows form one problem."""
    D = (dense.astype(np.float64) @ fit.Y.astype(np.float64)).reshape(b.size, -1)
    x, ridge = fit.X.astype(np.float64).ravel(), np.full(fit.X.size, float(fit.reg))
    parts = scaled(D, b, v, ridge, x, np.abs(b))
    if parts is None:
        return
    row = Row(0, *parts, fit.omega, 1 - fit.omega, float(np.finfo(fit.X.dtype).eps))
    # A ridge far larger than the curvature of the loss makes the step equal to the start: x is
    # the rounding error of their difference, and F decreased by all of its value up to rounding.
    drowned = np.diagonal(row.hessian(row.x)) - row.ridge <= row.eps * row.ridge
    fell = any(record.relative_decrease >= 1 - row.eps for record in checks.accepted(fit)[-1:])
    if fell and drowned.all():
        return
    checks.check_gradient(row, "measurements")
