"""Properties of the terminal."""

from __future__ import annotations

import sys


def stderr_is_terminal() -> bool:
    """Return whether standard error is a terminal; it may also be closed or missing."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):  # None under pythonw; a closed stream
        return False
