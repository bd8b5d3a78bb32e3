"""Residuals: how far observations lie from their predictions."""

from __future__ import annotations

import numpy as np

from fastemf.reporting.drawing import (
    WIDTH,
    Scale,
    draw_line,
    draw_rect,
    draw_text,
    drawn,
    round_ticks,
)
from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import as_cards, as_figure, as_section, as_table, figure_text
from fastemf.stacking.shrunk_quantile import Floats, quantile

__all__ = ["residual_section"]

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
BEYOND = 0.01  # of the observations at either side: not in the drawing
BARS = 40
LEFT, RIGHT, TOP, BOTTOM = 12.0, WIDTH - 12.0, 10.0, 150.0


def residual_section(judged: Judgement) -> str:
    """Draw the residuals of each level, and tabulate where most of them lie."""
    cards, lines = [], []
    for at, name in enumerate(judged.names):
        r = judged.residuals(at)
        lines.append([name, *(quantile(r, share, judged.weights) for share in SHARES)])
        cards.append(_card(r, judged.weights, name, judged.unit))
    heads = ["", *(f"{100 * share:g} % below" for share in SHARES)]
    return as_section(
        "Residuals",
        f"Observed minus predicted, in {judged.unit}: at the right of the dashed line is what was "
        "more than predicted.",
        as_cards([*cards, as_figure("In numbers", as_table(heads, lines), width="span")]),
    )


def _card(r: Floats, weights: Floats, name: str, unit: str) -> str:
    low, high = min(quantile(r, BEYOND, weights), 0.0), max(quantile(r, 1 - BEYOND, weights), 0.0)
    if not high > low:
        low, high = -0.5, 0.5
    heights, edges = np.histogram(r, bins=BARS, range=(low, high), weights=weights)
    outside = 1 - heights.sum() / weights.sum()
    x, y = Scale(low, high, LEFT, RIGHT), Scale(0.0, float(heights.max()), BOTTOM, TOP)
    parts = []
    for height, left, right in zip(heights, edges[:-1], edges[1:], strict=True):
        top = y(float(height))
        width = x(float(right)) - x(float(left)) - 0.5
        parts.append(draw_rect(x(float(left)), top, width, BOTTOM - top, "fit"))
    parts.append(draw_line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis"))
    parts.append(draw_line(x(0.0), TOP - 6, x(0.0), BOTTOM, "target"))
    for tick in round_ticks(low, high):
        text = figure_text(tick)
        parts.append(draw_text(x(tick), BOTTOM + 16, text, anchor="middle", kind="mute"))
    beyond = "" if outside < 5e-4 else f"; {100 * outside:.1f} % lie beyond its ends"
    return as_figure(
        f"Observed − {name}",
        drawn(BOTTOM + 22, parts, f"histogram of observed minus {name}"),
        f"In {unit}{beyond}.",
    )
