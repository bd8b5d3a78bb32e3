"""Optimality of the rows of a fit in plain NumPy. Imports nothing from the package.

Row i of a fit minimizes f(x) = Σ v w(r) r² + Σ ridge x² with r = b − B x. The rows of B are those
of Y (and a 1 with intercepts); b holds the values minus mu and the column intercepts. Each row is
first rescaled to units of its own, so that no square overflows or underflows.
"""

from dataclasses import dataclass

import numpy as np
from oracle import row_minimise


@dataclass
class Row:
    """The problem of one row in units of its own, and the solution to check."""

    i: int
    B: np.ndarray
    b: np.ndarray
    v: np.ndarray
    ridge: np.ndarray
    x: np.ndarray
    size: np.ndarray  # of the numbers whose difference is b
    units: np.ndarray  # of the columns of B, the largest being one
    upper: float
    lower: float
    eps: float
    scale: float = 0.0  # of all data, whose rounding limits the accuracy

    @property
    def kappa(self):
        """Ratio of the weights of the two signs."""
        return max(self.upper, self.lower) / min(self.upper, self.lower)

    def weights(self, x):
        """v times the weight of each residual's sign."""
        return self.v * np.where(self.b - self.B @ x >= 0, self.upper, self.lower)

    def f(self, x):
        """The objective."""
        r = self.b - self.B @ x
        return float(self.weights(x) @ r**2 + self.ridge @ x**2)

    def hessian(self, x):
        """Half the Hessian of f at the signs of x."""
        return self.B.T @ (self.weights(x)[:, None] * self.B) + np.diag(self.ridge)

    def terms(self):
        """Size of the terms of each normal equation; residuals near zero count on either side."""
        r, of_r = self.b - self.B @ self.x, self.size + np.abs(self.B) @ np.abs(self.x)
        w = self.weights(self.x)
        w = np.where(np.abs(r) <= 64 * self.eps * of_r, self.v * max(self.upper, self.lower), w)
        root = np.sqrt((w[:, None] * self.B**2).sum(axis=0) + self.ridge)
        return root * (np.sqrt(w @ of_r**2) + float(root @ np.abs(self.x)))

    def gradient(self):
        """Half the negative gradient of f at x."""
        r = self.b - self.B @ self.x
        return self.B.T @ (self.weights(self.x) * r) - self.ridge * self.x

    def noise(self):
        """Error of f because residuals are differences of rounded numbers."""
        of_r = self.size + np.abs(self.B) @ np.abs(self.x)
        w = self.v * max(self.upper, self.lower)
        return float(self.eps**2 * (w @ (of_r + self.scale) ** 2 + self.ridge @ self.x**2))

    def room(self):
        """Allowed excess of f over its minimum: rounding of f and of its residuals.

        The heavier side determines the rounding of f, since both are solved together.
        """
        f, noise = self.f(self.x), self.noise()
        return 256 * self.eps * self.kappa * f + 512 * noise + 16 * np.sqrt(f * noise)

    def seen(self):
        """Eigenvalues and eigenvectors of H, in the units of the fit, that exceed rounding.

        A column of the factor that is tiny relative to the others does not count.
        """
        values, vectors = np.linalg.eigh(self.hessian(self.x) * np.outer(self.units, self.units))
        seen = values > 256 * values.size * self.eps * values[-1]
        return values[seen], vectors[:, seen]

    def decrement(self):
        """The gain of a Newton step from x for the part of the gradient that exceeds rounding.

        Each term adds a rounding error relative to its size, and the residuals are such sums
        too: no solver can see a smaller gradient.
        """
        values, vectors = self.seen()
        rounding = (sum(self.B.shape) + 2) * self.eps * self.terms()
        left = np.abs(vectors.T @ (self.units * self.gradient()))
        left = np.maximum(left - np.abs(vectors).T @ (self.units * rounding), 0.0)
        return float(np.sum(left**2 / values))


