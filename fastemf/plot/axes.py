"""Axes, line styles, and the scale of ridges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours and dashes, from low levels (blue) to high levels (red).
STYLES = (
    ("#0072B2", "-"),
    ("#56B4E9", "--"),
    ("#000000", "-."),
    ("#E69F00", (0, (5, 1))),
    ("#D55E00", ":"),
)
MARKERS = "osD^v"
OUTSIDE = 2.5  # factor beyond the smallest and largest ridge at which 0 and ∞ are drawn


def get_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or new ones, in the common style."""
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


def set_log_scale(ax: Axes) -> None:
    """Use a logarithmic y axis, unless no value is positive."""
    if np.isfinite(ax.dataLim.minposy):
        ax.set_yscale("log")


def assign_styles(keys: Sequence[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Return each key with its line style, spread over the palette."""
    count, last = len(keys), len(STYLES) - 1
    styles = []
    for i, key in enumerate(keys):
        place = round(i * last / (count - 1)) if 1 < count <= len(STYLES) else i % len(STYLES)
        colour, dashes = STYLES[place]
        styles.append((key, {"color": colour, "ls": dashes, "lw": 2}))
    return styles


def ridge_axis(ridges: Sequence[float]) -> tuple[dict[float, float], dict[float, str]]:
    """Return the positions of ridges on a logarithmic axis, including 0 and ∞, and its ticks."""
    inner = [reg for reg in ridges if 0 < reg < math.inf] or [1.0]
    low, high = min(inner), max(inner)
    places = {0.0: low / OUTSIDE, math.inf: high * OUTSIDE}
    places = {reg: places.get(reg, reg) for reg in ridges}
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(decades) <= 3 else (1,)
    round_numbers = [digit * 10.0**n for n in decades[:: 1 + len(decades) // 8] for digit in digits]
    ticks = {tick: f"{tick:g}" for tick in round_numbers if low / 1.2 < tick < high * 1.2}
    ends = {0.0: "0", math.inf: "∞"}
    return places, ticks | {places[reg]: text for reg, text in ends.items() if reg in places}
