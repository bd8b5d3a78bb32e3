"""Whether somebody is watching."""

from __future__ import annotations

import sys

__all__ = ["stderr_is_terminal"]


def stderr_is_terminal() -> bool:
    """Tell whether standard error is a terminal: it may be closed, missing, or something else."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):  # None under pythonw; a closed stream
        return False
