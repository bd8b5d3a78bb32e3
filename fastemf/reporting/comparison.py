"""Comparison with baselines: losses of the model and of simpler predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastemf.boosting.coverage_report import CoverageReport
from fastemf.models.evaluation import Evaluation, Score
from fastemf.models.quantiles import Quantiles
from fastemf.reporting import drawing as svg
from fastemf.reporting import markup as html
from fastemf.reporting.evaluated_model import EvaluatedModel
from fastemf.support.display_names import quantile_name
from fastemf.tuning.record import NOTHING_ADDED

NAME_WIDTH, FIGURE_WIDTH, LINE = 96, 52, 22
SCORES = (
    "Skill is the reduction of the loss relative to a constant. The effective level is the level "
    "of the predictions on these observations, and should be close to ω. Coverage is the "
    "proportion of values at or below their prediction. Relative error is the median of |observed "
    "− predicted| / |observed|."
)

DISTRIBUTIONS = (
    " The continuous ranked probability score (CRPS) and the interval score evaluate whole "
    "distributions between the quantiles, and the interval between the outer ones."
)


def compare_with_baselines(evaluated: EvaluatedModel) -> tuple[str, str]:
    """Compare a model with baselines, as its `evaluate` does.

    The results are a paragraph, and a section with drawings and tables.
    """
    evaluation = evaluated.model._evaluate_cells(evaluated.cells)
    if isinstance(evaluated.model, Quantiles):
        reports = evaluation.coverage
        lines = [_summary(report) for report in reports]
        drawings = [list(_losses(report).items()) for report in reports]
        table, note = _table_of_quantiles(evaluation), ""
        loss = f"pinball loss, in {evaluated.unit}"
    else:
        lines = evaluation.verdict().splitlines()
        scores = [score for score in evaluation.scores if isinstance(score, Score)]
        drawings = [
            [(score.name, score.loss) for score in scores if score.omega == omega]
            for omega in evaluated.levels
        ]
        table, note = _table_of_scores(scores), SCORES
        loss = f"expectile loss, in squared {evaluated.unit}"
    cards = [
        html.figure(f"Loss at {name}", _bars(bars, f"losses at {name}"))
        for name, bars in zip(evaluated.names, drawings, strict=True)
    ]
    words = "<br>".join(
        html.escape(f"{line}.".replace("the", "The", line.startswith("the"))) for line in lines
    )
    censoring = f" {evaluation.censoring_note}." if evaluation.censored else ""
    width = "span" if len(evaluated.levels) == 1 else "full"
    section = html.section(
        "Comparison with baselines",
        f"Mean {loss}, on the same observations; smaller is better. Baselines are computed from "
        "the training data: a constant, column effects, row and column effects, and so on."
        f"{DISTRIBUTIONS if evaluation.distribution else ''}{censoring}",
        html.cards([*cards, html.figure("Scores", table, note, width)]),
    )
    return f'<p class="verdict">{words}</p>', section


def _losses(report: CoverageReport) -> dict[str, float]:
    return {"quantile": report.pinball, **report.baselines}


def _summary(report: CoverageReport) -> str:
    low, high = report.interval
    name = min(report.baselines, key=lambda name: report.baselines[name])
    ratios = [
        report.pinball / loss if loss > 0 else math.inf
        for loss in (report.baselines["constant"], report.baselines[name])
    ]
    nothing = "" if ratios[1] <= NOTHING_ADDED else ": no improvement over that baseline"
    parts = []
    if report.cells:
        parts.append(
            f"coverage {_percent(report.coverage)} (95 % CI {_percent(low)} to {_percent(high)})"
        )
    parts += [report.censoring_note] if report.censoring_note else []
    what = "; ".join([*parts, "pinball loss"])
    return (
        f"{quantile_name(report.tau)}: {what} {ratios[0]:.2f} relative to a constant, "
        f"{ratios[1]:.2f} relative to the best baseline ({name}){nothing}"
    )


def _percent(proportion: float) -> str:
    return f"{100 * proportion:.1f} %"


def _table_of_quantiles(evaluation: Evaluation) -> str:
    reports, scores = evaluation.coverage, evaluation.distribution
    heads = ["", *list(_losses(reports[0])), "coverage", "coverage in dense rows"]
    lines: list[list[Any]] = [
        [quantile_name(one.tau), *_losses(one).values(), one.coverage, one.dense_coverage]
        for one in reports
    ]
    if scores:
        lines.append(["CRPS", *(one.crps.score for one in scores), "", ""])
    if not math.isnan(evaluation.interval_coverage):
        name = f"interval score, coverage {evaluation.interval_coverage:.4g}"
        lines.append([name, *(one.interval_score for one in scores), "", ""])
    return html.table(heads, lines)


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
    return html.table(["", *names], lines, marked=frozenset(marked))


def _bars(bars: Sequence[tuple[str, float]], what: str) -> str:
    """Draw a horizontal bar for each loss, that of the model first."""
    most = max(loss for _, loss in bars)
    x = svg.Scale(0.0, most if most > 0 else 1.0, NAME_WIDTH, svg.WIDTH - FIGURE_WIDTH)
    height = 4 + len(bars) * LINE
    ours = svg.line(x(bars[0][1]), 0, x(bars[0][1]), height, "target")
    return svg.image(height, [*svg.bars(bars, x, LINE, "simple"), ours], what)
