"""The verdict: the loss of the predictions beside those of simpler ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastemf.model.evaluation import Score
from fastemf.model.quantiles import Quantiles
from fastemf.reporting.drawing import WIDTH, Scale, draw_line, draw_rect, draw_text, drawn
from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import (
    as_cards,
    as_figure,
    as_section,
    as_table,
    figure_text,
    safe,
)
from fastemf.solver.tuning import NOTHING_ADDED
from fastemf.stacking.promise import Promise
from fastemf.support.level_names import quantile_name

__all__ = ["Verdict", "verdict_of"]

NAME_WIDTH, FIGURE_WIDTH, LINE = 96, 52, 22
SCORES = (
    "Skill is the share of a constant's loss that is saved. The effective level is where the "
    "predictions really lie, and should be near ω. Coverage is the share of the values at or below "
    "their prediction. Relative error is the median of |observed − predicted| / |observed|."
)


class Verdict(NamedTuple):
    """What the predictions are worth."""

    words: str
    """In words, as a paragraph."""
    section: str
    """In figures, as a section."""


def verdict_of(judged: Judgement) -> Verdict:
    """Judge a model as its `evaluate` does."""
    if isinstance(judged.model, Quantiles):
        promises = judged.model.evaluate(judged.observations).promises
        lines = [_in_words(promise) for promise in promises]
        drawings = [list(_losses(promise).items()) for promise in promises]
        table, note = _table_of_quantiles(promises), ""
        loss = f"pinball loss, in {judged.unit}"
    else:
        found = judged.model.evaluate(judged.observations)
        lines = found.verdict().splitlines()
        scores = [score for score in found.scores if isinstance(score, Score)]
        drawings = [
            [(score.name, score.loss) for score in scores if score.omega == omega]
            for omega in judged.levels
        ]
        table, note = _table_of_scores(scores), SCORES
        loss = f"expectile loss, in squared {judged.unit}"
    cards = [
        as_figure(f"Loss at {name}", _bars(bars, f"losses at {name}"))
        for name, bars in zip(judged.names, drawings, strict=True)
    ]
    words = "<br>".join(
        safe(f"{line}.".replace("the", "The", line.startswith("the"))) for line in lines
    )
    section = as_section(
        "Is it better than something simple?",
        f"Mean {loss}, of the same observations: smaller is better. The simple predictions are of "
        "the data that the model was fitted to: one constant, a level for each column, for each "
        "row and column, and so on.",
        as_cards(
            [
                *cards,
                as_figure("In numbers", table, note, "span" if len(judged.levels) == 1 else "full"),
            ]
        ),
    )
    return Verdict(f'<p class="verdict">{words}</p>', section)


def _losses(promise: Promise) -> dict[str, float]:
    return {
        "quantile": promise.pinball,
        "constant": promise.constant,
        "column": promise.column,
        "row + column": promise.row_column,
        "larger of both": promise.larger,
    }


def _in_words(promise: Promise) -> str:
    ours, *simple = _losses(promise).items()
    low, high = promise.interval
    name, best = min(simple, key=lambda pair: pair[1])
    shares = [ours[1] / loss if loss > 0 else math.inf for loss in (promise.constant, best)]
    nothing = "" if shares[1] <= NOTHING_ADDED else ", to which it adds nothing"
    return (
        f"{quantile_name(promise.tau)}: {_percent(promise.coverage)} of the values lie at or below "
        f"it (95 % confidence: {_percent(low)} to {_percent(high)}), and its loss is "
        f"{shares[0]:.2f} of a constant's, {shares[1]:.2f} of the best simple prediction's "
        f"({name}){nothing}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _table_of_quantiles(promises: Sequence[Promise]) -> str:
    heads = ["", *list(_losses(promises[0])), "share at or below", "in rows of many observations"]
    lines = [
        [quantile_name(one.tau), *_losses(one).values(), one.coverage, one.many] for one in promises
    ]
    return as_table(heads, lines)


def _table_of_scores(scores: Sequence[Score]) -> str:
    names = ("loss", "skill", "effective level", "coverage", "pinball loss", "relative error")
    several = len({score.omega for score in scores}) > 1
    lines: list[list[Any]] = []
    marked = set()
    for score in scores:
        at = f" at {score.omega:g}" if several else ""
        if score.name == "fit":
            marked.add(len(lines))
        lines.append([f"{score.name}{at}", *map(float, score[2:])])
    return as_table(["", *names], lines, marked=frozenset(marked))


def _bars(bars: Sequence[tuple[str, float]], what: str) -> str:
    """Draw a horizontal bar for each loss, the model's first."""
    most = max((loss for _, loss in bars), default=0.0)
    scale = Scale(0.0, most, NAME_WIDTH, WIDTH - FIGURE_WIDTH)
    if not most > 0:
        scale = Scale(0.0, 1.0, NAME_WIDTH, WIDTH - FIGURE_WIDTH)
    parts = []
    for place, (name, loss) in enumerate(bars):
        y = 4 + place * LINE
        kind = "fit" if place == 0 else "simple"
        parts.append(draw_text(NAME_WIDTH - 6, y + 12, name, anchor="end"))
        parts.append(draw_rect(NAME_WIDTH, y, scale(loss) - NAME_WIDTH, LINE - 6, kind))
        parts.append(draw_text(scale(loss) + 4, y + 12, figure_text(loss)))
    height = 4 + len(bars) * LINE
    parts.append(draw_line(NAME_WIDTH, 0, NAME_WIDTH, height, "axis"))
    ours = scale(bars[0][1])
    parts.append(draw_line(ours, 0, ours, height, "target"))
    return drawn(height, parts, what)
