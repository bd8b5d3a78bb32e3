"""What quantiles of given data are worth, beside simpler ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.model.evaluation import FIT, Evaluation, QuantileScore, judged
from fastemf.model.reading import CellValues
from fastemf.solver.training import TrainingLevels
from fastemf.stacking.items import KnownItems
from fastemf.stacking.promise import promised
from fastemf.stacking.sampled import placed

__all__ = ["evaluate_quantiles"]

MEDIAN = "column median"


def evaluate_quantiles(
    cells: CellValues,
    shape: tuple[int, int],
    predicted: NDArray[Any],
    items: KnownItems,
    training: TrainingLevels | None,
) -> Evaluation:
    """Judge predictions of cells, whose last axis are quantiles, and simpler ones of their data.

    Each column's median is among these where the `training` data's levels are known.
    """
    observed = placed(shape, *cells)
    i, j = cells.rows, cells.cols
    scores: list[QuantileScore] = []
    promises = []
    for t, tau in enumerate(items.taus):
        simple, own = items.simple(t, i, j), predicted[:, t]
        ways = {
            FIT: own,
            "constant": simple.constant,
            "column": simple.column,
            "row + column": simple.row_column,
            "larger of both": simple.larger,
        }
        if training is not None:
            ways[MEDIAN] = training.predict(MEDIAN, i, j)
        found = [_scored(name, cells, tau, values) for name, values in ways.items()]
        base = found[1].pinball
        scores += [
            one._replace(skill=1 - one.pinball / base if base > 0 else math.nan) for one in found
        ]
        promises.append(promised(observed, tau, own.astype(np.float64), simple))
    return Evaluation(tuple(scores), cells.values.size, promises=tuple(promises))


def _scored(
    name: str, cells: CellValues, tau: float, predicted: NDArray[Any]
) -> QuantileScore:  # fmt: skip
    found = judged(name, cells, tau, lambda part: predicted[part])
    return QuantileScore(
        tau, name, found.pinball, math.nan, found.coverage, found.relative_error
    )  # fmt: skip
