"""Scores of predicted distributions: CRPS and interval scores, compared with baselines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastemf.distribution import Distribution
from fastemf.models.reading import CellValues
from fastemf.scores import CRPS, interval_score
from fastemf.support.arrays import Floats


class DistributionScore(NamedTuple):
    """Scores of distributions between one kind of predicted quantiles.

    See `fastemf.models.evaluation.Evaluation`.

    Attributes
    ----------
    name : str
        ``"fit"``, or the name of a baseline.
    crps : CRPS
        Continuous ranked probability score, in the units of the data, and its bounds; see
        `fastemf.metrics.crps`.
    interval_score : float
        Mean score of the widest central interval whose ends are fitted; NaN if there is none.
    """

    name: str
    crps: CRPS
    interval_score: float


def score_distributions(
    cells: CellValues, taus: tuple[float, ...], predicted: dict[str, list[Floats]], lowest: float
) -> tuple[DistributionScore, ...]:
    """Score the distributions between quantiles, by kind of prediction."""
    values, weights = cells.values.astype(np.float64), cells.weights
    coverage, scores = central_coverage(taus), []
    for name, columns in predicted.items():
        quantiles = np.sort(np.stack(columns, axis=-1))  # those of baselines may cross
        distribution = Distribution(taus, quantiles, lowest=lowest)
        parts = distribution.crps(values), *distribution.crps_bounds(values)
        crps = CRPS(*(float(np.average(part, weights=weights)) for part in parts))
        of_interval = math.nan
        if not math.isnan(coverage):
            ends = quantiles[:, 0], quantiles[:, -1]
            of_interval = interval_score(values, *ends, coverage, weights)
        scores.append(DistributionScore(name, crps, of_interval))
    return tuple(scores)


def central_coverage(taus: tuple[float, ...]) -> float:
    """Return the coverage of the interval between the outer quantiles; NaN if it is not central."""
    is_central = math.isclose(taus[0] + taus[-1], 1)
    return taus[-1] - taus[0] if is_central else math.nan


def compare_distributions(scores: tuple[DistributionScore, ...], coverage: float) -> Iterator[str]:
    """Compare the scores of a model with those of baselines, in words; the model is first."""
    if not scores:
        return
    crps = scores[0].crps
    yield (
        f"CRPS {crps.score:.4g} (from {crps.lower:.4g} to {crps.upper:.4g}, depending on the "
        f"interpolation), {_compare([one.crps.score for one in scores], scores)}"
    )
    if not math.isnan(coverage):
        intervals = [one.interval_score for one in scores]
        yield (
            f"interval score {intervals[0]:.4g} at coverage {coverage:.4g}, "
            f"{_compare(intervals, scores)}"
        )


def _compare(losses: list[float], scores: tuple[DistributionScore, ...]) -> str:
    own, constant = losses[:2]
    best = min(range(1, len(losses)), key=losses.__getitem__)
    ratios = [own / other if other > 0 else math.inf for other in (constant, losses[best])]
    return (
        f"{ratios[0]:.2f} relative to a constant, {ratios[1]:.2f} relative to the best baseline "
        f"({scores[best].name})"
    )
