"""Accuracy of predictions on held-out cells: ``python -m bench.accuracy``.

To evaluate a prototype::

    from bench.accuracy import SETS, score
    from fastemf.loss import expectile

    train, test, _ = SETS["additive"](0)  # seed 0
    rows, cols, values = train.cells  # of a matrix of train.shape
    predicted = ...  # for the cells test.rows, test.cols
    score(predicted, test.values, expectile(values, omega), omega)
"""

from __future__ import annotations

from collections.abc import Callable

from bench.accuracy.baselines import AbsentError, Predictor
from bench.accuracy.families import FAMILIES, FAMILIES_WITH_FEATURES
from bench.accuracy.methods import METHODS
from bench.accuracy.scores import Score, score
from bench.accuracy.splits import REAL, REAL_WITH_FEATURES, Cells, Split, Training

__all__ = [
    "FAMILIES",
    "FAMILIES_WITH_FEATURES",
    "METHODS",
    "REAL",
    "REAL_WITH_FEATURES",
    "SETS",
    "SETS_WITH_FEATURES",
    "AbsentError",
    "Cells",
    "Predictor",
    "Score",
    "Split",
    "Training",
    "score",
]

SETS: dict[str, Callable[..., Split]] = {**REAL, **FAMILIES}
SETS_WITH_FEATURES: dict[str, Callable[..., Split]] = {
    **REAL_WITH_FEATURES, **FAMILIES_WITH_FEATURES
}  # fmt: skip
