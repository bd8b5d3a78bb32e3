"""The Kaplan–Meier estimate of residuals, and the residuals that replace censored ones.

Let c be a right-censored value, and x = c − fit its residual at the limit in units of the noise.
At level ω the loss has slope w(u) u at a residual u. The conditional expectation of the slope
given the limit,

    g(x) = E( w(u) u | u > x ),

is the average contribution of the entry if it had been observed. The entry is imputed by the
residual with that slope: g / ω where g ≥ 0, else g / (1 − ω). At ω = 0.5, and wherever x ≥ 0,
this is the conditional mean of Buckley and James (1979).

Conditional means have no spread. Quantiles need the spread, so for them a censored residual is
replaced by a draw from the conditional distribution: `ResidualDistribution`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastemf.loss import sign_weights
from fastemf.support.arrays import Floats, Mask

KNOTS = 256  # at most


@dataclass(frozen=True, eq=False)
class ConditionalExpectation:
    """Imputed residual as a function of the residual at the limit, linear between knots."""

    at: Floats  # residuals at the limit, increasing
    by: Floats  # imputed residuals

    def __call__(self, x: Floats) -> Floats:
        """Impute residuals; no imputed residual is below the limit."""
        return np.asarray(np.maximum(np.interp(x, self.at, self.by), x))


def conditional_expectation(
    residuals: Floats, censored: Mask, weights: Floats, omega: float
) -> ConditionalExpectation:
    """Estimate the conditional expectation from residuals of which some are right-censored.

    The probability that remains after the largest observed residual is assigned to it.
    """
    u, mass, last = _kaplan_meier(residuals, censored, weights)
    slopes = sign_weights(u, omega) * mass * u
    # The residuals above u[i] are those after it, if it is the last of its ties.
    slope_after = np.append(np.cumsum(slopes[::-1])[::-1][1:], 0.0)
    mass_after = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0)
    is_last = np.append(u[1:] > u[:-1], True)
    inner = np.flatnonzero(is_last[:last] & (mass_after[:last] > 0))
    at, by = u[[last]], u[[last]]  # no residual above this one was observed
    if inner.size:
        picked = inner[np.unique(np.linspace(0, inner.size - 1, KNOTS - 1).round().astype(int))]
        g = slope_after[picked] / mass_after[picked]
        at = np.append(u[picked], at)
        by = np.append(g / sign_weights(g, omega), by)
    return ConditionalExpectation(at, by)


@dataclass(frozen=True, eq=False)
class ResidualDistribution:
    """The distribution of residuals, as the probability of a larger one."""

    at: Floats  # residuals, increasing
    survival: Floats  # decreasing to 0

    def draw(self, x: Floats, uniform: Floats) -> Floats:
        """Draw residuals conditional on being above x, by inversion of uniform numbers."""
        survival = uniform * np.interp(x, self.at, self.survival)
        return np.asarray(np.maximum(np.interp(-survival, -self.survival, self.at), x))


def residual_distribution(
    residuals: Floats, censored: Mask, weights: Floats
) -> ResidualDistribution:
    """Estimate the distribution of residuals of which some are right-censored."""
    u, mass, last = _kaplan_meier(residuals, censored, weights)
    observed = np.flatnonzero(mass[: last + 1] > 0)
    survival = np.append(np.cumsum(mass[observed][:0:-1])[::-1], 0.0)
    return ResidualDistribution(u[observed], survival)


def sort_at_risk(
    values: Floats, censored: Mask, weights: Floats
) -> tuple[Floats, Mask, Floats, Floats]:
    """Sort values; return them, which are censored, their weights, and the weight at risk."""
    order = np.lexsort((censored, values))  # among ties, observed values come first
    weights = weights[order]
    return values[order], censored[order], weights, np.cumsum(weights[::-1])[::-1]


def _kaplan_meier(residuals: Floats, censored: Mask, weights: Floats) -> tuple[Floats, Floats, int]:
    """Return the sorted residuals, the probability of each, and the place of the last observed."""
    u, lost, v, at_risk = sort_at_risk(residuals, censored, weights)
    hazard = np.where(lost, 0.0, v / at_risk)
    last = int(np.flatnonzero(~lost)[-1]) if not lost.all() else u.size - 1
    hazard[last] = 1.0
    survival = np.concatenate([[1.0], np.cumprod(1.0 - hazard)])
    return u, survival[:-1] - survival[1:], last
