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
from fastemf.scores import pit

DECILES, BINS = 10, 20
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
    cards.append(_probability_figure(evaluated))
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
    first, last = (html.number(value) for value in (deciles[0].smallest, deciles[-1].largest))
    texts = f"from {first}", "decile of the prediction", f"to {last}"
    points = [(one.level, one.low, one.high) for one in deciles]
    what = f"calibration of {name} by decile of the prediction"
    return draw_intervals(points, level, texts, what)


def draw_intervals(
    points: Sequence[tuple[float, float, float]], level: float, texts: tuple[str, str, str],
    what: str,
) -> str:  # fmt: skip
    """Draw observed levels with their intervals around the nominal level.

    `texts` are below the left end, the middle and the right end of the axis.
    """
    known = [point for point in points if not math.isnan(point[0])]
    low = min([level, *(point[1] for point in known)])
    high = max([level, *(point[2] for point in known)])
    room = max(0.05 * (high - low), 0.005)
    y = svg.Scale(max(low - room, 0.0), min(high + room, 1.0), BOTTOM, TOP)
    x = svg.Scale(0.5, len(points) + 0.5, LEFT, RIGHT)
    parts = svg.horizontal_grid(y, LEFT, RIGHT)
    parts.append(svg.line(LEFT, y(level), RIGHT, y(level), "target"))
    for place, (middle, lower, upper) in enumerate(points, start=1):
        if not math.isnan(middle):
            parts.append(svg.line(x(place), y(lower), x(place), y(upper), "fit"))
            parts.append(svg.dot(x(place), y(middle), 4, "fit"))
    ends = zip((LEFT, (LEFT + RIGHT) / 2, RIGHT), texts, ("start", "middle", "end"), strict=True)
    for at, text, anchor in ends:
        parts.append(svg.label(at, BOTTOM + 16, text, anchor=anchor, kind="mute", longest=24))
    return svg.image(BOTTOM + 22, parts, what)


def _probability_figure(evaluated: EvaluatedModel) -> str:
    """Draw the histogram of the probability integral transform, if there are distributions."""
    is_censored = any(one is not None for one in evaluated.censored)
    if not evaluated.is_quantiles or len(evaluated.levels) < 2 or is_censored:
        return ""
    found = pit(evaluated.cells.values, evaluated.predicted.T, evaluated.levels)
    counts, _ = np.histogram(found, BINS, (0, 1), weights=evaluated.weights)
    heights = BINS * counts / counts.sum()
    y = svg.Scale(0.0, max(1.2, 1.05 * float(heights.max())), BOTTOM, TOP)
    x = svg.Scale(0.0, 1.0, LEFT, RIGHT)
    parts = svg.horizontal_grid(y, LEFT, RIGHT)
    width = (RIGHT - LEFT) / BINS
    for place, height in enumerate(heights.tolist()):
        parts.append(svg.rect(x(place / BINS), y(height), width - 1, BOTTOM - y(height), "fit"))
    parts += [svg.line(LEFT, y(1), RIGHT, y(1), "target"), *svg.number_axis(x, BOTTOM + 16)]
    caption = (
        "Predicted probability of a smaller value than observed (probability integral transform), "
        "relative to a uniform distribution. High bars at the ends mean that predicted "
        "distributions are too narrow, high bars in the middle that they are too wide."
    )
    drawing = svg.image(BOTTOM + 22, parts, "histogram of predicted probabilities")
    return html.figure("Whole distributions", drawing, caption)
