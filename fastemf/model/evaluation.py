"""`Evaluation`: what a model's predictions of given data are worth, beside simpler ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.loss import sign_weights
from fastemf.model.prediction import Predicts
from fastemf.model.reading import CellValues
from fastemf.observations.medians import median
from fastemf.solver.training import TrainingLevels
from fastemf.solver.tuning import NOTHING_ADDED
from fastemf.stacking.promise import Promise

__all__ = ["FIT", "Evaluation", "QuantileScore", "Score", "evaluate_level", "judged"]

FIT = "fit"
CELLS_PER_PART = 1 << 18


class Score(NamedTuple):
    """What predictions of given data at one expectile level are worth; see `Evaluation`."""

    omega: float
    """The level."""
    name: str
    """What predicted: ``"fit"``, or a simpler way."""
    loss: float
    """Mean expectile loss, in squared units of the data."""
    skill: float
    """1 − loss / that of the constant; NaN where there is none to compare with."""
    effective_omega: float
    """The level at which the predictions really lie."""
    coverage: float
    """Share of the values at or below their prediction."""
    pinball: float
    """Mean pinball loss at the share omega, in the data's unit."""
    relative_error: float
    """Median of |observed − predicted| / |observed|, of the values that are not 0."""


class QuantileScore(NamedTuple):
    """What predictions of given data at one quantile are worth; see `Evaluation`."""

    tau: float
    """The share wanted at or below."""
    name: str
    """What predicted: ``"fit"``, or a simpler way."""
    pinball: float
    """Mean pinball loss, in the data's unit."""
    skill: float
    """1 − pinball / that of the constant; NaN where that is 0."""
    coverage: float
    """Share of the values at or below their prediction."""
    relative_error: float
    """Median of |observed − predicted| / |observed|, of the values that are not 0."""


HEADINGS = {"name": "", "effective_omega": "w_eff", "relative_error": "rel. error"}


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What a model's predictions of given data are worth, beside simpler ones.

    These come from the data that the model was fitted to: a constant, a level for each column,
    levels for rows and columns, and each column's median; of quantiles, in place of levels, the
    quantiles of columns, of rows and columns added up, and the larger of both.
    ``print(evaluation)`` shows a table of all, and the verdict in words;
    ``pandas.DataFrame(evaluation.columns())`` is that table. Observations count by their weights
    in all figures.

    Attributes
    ----------
    scores : tuple of Score, or of QuantileScore
        One for each level, or quantile, and way to predict, the model first.
    observations : int
        How many were judged by.
    left_out : int
        Observations of labels that the model does not have, which ``unknown="nan"`` left out.
    promises : tuple of Promise
        Of each quantile what else can be said of these observations: how well they tell its share,
        and that share by size of the prediction and in rows with many of them.
    """

    scores: tuple[Score, ...] | tuple[QuantileScore, ...]
    observations: int
    left_out: int = 0
    promises: tuple[Promise, ...] = ()

    def score(self, name: str = FIT, level: float | None = None) -> Any:
        """Return one of the scores, that of the model's lowest level unless told otherwise.

        Of quantiles the `level` is the share at or below.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> found = fastemf.complete(R, omega=0.1, k=2).evaluate(R)
        >>> found.score("constant").skill
        0.0
        """
        for one in self.scores:
            if one.name == name and level in (None, one[0]):
                return one
        raise ValueError(
            f"name and level must be those of a score, got {name!r} and {level!r}; there are "
            + ", ".join(f"{one.name!r} at {one[0]:g}" for one in self.scores)
        )

    def columns(self) -> dict[str, list[Any]]:
        """Return the scores as a table, by column.

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
        """Say in words, a line for each level, how the model compares with simpler predictions.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> print(fastemf.complete(R, omega=0.1, k=2).evaluate(R).verdict())
        the fit's loss is ... of a constant's, ... of the best simple prediction's (row + column)...
        """
        return "\n".join(self._verdicts())

    def _verdicts(self) -> Iterator[str]:
        fits = [one for one in self.scores if one.name == FIT]
        for fit in fits:
            at, what = self._subject(fit, alone=len(fits) == 1)
            simple = [one for one in self.scores if one[0] == fit[0] and one.name != FIT]
            if not simple:
                yield (
                    f"{at}the model keeps nothing of its data to compare with, as it was made by "
                    "an older version: fit it again"
                )
                continue
            constant, best = simple[0], min(simple, key=_loss)
            if not _loss(constant) > 0:
                yield f"{at}a constant predicts all observations"
                continue
            shares = [
                _loss(fit) / _loss(one) if _loss(one) > 0 else math.inf for one in (constant, best)
            ]
            words = "" if shares[1] <= NOTHING_ADDED else "; the fit adds nothing to that"
            yield (
                f"{at}{what} is {shares[0]:.2f} of a constant's, {shares[1]:.2f} of the best "
                f"simple prediction's ({best.name}){words}"
            )

    def _subject(self, fit: Score | QuantileScore, *, alone: bool) -> tuple[str, str]:
        """Return which level a verdict is about, and what is compared."""
        if isinstance(fit, Score):
            return "" if alone else f"omega={fit.omega:g}: ", "the fit's loss"
        [found] = (one for one in self.promises if one.tau == fit.tau)
        low, high = found.interval
        return (
            f"p{100 * fit.tau:g}: ",
            f"{fit.coverage:.4f} at or below ({low:.4f} to {high:.4f}), {min(found.deciles):.3f} "
            f"to {max(found.deciles):.3f} by decile of the prediction; the pinball loss",
        )

    def __repr__(self) -> str:
        return f"<Evaluation of {self.observations} observations, {len(self.scores)} scores>"

    def __str__(self) -> str:
        head = f"{self.observations:,} observations"
        if self.left_out:
            head += f" ({self.left_out:,} of unknown labels left out)"
        lines = [[HEADINGS.get(name, name) for name in self.scores[0]._fields]]
        for level, name, *figures in self.scores:
            lines.append([_text(level), name, *map(_text, figures)])
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        sides = [str.rjust, str.ljust, *[str.rjust] * (len(widths) - 2)]
        table = ["  ".join(map(_placed, sides, line, widths)) for line in lines]
        return "\n".join([f"{head}:", *table, self.verdict()])


