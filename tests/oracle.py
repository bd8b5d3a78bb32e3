"""Independent references in plain NumPy, SciPy and cvxpy. Imports nothing from the package."""

import math

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
    """Minimizer of the row problem by damped reweighting, for full column rank or ridge > 0."""
    x = np.zeros(B.shape[1])
    for _ in range(200):
        w = np.where(b - B @ x >= 0, omega, 1 - omega) * v
        g = row_gradient(B, b, x, omega, ridge, v)
        step = np.linalg.solve(B.T @ (B * w[:, None]) + np.diag(np.broadcast_to(ridge, x.size)), g)

        def along(t, x=x, step=step):
            return row_objective(B, b, x + t * step, omega, ridge, v)

        options = {"bounds": (0, 2), "method": "bounded", "options": {"xatol": 1e-12}}
        x = x + min((1.0, optimize.minimize_scalar(along, **options).x), key=along) * step
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


# --- linear measurements -------------------------------------------------------------------


def measurements(A, X, Y):
    """<A_i, X Yᵀ> for a dense A of shape (p, m, n)."""
    return np.array([np.sum(A_i * (X @ Y.T)) for A_i in A])


def sensing_design(A, factor, side):
    """Rows vec(A_i Y) for side 0, vec(A_iᵀ X) for side 1."""
    return np.array([((A_i if side == 0 else A_i.T) @ factor).ravel() for A_i in A])


def sense(A, b, X, Y, omega, lam, sweeps, v=None):
    """Plain alternation from (X, Y) with exact half steps."""
    v = np.ones(len(b)) if v is None else v
    for _ in range(sweeps):
        Y = row_minimise(sensing_design(A, X, 1), b, omega, lam, v).reshape(Y.shape)
        X = row_minimise(sensing_design(A, Y, 0), b, omega, lam, v).reshape(X.shape)
    return X, Y


def philox4x32(counter, key, rounds=10):
    """Philox4x32 of Salmon et al. (2011) in Python integers."""
    c, k = list(counter), list(key)
    for _ in range(rounds):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        high = (second >> 32) ^ c[1] ^ k[0], (first >> 32) ^ c[3] ^ k[1]
        c = [high[0], second & 0xFFFFFFFF, high[1], first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def drawn_words(seed, i, r, t, stream):
    """The two 64-bit words of group t in row r of measurement i."""
    w = philox4x32((t, r, i, stream), (seed & 0xFFFFFFFF, seed >> 32))
    return w[0] | w[1] << 32, w[2] | w[3] << 32


def gaussian_matrix(seed, i, m, n):
    """√p A_i of the Gaussian operator: Box and Muller in the C library's functions."""
    half = (n + 1) // 2
    out = np.empty((m, 2 * half))
    for r in range(m):
        for t in range(half):
            first, second = drawn_words(seed, i, r, t, 0)
            radius = math.sqrt(-2 * math.log(1 - (first >> 12) / 2**52))
            angle = math.pi / 4 * (2 * (second >> 12) / 2**52)  # within the first quadrant
            out[r, t] = (-1) ** first * radius * math.cos(angle)
            out[r, half + t] = (-1) ** second * radius * math.sin(angle)
    return out[:, :n]


def rademacher_matrix(seed, i, m, n):
    """√p A_i of the Rademacher operator: a set bit is a minus."""
    out = np.empty((m, n))
    for r in range(m):
        words = [w for t in range(n // 128 + 1) for w in drawn_words(seed, i, r, t, 1)]
        out[r] = [1 - 2 * (words[c // 64] >> c % 64 & 1) for c in range(n)]
    return out
