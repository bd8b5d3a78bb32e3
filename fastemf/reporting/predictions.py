"""Predictions of some rows, and the rows and columns with extreme mean predictions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import shortened
from fastemf.models.quantiles import Quantiles
from fastemf.reporting import drawing as svg
from fastemf.reporting import markup as html
from fastemf.reporting.evaluated_model import EvaluatedModel
from fastemf.support.arrays import Floats, Ints

CELLS = 1 << 22  # predicted for each axis, approximately
FEWEST = 8  # labels of the other axis that a mean is over
CELLS_PER_PART = 1 << 18
SHOWN = 8
EACH_END = 6  # columns with the smallest predictions of a row, and with the largest
LEFT, RIGHT, LINE = 110.0, svg.WIDTH - 14.0, 20.0
LONGEST_NAME = 16
FAR = 1.5  # observations are drawn up to this multiple of the range of the levels


class MeanPredictions(NamedTuple):
    """Mean predictions of the rows, or columns, of the training data."""

    items: Ints
    """Their positions, by decreasing mean at the highest level."""
    means: Floats
    """Their means, one column per level."""
    over: int
    """Number of columns, or rows, averaged."""


def mean_predictions(evaluated: EvaluatedModel, axis: int) -> MeanPredictions:
    """Average the predictions of each row (axis 0) or column over a sample of the other axis."""
    items, others = (_find_seen(evaluated, side) for side in (axis, 1 - axis))
    some = min(others.size, max(CELLS // max(items.size, 1), FEWEST))
    others = others[np.linspace(0, others.size - 1, some).round().astype(np.int64)]
    ids = [side.ids() for side in evaluated.model.axes]
    means = np.empty((items.size, len(evaluated.levels)))
    step = max(1, CELLS_PER_PART // max(some, 1))
    for first in range(0, items.size, step):
        part = slice(first, first + step)
        pair = ids[axis][items[part], None], ids[1 - axis][None, others]
        values = evaluated.model.predict(*(pair if axis == 0 else pair[::-1]))
        means[part] = values.reshape(*values.shape[:2], -1).mean(axis=1)
    order = np.argsort(-means[:, -1], kind="stable")
    return MeanPredictions(items[order], means[order], some)


def _find_seen(evaluated: EvaluatedModel, axis: int) -> Ints:
    side = evaluated.model.axes[axis]
    return np.setdiff1d(np.arange(side.size), side.unseen)


def extremes_section(
    evaluated: EvaluatedModel, by_axis: tuple[MeanPredictions, MeanPredictions]
) -> str:
    """List the rows and columns with the largest and smallest mean predictions."""
    cards = []
    for axis, mean in enumerate(by_axis):
        axis_name, other = evaluated.axis_name(axis), evaluated.axis_name(1 - axis)
        others = ("columns", "rows")[axis]
        shown = min(SHOWN, (mean.items.size + 1) // 2)
        caption = f"Mean over {mean.over:,} {others} ({other}), in {evaluated.unit}."
        order = np.arange(mean.items.size)
        for which, places in (("largest", order[:shown]), ("smallest", order[::-1][:shown])):
            labels = evaluated.labels(axis, mean.items[places])
            means = mean.means[places].tolist()
            lines = [[label, *line] for label, line in zip(labels, means, strict=True)]
            table = html.table([axis_name, *evaluated.names], lines)
            cards.append(html.figure(f"{axis_name}: {which}", table, caption))
    return html.section(
        "Largest and smallest predictions",
        f"Rows and columns with the largest and smallest mean {evaluated.names[-1]}.",
        html.cards(cards, "slim" if len(evaluated.levels) < 3 else "broad"),
    )


def rows_section(evaluated: EvaluatedModel, mean: MeanPredictions) -> str:
    """Draw the rows with the largest, median and smallest mean predictions."""
    observed = np.isin(mean.items, evaluated.cells.rows)
    rows = mean.items[observed]
    if not rows.size:
        return ""
    places = {rows.size // 2: "median", rows.size - 1: "smallest", 0: "largest"}
    cards = []
    for at, which in sorted(places.items()):
        (name,) = evaluated.labels(0, rows[[at]])
        title = f"{evaluated.axis_name(0)} {shortened(name, LONGEST_NAME)}: {which}"
        cards.append(html.figure(title, _draw_row(evaluated, int(rows[at]), name)))
    low, middle, high = evaluated.names[0], evaluated.names[evaluated.middle], evaluated.names[-1]
    bars = f"Bars extend from {low} to {high}, with a mark at {middle}."
    return html.section(
        "Predictions of some rows",
        f"{f'Marks show {high}.' if low == high else bars} Dots are observations, hollow if they "
        f"are outside the plot. The rows have the largest, median and smallest mean {high}; the "
        f"columns have the smallest and largest {high} of the row. In {evaluated.unit}.",
        html.cards(cards),
    )


def _draw_row(evaluated: EvaluatedModel, row: int, label: str) -> str:
    cols, has_gap = _select_columns(evaluated, row)
    axes = evaluated.model.axes
    levels = evaluated.model.predict(axes[0].ids()[row], axes[1].ids()[cols])
    levels = levels.reshape(cols.size, -1).astype(np.float64)
    names = evaluated.labels(1, cols)
    here = evaluated.cells.rows == row
    seen = [evaluated.cells.values[here & (evaluated.cells.cols == col)] for col in cols]
    x = _scale(levels, seen)
    height = (cols.size + has_gap) * LINE
    ticks = svg.round_ticks(x.low, x.high)
    parts = [svg.line(x(tick), 0, x(tick), height, "grid") for tick in ticks]
    parts += svg.number_axis(x, height + 14)
    for place, (name, predicted, values) in enumerate(zip(names, levels, seen, strict=True)):
        gap = has_gap and place >= cols.size // 2
        y = (place + gap + 0.5) * LINE
        if gap and place == cols.size // 2:
            others = evaluated.model.shape[1] - evaluated.model.unseen_cols.size - cols.size
            more = f"{others:,} more"
            parts.append(svg.label(LEFT - 6, y - LINE + 4, more, anchor="end", kind="mute"))
        parts.append(svg.label(LEFT - 6, y + 4, name, anchor="end", longest=LONGEST_NAME))
        low, middle, high = (x(predicted[at]) for at in (0, evaluated.middle, -1))
        parts.append(svg.rect(low, y - 5, high - low, 10, "soft"))
        parts.append(svg.rect(middle - 1.5, y - 7, 3, 14, "fit"))
        for value in values:
            inside = x.low <= value <= x.high
            parts.append(svg.dot(x(float(value)), y, 2.8, "mark" if inside else "beyond"))
    return svg.image(height + 20, parts, f"predictions of {evaluated.axis_name(0)} {label}")


def _select_columns(evaluated: EvaluatedModel, row: int) -> tuple[Ints, bool]:
    """Return the columns to draw, as `rank` lists them, and whether others are in between."""
    model = evaluated.model
    highest: Any = {"tau" if isinstance(model, Quantiles) else "omega": evaluated.levels[-1]}
    label = model.axes[0].ids()[row]
    count = min(model.shape[1], 2 * EACH_END + 1)
    best = model.rank(label, count, order="smallest", **highest)
    first = _positions(evaluated, best.cols[~np.isnan(best.values)])
    if first.size <= 2 * EACH_END:
        return first, False
    worst = model.rank(label, EACH_END, order="largest", **highest)
    return np.concatenate([first[:EACH_END], _positions(evaluated, worst.cols)[::-1]]), True


def _positions(evaluated: EvaluatedModel, cols: NDArray[np.object_]) -> Ints:
    return evaluated.model.axes[1].positions(cols, "cols")


def _scale(levels: Floats, seen: list[Floats]) -> svg.Scale:
    """Return a scale for the levels, and for observations that are not far away."""
    low, high = float(levels.min()), float(levels.max())
    values = np.concatenate([levels.ravel(), *seen])
    reach = FAR * max(high - low, abs(high) / 2)
    low = max(float(values.min()), low - reach)
    high = min(float(values.max()), high + reach)
    if low > 0 and low < high / 3:
        low = 0.0
    if not high > low:
        low, high = low - 1, low + 1
    return svg.Scale(low, high, LEFT, RIGHT)
