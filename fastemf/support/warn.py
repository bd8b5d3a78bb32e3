"""Warnings at the line of the caller outside the package."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

# Context managers of the package add frames of contextlib.
_INTERNAL = (str(Path(__file__).parents[1]) + os.sep, contextlib.__file__)


class ConvergenceWarning(UserWarning):
    """A fit reached `max_iter` before its tolerance, or stopped because of rounding."""


class RoundingWarning(ConvergenceWarning):
    """A fit stopped because of rounding."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the first stack frame outside the package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INTERNAL):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


class UniqueWarnings:
    """Context that collects warnings and issues each distinct warning once at its end.

    Warnings whose category is exactly `leave_out` are dropped, because the caller summarizes them.
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
