"""Axes to draw on, and how what is drawn on them looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MARKERS", "STYLES", "drawn_on", "scale_by_logarithm", "styled"]

# From low levels to high ones: blue, black in the middle, red.
STYLES = (
    ("#0072B2", "-"),
    ("#56B4E9", "--"),
    ("#000000", "-."),
    ("#E69F00", (0, (5, 1))),
    ("#D55E00", ":"),
)
MARKERS = "osD^v"


def drawn_on(ax: Axes | None) -> Axes:
    """Prepare the axes given, or new ones."""
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "plots need matplotlib: pip install 'fastemf[plot]'"
            ) from None
        ax = plt.subplots(layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9", lw=0.8)
    ax.set_axisbelow(True)
    return ax


def scale_by_logarithm(ax: Axes) -> None:
    """Scale heights by their logarithm, unless none is positive, as where every loss is 0."""
    if np.isfinite(ax.dataLim.minposy):
        ax.set_yscale("log")


def styled(keys: Sequence[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Return each key with a colour and dashes, spread over the whole palette."""
    count, last = len(keys), len(STYLES) - 1
    styled = []
    for i, key in enumerate(keys):
        place = round(i * last / (count - 1)) if 1 < count <= len(STYLES) else i % len(STYLES)
        colour, dashes = STYLES[place]
        styled.append((key, {"color": colour, "ls": dashes, "lw": 2}))
    return styled
