"""Pinball regression (linear quantile regression) with nonnegative coefficients.

Minimizes Σ v ρ(y − b − β·x) over β ≥ 0 and b, where ρ(r) = max(τ r, (τ − 1) r) is the pinball loss.
This is a linear program. Let r = u − w with u, w ≥ 0, and let a be the multipliers of these
equations. At the optimum the slacks

    v τ − a ≥ 0 of u,     v (1 − τ) + a ≥ 0 of w,     −xᵀa ≥ 0 of β

are complementary to their variables, and Σ a = 0. It is solved by Mehrotra's predictor-corrector
interior-point method (Portnoy and Koenker, 1997). The normal equations of a step have one row per
feature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastemf.metrics import pinball_loss
from fastemf.quantile_model.shrunk_quantile import Floats, quantile

MAX_STEPS = 50
TOLERANCE = 1e-5  # duality gap, relative to the loss
STEP_FRACTION = 0.9995  # of the distance to the boundary
FLAT = 1e-6  # features that vary by less, relative to the spread of the values, are ignored
ZERO = 1e-6  # coefficients that contribute less, relative to that spread, are set to 0


class Regression(NamedTuple):
    """The fitted quantile b + β·x, in the units of the data."""

    coefficients: Floats
    intercept: float

    def predict(self, features: Floats) -> Floats:
        """Compute the quantile of cells, given one row per feature."""
        total = np.full(features.shape[1], self.intercept)
        for place, coefficient in enumerate(self.coefficients.tolist()):
            if coefficient:
                total += coefficient * features[place]
        return total


def mean_pinball(residuals: Floats, tau: float, weights: Floats | None = None) -> float:
    """Compute the mean pinball loss ρ(r) of residuals."""
    return pinball_loss(residuals, np.zeros_like(residuals), tau, weights)


def pinball_regression(
    features: Floats, values: Floats, tau: float, weights: Floats | None = None
) -> Regression:
    """Fit the τ-quantile of values as a nonnegative combination of features, one row each.

    The intercept is the exact quantile of the remaining residuals.
    """
    constant = quantile(values, tau, weights)
    intercept_only = Regression(np.zeros(len(features)), constant)
    spread = mean_pinball(values - constant, tau, weights) / (2 * tau * (1 - tau))
    if not spread > 0:
        return intercept_only
    unit = float(np.ldexp(1.0, np.frexp(spread)[1]))
    centres = np.array([np.average(feature, weights=weights) for feature in features])
    sizes = np.sqrt([np.average(np.square((feature - centre) / unit), weights=weights)
                     for feature, centre in zip(features, centres, strict=True)])  # fmt: skip
    used = np.flatnonzero(sizes > FLAT * spread / unit)
    if used.size == 0:
        return intercept_only
    A = np.stack([(features[at] - centres[at]) / (unit * sizes[at]) for at in used.tolist()])
    beta = _interior_point(A, (values - constant) / unit, tau, weights)
    beta[beta < ZERO * spread / unit] = 0.0
    coefficients = np.zeros(len(features))
    coefficients[used] = beta / sizes[used]
    residuals = values - Regression(coefficients, 0.0).predict(features)
    return Regression(coefficients, quantile(residuals, tau, weights))


def _interior_point(A: Floats, y: Floats, tau: float, weights: Floats | None) -> Floats:
    """Solve the program for standardised features and values of order 1."""
    p, n = A.shape
    v = np.ones(n) if weights is None else weights / np.mean(weights)
    up, down = tau * v, (1 - tau) * v  # cost per unit above and below
    spread = float(np.mean(np.abs(y)))
    beta, b, a = np.full(p, 0.1 * spread), 0.0, np.zeros(n)
    z = np.full(p, float(np.sum(up * (1 - tau))))
    r = y - _product(beta, A)
    u, w = np.maximum(r, 0.0) + spread, np.maximum(-r, 0.0) + spread
    above, below = up - a, down + a  # the slacks of u and of w
    for _ in range(MAX_STEPS):
        # Residuals of the optimality conditions.
        primal = y - _product(beta, A) - b - u + w
        dual, balance = -_sums(A, a) - z, -float(np.sum(a))
        gap = float(np.sum(u * above) + np.sum(w * below) + beta @ z)
        loss = float(np.sum(up * u) + np.sum(down * w))
        scale = TOLERANCE * loss
        if gap <= scale and np.sum(np.abs(primal)) <= scale:
            break
        d = 1 / (u / above + w / below)
        weighted = A * d
        gram = np.empty((p + 1, p + 1))
        gram[:p, :p] = np.einsum("in,jn->ij", weighted, A)  # in a fixed order, unlike BLAS
        gram[:p, p] = gram[p, :p] = np.sum(weighted, axis=1)
        gram[p, p] = np.sum(d)
        gram[range(p), range(p)] += z / beta
        mu = 0.0
        extra: tuple[Floats | float, ...] = (0.0, 0.0, 0.0)
        for corrector in (False, True):
            # Complementarity: u·above = mu, minus the second-order terms.
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
        first, second = min(1.0, STEP_FRACTION * first), min(1.0, STEP_FRACTION * second)
        beta, b = beta + first * d_beta, b + first * d_b
        u, w = u + first * d_u, w + first * d_w
        a, z = a + second * d_a, z + second * d_z
        above, below = above - second * d_a, below + second * d_a
    return beta


def _product(beta: Floats, A: Floats) -> Floats:
    return Regression(beta, 0.0).predict(A)


def _sums(A: Floats, x: Floats) -> Floats:
    return np.array([np.sum(row * x) for row in A])


def _reach(x: Floats, step: Floats) -> float:
    """Compute the number of steps to the boundary."""
    shrinking = step < 0
    with np.errstate(over="ignore"):  # tiny steps never reach it
        return float(np.min(-x[shrinking] / step[shrinking], initial=1 / STEP_FRACTION))


def _newton_step(gram: Floats, right: Floats) -> Floats:
    """Solve the normal equations; take the minimum-norm solution if they are singular."""
    try:
        return np.asarray(np.linalg.solve(gram, right), np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(gram, right, rcond=None)[0])
