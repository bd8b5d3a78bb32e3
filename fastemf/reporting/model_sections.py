"""Sections about the model: its terms, its factors, and its tuning or out-of-fold coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fastemf.boosting.coverage_report import CoverageReport
from fastemf.models.boosted import Boosted
from fastemf.models.boosted_levels import BoostedLevels, LevelReport
from fastemf.models.factorization import Factorization
from fastemf.models.quantiles import Quantiles
from fastemf.plot.axes import ridge_axis
from fastemf.reporting import drawing as svg
from fastemf.reporting import markup as html
from fastemf.reporting.calibration import draw_intervals
from fastemf.reporting.evaluated_model import EvaluatedModel
from fastemf.support.arrays import Floats
from fastemf.support.display_names import expectile_name, quantile_name
from fastemf.tuning.record import MEANING, Tuning

LEFT, RIGHT, TOP, BOTTOM = 40.0, svg.WIDTH - 12.0, 12.0, 170.0
BAR_LEFT, NUMBER_WIDTH, LINE = 30.0, 52.0, 20
SHOWN = 12
KINDS = {"equal": "simple", "weighted": "fit", "ridged": "mark"}
KINDS |= {"noise": "soft", "constant": "axis"}


def headline(evaluated: EvaluatedModel) -> str:
    """Return the title of the page."""
    kind = "Expectile" if len(evaluated.names) == 1 else "Expectiles"
    levels = ", ".join(evaluated.names)
    title = levels if evaluated.is_quantiles else f"{kind} {levels}"
    rows, cols = evaluated.axis_name(0), evaluated.axis_name(1)
    return f"{title} of {evaluated.unit}, by {rows} and {cols}"


def drift_section(evaluated: EvaluatedModel) -> str:
    """Show the reports of cells that were not fitted, beside random folds, if there are any."""
    found = [getattr(evaluated.model, name, None) for name in ("validation", "drift")]
    parts = [report._repr_html_() for report in found if report is not None]
    lead = "Performance on cells that a fit did not use, beside that in random folds."
    return html.section("Held-out cells", lead, *parts) if parts else ""


def about_section(evaluated: EvaluatedModel) -> str:
    """List the matrix, the terms of a prediction and the convergence of the fit."""
    facts = {"matrix": _matrix(evaluated), "predicts": _predicts(evaluated)}
    facts["terms"] = _terms(evaluated)
    if not isinstance(evaluated.model, Boosted):
        at = [f" at {name}" if len(evaluated.names) > 1 else "" for name in evaluated.names]
        pairs = list(zip(evaluated.fits, at, strict=True))
        facts["ridge"] = "; ".join(html.number(fit.reg) + at for fit, at in pairs)
        facts["fit"] = "; ".join(_end(fit.converged, fit.n_iter) + at for fit, at in pairs)
    facts["evaluated on"] = f"{evaluated.cells.values.size:,} observations"
    if evaluated.left_out:
        left_out = f"{evaluated.left_out:,} observations of unknown labels are left out"
        facts["evaluated on"] += f"; {left_out}"
    listed = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(fact)}</dd>" for name, fact in facts.items()
    )
    return html.section(
        "Model",
        "The model is evaluated on the given observations. They must be held out: on its training "
        "data a model looks better than it is.",
        f"<dl>{listed}</dl>",
    )


def _matrix(evaluated: EvaluatedModel) -> str:
    sides = []
    for axis, plural in enumerate(("rows", "columns")):
        items = evaluated.model.axes[axis]
        name = f" ({items.name})" if items.name else ""
        unseen = f", {items.unseen.size:,} without observations" if items.unseen.size else ""
        sides.append(f"{items.size:,} {plural}{name}{unseen}")
    return " × ".join(sides)


def _predicts(evaluated: EvaluatedModel) -> str:
    what = "quantile" if evaluated.is_quantiles else "expectile level"
    many = "s" if len(evaluated.names) > 1 else ""
    mean = ", the mean" if not evaluated.is_quantiles and evaluated.levels == (0.5,) else ""
    return f"{what}{many} {', '.join(evaluated.names)}{mean}, in {evaluated.unit}"


def _terms(evaluated: EvaluatedModel) -> str:
    first = evaluated.fits[0]
    parts = ["constant + row intercept + column intercept"] if first.rows.has_intercepts else []
    if first.k:
        parts.append(f"product of factors of rank {first.k}")
    if first.rows.effects is not None:
        parts.append("correction tables")
    made = " + ".join(parts)
    if not isinstance(evaluated.model, Boosted):
        return made
    fits = sum(map(len, evaluated.model.fits))
    features = [name for names in evaluated.model.features.names for name in names]
    more = f" and the side features {', '.join(features)}" if features else ""
    return f"trees that combine {fits} expectile fits{more}, each fit {made}"


def _end(converged: bool, sweeps: int) -> str:
    if not sweeps:
        return "folded in"
    return f"{'converged after' if converged else 'did not converge in'} {sweeps} sweeps"


def factor_sizes(fit: Factorization) -> Floats:
    """Compute the root mean square contribution of each principal factor over all cells.

    These are the singular values of the product, divided by the root of the number of cells.
    """
    rows, cols = (np.linalg.qr(side.astype(np.float64)).R for side in (fit.X, fit.Y))
    sizes = np.linalg.svd(rows @ cols.T, compute_uv=False)
    return np.asarray(sizes / np.sqrt(fit.X.shape[0] * fit.Y.shape[0]))


def factors_section(evaluated: EvaluatedModel) -> str:
    """Draw the contribution of each factor of each level."""
    if not evaluated.fits[0].k:
        return html.section("Factors", "The model has rank 0: intercepts without factors.")
    names = [""] if isinstance(evaluated.model, Boosted) else evaluated.names
    cards = []
    for fit, name in zip(evaluated.fits, names, strict=True):
        sizes = factor_sizes(fit)
        used = int(np.count_nonzero(sizes > 1e-6 * max(sizes.max(), 1e-300)))
        title = f"{used} of {fit.k} factors are used" + (f" at {name}" if name else "")
        cards.append(html.figure(title, _draw_factors(sizes)))
    of_quantiles = " The plot shows one of the underlying fits, at ω = 0.5."
    return html.section(
        "Factors",
        f"Root mean square contribution of each factor to the predictions, in {evaluated.unit}. "
        "A tuned fit keeps only factors that reduce the validation loss."
        + (of_quantiles if evaluated.is_quantiles else ""),
        html.cards(cards),
    )


def _draw_factors(sizes: Floats) -> str:
    shown = sizes[:SHOWN]
    x = svg.Scale(0.0, max(float(shown[0]), 1e-300), BAR_LEFT, svg.WIDTH - NUMBER_WIDTH)
    height = shown.size * LINE + 4
    items = [(f"{place}", size) for place, size in enumerate(shown.tolist(), start=1)]
    parts = svg.bars(items, x, LINE, "fit")
    if shown.size < sizes.size:
        height += LINE
        parts.append(svg.label(BAR_LEFT, height - 6, f"and {sizes.size - shown.size} smaller"))
    return svg.image(height, parts, "root mean square contribution of each factor")


def tuning_section(evaluated: EvaluatedModel) -> str:
    """Draw the candidates of each level; for boosted models, list the out-of-fold figures."""
    if isinstance(evaluated.model, Quantiles):
        return _coverage_section(evaluated.model)
    if isinstance(evaluated.model, BoostedLevels):
        return _levels_section(evaluated.model)
    cards, details = [], []
    for fit, name in zip(evaluated.fits, evaluated.names, strict=True):
        title = f"Candidates at {name}"
        if fit.tuning is None:
            cards.append(html.figure(title, "", "The fit was not tuned."))
            continue
        words = fit.tuning.verdict().replace("\n", "; ")
        drawing = _draw_candidates(fit.tuning) if fit.tuning.steps else ""
        cards.append(html.figure(title, drawing, f"{words[:1].upper()}{words[1:]}."))
        if fit.tuning.steps:
            details.append(html.details(f"Table of {title.lower()}", _list_steps(fit.tuning)))
    return html.section(
        "Tuning",
        "Ridge and weights were chosen by the loss on validation cells; the final fit uses all "
        "cells. Losses are relative to a constant. A ring marks the chosen candidate. A ridge of ∞ "
        "means no factors.",
        html.cards(cards),
        *details,
    )


def _coverage_section(model: Quantiles) -> str:
    """List the out-of-fold coverage of each quantile."""
    lines = [
        [
            quantile_name(one.tau), float(one.coverage),
            f"{one.interval[0]:.3f} to {one.interval[1]:.3f}", one.cells, float(one.pinball),
            one.baselines["constant"], one.baselines["row + column"],
        ]
        for one in model.coverage
    ]  # fmt: skip
    heads = ["", "coverage", "95 % CI", "cells", "pinball loss", "constant", "row + column"]
    groups = [
        [
            f"{quantile_name(one.tau)}: {group.name}", float(group.coverage),
            f"{group.interval[0]:.3f} to {group.interval[1]:.3f}", group.cells,
            float(group.pinball), float(group.baseline),
        ]
        for one in model.coverage
        for group in (*one.cold, *one.groups)
    ]  # fmt: skip
    return html.section(
        "Out-of-fold coverage",
        "Out-of-fold coverage and pinball loss, measured when the quantiles were fitted: each cell "
        "was predicted by fits that had not seen it."
        + _describe_scope(model.coverage)
        + "".join(
            f" {quantile_name(one.tau)} is {one.censoring_note}."
            for one in model.coverage
            if one.censoring_note
        ),
        html.table(heads, lines),
        html.cards(map(_group_figure, model.coverage)) if model.coverage[0].groups else "",
        html.details(
            "Table of new rows, new columns and groups",
            html.table([*heads[:5], "best baseline"], groups),
        ),
    )


def _group_figure(report: CoverageReport) -> str:
    """Draw the out-of-fold coverage of each group, in order of size."""
    name = quantile_name(report.tau)
    groups = sorted(report.groups, key=lambda one: -one.cells)
    texts = groups[0].name, "group, largest first", groups[-1].name if len(groups) > 1 else ""
    points = [(one.coverage, *one.interval) for one in groups]
    drawing = draw_intervals(points, report.tau, texts, f"coverage of {name} by group")
    return html.figure(f"Coverage of {name} by group", drawing, "With 95 % confidence intervals.")


def _levels_section(model: BoostedLevels) -> str:
    """List the out-of-fold figures of each boosted level."""
    lines = []
    for one in model.reports:
        name = expectile_name(one.omega)
        lines.append([name, one.effective_omega, one.loss, one.constant])
        lines += [
            [f"{name}: {group.name}", group.effective_omega, group.loss, group.constant]
            for group in one.cold
        ]
    return html.section(
        "Out-of-fold levels",
        "Effective level and expectile loss, measured when the levels were fitted: each cell was "
        "predicted by fits that had not seen it." + _describe_scope(model.reports),
        html.table(["", "effective level", "loss", "constant"], lines),
    )


def _describe_scope(reports: Sequence[CoverageReport | LevelReport]) -> str:
    """State whether the model was updated after the reports were made."""
    if all(one.measured for one in reports):
        return ""
    return " They were measured before the update."


def _list_steps(tuning: Tuning) -> str:
    heads = ["", "family", "ridge", "factors", "loss", "std. error", "effective level"]
    lines = [
        [
            "chosen" if place == tuning.chosen else f"{place + 1}",
            step.family, float(step.reg), step.rank, float(step.loss), float(step.standard_error),
            float(step.effective_omega),
        ]
        for place, step in enumerate(tuning.steps)
    ]  # fmt: skip
    lines += [["baseline", one.name, "", "", float(one.loss), "", ""] for one in tuning.baselines]
    return html.table(heads, lines, marked=frozenset([tuning.chosen]))


def _draw_candidates(tuning: Tuning) -> str:
    unit = next((one.loss for one in tuning.baselines if one.name == "constant"), 0.0) or 1.0
    places, ticks = ridge_axis([step.reg for step in tuning.steps])
    ends = [math.log(place) for place in places.values()]
    x = svg.Scale(min(ends), max(ends), LEFT + 10, RIGHT - 10)
    # The loss of a constant is 1, often so large that the others would be indistinguishable.
    steps = [step for step in tuning.steps if step.family != "constant" or step is tuning.best]
    baselines = [one for one in tuning.baselines if one.name != "constant"]
    losses = [step.loss for step in steps] + [one.loss for one in baselines]
    heights = [loss / unit for loss in losses]
    y = svg.Scale(min(heights) - 0.01, max(heights) + 0.01, BOTTOM, TOP)
    parts = svg.horizontal_grid(y, LEFT, RIGHT)
    for one in baselines:
        height = y(one.loss / unit)
        parts.append(svg.line(LEFT, height, RIGHT, height, "target"))
        parts.append(svg.label(RIGHT - 24, height - 3, one.name, anchor="end", kind="mute"))
    for tick, text in ticks.items():
        parts.append(svg.label(x(math.log(tick)), BOTTOM + 14, text, anchor="middle", kind="mute"))
    families = list(dict.fromkeys(step.family for step in steps))
    for family in families:
        of_family = [step for step in steps if step.family == family]
        of_family.sort(key=lambda step: step.reg)
        points = [(x(math.log(places[step.reg])), y(step.loss / unit)) for step in of_family]
        parts.append(svg.path(points, KINDS[family]))
        parts += [svg.dot(*point, 3, KINDS[family]) for point in points]
    if tuning.best is not None:
        at = x(math.log(places[tuning.best.reg])), y(tuning.best.loss / unit)
        parts.append(svg.dot(*at, 7, "ring"))
    parts.append(svg.label((LEFT + RIGHT) / 2, BOTTOM + 30, "ridge", anchor="middle", kind="mute"))
    bottom = BOTTOM + 34
    for family in families:
        bottom += 15
        parts.append(svg.dot(LEFT + 4, bottom - 4, 4, KINDS[family]))
        parts.append(svg.label(LEFT + 14, bottom, f"{family}: {MEANING[family]}"))
    return svg.image(bottom + 6, parts, "validation loss against the ridge")
