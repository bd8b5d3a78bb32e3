"""The methods that are judged: each fits cells at a level, with a seed and a rank."""

from __future__ import annotations

from collections.abc import Callable

from bench.accuracy import least_squares, trees
from bench.accuracy.baselines import (
    Predictor,
    column_level,
    constant,
    default,
    noise_following,
    row_and_column_levels,
)
from bench.accuracy.splits import Training

Method = Callable[[Training, float, int, int], Predictor]

METHODS: dict[str, Method] = {
    "constant": constant,
    "columns": column_level,
    "levels": row_and_column_levels,
    "auto": default,
    "noise": noise_following,
    "cmfrec": least_squares.fit,
    "lightgbm": trees.fit,
}
