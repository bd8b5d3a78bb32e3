"""`LinearStart`: the linear prediction that boosted trees correct.

That of a quantile is a linear quantile regression with nonnegative coefficients. It minimizes
Σ v ρ(y − b − β·x) over β ≥ 0 and b, where ρ is the pinball loss, which is a linear program. Its
dual has few constraints:

    maximize Σ aᵢ yᵢ   subject to   −(1 − τ) vᵢ ≤ aᵢ ≤ τ vᵢ,   Σ aᵢ = 0,   Σ aᵢ xᵢ ≤ 0

That of an expectile minimizes the expectile loss in the same way, by reweighted nonnegative least
squares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.loss import sign_weights
from fastemf.support.arrays import Floats, Ints

MOST_OBSERVATIONS = 20_000  # of a regression: a dozen coefficients need no more
MOST_STEPS = 30  # of reweighting


class LinearStart(NamedTuple):
    """The sum of an intercept and some columns times their coefficients, within a range."""

    indices: Ints  # of the columns
    coefficients: Floats
    intercept: float
    low: float
    high: float

    def predict(self, columns: Floats) -> Floats:
        """Compute the prediction of cells, given their columns."""
        total = np.full(len(columns), self.intercept)
        for at, coefficient in zip(self.indices.tolist(), self.coefficients.tolist(), strict=True):
            if coefficient:
                total += coefficient * columns[:, at]
        return np.asarray(np.clip(total, self.low, self.high))

    def predict_cell(self, columns: Floats) -> float:
        """Compute the prediction of one cell, bitwise as `predict`."""
        total = self.intercept
        for at, coefficient in zip(self.indices.tolist(), self.coefficients.tolist(), strict=True):
            if coefficient:
                total += coefficient * float(columns[at])
        return min(max(total, self.low), self.high)

    def centred(
        self, columns: Floats, values: Floats, objective: Objective, weights: Floats | None
    ) -> LinearStart:
        """Return the start with the intercept that has the smallest loss."""
        wide = self._replace(intercept=0.0, low=-np.inf, high=np.inf)
        found = objective.centre(values - wide.predict(columns), weights)
        return self._replace(intercept=found)


def fit_start(
    columns: Floats, values: Floats, objective: Objective, indices: Ints, weights: Floats | None
) -> LinearStart:
    """Fit a regression to some of the columns, without missing values."""
    every = -(-values.size // MOST_OBSERVATIONS)
    A, y = columns[::every][:, indices], values[::every]
    v = np.ones(y.size) if weights is None else weights[::every]
    solve = _solve_dual if objective.kind == QUANTILE else _solve_reweighted
    coefficients = solve(A, y, v, objective.level)
    start = LinearStart(indices, coefficients, 0.0, float(values.min()), float(values.max()))
    return start.centred(columns, values, objective, weights)


def _solve_dual(A: Floats, y: Floats, v: Floats, tau: float) -> Floats:
    """Return the coefficients: the multipliers of the last constraints."""
    from scipy.optimize import linprog

    centre = np.median(y)
    unit = float(_spreads(y)) or 1.0
    scales = _spreads(A)
    used = scales > 1e-9 * unit
    if not used.any():
        return np.zeros(A.shape[1])
    # Centred columns are as good, since Σ aᵢ = 0, and better conditioned.
    X = (A[:, used] - np.median(A[:, used], axis=0)) / scales[used]
    solved = linprog(
        -(y - centre) / unit,
        A_ub=X.T, b_ub=np.zeros(X.shape[1]),
        A_eq=np.ones((1, y.size)), b_eq=[0.0],
        bounds=np.column_stack([(tau - 1) * v, tau * v]), method="highs-ds",
    )  # fmt: skip
    coefficients = np.zeros(A.shape[1])
    if solved.status == 0:  # otherwise a constant, which the trees correct
        coefficients[used] = np.maximum(0.0, -solved.ineqlin.marginals) * unit / scales[used]
    return coefficients


def _solve_reweighted(A: Floats, y: Floats, v: Floats, omega: float) -> Floats:
    """Return the coefficients of an expectile regression."""
    from scipy.optimize import nnls

    scales, found = _spreads(A), np.zeros(A.shape[1])
    used = scales > 1e-9 * (float(_spreads(y)) or 1.0)
    if not used.any():
        return found
    X, coefficients = A[:, used] / scales[used], np.zeros(np.count_nonzero(used))
    weights, above = v, np.zeros(y.size, bool)
    for _ in range(MOST_STEPS):
        about = np.sum(weights[:, None] * X, axis=0) / np.sum(weights)
        middle = np.sum(weights * y) / np.sum(weights)
        centred = X - about
        # In a fixed order, unlike BLAS; the ridge is for equal columns.
        gram = np.einsum("ni,n,nj->ij", centred, weights, centred)
        gram[np.diag_indices_from(gram)] += 1e-9 * np.trace(gram) + np.finfo(float).tiny
        right = np.einsum("ni,n,n->i", centred, weights, y - middle)
        factor = np.linalg.cholesky(gram)
        coefficients, _ = nnls(factor.T, np.linalg.solve(factor, right))
        residuals = y - middle - np.sum(centred * coefficients, axis=1)
        previous, above = above, residuals >= 0
        weights = v * sign_weights(residuals, omega)
        if np.array_equal(previous, above):
            break
    found[used] = coefficients / scales[used]
    return found


def _spreads(columns: Floats) -> Floats:
    """Return the median absolute deviation of columns, or the mean one if it is zero.

    Few values that are many times larger do not change it: the solver has absolute tolerances.
    """
    apart = np.abs(columns - np.median(columns, axis=0))
    middle = np.median(apart, axis=0)
    return np.asarray(np.where(middle > 0, middle, np.mean(apart, axis=0)))
