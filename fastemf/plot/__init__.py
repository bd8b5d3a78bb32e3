"""Pictures, on the axes you give or on new ones (needs matplotlib, the extra ``plot``).

Each function draws on `ax`, labels its axes with units and returns it. Colours are
Okabe and Ito's, which colour-blind readers can tell apart, and lines differ in their
dashes too, for print.
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
    "against_level",
    "asymmetric_loss",
    "convergence",
    "error_boxes",
    "error_distribution",
    "histogram",
    "levels",
    "phase_diagram",
    "selection",
    "tuning",
]


def __dir__() -> list[str]:
    return __all__