def rows_of(fit, data):
    """Yield the problems of the rows that have entries."""
    X, Y = (np.asarray(F, np.float64) for F in (fit.X, fit.Y))
    k = X.shape[1]
    a, c, mu = fit.row_intercepts, fit.col_intercepts, float(fit.mu)
    if a is not None:
        X, Y = np.column_stack([X, a]), np.column_stack([Y, np.ones(len(Y))])
        c = np.asarray(c, np.float64)
    dtype = fit.X.dtype.type
    upper, lower = float(dtype(fit.omega)), float(dtype(1 - fit.omega))
    mass, order = data.mass(), np.argsort(data.rows, kind="stable")
    for some in np.split(order, np.flatnonzero(np.diff(data.rows[order])) + 1):
        i, at, v = int(data.rows[some[0]]), data.cols[some], mass[some]
        b = data.values[some]
        size = np.abs(b)
        if c is not None:
            size = size + abs(mu) + np.abs(c[at])
            b = b - mu - c[at]
        total = float(v.sum())
        of_row = fit.reg * (total if fit.reg_scaling == "count" else 1.0)
        ridge = np.append(np.full(k, of_row), [fit.intercept_reg] * (Y.shape[1] - k))
        row = scaled(Y[at], b, v, ridge, X[i], size)
        if row is not None:
            eps, scale = float(np.finfo(dtype).eps), float(fit.scale) / (size.max() or 1.0)
            yield Row(i, *row, upper, lower, eps, scale)


def scaled(B, b, v, ridge, x, size):
    """Rescale a problem so that its numbers are about one; None where that overflows."""
    with np.errstate(all="ignore"):
        unit, heaviest = float(size.max()) or 1.0, float(v.max())
        largest = np.abs(B).max(axis=0)
        of_col = np.where(largest > 0, largest, 1.0)
        parts = (
            B / of_col, b / unit, v / heaviest,
            (np.sqrt(ridge) / of_col / np.sqrt(heaviest)) ** 2, x / unit * of_col, size / unit,
            of_col / of_col.max(),
        )  # fmt: skip
    return parts if all(np.isfinite(part).all() for part in parts) else None


def objective(fit, data):
    """F of a fit on the entries, computed from its arrays, and its rounding error."""
    X, Y = (np.asarray(F, np.float64) for F in (fit.X, fit.Y))
    product, of_product = X @ Y.T, np.abs(X) @ np.abs(Y).T
    penalty, at = 0.0, (data.rows, data.cols)
    v, mass = data.mass(), data.values
    predicted, size = product[at], of_product[at] + np.abs(mass)
    if fit.row_intercepts is not None:
        a, c = (np.asarray(s, np.float64) for s in (fit.row_intercepts, fit.col_intercepts))
        predicted = predicted + fit.mu + a[data.rows] + c[data.cols]
        size = size + abs(fit.mu) + np.abs(a)[data.rows] + np.abs(c)[data.cols]
        penalty += fit.intercept_reg * float(a @ a + c @ c)
    r = data.values - predicted
    for F, where, n in ((X, data.rows, len(X)), (Y, data.cols, len(Y))):
        count = np.bincount(where, v, n) if fit.reg_scaling == "count" else np.ones(n)
        penalty += fit.reg * float(count @ np.sum(F**2, axis=1))
    loss = float(np.sum(v * np.where(r >= 0, fit.omega, 1 - fit.omega) * r**2))
    eps = float(np.finfo(fit.X.dtype).eps)
    noise = eps**2 * float(np.sum(v * max(fit.omega, 1 - fit.omega) * size**2))
    return loss + penalty, 64 * noise + 16 * np.sqrt(loss * noise) + 256 * eps * (loss + penalty)


def minimum(row):
    """The minimum of f by an independent solver, for rows with a unique minimizer."""
    if row.seen()[0].size < row.x.size:
        return np.inf
    try:
        return row.f(row_minimise(row.B, row.b, row.upper, row.ridge, row.v))
    except np.linalg.LinAlgError:  # singular at intermediate signs
        return np.inf
