"""Calibration: where small and large predictions really lie, by tenths of the observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastemf.reporting.drawing import (
    WIDTH,
    Scale,
    draw_dot,
    draw_line,
    draw_text,
    drawn,
    round_ticks,
)
from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import as_cards, as_figure, as_section, as_table, figure_text
from fastemf.stacking.promise import NORMAL_95, wilson

__all__ = ["Tenth", "calibration_section", "tenths"]

TENTHS = 10
LEFT, RIGHT, TOP, BOTTOM = 40.0, WIDTH - 8.0, 10.0, 150.0


class Tenth(NamedTuple):
    """A tenth of the observations, by the size of their predictions."""

    smallest: float
    """The smallest prediction."""
    largest: float
    """The largest."""
    observations: int
    """How many observations it has."""
    level: float
    """The level, or the share, at which its predictions really lie."""
    low: float
    """Where that would lie in other such data, with 95 % confidence: from here."""
    high: float
    """To here."""


def tenths(judged: Judgement, at: int) -> list[Tenth]:
    """Cut the observations into tenths by what a level predicts, and find where each lies."""
    predicted = judged.predicted[at]
    below, size = judged.below(at)
    order = np.argsort(predicted, kind="stable")
    found = []
    for part in np.array_split(order, min(TENTHS, order.size)):
        # What is observed of a cell again and again is one piece of evidence.
        cell = np.unique(judged.cell_numbers[part], return_inverse=True)[1]
        under, sizes = (np.bincount(cell, terms[part]) for terms in (below, size))
        whole = float(sizes.sum())
        level = float(under.sum()) / whole if whole > 0 else math.nan
        if judged.is_quantiles:
            low, high = wilson(level, whole**2 / float(np.sum(sizes**2)))
        else:
            # Of a ratio of sums, by the residuals of its terms.
            spread = float(np.sqrt(np.sum((under - level * sizes) ** 2)))
            half = NORMAL_95 * spread / whole if whole > 0 else math.nan
            low, high = max(level - half, 0.0), min(level + half, 1.0)
        ends = float(predicted[part[0]]), float(predicted[part[-1]])
        found.append(Tenth(*ends, part.size, level, low, high))
    return found


def calibration_section(judged: Judgement) -> str:
    """Draw each level's tenths around the level they should have."""
    by_level = [tenths(judged, at) for at in range(len(judged.levels))]
    cards = [
        as_figure(f"Calibration of {name}", _dots(found, level, name), _tells(found, level))
        for found, level, name in zip(by_level, judged.levels, judged.names, strict=True)
    ]
    what = (
        "the share of values at or below their prediction"
        if judged.is_quantiles
        else "the level at which the predictions really lie"
    )
    return as_section(
        "Calibration by size of the prediction",
        f"Observations in tenths, from the smallest predictions (left) to the largest. Dots are "
        f"{what}, with 95 % confidence; they should lie around the dashed line. Below it "
        "predictions are too low, above it too high.",
        as_cards(cards),
        "".join(
            _details(judged, name, found)
            for name, found in zip(judged.names, by_level, strict=True)
        ),
    )


def _tells(found: Sequence[Tenth], level: float) -> str:
    known = [one for one in found if not math.isnan(one.level)]
    hits = sum(one.low <= level <= one.high for one in known)
    return f"{hits} of {len(known)} intervals hold {level:g}." if known else "All predictions hit."


def _details(judged: Judgement, name: str, found: Sequence[Tenth]) -> str:
    what = "share at or below" if judged.is_quantiles else "effective level"
    heads = ["tenth", f"predictions ({judged.unit})", "observations", what, "95 % confidence"]
    lines = [
        [
            f"{place}",
            f"{figure_text(one.smallest)} to {figure_text(one.largest)}",
            one.observations,
            one.level,
            f"{figure_text(one.low)} to {figure_text(one.high)}",
        ]
        for place, one in enumerate(found, start=1)
    ]
    return f"<details><summary>{name} in numbers</summary>{as_table(heads, lines)}</details>"


def _dots(found: Sequence[Tenth], level: float, name: str) -> str:
    known = [one for one in found if not math.isnan(one.level)]
    low = min([level, *(one.low for one in known)])
    high = max([level, *(one.high for one in known)])
    room = max(0.05 * (high - low), 0.005)
    y = Scale(max(low - room, 0.0), min(high + room, 1.0), BOTTOM, TOP)
    x = Scale(0.5, len(found) + 0.5, LEFT, RIGHT)
    parts = []
    for tick in round_ticks(y.low, y.high):
        parts.append(draw_line(LEFT, y(tick), RIGHT, y(tick), "grid"))
        parts.append(draw_text(LEFT - 5, y(tick) + 4, f"{tick:.3g}", anchor="end", kind="mute"))
    parts.append(draw_line(LEFT, y(level), RIGHT, y(level), "target"))
    for place, one in enumerate(found, start=1):
        if not math.isnan(one.level):
            parts.append(draw_line(x(place), y(one.low), x(place), y(one.high), "fit"))
            parts.append(draw_dot(x(place), y(one.level), 4, "fit"))
    first, last = found[0], found[-1]
    below = BOTTOM + 16
    parts.append(draw_text(LEFT, below, f"from {figure_text(first.smallest)}", kind="mute"))
    middle = "prediction, in tenths"
    parts.append(draw_text((LEFT + RIGHT) / 2, below, middle, anchor="middle", kind="mute"))
    end = f"to {figure_text(last.largest)}"
    parts.append(draw_text(RIGHT, below, end, anchor="end", kind="mute"))
    return drawn(BOTTOM + 22, parts, f"calibration of {name} by tenths of the prediction")
