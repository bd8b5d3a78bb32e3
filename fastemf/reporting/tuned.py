"""The tuning path: what was tried, and what the cells set aside said of it."""

from __future__ import annotations

import math

from fastemf.model.quantiles import Quantiles
from fastemf.plot.ridges import ridge_axis
from fastemf.reporting.drawing import (
    WIDTH,
    Scale,
    draw_dot,
    draw_line,
    draw_path,
    draw_ring,
    draw_text,
    drawn,
    round_ticks,
)
from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import as_cards, as_figure, as_section, as_table, safe
from fastemf.solver.tuning import MEANING, Tuning
from fastemf.support.level_names import quantile_name

__all__ = ["tuning_section"]

LEFT, RIGHT, TOP, BOTTOM = 40.0, WIDTH - 12.0, 12.0, 170.0
KINDS = {"even": "simple", "weighted": "fit", "ridged": "mark", "noise": "soft", "constant": "axis"}


def tuning_section(judged: Judgement) -> str:
    """Draw the candidates of each level's fit, and say what was chosen."""
    if isinstance(judged.model, Quantiles):
        return _promised(judged.model)
    cards, details = [], []
    for fit, name in zip(judged.fits, judged.names, strict=True):
        title = f"Candidates at {name}"
        if fit.tuning is None:
            cards.append(as_figure(title, "", "None: it was not tuned."))
            continue
        words = fit.tuning.verdict().replace("\n", "; ")
        drawing = _path(fit.tuning) if fit.tuning.steps else ""
        cards.append(as_figure(title, drawing, f"{words[:1].upper()}{words[1:]}."))
        if fit.tuning.steps:
            listed = _steps(fit.tuning)
            details.append(
                f"<details><summary>{safe(title)} in numbers</summary>{listed}</details>"
            )
    return as_section(
        "How it was tuned",
        "Ridge and weights were chosen by the loss on observations that were set aside, and fitted "
        "again at the end. Losses are shares of a constant's, and the candidate chosen is ringed. "
        "At ∞ there are no factors.",
        as_cards(cards),
        *details,
    )


def _promised(model: Quantiles) -> str:
    """List what quantiles, which keep no path of their tuning, said of cells out of fold."""
    lines = [
        [
            quantile_name(one.tau), float(one.coverage),
            f"{one.interval[0]:.3f} to {one.interval[1]:.3f}", one.cells, float(one.pinball),
            float(one.constant), float(one.row_column),
        ]
        for one in model.promises
    ]  # fmt: skip
    heads = [
        "", "share at or below", "95 % confidence", "cells", "pinball loss", "constant's",
        "row + column's",
    ]  # fmt: skip
    measured = all(one.measured for one in model.promises)
    return as_section(
        "What was promised",
        "When the quantiles were fitted, each cell was predicted by fits that had not seen it, "
        "tuned once for all. This is what came of it, to compare with the above."
        + ("" if measured else " It is not about rows or columns that were folded in since.")
        + "".join(
            f" {quantile_name(one.tau)} lies {one.unchecked}."
            for one in model.promises
            if one.unchecked
        ),
        as_table(heads, lines),
    )


def _steps(tuning: Tuning) -> str:
    heads = ["", "family", "ridge", "factors", "loss", "± error", "effective level"]
    lines = [
        [
            "chosen" if place == tuning.chosen else f"{place + 1}",
            step.family, float(step.reg), step.rank, float(step.loss), float(step.standard_error),
            float(step.effective_omega),
        ]
        for place, step in enumerate(tuning.steps)
    ]  # fmt: skip
    lines += [["simple", one.name, "", "", float(one.loss), "", ""] for one in tuning.baselines]
    return as_table(heads, lines, marked=frozenset([tuning.chosen]))


def _path(tuning: Tuning) -> str:
    unit = next((one.loss for one in tuning.baselines if one.name == "constant"), 0.0) or 1.0
    places, ticks = ridge_axis([step.reg for step in tuning.steps])
    ends = [math.log(place) for place in places.values()]
    x = Scale(min(ends), max(ends), LEFT + 10, RIGHT - 10)
    # A constant's own loss is 1, and mostly so far above that nothing else could be told apart.
    steps = [step for step in tuning.steps if step.family != "constant" or step is tuning.best]
    baselines = [one for one in tuning.baselines if one.name != "constant"]
    heights = [
        loss / unit for loss in [step.loss for step in steps] + [one.loss for one in baselines]
    ]
    y = Scale(min(heights) - 0.01, max(heights) + 0.01, BOTTOM, TOP)
    parts = []
    for tick in round_ticks(y.low, y.high):
        parts.append(draw_line(LEFT, y(tick), RIGHT, y(tick), "grid"))
        parts.append(draw_text(LEFT - 5, y(tick) + 4, f"{tick:.3g}", anchor="end", kind="mute"))
    for one in baselines:
        height = y(one.loss / unit)
        parts.append(draw_line(LEFT, height, RIGHT, height, "target"))
        parts.append(draw_text(RIGHT - 24, height - 3, one.name, anchor="end", kind="mute"))
    for tick, text in ticks.items():
        parts.append(draw_text(x(math.log(tick)), BOTTOM + 14, text, anchor="middle", kind="mute"))
    families = list(dict.fromkeys(step.family for step in steps))
    for family in families:
        of_family = sorted(
            (step for step in steps if step.family == family), key=lambda one: one.reg
        )
        points = [(x(math.log(places[one.reg])), y(one.loss / unit)) for one in of_family]
        parts.append(draw_path(points, KINDS[family]))
        parts += [draw_dot(*point, 3, KINDS[family]) for point in points]
    if tuning.best is not None:
        at = x(math.log(places[tuning.best.reg])), y(tuning.best.loss / unit)
        parts.append(draw_ring(*at, 7))
    parts.append(draw_text((LEFT + RIGHT) / 2, BOTTOM + 30, "ridge", anchor="middle", kind="mute"))
    bottom = BOTTOM + 34
    for family in families:
        bottom += 15
        parts.append(draw_dot(LEFT + 4, bottom - 4, 4, KINDS[family]))
        parts.append(draw_text(LEFT + 14, bottom, f"{family}: {MEANING[family]}"))
    return drawn(bottom + 6, parts, "loss on cells set aside against the ridge")
