"""`Evaluation`: scores of a model on given data, compared with baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastemf.boosting.cell_features import CellFeatures
from fastemf.boosting.coverage_report import CoverageReport, report_coverage
from fastemf.boosting.observed_cells import cells_at
from fastemf.censoring.coverage import CensoredCells
from fastemf.loss import sign_weights
from fastemf.models.bilinear import Predicts
from fastemf.models.distribution_scores import (
    DistributionScore,
    central_coverage,
    compare_distributions,
    score_distributions,
)
from fastemf.models.reading import CellValues
from fastemf.models.tabular import Columns, Tabular
from fastemf.sources.medians import median
from fastemf.support.arrays import Array, Floats
from fastemf.support.progress import track
from fastemf.tuning.baselines import TrainingBaselines
from fastemf.tuning.record import NOTHING_ADDED

FIT, MEDIAN = "fit", "column median"
CELLS_PER_PART = 1 << 18


class Score(NamedTuple):
    """Scores of one kind of prediction at one expectile level; see `Evaluation`.

    Attributes
    ----------
    omega : float
        The expectile level.
    name : str
        ``"fit"``, or the name of a baseline.
    loss : float
        Mean expectile loss, in squared units of the data.
    skill : float
        1 − loss / loss of the constant; NaN if there is no constant to compare with.
    effective_omega : float
        The level at which the predictions lie in these data.
    coverage : float
        Proportion of the values at or below their prediction.
    pinball : float
        Mean pinball loss at omega, in the units of the data.
    relative_error : float
        Median of |observed − predicted| / |observed| over the nonzero values.
    """

    omega: float
    name: str
    loss: float
    skill: float
    effective_omega: float
    coverage: float
    pinball: float
    relative_error: float


class QuantileScore(NamedTuple):
    """Scores of one kind of prediction at one quantile; see `Evaluation`.

    Attributes
    ----------
    tau : float
        The quantile.
    name : str
        ``"fit"``, or the name of a baseline.
    pinball : float
        Mean pinball loss, in the units of the data.
    skill : float
        1 − pinball loss / that of the constant; NaN if that is 0.
    coverage : float
        Proportion of the values at or below their prediction.
    relative_error : float
        Median of |observed − predicted| / |observed| over the nonzero values.
    """

    tau: float
    name: str
    pinball: float
    skill: float
    coverage: float
    relative_error: float


HEADINGS = {"name": "", "effective_omega": "effective omega", "relative_error": "rel. error"}


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Tabular):
    """Scores of a model on given data, compared with baselines of its training data.

    The baselines are a constant, column intercepts, row and column intercepts, and column
    medians. Quantiles are compared with the quantiles of all values and of each column, the sum
    of row and column quantiles, and the larger of the last two. ``print(evaluation)`` shows all
    scores and a verdict in words, and ``evaluation.to_frame()`` is a data frame of them.
    Observations are weighted by their weights in all scores.

    Attributes
    ----------
    scores : tuple of Score, or of QuantileScore
        One per level (or quantile) and kind of prediction, the model first.
    observations : int
        Number of observations scored.
    left_out : int
        Number of observations with unknown labels, left out by ``unknown="nan"``.
    coverage : tuple of CoverageReport
        For quantiles, one coverage report per quantile: the confidence interval of its coverage,
        and its coverage by decile of the prediction and in rows with many observations.
    distribution : tuple of DistributionScore
        For two or more quantiles and values that are not censored, scores of the whole
        distributions (`Quantiles.predict_distribution`), the model first.
    interval_coverage : float
        Coverage of the interval that is scored in `distribution`; NaN if there is none.
    censored : int
        Number of observations that are censored. Their expectile loss and effective omega are
        those of imputed values. In the pinball loss and relative error, values and predictions are
        compared up to the limit. Coverage is that of the cells whose prediction lies within the
        limit (for quantiles, ``verifiable`` of the coverage report is their proportion).
    library : {"pandas", "polars"}
        Library of the data frame that `to_frame` returns.
    """

    scores: tuple[Score, ...] | tuple[QuantileScore, ...]
    observations: int
    left_out: int = 0
    coverage: tuple[CoverageReport, ...] = ()
    distribution: tuple[DistributionScore, ...] = ()
    interval_coverage: float = math.nan
    censored: int = 0
    library: str = "pandas"

    def score(
        self, name: str = FIT, *, omega: float | None = None, tau: float | None = None
    ) -> Any:
        """Return one of the scores; by default that of the model at its lowest level or quantile.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> evaluation = fastemf.complete(R, omega=0.1, k=2).evaluate(R)
        >>> evaluation.score("constant").skill
        0.0
        """
        wanted = {"omega": omega, "tau": tau}
        for one in self.scores:
            same = all(value in (None, getattr(one, key, None)) for key, value in wanted.items())
            if one.name == name and same:
                return one
        names = ", ".join(f"{one.name!r} at {one._fields[0]}={one[0]:g}" for one in self.scores)
        raise ValueError(
            f"name, omega and tau must be those of a score ({names}), got {name!r}, {omega!r} and "
            f"{tau!r}"
        )

    def columns(self) -> dict[str, list[Any]]:
        """Return the scores as lists by column name.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> fastemf.complete(R, omega=0.1, k=2).evaluate(R).columns()["name"]
        ['fit', 'constant', 'column', 'row + column', 'column median']
        """
        names = self.scores[0]._fields
        return {name: [getattr(one, name) for one in self.scores] for name in names}

    def verdict(self) -> str:
        """Compare the model with the baselines in words, in one line per level.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> print(fastemf.complete(R, omega=0.1, k=2).evaluate(R).verdict())
        loss ... relative to a constant, ... relative to the best baseline (row + column)...
        """
        return "\n".join(self._verdicts())

    def _verdicts(self) -> Iterator[str]:
        fits = [one for one in self.scores if one.name == FIT]
        for fit in fits:
            at, what = self._subject(fit, alone=len(fits) == 1)
            baselines = [one for one in self.scores if one[0] == fit[0] and one.name != FIT]
            if not baselines:
                yield f"{at}the model stores no baselines to compare with"
                continue
            constant, best = baselines[0], min(baselines, key=_loss)
            if not _loss(constant) > 0:
                yield f"{at}a constant predicts all observations"
                continue
            ratios = [
                _loss(fit) / _loss(one) if _loss(one) > 0 else math.inf for one in (constant, best)
            ]
            words = "" if ratios[1] <= NOTHING_ADDED else ": no improvement over that baseline"
            yield (
                f"{at}{what} {ratios[0]:.2f} relative to a constant, {ratios[1]:.2f} relative to "
                f"the best baseline ({best.name}){words}"
            )

    def _subject(self, fit: Score | QuantileScore, *, alone: bool) -> tuple[str, str]:
        """Return the level or quantile of a verdict, and the quantity that is compared."""
        if isinstance(fit, Score):
            return "" if alone else f"omega={fit.omega:g}: ", "loss"
        [report] = (one for one in self.coverage if one.tau == fit.tau)
        low, high = report.interval
        parts = [report.censoring_note] if report.censoring_note else []
        if report.cells:
            parts.insert(
                0,
                f"coverage {fit.coverage:.4f} (95 % CI {low:.4f} to {high:.4f}), "
                f"{min(report.deciles):.3f} to {max(report.deciles):.3f} by decile",
            )
        return f"p{100 * fit.tau:g}: ", "; ".join([*parts, "pinball loss"])

    def __repr__(self) -> str:
        return f"<Evaluation of {self.observations} observations, {len(self.scores)} scores>"

    @property
    def _title(self) -> str:
        left_out = f" ({self.left_out:,} with unknown labels left out)" if self.left_out else ""
        return f"{self.observations:,} observations{left_out}"

    def _shown(self) -> Columns:
        return {HEADINGS.get(name, name): cells for name, cells in self.columns().items()}

    @property
    def _notes(self) -> Iterator[str]:
        if self.censored:
            yield self.censoring_note
        yield from self._verdicts()
        yield from compare_distributions(self.distribution, self.interval_coverage)

    @property
    def censoring_note(self) -> str:
        """How censored values are scored; empty if there are none."""
        if not self.censored:
            return ""
        imputed = "" if self.coverage else "imputed for loss, skill and effective omega; "
        return (
            f"{self.censored:,} censored values: {imputed}pinball loss and relative error compare "
            "values and predictions up to the limit, coverage is of the cells predicted within it"
        )


def _loss(score: Score | QuantileScore) -> float:
    return score.pinball if isinstance(score, QuantileScore) else score.loss


def evaluate_level(
    cells: CellValues, omega: float, predicted: Array, training: TrainingBaselines | None,
    censored: CensoredCells | None,
) -> list[Score]:  # fmt: skip
    """Score a model at one level, and the baselines of its training data."""

    def score(name: str, predict: Predicts) -> Score:
        return score_predictions(
            name, cells, omega, lambda part: predict(cells.rows[part], cells.cols[part]), censored
        )

    scores = [score_predictions(FIT, cells, omega, lambda part: predicted[part], censored)]
    if training is None:
        return scores
    for name in training.NAMES:
        scores.append(score(name, partial(training.predict, name)))
    base = scores[1].loss
    return [one._replace(skill=1 - one.loss / base if base > 0 else math.nan) for one in scores]


def score_predictions(
    name: str, cells: CellValues, omega: float, predicted: Callable[[slice], Array],
    censored: CensoredCells | None,
) -> Score:  # fmt: skip
    """Compute all scores but the skill, one block of observations at a time.

    The expectile loss of `censored` cells is that of imputed values.
    """
    loss = below = size = covered = pinball = 0.0
    weights = cells.weights
    values = cells.values if censored is None else censored.values
    errors = np.empty(values.size)
    predictions = np.empty(0 if censored is None else values.size)
    for first in track(range(0, values.size, CELLS_PER_PART), "cell"):
        part = slice(first, first + CELLS_PER_PART)
        b = values[part].astype(np.float64, copy=False)
        fitted = predicted(part)
        r = known = b - fitted
        apart, is_below = np.abs(r), r < 0
        v = 1.0 if weights is None else weights[part].astype(np.float64)
        heavy = v * apart
        sides = sign_weights(r, omega) * heavy
        loss += float(np.sum(sides * apart))
        if censored is not None:
            predictions[part], known = fitted, censored.residuals(fitted, part)
            sides = sign_weights(known, omega) * v * np.abs(known)
        errors[part] = np.abs(known)
        pinball += float(np.sum(sides))
        size += float(np.sum(heavy))
        below += float(np.sum(heavy[is_below]))
        covered += float(np.sum(v * (r <= 0)))
    mass = float(values.size) if weights is None else float(np.sum(weights, dtype=np.float64))
    coverage = covered / mass
    if censored is not None:
        at = np.flatnonzero(censored.is_checkable(predictions))
        coverage = censored.coverage(predictions, weights, at) if at.size else math.nan
    return Score(
        omega, name, loss / mass, math.nan, below / size if size > 0 else math.nan,
        coverage, pinball / mass, _relative_error(errors, cells.values, weights),
    )  # fmt: skip


def _relative_error(errors: Floats, values: Array, weights: Array | None) -> float:
    """Return the median of errors relative to nonzero values."""
    with np.errstate(divide="ignore", invalid="ignore"):
        errors /= np.abs(values)
    defined = values != 0
    if not defined.all():
        errors, weights = errors[defined], None if weights is None else weights[defined]
    return median(errors, None if weights is None else weights.astype(np.float64))


def evaluate_quantiles(
    cells: CellValues,
    shape: tuple[int, int],
    predicted: Array,
    features: CellFeatures,
    training: TrainingBaselines | None,
    censored: CensoredCells | None,
    lowest: float,
) -> Evaluation:
    """Score predictions, whose last axis are quantiles, and baselines.

    Column medians are included if the model stores them in `training`. Distributions start at the
    `lowest` value.
    """
    observed = cells_at(shape, *cells[:4])
    i, j = cells.rows, cells.cols
    scores: list[QuantileScore] = []
    reports = []
    simple: dict[str, list[Floats]] = {}
    for t, tau in enumerate(one.level for one in features.objectives):
        baselines, own = features.baselines(t, i, j), predicted[:, t]
        predictions = {FIT: own, **baselines}
        for name, values in predictions.items():
            simple.setdefault(name, []).append(values)
        if training is not None:
            predictions[MEDIAN] = training.predict(MEDIAN, i, j)
        of_tau = [
            _score(name, cells, tau, values, censored) for name, values in predictions.items()
        ]
        base = of_tau[1].pinball
        scores += [
            one._replace(skill=1 - one.pinball / base if base > 0 else math.nan) for one in of_tau
        ]
        reports.append(report_coverage(observed, tau, own.astype(np.float64), baselines, censored))
    found = Evaluation(
        tuple(scores), cells.values.size, coverage=tuple(reports), censored=cells.n_censored
    )
    taus = tuple(report.tau for report in reports)
    if len(taus) < 2 or censored is not None:
        return found
    distributions = score_distributions(cells, taus, simple, lowest)
    return replace(found, distribution=distributions, interval_coverage=central_coverage(taus))


def _score(
    name: str, cells: CellValues, tau: float, predicted: Array, censored: CensoredCells | None
) -> QuantileScore:
    score = score_predictions(name, cells, tau, lambda part: predicted[part], censored)
    return QuantileScore(tau, name, score.pinball, math.nan, score.coverage, score.relative_error)
