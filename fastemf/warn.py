"""Warnings that point at the caller's line, not at ours."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

__all__ = ["ConvergenceWarning", "warn"]

_PACKAGE = str(Path(__file__).parent) + os.sep


class ConvergenceWarning(UserWarning):
    """A fit reached its limit of sweeps before its tolerance."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as from the first frame outside the package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
