"""Calibration by decile of the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastemf.boosting.coverage_report import NORMAL_95, wilson_interval
from fastemf.reporting import drawing as svg
from fastemf.reporting import markup as html
from fastemf.reporting.evaluated_model import EvaluatedModel

DECILES = 10
LEFT, RIGHT, TOP, BOTTOM = 40.0, svg.WIDTH - 8.0, 10.0, 150.0


class Decile(NamedTuple):
    """A tenth of the observations, by size of the prediction."""

    smallest: float
    """The smallest prediction."""
    largest: float
    """The largest."""
    observations: int
    """Number of observations."""
    level: float
    """Coverage for quantiles, effective level for expectiles."""
    low: float
    """Lower end of its 95 % confidence interval."""
    high: float
    """Upper end."""


def compute_deciles(evaluated: EvaluatedModel, at: int) -> list[Decile]:
    """Split the observations by prediction, and compute the observed level of each part."""
    predicted = evaluated.predicted[at]
    below, size = evaluated.below(at)
    order = np.argsort(predicted, kind="stable")
    deciles = []
    for part in np.array_split(order, min(DECILES, order.size)):
        # Repeated observations of a cell are not independent.
        cell = np.unique(evaluated.cell_numbers[part], return_inverse=True)[1]
        under, sizes = (np.bincount(cell, terms[part]) for terms in (below, size))
        whole = float(sizes.sum())
        level = float(under.sum()) / whole if whole > 0 else math.nan
        if not whole > 0:  # all predictions are exact, or beyond the censoring limit
            low = high = math.nan
        elif evaluated.is_quantiles:
            low, high = wilson_interval(level, whole**2 / float(np.sum(sizes**2)))
        else:
            # Linearised standard error of a ratio of sums.
            spread = float(np.sqrt(np.sum((under - level * sizes) ** 2)))
            half = NORMAL_95 * spread / whole
            low, high = max(level - half, 0.0), min(level + half, 1.0)
        ends = float(predicted[part[0]]), float(predicted[part[-1]])
        deciles.append(Decile(*ends, part.size, level, low, high))
    return deciles


def calibration_section(evaluated: EvaluatedModel) -> str:
    """Draw the deciles of each level around the nominal level."""
    by_level = [compute_deciles(evaluated, at) for at in range(len(evaluated.levels))]
    cards, details = [], []
    for deciles, level, name in zip(by_level, evaluated.levels, evaluated.names, strict=True):
        drawing, caption = _draw_deciles(deciles, level, name), _count(deciles, level)
        cards.append(html.figure(f"Calibration of {name}", drawing, caption))
        details.append(_details(evaluated, name, deciles))
    what = "the effective level of the predictions"
    if evaluated.is_quantiles:
        what = "the proportion of values at or below their prediction"
    return html.section(
        "Calibration",
        f"Observations by decile of the prediction, from the smallest to the largest. Dots show "
        f"{what}, with 95 % confidence intervals. They should be close to the dashed line: below "
        "it predictions are too low, above it too high.",
        html.cards(cards),
        *details,
    )


def _count(deciles: Sequence[Decile], level: float) -> str:
    known = [one for one in deciles if not math.isnan(one.level)]
    hits = sum(one.low <= level <= one.high for one in known)
    if not known:
        return "No interval: all predictions are exact, or beyond the censoring limit."
    return f"{hits} of {len(known)} intervals contain {level:g}."


def _details(evaluated: EvaluatedModel, name: str, deciles: Sequence[Decile]) -> str:
    what = "coverage" if evaluated.is_quantiles else "effective level"
    heads = ["decile", f"predictions ({evaluated.unit})", "observations", what, "95 % CI"]
    lines = []
    for place, one in enumerate(deciles, start=1):
        ends = [html.number(value) for value in (one.smallest, one.largest, one.low, one.high)]
        predictions, interval = " to ".join(ends[:2]), " to ".join(ends[2:])
        lines.append([f"{place}", predictions, one.observations, one.level, interval])
    return html.details(f"Table for {name}", html.table(heads, lines))


def _draw_deciles(deciles: Sequence[Decile], level: float, name: str) -> str:
    known = [one for one in deciles if not math.isnan(one.level)]
    low = min([level, *(one.low for one in known)])
    high = max([level, *(one.high for one in known)])
    room = max(0.05 * (high - low), 0.005)
    y = svg.Scale(max(low - room, 0.0), min(high + room, 1.0), BOTTOM, TOP)
    x = svg.Scale(0.5, len(deciles) + 0.5, LEFT, RIGHT)
    parts = svg.horizontal_grid(y, LEFT, RIGHT)
    parts.append(svg.line(LEFT, y(level), RIGHT, y(level), "target"))
    for place, one in enumerate(deciles, start=1):
        if not math.isnan(one.level):
            parts.append(svg.line(x(place), y(one.low), x(place), y(one.high), "fit"))
            parts.append(svg.dot(x(place), y(one.level), 4, "fit"))
    first, last = deciles[0], deciles[-1]
    below = BOTTOM + 16
    parts.append(svg.label(LEFT, below, f"from {html.number(first.smallest)}", kind="mute"))
    middle = "decile of the prediction"
    parts.append(svg.label((LEFT + RIGHT) / 2, below, middle, anchor="middle", kind="mute"))
    end = f"to {html.number(last.largest)}"
    parts.append(svg.label(RIGHT, below, end, anchor="end", kind="mute"))
    return svg.image(BOTTOM + 22, parts, f"calibration of {name} by decile of the prediction")