def _loss(score: Score | QuantileScore) -> float:
    return score.pinball if isinstance(score, QuantileScore) else score.loss


def _placed(side: Callable[[str, int], str], cell: str, width: int) -> str:
    return side(cell, width)


def _text(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def evaluate_level(
    cells: CellValues, omega: float, predict: Predicts, training: TrainingLevels | None
) -> list[Score]:
    """Judge a model at one level, and the levels of its data, by the same observations."""

    def score(name: str, predict: Predicts) -> Score:
        return judged(
            name, cells, omega, lambda part: predict(cells.rows[part], cells.cols[part])
        )  # fmt: skip

    found = [score(FIT, predict)]
    if training is None:
        return found
    for name in training.NAMES:
        found.append(score(name, partial(training.predict, name)))
    base = found[1].loss
    return [one._replace(skill=1 - one.loss / base if base > 0 else math.nan) for one in found]


def judged(
    name: str, cells: CellValues, omega: float, predicted: Callable[[slice], NDArray[Any]]
) -> Score:
    """Sum up what predictions leave, a part of the observations at a time; without skill."""
    loss = below = size = covered = pinball = 0.0
    values, weights = cells.values, cells.weights
    errors = np.empty(values.size)
    for first in range(0, values.size, CELLS_PER_PART):
        part = slice(first, first + CELLS_PER_PART)
        b = values[part].astype(np.float64, copy=False)
        r = b - predicted(part)
        apart, is_below = np.abs(r), r < 0
        errors[part] = apart
        v = 1.0 if weights is None else weights[part].astype(np.float64)
        heavy = v * apart
        sides = sign_weights(r, omega) * heavy
        loss += float(np.sum(sides * apart))
        pinball += float(np.sum(sides))
        size += float(np.sum(heavy))
        below += float(np.sum(heavy[is_below]))
        covered += float(np.sum(v * (r <= 0)))
    mass = float(values.size) if weights is None else float(np.sum(weights, dtype=np.float64))
    return Score(
        omega, name, loss / mass, math.nan, below / size if size > 0 else math.nan,
        covered / mass, pinball / mass, _relative(errors, values, weights),
    )  # fmt: skip


def _relative(
    errors: NDArray[np.float64], values: NDArray[Any], weights: NDArray[Any] | None
) -> float:
    """Divide errors by the sizes of the values, and find the median where those are not 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        errors /= np.abs(values)
    defined = values != 0
    if not defined.all():
        errors, weights = errors[defined], None if weights is None else weights[defined]
    return median(errors, None if weights is None else weights.astype(np.float64))
