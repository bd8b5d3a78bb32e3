"""Scores of predicted distributions, intervals, quantiles and expectiles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastemf.distribution import Distribution
from fastemf.loss import sign_weights
from fastemf.support.arrays import Array, Floats
from fastemf.support.validation import check_level, check_proportion, check_rng


class CRPS(NamedTuple):
    """The continuous ranked probability score of quantiles; see `crps`."""

    score: float
    """With linear interpolation between the quantiles."""
    lower: float
    """Lower bound for all distributions with these quantiles and the same tails."""
    upper: float
    """Upper bound for these distributions."""


class MurphyDiagram(NamedTuple):
    """Mean elementary scores; see `murphy_diagram`."""

    thetas: Floats
    scores: Floats


def crps(
    values: ArrayLike, quantiles: ArrayLike, taus: ArrayLike, weights: ArrayLike | None = None, *,
    tails: str = "exponential",
) -> CRPS:  # fmt: skip
    """Return the mean continuous ranked probability score (CRPS), in the units of the data.

    It is a proper score of whole distributions: twice the pinball loss, averaged over all
    quantiles. Lower is better; for a certain prediction it is the absolute error.

    Parameters
    ----------
    values
        The observed values, of any shape.
    quantiles
        Their predicted quantiles, with one value per tau along the last axis.
    taus
        Increasing probabilities, at least two. Between them the quantiles are interpolated
        linearly. ``lower`` and ``upper`` of the result bound the error of this interpolation.
    weights
        Frequency weights.
    tails
        The distribution beyond the first and the last quantile, see
        `fastemf.distribution.Distribution`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.metrics import crps
    >>> taus = np.linspace(0.01, 0.99, 99)
    >>> found = crps([0.5], [taus], taus)  # the score of a uniform distribution is 1/12
    >>> round(found.score, 4), bool(found.lower < 1 / 12 < found.upper)
    (0.0833, True)
    """
    distribution, observed = _distribution(values, quantiles, taus, tails)
    scores = distribution.crps(observed), *distribution.crps_bounds(observed)
    counts = check_weights(weights)
    return CRPS(*(float(np.average(score.ravel(), weights=counts)) for score in scores))


def interval_score(
    values: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float,
    weights: ArrayLike | None = None,
) -> float:  # fmt: skip
    """Return the mean interval score: the width, plus a penalty for values outside.

    A value at the distance d from the interval adds 2 d / (1 − coverage). This is the proper score
    of a central prediction interval with the given coverage.

    Examples
    --------
    >>> from fastemf.metrics import interval_score
    >>> interval_score([1.0, 5.0], [0.0, 0.0], [4.0, 4.0], coverage=0.5)  # 4 and 4 + 4 * 1
    6.0
    """
    miss = 1 - check_proportion(coverage, "coverage")
    observed, low = pair_values(values, lower, "values", "lower")
    _, high = pair_values(values, upper, "values", "upper")
    if (low > high).any():
        raise ValueError("lower must not exceed upper")
    outside = np.maximum(low - observed, 0) + np.maximum(observed - high, 0)
    return _mean(high - low + 2 / miss * outside, weights)


def weighted_interval_score(
    values: ArrayLike, quantiles: ArrayLike, taus: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Return the mean weighted interval score (WIS) of central intervals and the median.

    It is the mean of twice the pinball losses of the quantiles, and approaches the CRPS as they
    become dense. The probabilities `taus` must be symmetric about 0.5 and include it.

    Examples
    --------
    >>> from fastemf.metrics import weighted_interval_score
    >>> weighted_interval_score([5.0], [[0.0, 2.0, 4.0]], [0.25, 0.5, 0.75])
    2.3333333333333335
    """
    p = np.ravel(np.asarray(taus, np.float64))
    if not (np.allclose(p + p[::-1], 1, rtol=0, atol=1e-9) and p.size % 2):
        raise ValueError(f"taus must be symmetric about 0.5 and include it, got {p.tolist()}")
    distribution, observed = _distribution(values, quantiles, taus, "flat")
    r = observed[..., None] - distribution.quantiles
    return _mean(np.mean(2 * np.where(r < 0, p - 1, p) * r, axis=-1).ravel(), weights)


