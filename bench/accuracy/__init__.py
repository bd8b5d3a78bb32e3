"""Accuracy of predictions on held-out cells: ``python -m bench.accuracy``.

To evaluate a prototype::

    from bench.accuracy import SETS, score
    from fastemf.loss import expectile

    train, test = SETS["additive"](0)  # seed 0
    rows, cols, values = train.cells  # of a matrix of train.shape
    predicted = ...  # for the cells test.rows, test.cols
    score(predicted, test.values, expectile(values, omega), omega)
"""

from __future__ import annotations

from collections.abc import Callable

from bench.accuracy.baselines import AbsentError, Predictor
from bench.accuracy.families import FAMILIES
from bench.accuracy.methods import METHODS
from bench.accuracy.scores import Score, score
from bench.accuracy.splits import REAL, Cells, Split, Training

__all__ = [
    "FAMILIES",
    "METHODS",
    "REAL",
    "SETS",
    "AbsentError",
    "Cells",
    "Predictor",
    "Score",
    "Split",
    "Training",
    "score",
]

SETS: dict[str, Callable[..., Split]] = {**REAL, **FAMILIES}
