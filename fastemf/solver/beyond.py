"""What censored residuals are replaced by, under the Kaplan–Meier estimate of residuals.

A value c that is only known to be exceeded leaves x = c − fit, in units of the noise. At level ω
the loss has slope w(u) u at a residual u; its mean over the residuals beyond x,

    g(x) = E( w(u) u | u > x ),

is what the entry would contribute if it had been observed, on average. It is replaced by the
residual of that slope: g / ω where g ≥ 0, else g / (1 − ω). At ω = 0.5, and wherever x ≥ 0, that
is the mean of the residuals beyond x, as Buckley and James (1979) have it.

Means have no spread. Where it is the spread that is asked for, as by quantiles, an entry is
replaced by a residual drawn from those beyond x: `Tail`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Beyond", "Tail", "beyond", "tail"]

KNOTS = 256


@dataclass(frozen=True, eq=False)
class Beyond:
    """The curve by which residuals at a limit are replaced, through at most `KNOTS` points."""

    at: NDArray[np.float64]  # residuals at the limit, rising
    by: NDArray[np.float64]  # what replaces them

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Replace residuals at the limit; nothing is moved back over it."""
        return np.asarray(np.maximum(np.interp(x, self.at, self.by), x))


def beyond(
    residuals: NDArray[np.float64],
    censored: NDArray[np.bool_],
    weights: NDArray[np.float64],
    omega: float,
) -> Beyond:
    """Find the curve of residuals of which some are known to lie beyond; for right-censoring.

    What is left of the distribution after the last one that was observed is put there.
    """
    u, mass, last = _kaplan_meier(residuals, censored, weights)
    slopes = np.where(u >= 0, omega, 1 - omega) * mass * u
    # Beyond u[i] are those after it, if it is the last of its equals.
    slope_after = np.append(np.cumsum(slopes[::-1])[::-1][1:], 0.0)
    mass_after = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0)
    is_last = np.append(u[1:] > u[:-1], True)
    known = np.flatnonzero(is_last[:last] & (mass_after[:last] > 0))
    at, by = u[[last]], u[[last]]  # beyond which nothing is known
    if known.size:
        picked = known[np.unique(np.linspace(0, known.size - 1, KNOTS - 1).round().astype(int))]
        g = slope_after[picked] / mass_after[picked]
        at = np.append(u[picked], at)
        by = np.append(np.where(g >= 0, g / omega, g / (1 - omega)), by)
    return Beyond(at, by)


@dataclass(frozen=True, eq=False)
class Tail:
    """The distribution of residuals: the share of them beyond each."""

    at: NDArray[np.float64]  # residuals, rising
    beyond: NDArray[np.float64]  # falling to 0

    def draw(self, x: NDArray[np.float64], chance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return residuals beyond x, of which a share `chance` lies further out."""
        share = chance * np.interp(x, self.at, self.beyond)
        return np.asarray(np.maximum(np.interp(-share, -self.beyond, self.at), x))


def tail(
    residuals: NDArray[np.float64], censored: NDArray[np.bool_], weights: NDArray[np.float64]
) -> Tail:
    """Find the distribution of residuals of which some are known to lie beyond."""
    u, mass, last = _kaplan_meier(residuals, censored, weights)
    seen = np.flatnonzero(mass[: last + 1] > 0)
    beyond = np.append(np.cumsum(mass[seen][:0:-1])[::-1], 0.0)
    return Tail(u[seen], beyond)


def _kaplan_meier(
    residuals: NDArray[np.float64], censored: NDArray[np.bool_], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return the residuals in order, the probability of each, and which is the last observed."""
    order = np.lexsort((censored, residuals))  # of equal ones, those observed come first
    u, lost, v = residuals[order], censored[order], weights[order]
    at_risk = np.cumsum(v[::-1])[::-1]
    share = np.where(lost, 0.0, v / at_risk)
    last = int(np.flatnonzero(~lost)[-1]) if not lost.all() else u.size - 1
    share[last] = 1.0
    survival = np.concatenate([[1.0], np.cumprod(1.0 - share)])
    return u, survival[:-1] - survival[1:], last