def pit(
    values: ArrayLike, quantiles: ArrayLike, taus: ArrayLike, *, random_state: Any = 0
) -> Floats:
    """Return the probability integral transform: the predicted probability of a smaller value.

    If the predicted distributions are right, the result is uniform in (0, 1), and its histogram is
    flat. It is drawn at random where it is not determined: for a value that has a positive
    probability, because quantiles are equal, and below the first or above the last quantile.

    Parameters
    ----------
    values, quantiles, taus
        As in `crps`.
    random_state
        Seed or generator of the draws.

    Examples
    --------
    >>> from fastemf.metrics import pit
    >>> pit([1.5, 2.0], [[1.0, 2.0, 3.0], [0.0, 1.0, 3.0]], [0.2, 0.5, 0.8]).round(2).tolist()
    [0.35, 0.65]
    """
    distribution, observed = _distribution(values, quantiles, taus, "flat")
    low, high = distribution.cdf(observed, strict=True), distribution.cdf(observed)
    p, x = distribution.taus, distribution.quantiles
    high = np.where(observed < x[..., 0], p[0], high)
    low = np.where(observed > x[..., -1], p[-1], low)
    return np.asarray(low + (high - low) * check_rng(random_state).random(observed.shape))


def murphy_diagram(
    values: ArrayLike, predicted: ArrayLike, *, tau: float | None = None,
    omega: float | None = None, thetas: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> MurphyDiagram:  # fmt: skip
    """Return the mean elementary scores of predicted quantiles or expectiles.

    Every consistent score is a mixture of elementary scores, one for each threshold θ (Ehm et al.,
    2016). A prediction whose curve is below another one at every θ is better under every such
    score. The integral over θ is the pinball loss, or half the expectile loss.

    Parameters
    ----------
    values, predicted
        Values of the same cells.
    tau, omega
        The quantile or the expectile level of the predictions; one of them.
    thetas
        Thresholds. By default 201 quantiles of values and predictions.
    weights
        Frequency weights.

    Examples
    --------
    >>> from fastemf.metrics import murphy_diagram
    >>> murphy_diagram([1.0, 4.0], [2.0, 2.0], tau=0.9, thetas=[0.0, 1.5, 3.0]).scores.round(2)
    array([0.  , 0.05, 0.45])
    """
    if (tau is None) == (omega is None):
        raise ValueError(f"one of tau and omega must be given, got {tau!r} and {omega!r}")
    observed, fitted = pair_values(values, predicted, "values", "predicted")
    if observed.size == 0:
        raise ValueError("values must not be empty")
    if thetas is None:
        thetas = np.quantile(np.concatenate([observed, fitted]), np.linspace(0, 1, 201))
    points = np.ravel(np.asarray(thetas, np.float64))
    level = check_proportion(tau, "tau") if omega is None else check_level(omega)
    side = sign_weights(observed - fitted, level)
    scores = np.empty(points.size)
    for at, theta in enumerate(points):
        between = (np.minimum(observed, fitted) <= theta) & (theta < np.maximum(observed, fitted))
        size = between if omega is None else between * np.abs(observed - theta)
        scores[at] = _mean(side * size, weights)
    return MurphyDiagram(points, scores)


def _distribution(
    values: ArrayLike, quantiles: ArrayLike, taus: ArrayLike, tails: str
) -> tuple[Distribution, Floats]:
    """Return the predicted distributions, and the values in the same shape."""
    distribution = Distribution(tuple(np.ravel(np.asarray(taus)).tolist()), quantiles, tails)
    observed = np.asarray(values, np.float64)
    if observed.shape != distribution.shape or observed.size == 0:
        raise ValueError(
            "quantiles must have the shape of values, not empty, with one more axis, got "
            f"{distribution.quantiles.shape} and {observed.shape}"
        )
    return distribution, observed


def _mean(scores: Floats, weights: ArrayLike | None) -> float:
    return float(np.average(scores, weights=check_weights(weights)))


def check_weights(weights: ArrayLike | None) -> Floats | None:
    """Return frequency weights as a flat array, or None for ones."""
    if weights is None:
        return None
    array = np.asarray(weights, dtype=np.float64).ravel()
    if not (array >= 0).all():
        raise ValueError(f"weights must not be negative or NaN, got {array[~(array >= 0)][0]:g}")
    return array


def pair_values(first: ArrayLike, second: ArrayLike, *names: str) -> tuple[Floats, Floats]:
    """Return two arrays of the same shape, flattened."""
    a: Array = np.asarray(first, dtype=np.float64)
    b: Array = np.asarray(second, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"{names[0]} and {names[1]} must have one shape, got {a.shape}, {b.shape}")
    return a.ravel(), b.ravel()
