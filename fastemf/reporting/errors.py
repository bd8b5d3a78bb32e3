"""Residuals, and the rows and columns with the largest errors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastemf.boosting.statistics import quantile
from fastemf.reporting import drawing as svg
from fastemf.reporting import markup as html
from fastemf.reporting.evaluated_model import EvaluatedModel
from fastemf.support.arrays import Floats, Ints
from fastemf.support.display_names import quantile_name

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
TAIL = 0.01  # proportion of the observations at either side that is not drawn
BARS = 40
ENOUGH = 5  # observations of a row or column whose mean loss is listed
SHOWN = 8
LEFT, RIGHT, TOP, BOTTOM = 12.0, svg.WIDTH - 12.0, 10.0, 150.0


def residual_section(evaluated: EvaluatedModel) -> str:
    """Draw the residuals of each level, and tabulate their quantiles."""
    cards, lines = [], []
    for at, name in enumerate(evaluated.names):
        r = evaluated.residuals(at)
        lines.append([name, *(quantile(r, tau, evaluated.weights) for tau in QUANTILES)])
        cards.append(_draw_histogram(r, evaluated.weights, name, evaluated.unit))
    heads = ["", *map(quantile_name, QUANTILES)]
    return html.section(
        "Residuals",
        f"Observed minus predicted, in {evaluated.unit}. Residuals to the right of the dashed line "
        "are observations above their prediction.",
        html.cards([*cards, html.figure("Quantiles", html.table(heads, lines), width="span")]),
    )


def _draw_histogram(r: Floats, weights: Floats, name: str, unit: str) -> str:
    low, high = min(quantile(r, TAIL, weights), 0.0), max(quantile(r, 1 - TAIL, weights), 0.0)
    if not high > low:
        low, high = -0.5, 0.5
    heights, edges = np.histogram(r, bins=BARS, range=(low, high), weights=weights)
    outside = 1 - heights.sum() / weights.sum()
    x, y = svg.Scale(low, high, LEFT, RIGHT), svg.Scale(0.0, float(heights.max()), BOTTOM, TOP)
    parts = []
    for height, left, right in zip(heights, edges[:-1], edges[1:], strict=True):
        top = y(float(height))
        width = x(float(right)) - x(float(left)) - 0.5
        parts.append(svg.rect(x(float(left)), top, width, BOTTOM - top, "fit"))
    parts.append(svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis"))
    parts.append(svg.line(x(0.0), TOP - 6, x(0.0), BOTTOM, "target"))
    parts += svg.number_axis(x, BOTTOM + 16)
    beyond = "" if outside < 5e-4 else f"; {100 * outside:.1f} % are outside the plot"
    return html.figure(
        f"Observed − {name}",
        svg.image(BOTTOM + 22, parts, f"histogram of observed minus {name}"),
        f"In {unit}{beyond}.",
    )


class LargestErrors(NamedTuple):
    """The rows, or columns, with the largest mean losses, in decreasing order."""

    items: Ints
    observations: Ints
    observed: Floats
    """Mean of the values."""
    predicted: Floats
    """Mean of their predictions."""
    loss: Floats
    """Mean loss."""
    proportion: Floats
    """Proportion of the total loss."""
    fewest: int
    """Minimum number of observations of those listed."""


def largest_errors(evaluated: EvaluatedModel, axis: int) -> LargestErrors:
    """Return the rows (axis 0) or columns with the largest mean loss at the middle level."""
    keys = (evaluated.cells.rows, evaluated.cells.cols)[axis]
    size, level = evaluated.model.axes[axis].size, evaluated.middle
    counts = np.bincount(keys, minlength=size)
    fewest = min(ENOUGH, int(counts.max()))
    sums = [
        np.bincount(keys, evaluated.weights * of, minlength=size)
        for of in (
            np.ones(keys.size), evaluated.cells.values, evaluated.predicted[level],
            evaluated.losses(level),
        )
    ]  # fmt: skip
    kept = np.flatnonzero(counts >= fewest)
    mass, observed, predicted, loss = (of[kept] for of in sums)
    whole = float(sums[3].sum())
    worst = np.argsort(-loss / mass, kind="stable")[:SHOWN]
    means = (observed / mass, predicted / mass, loss / mass, loss / (whole or 1.0))
    mean, at, mean_loss, proportion = (part[worst] for part in means)
    items, count = kept[worst], counts[kept][worst]
    return LargestErrors(items, count, mean, at, mean_loss, proportion, fewest)


def errors_section(evaluated: EvaluatedModel) -> str:
    """List the rows and columns with the largest mean losses."""
    cards = []
    name = evaluated.names[evaluated.middle]
    for axis in (0, 1):
        errors, axis_name = largest_errors(evaluated, axis), evaluated.axis_name(axis)
        heads = [axis_name, "count", "observed", "predicted", "mean loss", "% of loss"]
        lines = [
            [label, int(count), float(observed), float(predicted), float(loss), f"{proportion:.1%}"]
            for label, count, observed, predicted, loss, proportion in zip(
                evaluated.labels(axis, errors.items), *errors[1:6], strict=True
            )
        ]
        note = f"Among those with {errors.fewest} or more observations; % of the total loss."
        cards.append(html.figure(f"{axis_name}: largest errors", html.table(heads, lines), note))
    return html.section(
        "Largest errors",
        f"Rows and columns with the largest mean loss at {name}, with mean observed and predicted "
        f"values in {evaluated.unit}. Possible causes: time-outs, data errors, too few data.",
        html.cards(cards, "broad"),
    )
