"""The methods that are compared: each fits cells at a level, with a seed and a rank."""

from __future__ import annotations

from collections.abc import Callable

from bench.accuracy import least_squares, trees
from bench.accuracy.baselines import (
    Predictor,
    column_expectiles,
    constant,
    default,
    intercepts,
    noise_adaptive,
)
from bench.accuracy.splits import Training

Method = Callable[[Training, float, int, int], Predictor]

METHODS: dict[str, Method] = {
    "constant": constant,
    "columns": column_expectiles,
    "intercepts": intercepts,
    "auto": default,
    "noise": noise_adaptive,
    "cmfrec": least_squares.fit,
    "lightgbm": trees.fit,
}
