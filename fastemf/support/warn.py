"""Warnings that point at the caller's line, not at ours."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

__all__ = ["ConvergenceWarning", "PassedOnOnce", "RoundingWarning", "warn"]

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class ConvergenceWarning(UserWarning):
    """A fit reached its limit of sweeps before its tolerance, or rounding ended it."""


class RoundingWarning(ConvergenceWarning):
    """Rounding ended a fit."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the first frame outside the package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


class PassedOnOnce:
    """Context that passes warnings on at its end, each once: several fits give the same ones.

    Those of the category `leave_out` itself are dropped, because the caller sums them up.
    """

    def __init__(self, *, leave_out: type[Warning]) -> None:
        self._leave_out = leave_out
        self._catching = warnings.catch_warnings(record=True)

    def __enter__(self) -> None:
        self._caught = self._catching.__enter__()
        warnings.simplefilter("always")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._catching.__exit__(kind, error, trace)
        if error is not None:
            return
        caught = {(str(one.message), one.category): None for one in self._caught or ()}
        for message, category in caught:
            if category is not self._leave_out:
                warn(message, category)
