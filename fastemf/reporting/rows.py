"""The levels of some rows: their smallest and largest columns, by name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import shortened
from fastemf.reporting.drawing import (
    WIDTH,
    Scale,
    draw_dot,
    draw_line,
    draw_rect,
    draw_text,
    drawn,
    round_ticks,
)
from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import as_cards, as_figure, as_section, figure_text
from fastemf.reporting.served import Served
from fastemf.stacking.shrunk_quantile import Floats

__all__ = ["rows_section"]

EACH_WAY = 6  # columns with the smallest predictions, and with the largest
LEFT, RIGHT, LINE = 110.0, WIDTH - 14.0, 20.0
LONGEST_NAME = 16
FAR = 1.5  # times the largest level: how far observations are drawn where they lie


def rows_section(judged: Judgement, served: Served) -> str:
    """Draw three rows: those with the largest, middling and smallest predictions."""
    observed = np.isin(served.items, judged.cells.rows)
    rows = served.items[observed]
    if not rows.size:
        return ""
    places = {rows.size // 2: "in the middle", rows.size - 1: "the smallest", 0: "the largest"}
    shown = sorted(places)
    cards = [
        as_figure(
            f"{judged.item(0)} {shortened(name, LONGEST_NAME)}: {places[at]}",
            _lines(judged, row, name),
        )
        for at, row, name in zip(
            shown, rows[shown].tolist(), judged.called(0, rows[shown]), strict=True
        )
    ]
    low, middle, high = judged.names[0], judged.names[judged.middle], judged.names[-1]
    bar = f"Bars reach from {low} to {high}, the mark is {middle}"
    return as_section(
        "What some rows can expect",
        f"{'The mark is ' + high if low == high else bar}; dots are observations, hollow where "
        "they lie beyond the drawing. Rows are those with the largest, middling and smallest "
        f"predictions at {high} on average, columns those with the smallest and with the largest "
        f"of the row, in {judged.unit}.",
        as_cards(cards),
    )


def _lines(judged: Judgement, row: int, called: str) -> str:
    cols, has_gap = _shown(judged, row)
    axes = judged.model.axes
    levels = judged.model.predict(axes[0].ids()[row], axes[1].ids()[cols])
    levels = levels.reshape(cols.size, -1).astype(np.float64)
    names = judged.called(1, cols)
    here = judged.cells.rows == row
    seen = [judged.cells.values[here & (judged.cells.cols == col)] for col in cols]
    x = _scale(levels, seen)
    height = (cols.size + has_gap) * LINE
    parts = []
    for tick in round_ticks(x.low, x.high):
        parts.append(draw_line(x(tick), 0, x(tick), height, "grid"))
        text = figure_text(tick)
        parts.append(draw_text(x(tick), height + 14, text, anchor="middle", kind="mute"))
    for place, (name, found, values) in enumerate(zip(names, levels, seen, strict=True)):
        gap = has_gap and place >= cols.size // 2
        y = (place + gap + 0.5) * LINE
        if gap and place == cols.size // 2:
            others = judged.model.shape[1] - judged.model.unseen_cols.size - cols.size
            more = f"{others:,} more between"
            parts.append(draw_text(LEFT - 6, y - LINE + 4, more, anchor="end", kind="mute"))
        parts.append(draw_text(LEFT - 6, y + 4, name, anchor="end", longest=LONGEST_NAME))
        parts.append(draw_rect(x(found[0]), y - 5, x(found[-1]) - x(found[0]), 10, "soft"))
        middle = x(found[judged.middle])
        parts.append(draw_rect(middle - 1.5, y - 7, 3, 14, "fit"))
        for value in values:
            inside = x.low <= value <= x.high
            parts.append(draw_dot(x(float(value)), y, 2.8, "mark" if inside else "beyond"))
    return drawn(height + 20, parts, f"predictions of {judged.item(0)} {called}")


def _shown(judged: Judgement, row: int) -> tuple[NDArray[np.int64], bool]:
    """Find the columns to show, as `rank` lists them, and whether there are others between."""
    model, level = judged.model, judged.levels[-1]
    label = model.axes[0].ids()[row]
    count = min(model.shape[1], 2 * EACH_WAY + 1)
    best = model.rank(label, count, order="smallest", level=level)
    first = _places(judged, best.cols[~np.isnan(best.values)])
    if first.size <= 2 * EACH_WAY:
        return first, False
    worst = model.rank(label, EACH_WAY, order="largest", level=level)
    return np.concatenate([first[:EACH_WAY], _places(judged, worst.cols)[::-1]]), True


def _places(judged: Judgement, cols: NDArray[np.object_]) -> NDArray[np.int64]:
    return judged.model.axes[1].positions(cols, "cols")


def _scale(levels: Floats, seen: list[Floats]) -> Scale:
    """Make room for the levels, and for observations that lie not much further away."""
    low, high = float(levels.min()), float(levels.max())
    values = np.concatenate([levels.ravel(), *seen])
    reach = FAR * max(high - low, abs(high) / 2)
    low = max(float(values.min()), low - reach)
    high = min(float(values.max()), high + reach)
    if low > 0 and low < high / 3:
        low = 0.0
    return Scale(low, high, LEFT, RIGHT) if high > low else Scale(low - 1, low + 1, LEFT, RIGHT)
