"""Independent references in plain NumPy, SciPy and cvxpy. Imports nothing from the package."""

from __future__ import annotations

import numpy as np
from scipy import optimize


def row_objective(B, b, x, omega, ridge=0.0, v=None):
    """Σ v |ω − 1(r < 0)| r² + Σ ridge x²."""
    r = b - B @ x
    weights = np.where(r >= 0, omega, 1 - omega) * (1.0 if v is None else v)
    return float(weights @ r**2 + np.sum(ridge * x**2))


def row_gradient(B, b, x, omega, ridge=0.0, v=None):
    """Half the negative gradient: Bᵀ V W r − ridge x."""
    r = b - B @ x
    weights = np.where(r >= 0, omega, 1 - omega) * (1.0 if v is None else v)
    return B.T @ (weights * r) - ridge * x


def row_qp(B, b, omega, ridge=0.0, v=None):
    """Minimum of the row problem as the paper's quadratic program."""
    import cvxpy as cp

    d, k = B.shape
    v = np.ones(d) if v is None else v
    x, above, below = cp.Variable(k), cp.Variable(d, nonneg=True), cp.Variable(d, nonneg=True)
    loss = omega * cp.sum(cp.multiply(v, cp.square(above)))
    loss += (1 - omega) * cp.sum(cp.multiply(v, cp.square(below)))
    if np.any(ridge):
        loss += cp.sum(cp.multiply(np.broadcast_to(ridge, k), cp.square(x)))
    problem = cp.Problem(cp.Minimize(loss), [above - below == b - B @ x])
    for tol in (1e-12, 1e-10, 1e-8):  # as tight as this case lets the solver be
        try:
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
            break
        except cp.error.SolverError:
            if tol == 1e-8:
                raise
    return row_objective(B, b, x.value, omega, ridge, v)


def row_minimise(B, b, omega, ridge, v):
    """Minimiser of the row problem by damped reweighting, for full column rank or ridge > 0."""
    x = np.zeros(B.shape[1])
    for _ in range(200):
        w = np.where(b - B @ x >= 0, omega, 1 - omega) * v
        g = row_gradient(B, b, x, omega, ridge, v)
        step = np.linalg.solve(B.T @ (B * w[:, None]) + np.diag(np.broadcast_to(ridge, x.size)), g)
        along = optimize.minimize_scalar(
            lambda t, x=x, step=step: row_objective(B, b, x + t * step, omega, ridge, v),
            bounds=(0, 2),
            method="bounded",
            options={"xatol": 1e-12},
        ).x
        best = min((1.0, along), key=lambda t: row_objective(B, b, x + t * step, omega, ridge, v))
        x = x + best * step
        if np.linalg.norm(step) <= 1e-14 * (1 + np.linalg.norm(x)):
            break
    return x


def objective(R, X, Y, omega, lam=0.0, scaling="count", weights=None):
    """F of the factorization of a dense R with NaN for missing."""
    seen = ~np.isnan(R)
    v = np.where(seen, 1.0 if weights is None else weights, 0.0)
    r = np.where(seen, R, 0.0) - np.where(seen, X @ Y.T, 0.0)
    loss = np.sum(v * np.where(r >= 0, omega, 1 - omega) * r**2)
    rows = v.sum(axis=1) if scaling == "count" else np.ones(len(X))
    cols = v.sum(axis=0) if scaling == "count" else np.ones(len(Y))
    return float(loss + lam * (rows @ (X**2).sum(axis=1) + cols @ (Y**2).sum(axis=1)))


def alternate(R, X, Y, omega, lam, sweeps, scaling="count"):
    """Plain alternation from (X, Y) with exact solves of every row; λ > 0."""
    seen = ~np.isnan(R)
    X, Y = X.copy(), Y.copy()
    for _ in range(sweeps):
        for target, this, other, mask in ((R.T, Y, X, seen.T), (R, X, Y, seen)):
            for i in range(len(this)):
                j = mask[i]
                n = j.sum() if scaling == "count" else 1
                this[i] = row_minimise(other[j], target[i, j], omega, lam * n, np.ones(j.sum()))
    return X, Y
