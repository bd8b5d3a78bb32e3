"""Scores of predictions on held-out cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.metrics import effective_omega, expectile_skill


class Score(NamedTuple):
    """Loss and effective level of predictions on held-out cells."""

    loss: float
    """Expectile loss divided by that of the constant: 0 is perfect, 1 no better."""
    level: float
    """Effective level of the predictions; it should be ω."""
    level_error: float
    """Standard error of the level."""


def score(
    predictions: NDArray[np.float64],
    test_values: NDArray[np.float64],
    constant: float,
    omega: float,
) -> Score:
    """Score predictions; the constant is the ω-expectile of the training values.

    The level is a ratio of two means, Σ|r⁻| / Σ|r|. Its standard error is that of the delta
    method, which assumes independent cells and is therefore rather too small.
    """
    residuals = test_values - predictions
    size = np.abs(residuals)
    level = effective_omega(residuals)
    error = np.sqrt(np.sum(((residuals < 0) * size - level * size) ** 2)) / size.sum()
    loss = 1 - expectile_skill(test_values, predictions, omega, constant)
    return Score(loss, level, float(error))
