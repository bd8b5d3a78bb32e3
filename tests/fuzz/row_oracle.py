"""Whether rows are solved, judged from the data in plain NumPy. Imports nothing from the package.

Row i of a fit minimises f(x) = Σ v w(r) r² + Σ ridge x² with r = b − B x, where the rows of B are
those of Y (and a 1 with intercepts) and b is what mu and the columns' intercepts leave of the
values. Each row is first brought to a unit of its own, so that no square overflows or vanishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from oracle import row_minimise


@dataclass
class Row:
    """One row's problem in units of its own, and the solution to be judged."""

    i: int
    B: np.ndarray
    b: np.ndarray
    v: np.ndarray
    ridge: np.ndarray
    x: np.ndarray
    size: np.ndarray  # of the numbers that b is a difference of
    units: np.ndarray  # of the columns of B, the largest being one
    upper: float
    lower: float
    eps: float
    scale: float = 0.0  # of all data: a row is no more accurate than their rounding

    @property
    def kappa(self) -> float:
        """How much heavier one side is than the other."""
        return max(self.upper, self.lower) / min(self.upper, self.lower)

    def weights(self, x: np.ndarray) -> np.ndarray:
        """v times the weight of each residual's sign."""
        return self.v * np.where(self.b - self.B @ x >= 0, self.upper, self.lower)

    def f(self, x: np.ndarray) -> float:
        """The objective."""
        r = self.b - self.B @ x
        return float(self.weights(x) @ r**2 + self.ridge @ x**2)

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Half of it, at the signs of x."""
        return self.B.T @ (self.weights(x)[:, None] * self.B) + np.diag(self.ridge)

    def terms(self) -> np.ndarray:
        """Size of what each normal equation sums up, residuals at rounding counted either way."""
        r, of_r = self.b - self.B @ self.x, self.size + np.abs(self.B) @ np.abs(self.x)
        w = self.weights(self.x)
        w = np.where(np.abs(r) <= 64 * self.eps * of_r, self.v * max(self.upper, self.lower), w)
        root = np.sqrt((w[:, None] * self.B**2).sum(axis=0) + self.ridge)
        return root * (np.sqrt(w @ of_r**2) + float(root @ np.abs(self.x)))

    def gradient(self) -> np.ndarray:
        """Half the negative gradient of f at x: what the normal equations leave."""
        r = self.b - self.B @ self.x
        return self.B.T @ (self.weights(self.x) * r) - self.ridge * self.x

    def noise(self) -> float:
        """How far f may be off because residuals are differences of rounded numbers."""
        of_r = self.size + np.abs(self.B) @ np.abs(self.x)
        w = self.v * max(self.upper, self.lower)
        return float(self.eps**2 * (w @ (of_r + self.scale) ** 2 + self.ridge @ self.x**2))

    def room(self) -> float:
        """How far f may lie above its minimum: rounding, of f and of its residuals.

        Of f it is that of the heavier side, which the lighter one is solved beside.
        """
        f, noise = self.f(self.x), self.noise()
        return 256 * self.eps * self.kappa * f + 512 * noise + 16 * np.sqrt(f * noise)

    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and -vectors of H, as the fit has it, that are above rounding.

        A factor's column that is small beside the others counts as none.
        """
        values, vectors = np.linalg.eigh(self.hessian(self.x) * np.outer(self.units, self.units))
        seen = values > 256 * values.size * self.eps * values[-1]
        return values[seen], vectors[:, seen]

    def decrement(self) -> float:
        """What a Newton step from x would gain, by as much of the gradient as is not rounding.

        A sum of products is off by a rounding of its terms' size for each of them, and the
        residuals are such sums too: no solver sees a gradient below that.
        """
        values, vectors = self.seen()
        rounding = (sum(self.B.shape) + 2) * self.eps * self.terms()
        left = np.abs(vectors.T @ (self.units * self.gradient()))
        left = np.maximum(left - np.abs(vectors).T @ (self.units * rounding), 0.0)
        return float(np.sum(left**2 / values))


def rows_of(fit: Any, data: Any) -> Iterator[Row]:
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


def scaled(B: Any, b: Any, v: Any, ridge: Any, x: Any, size: Any) -> tuple[Any, ...] | None:
    """Bring a problem to units in which its numbers are about one; None where that overflows."""
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


def objective(fit: Any, data: Any) -> tuple[float, float]:
    """F of a fit on entries, from nothing but its numbers, and how far rounding may move it."""
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


def minimum(row: Row) -> float:
    """The least f that an independent solver finds, for rows that have one minimum."""
    if row.seen()[0].size < row.x.size:
        return np.inf
    try:
        return row.f(row_minimise(row.B, row.b, row.upper, row.ridge, row.v))
    except np.linalg.LinAlgError:  # singular at signs that it met on its way
        return np.inf
