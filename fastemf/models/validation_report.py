"""The validation performance of tuned fits, in words and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastemf.reporting.tabular import Columns

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization


def describe_validation(fits: Sequence[Factorization]) -> str:
    """Describe the validation loss of fits in a few words; empty unless all were tuned."""
    ratios = validation_columns(fits).get("relative to a constant", [])
    listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"validation loss {listed} relative to a constant" if ratios else ""


def validation_columns(fits: Sequence[Factorization]) -> Columns:
    """Return the validation losses of fits next to baselines; empty unless all were tuned."""
    tuned = [
        (fit.omega, fit.tuning)
        for fit in fits
        if fit.tuning is not None and fit.tuning.steps and fit.history  # was not folded in
    ]
    if len(tuned) < len(fits):
        return {}
    return {
        "omega": [omega for omega, _ in tuned],
        "validation loss": [tuning.loss for _, tuning in tuned],
        "relative to a constant": [tuning.relative_loss("constant") for _, tuning in tuned],
        "relative to row + column": [tuning.relative_loss("row + column") for _, tuning in tuned],
        "effective omega": [tuning.effective_omega for _, tuning in tuned],
    }
