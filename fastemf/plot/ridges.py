"""Where ridges lie on a logarithmic axis that also has places for 0 and ∞."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["ridge_axis"]

BEYOND = 2.5  # of the strongest and weakest ridges: where those of ∞ and 0 are drawn


def ridge_axis(ridges: Sequence[float]) -> tuple[dict[float, float], dict[float, str]]:
    """Return where each ridge lies on a logarithmic axis, also 0 and ∞, and the axis's ticks."""
    inner = [reg for reg in ridges if 0 < reg < math.inf] or [1.0]
    low, high = min(inner), max(inner)
    places = {0.0: low / BEYOND, math.inf: high * BEYOND}
    places = {reg: places.get(reg, reg) for reg in ridges}
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(decades) <= 3 else (1,)
    round_numbers = [digit * 10.0**n for n in decades[:: 1 + len(decades) // 8] for digit in digits]
    ticks = {tick: f"{tick:g}" for tick in round_numbers if low / 1.2 < tick < high * 1.2}
    ends = {0.0: "0", math.inf: "∞"}
    return places, ticks | {places[reg]: text for reg, text in ends.items() if reg in places}
