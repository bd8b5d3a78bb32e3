"""Plots with matplotlib (the extra ``plot``).

Each function draws on `ax`, or on new axes, labels them with units, and returns them. Colours are
those of Okabe and Ito, which are safe for colour-blind readers. Lines also differ in their dashes.
"""

from __future__ import annotations

from fastemf.plot.choices import selection, tuning
from fastemf.plot.errors import (
    against_level,
    error_boxes,
    error_distribution,
    histogram,
    phase_diagram,
)
from fastemf.plot.fits import asymmetric_loss, convergence, levels

__all__ = [
    "against_level", "asymmetric_loss", "convergence", "error_boxes", "error_distribution",
    "histogram", "levels", "phase_diagram", "selection", "tuning",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
