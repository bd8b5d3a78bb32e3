"""Quantile regression with coefficients that are not negative, and its loss.

Minimises Σ v ρ(y − b − β·x) over β ≥ 0 and b, where ρ(r) = max(τ r, (τ − 1) r) is the pinball loss:
a linear program. With r = u − w, u and w ≥ 0, and multipliers a of its equations, its optimum has

    v τ − a ≥ 0 beside u,     v (1 − τ) + a ≥ 0 beside w,     −xᵀa ≥ 0 beside β,     Σ a = 0

of which one of each pair is 0. Mehrotra's predictor and corrector go there from the inside; a step
takes one pass for the normal equations, as small as the number of columns, and one for the steps
(Portnoy and Koenker, 1997).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastemf.metrics import pinball_loss
from fastemf.stacking.shrunk_quantile import Floats, quantile

__all__ = ["Regression", "mean_pinball", "pinball_regression"]


STEPS = 50
CLOSE = 1e-5  # of the loss, that the gap between it and its bound is to fall below
INSIDE = 0.9995  # of the way to the boundary
FLAT = 1e-6  # of the spread: a column that varies by less says nothing
ZERO = 1e-6  # of the spread: what a coefficient adds that is none


class Regression(NamedTuple):
    """What a quantile regression found: b + β·x, in the data's unit."""

    coefficients: Floats
    intercept: float

    def at(self, columns: Floats) -> Floats:
        """Compute the fitted quantile of columns, one row each."""
        total = np.full(columns.shape[1], self.intercept)
        for place, coefficient in enumerate(self.coefficients.tolist()):
            if coefficient:
                total += coefficient * columns[place]
        return total


def mean_pinball(residuals: Floats, tau: float, weights: Floats | None = None) -> float:
    """Compute the mean of ρ(r), the score of a τ-quantile."""
    return pinball_loss(residuals, np.zeros_like(residuals), tau, weights)


def pinball_regression(
    columns: Floats, values: Floats, tau: float, weights: Floats | None = None
) -> Regression:
    """Find the τ-quantile of values as a combination of columns, one row each.

    The intercept is the exact quantile of what the columns leave.
    """
    constant = quantile(values, tau, weights)
    nothing = Regression(np.zeros(len(columns)), constant)
    spread = mean_pinball(values - constant, tau, weights) / (2 * tau * (1 - tau))
    if not spread > 0:
        return nothing
    unit = float(np.ldexp(1.0, np.frexp(spread)[1]))
    centres = np.array([np.average(column, weights=weights) for column in columns])
    sizes = np.sqrt([np.average(np.square((column - centre) / unit), weights=weights)
                     for column, centre in zip(columns, centres, strict=True)])  # fmt: skip
    used = np.flatnonzero(sizes > FLAT * spread / unit)
    if used.size == 0:
        return nothing
    A = np.stack([(columns[at] - centres[at]) / (unit * sizes[at]) for at in used.tolist()])
    beta = _solved(A, (values - constant) / unit, tau, weights)
    beta[beta < ZERO * spread / unit] = 0.0
    coefficients = np.zeros(len(columns))
    coefficients[used] = beta / sizes[used]
    left = values - Regression(coefficients, 0.0).at(columns)
    return Regression(coefficients, quantile(left, tau, weights))


def _solved(A: Floats, y: Floats, tau: float, weights: Floats | None) -> Floats:
    """Solve the program for columns of mean 0 and variance 1, in a unit of the values' size."""
    p, n = A.shape
    v = np.ones(n) if weights is None else weights / np.mean(weights)
    up, down = tau * v, (1 - tau) * v  # what a unit above and below costs
    spread = float(np.mean(np.abs(y)))
    beta, b, a = np.full(p, 0.1 * spread), 0.0, np.zeros(n)
    z = np.full(p, float(np.sum(up * (1 - tau))))
    r = y - _product(beta, A)
    u, w = np.maximum(r, 0.0) + spread, np.maximum(-r, 0.0) + spread
    above, below = up - a, down + a  # the slacks of u and of w
    for _ in range(STEPS):
        # What is missing in each condition.
        primal = y - _product(beta, A) - b - u + w
        dual, balance = -_sums(A, a) - z, -float(np.sum(a))
        gap = float(np.sum(u * above) + np.sum(w * below) + beta @ z)
        loss = float(np.sum(up * u) + np.sum(down * w))
        scale = CLOSE * loss
        if gap <= scale and np.sum(np.abs(primal)) <= scale:
            break
        d = 1 / (u / above + w / below)
        weighed = A * d
        gram = np.empty((p + 1, p + 1))
        gram[:p, :p] = np.einsum("in,jn->ij", weighed, A)  # in a fixed order, unlike BLAS
        gram[:p, p] = gram[p, :p] = np.sum(weighed, axis=1)
        gram[p, p] = np.sum(d)
        gram[range(p), range(p)] += z / beta
        mu = 0.0
        extra: tuple[Floats | float, ...] = (0.0, 0.0, 0.0)
        for corrector in (False, True):
            # Complementarity: u·above = mu, less what second-order terms take.
            need_u, need_w = mu - u * above - extra[0], mu - w * below - extra[1]
            need_beta = mu - beta * z - extra[2]
            known = d * (primal - need_u / above + need_w / below)
            right = np.append(
                _sums(A, known) - dual + need_beta / beta, np.sum(known) - balance
            )  # fmt: skip
            step = _newton_step(gram, right)
            d_beta, d_b = step[:p], float(step[p])
            d_a = known - d * (_product(d_beta, A) + d_b)
            d_u, d_w = (need_u + u * d_a) / above, (need_w - w * d_a) / below
            d_z = (need_beta - z * d_beta) / beta
            first = min(_reach(u, d_u), _reach(w, d_w), _reach(beta, d_beta))
            second = min(_reach(above, -d_a), _reach(below, d_a), _reach(z, d_z))
            if not corrector:
                after = float(
                    np.sum((u + first * d_u) * (above - second * d_a))
                    + np.sum((w + first * d_w) * (below + second * d_a))
                    + (beta + first * d_beta) @ (z + second * d_z)
                )
                mu = (after / gap) ** 3 * gap / (2 * n + p)
                extra = (-d_u * d_a, d_w * d_a, d_beta * d_z)
        first, second = min(1.0, INSIDE * first), min(1.0, INSIDE * second)
        beta, b = beta + first * d_beta, b + first * d_b
        u, w = u + first * d_u, w + first * d_w
        a, z = a + second * d_a, z + second * d_z
        above, below = above - second * d_a, below + second * d_a
    return beta


def _product(beta: Floats, A: Floats) -> Floats:
    return Regression(beta, 0.0).at(A)


def _sums(A: Floats, x: Floats) -> Floats:
    return np.array([np.sum(row * x) for row in A])


def _reach(x: Floats, step: Floats) -> float:
    """Find how many steps lead to the boundary."""
    shrinking = step < 0
    with np.errstate(over="ignore"):  # a step that hardly shrinks anything reaches for ever
        return float(np.min(-x[shrinking] / step[shrinking], initial=1 / INSIDE))


def _newton_step(gram: Floats, right: Floats) -> Floats:
    """Solve the equations of a step; of singular ones, as few cells have, the shortest solution."""
    try:
        return np.asarray(np.linalg.solve(gram, right), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])
