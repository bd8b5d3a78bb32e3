"""`Distribution`: predictive distributions given by a few of their quantiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastemf.support.arrays import Array, Floats
from fastemf.support.validation import check_choice, check_quantiles

TAILS = ("exponential", "flat")


@dataclass(frozen=True, eq=False)
class Distribution:
    """Distributions with given quantiles, such as the predictions of cells.

    The quantile function is linear between the given quantiles. Beyond the last one it has the
    tail of the exponential distribution through the last two quantiles, or a flat one, which has
    all its mass at the last quantile. Below the first one it is linear from `lowest`, or has a
    tail of the same kind as above. The farther a probability is from those given, the more it
    depends on these assumptions.

    Parameters
    ----------
    taus
        Increasing probabilities in (0, 1), at least two.
    quantiles
        Values of shape (..., number of taus), which never decrease along the last axis.
    tails
        ``"exponential"`` or ``"flat"``.
    lowest
        Smallest possible value; None if there is none.

    Examples
    --------
    >>> from fastemf.distribution import Distribution
    >>> calls = Distribution((0.5, 0.9), [[100.0, 300.0], [20.0, 30.0]], lowest=0.0)
    >>> calls.cdf(200.0).round(2).tolist()
    [0.7, 1.0]
    >>> calls.quantile(0.25).tolist()
    [50.0, 10.0]
    """

    taus: tuple[float, ...]
    quantiles: Any
    tails: str = "exponential"
    lowest: float | None = None

    def __post_init__(self) -> None:
        check_choice(self.tails, "tails", TAILS)
        taus = check_quantiles(self.taus)
        quantiles = np.asarray(self.quantiles, np.float64)
        if len(taus) < 2 or list(taus) != list(self.taus):
            raise ValueError(f"taus must be at least two increasing numbers, got {self.taus}")
        if quantiles.ndim == 0 or quantiles.shape[-1] != len(taus):
            raise ValueError(
                f"quantiles must have {len(taus)} values along the last axis, one per tau, got "
                f"shape {quantiles.shape}"
            )
        if (np.diff(quantiles) < 0).any():
            raise ValueError("quantiles must never decrease along the last axis")
        object.__setattr__(self, "taus", taus)
        object.__setattr__(self, "quantiles", quantiles)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the distributions."""
        return tuple(self.quantiles.shape[:-1])

    def cdf(self, value: ArrayLike, *, strict: bool = False) -> Floats:
        """Return the probability of a value at most this large; of a smaller one if `strict`.

        `value` is one number, or an array that broadcasts against the distributions.

        Examples
        --------
        >>> from fastemf.distribution import Distribution
        >>> calls = Distribution((0.5, 0.9), [100.0, 300.0], lowest=0.0)
        >>> [round(float(calls.cdf(value)), 3) for value in (-1.0, 50.0, 200.0, 300.0, 400.0)]
        [0.0, 0.25, 0.7, 0.9, 0.955]
        """
        y = np.asarray(value, np.float64)
        taus, x = self._knots
        low, high = self._scales
        reaches = np.greater if strict else np.greater_equal
        with np.errstate(divide="ignore", invalid="ignore"):
            below = taus[0] * np.exp(-np.maximum(x[..., 0] - y, 0) / low)
            beyond = (1 - taus[-1]) * np.exp(-np.maximum(y - x[..., -1], 0) / high)
        found = np.where(low > 0, below, 0.0)
        for at in range(taus.size - 1):
            left, width = x[..., at], x[..., at + 1] - x[..., at]
            part = _proportion(np.clip(y - left, 0, width), width)
            inside = taus[at] + part * (taus[at + 1] - taus[at])
            found = np.where(reaches(y, left), inside, found)
        found = np.where(reaches(y, x[..., -1]), np.where(high > 0, 1 - beyond, 1.0), found)
        return np.asarray(np.where(np.isnan(x[..., 0]) | np.isnan(y), np.nan, found))

    def above(self, value: ArrayLike) -> Floats:
        """Return the probability of a value larger than this: 1 − `cdf`.

        Examples
        --------
        >>> from fastemf.distribution import Distribution
        >>> calls = Distribution((0.5, 0.9), [100.0, 300.0], lowest=0.0)
        >>> round(float(calls.above(200.0)), 3)
        0.3
        """
        return np.asarray(1 - self.cdf(value))

    def quantile(self, tau: float) -> Floats:
        """Return the quantile at a probability in (0, 1), which need not be one of those given.

        Examples
        --------
        >>> from fastemf.distribution import Distribution
        >>> calls = Distribution((0.5, 0.9), [100.0, 300.0], lowest=0.0)
        >>> [round(float(calls.quantile(tau)), 1) for tau in (0.25, 0.7, 0.99)]
        [50.0, 200.0, 586.1]
        """
        (p,) = check_quantiles(tau)
        taus, x = self._knots
        if p > taus[-1]:
            return np.asarray(x[..., -1] + self._scales[1] * np.log((1 - taus[-1]) / (1 - p)))
        if p < taus[0]:
            return np.asarray(x[..., 0] - self._scales[0] * np.log(taus[0] / p))
        at = int(np.clip(np.searchsorted(taus, p, side="right") - 1, 0, taus.size - 2))
        part = (p - taus[at]) / (taus[at + 1] - taus[at])
        return np.asarray(x[..., at] + part * (x[..., at + 1] - x[..., at]))

    def crps(self, values: ArrayLike) -> Floats:
        """Return the continuous ranked probability score of each distribution and its value.

        It is the integral of (F(x) − 1(x ≥ value))², in the units of the data. Lower is better.

        Examples
        --------
        >>> from fastemf.distribution import Distribution
        >>> uniform = Distribution((0.5, 0.999999), [0.5, 0.999999], tails="flat", lowest=0.0)
        >>> round(float(uniform.crps(0.0)), 4)  # of a uniform distribution: 1/3
        0.3333
        """
        y = np.asarray(values, np.float64)
        score = self._tail_scores(y)
        for before, after, p, q in self._intervals(y):
            reached = p + _proportion(before, before + after) * (q - p)
            score = score + before * _mean_square(p, reached)
            score = score + after * _mean_square(1 - reached, 1 - q)
        return np.asarray(score)

    def crps_bounds(self, values: ArrayLike) -> tuple[Floats, Floats]:
        """Return bounds on the score of any distributions with these quantiles and these tails.

        The score that `crps` returns is that of linear interpolation.

        Examples
        --------
        >>> from fastemf.distribution import Distribution
        >>> calls = Distribution((0.25, 0.75), [100.0, 300.0])
        >>> lower, upper = calls.crps_bounds(200.0)
        >>> bool(lower < calls.crps(200.0) < upper)
        True
        """
        y = np.asarray(values, np.float64)
        lower = upper = self._tail_scores(y)
        for before, after, p, q in self._intervals(y):
            lower = lower + before * p**2 + after * (1 - q) ** 2
            upper = upper + before * q**2 + after * (1 - p) ** 2
        return np.asarray(lower), np.asarray(upper)

    def _tail_scores(self, y: Floats) -> Floats:
        """Return the part of the score beyond the first and the last quantile."""
        taus, x = self._knots
        low, high = self._scales
        below = _tail_score(x[..., 0] - y, taus[0], low)
        return np.asarray(below + _tail_score(y - x[..., -1], 1 - taus[-1], high))

    def _intervals(self, y: Floats) -> Iterator[tuple[Floats, Floats, float, float]]:
        """Yield the widths before and after a value in each interval, and its probabilities."""
        taus, x = self._knots
        for at, (p, q) in enumerate(pairwise(taus.tolist())):
            left, right = x[..., at], x[..., at + 1]
            middle = np.clip(y, left, right)
            yield middle - left, right - middle, p, q

    @property
    def _knots(self) -> tuple[Floats, Floats]:
        """Probabilities and quantiles, with those of `lowest`."""
        taus, x = np.array(self.taus), self.quantiles
        if self.lowest is None:
            return taus, x
        first = np.minimum(x[..., :1], self.lowest)
        return np.append(0.0, taus), np.concatenate([first, x], axis=-1)

    @property
    def _scales(self) -> tuple[Array, Array]:
        """Scales of the tails on both sides; 0 for flat ones."""
        p, x = np.array(self.taus), self.quantiles
        low = (x[..., 1] - x[..., 0]) / np.log(p[1] / p[0])
        high = (x[..., -1] - x[..., -2]) / np.log((1 - p[-2]) / (1 - p[-1]))
        if self.tails == "flat":
            low, high = np.zeros_like(low), np.zeros_like(high)
        return np.zeros_like(low) if self.lowest is not None else low, high


def _proportion(part: Floats, whole: Floats) -> Floats:
    """Return the quotient; 0 of nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, part / whole, 0.0)


def _mean_square(first: Any, last: Any) -> Any:
    """Return the mean of the squares of a function that is linear from `first` to `last`."""
    return (first * first + first * last + last * last) / 3


def _tail_score(distance: Floats, mass: float, scale: Floats) -> Floats:
    """Integrate the squared difference of a tail of given mass and the step of a value.

    `distance` is how far the value is beyond the end of the tail; it is not if that is negative.
    The tail is p exp(−d / scale) at the distance d.
    """
    beyond = np.maximum(distance, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(scale > 0, mass * np.exp(-beyond / scale), 0.0)
    # Up to the value, (1 − p)² = 1 − 2p + p²; beyond it, p².
    between = beyond - 2 * scale * (mass - rest) + scale / 2 * (mass**2 - rest**2)
    return np.asarray(between + scale / 2 * rest**2)
