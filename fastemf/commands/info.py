"""``fastemf info``: the content of a model file, as text or JSON."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from fastemf.commands.options import add_command, add_json, add_model_file
from fastemf.commands.output import as_json, as_lines, print_text
from fastemf.support.display_names import quantile_name

Lines = list[tuple[str, str]]
ATTRIBUTES = ("omega", "mu", "reg", "reg_scaling", "converged", "shift")


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands, "info", run,
        "describe a model file",
        "Print the content of a model file: the matrix and its labels, the terms of a prediction, "
        "and for each level its ridge, convergence and tuning, or for each quantile its "
        "out-of-fold coverage.",
    )  # fmt: skip
    add_model_file(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Print the content of the file."""
    from fastemf import load

    print_model(args.model, load(args.model), to_json=args.json, lists_steps=True)


def print_model(
    path: str, model: Any, *, to_json: bool, lists_steps: bool = False, **more: Any
) -> None:
    """Print the description of a model in a file, and more facts about it."""
    facts = {"model": path, **describe(model), **_describe_held_out(model), **more}
    print_text(as_json(facts) if to_json else render(facts, lists_steps=lists_steps))


# --- facts ------------------------------------------------------------------------------------


def describe(model: Any) -> dict[str, Any]:
    """Return the facts of a model of any kind."""
    is_boosted = hasattr(model, "combination")
    fits = list(model.fits[0]) if is_boosted else list(getattr(model, "fits", [model]))
    first = fits[0]
    facts = {
        "shape": list(model.shape),
        "rows": _describe_labels(model.row_labels),
        "cols": _describe_labels(model.col_labels),
        "unseen_rows": int(model.unseen_rows.size),
        "unseen_cols": int(model.unseen_cols.size),
        "rank": first.k,
        "dtype": str(first.X.dtype),
        "intercepts": first.rows.has_intercepts,
        "censored": first.imputation is not None,
        "censoring_limit": model.censored,
    }
    if is_boosted:
        facts["fits"] = sum(map(len, model.fits))
        sides = ("rows", "columns", "observations")
        facts["updated"] = None if model.updated is None else asdict(model.updated)
        facts["features"] = dict(zip(sides, map(list, model.features.names), strict=True))
        if hasattr(model, "coverage"):
            calibrated = model.combination.shifts is not None
            facts |= {"groups": model.groups, "calibrated": calibrated}
            return facts | {"quantiles": [asdict(report) for report in model.coverage]}
        return facts | {"boosted": [asdict(report) for report in model.reports]}
    return facts | {
        "levels": [
            {
                **{name: getattr(fit, name) for name in ATTRIBUTES},
                "sweeps": fit.n_iter,
                "objective": _final_objective(fit.history),
                "corrections": [list(table.over) for table in fit.corrections],
                "tuning": _describe_tuning(fit.tuning),
            }
            for fit in fits
        ]
    }


def _describe_held_out(model: Any) -> dict[str, Any]:
    """Return the reports of cells that were not fitted, if there are any."""
    reports = {name: getattr(model, name, None) for name in ("validation", "drift")}
    return {
        name: {"verdict": one.details(), **asdict(one)}
        for name, one in reports.items()
        if one is not None
    }


def _describe_labels(labels: Any) -> dict[str, Any] | None:
    if labels is None:
        return None
    return {"name": labels.name, "first": [str(label) for label in labels.values[:3].tolist()]}


def _describe_tuning(tuning: Any) -> dict[str, Any] | None:
    if tuning is None:
        return None
    return {
        "verdict": tuning.verdict().splitlines(),
        "note": tuning.note,
        "observations": tuning.cells,
        "folds": tuning.folds,
        "steps": [asdict(step) for step in tuning.steps],
        "chosen": tuning.chosen if tuning.steps else None,
        "baselines": {baseline.name: baseline.loss for baseline in tuning.baselines},
    }


def _final_objective(history: Any) -> float | None:
    """Return the objective of the final factors: the last accepted sweep, or the best validated."""
    if not any(record.accepted for record in history):
        return None
    if history[-1].validation_loss == history[-1].validation_loss:
        return float(min(history, key=lambda record: record.validation_loss).objective)
    return float(next(record for record in reversed(history) if record.accepted).objective)


# --- text -------------------------------------------------------------------------------------


def render(facts: dict[str, Any], *, lists_steps: bool = False) -> str:
    """Return the facts as text, with all candidates of the tuning if `lists_steps`."""
    m, n = facts["shape"]
    lines = [
        ("model", facts["model"]),
        ("matrix", f"{m:,} rows × {n:,} columns, rank {facts['rank']}, {facts['dtype']}"),
    ]
    for side, size in (("rows", m), ("cols", n)):
        labels = facts[side]
        if labels is None:
            text = "by position, from 0"
        else:
            more = ["…"] if size > len(labels["first"]) else []
            name = f"{labels['name']}: " if labels["name"] else ""
            text = name + ", ".join([*labels["first"], *more])
        if facts[f"unseen_{side}"]:
            text += f" ({facts[f'unseen_{side}']:,} without observations)"
        lines.append((side, text))
    if "features" in facts:
        what = "quantiles" if "quantiles" in facts else "expectiles"
        lines.append(("predicts", f"{what}, from {facts['fits']} expectile fits and trees"))
        listed = [f"{', '.join(of)} of {side}" for side, of in facts["features"].items() if of]
        lines += [("features", "; ".join(listed))] if listed else []
        if facts.get("groups"):
            lines.append(("groups", facts["groups"] + ", calibrated" * facts["calibrated"]))
    else:
        terms = ["mu + row intercept + column intercept"] if facts["intercepts"] else []
        terms += ["X Yᵀ"] if facts["rank"] else []
        lines.append(("predicts", " + ".join(terms)))
    if facts["censored"] or facts["censoring_limit"]:
        lines.append(("censored", _render_censoring(facts["censoring_limit"])))
    for report in facts.get("boosted", []):
        lines += _render_boosted(report)
    for report in facts.get("quantiles", []):
        lines += _render_coverage(report)
    for level in facts.get("levels", []):
        lines += _render_level(facts, level, lists_steps)
    for name, title in (("validation", "held out"), ("drift", "drift")):
        texts = facts[name]["verdict"] if name in facts else []
        lines += zip([title, *[""] * len(texts)], texts, strict=False)
    if facts.get("updated"):
        lines += _render_record(facts["updated"])
    return as_lines([*lines, *_render_update(facts)])


def _render_censoring(limit: tuple[str, float] | None) -> str:
    if limit is None:
        return "marked values, or values in intervals, were imputed"
    return f"values at or {'above' if limit[0] == 'right' else 'below'} {limit[1]:g} were imputed"


def _render_coverage(fields: dict[str, Any]) -> Lines:
    """Return the lines of one `CoverageReport`."""
    from fastemf.boosting.coverage_report import CoverageReport, GroupCoverage

    groups = [GroupCoverage(**one) for one in (*fields["cold"], *fields["groups"])]
    report = CoverageReport(**fields)
    low, high = report.interval
    texts = []
    if report.cells:
        texts = [
            f"out-of-fold coverage {report.coverage:.4f} of {report.cells:,} cells "
            f"(95 % CI {low:.4f} to {high:.4f})",
            f"{min(report.deciles):.3f} to {max(report.deciles):.3f} by decile of the prediction, "
            f"{report.dense_coverage:.4f} in rows with {report.dense_cells:,} or more cells",
        ]
    if report.censoring_note:
        texts.append(report.censoring_note)
    losses = ", ".join(f"{name} {loss:.4g}" for name, loss in report.baselines.items())
    texts.append(f"pinball loss {report.pinball:.4g}; baselines: {losses}")
    if not report.measured:
        texts.append("measured before the update")
    texts += map(str, groups)
    return list(zip([quantile_name(report.tau), *[""] * (len(texts) - 1)], texts, strict=True))


def _render_record(fields: dict[str, Any]) -> Lines:
    """Return the lines of an `UpdateRecord`."""
    from fastemf.boosting.update_record import UpdateRecord

    texts = UpdateRecord(**fields).lines()
    return list(zip(["updated", *[""] * (len(texts) - 1)], texts, strict=True))


def _render_boosted(fields: dict[str, Any]) -> Lines:
    """Return the lines of one `LevelReport`."""
    from fastemf.models.boosted_levels import LevelGroup, LevelReport

    texts = [str(LevelReport(**fields | {"cold": ()}))]
    texts += [str(LevelGroup(**group)) for group in fields["cold"]]
    return list(zip(["level", *[""] * (len(texts) - 1)], texts, strict=True))


def _render_level(facts: dict[str, Any], level: dict[str, Any], lists_steps: bool) -> Lines:
    """Return the lines of one expectile level."""
    from fastemf.loss import level_weights

    omega, below = level_weights(level["omega"])
    texts = [f"omega = {omega:g}: residuals above weigh {omega:g}, below {below:g}"]
    if facts["intercepts"]:
        shift = f", shift {level['shift']:+.4g}" if level["shift"] else ""
        texts.append(f"mu = {level['mu']:.4g}{shift}")
    per = "per observation" if level["reg_scaling"] == "count" else "per row and column"
    texts.append(f"ridge {level['reg']:.4g} {per}")
    if level["corrections"]:
        over = "; ".join(" and ".join(pair) for pair in level["corrections"])
        texts.append(f"correction tables over {over}")
    end = "converged after" if level["converged"] else "did not converge in"
    texts.append(f"{end} {level['sweeps']} sweeps" if level["sweeps"] else "folded in")
    if level["tuning"] is not None:
        tuning = _render_tuning(level["tuning"], lists_steps=lists_steps)
        texts += tuning if lists_steps or len(facts["levels"]) == 1 else tuning[:1]
    return list(zip(["level", *[""] * (len(texts) - 1)], texts, strict=True))


def _render_tuning(facts: dict[str, Any], *, lists_steps: bool) -> list[str]:
    """Return the verdict of a tuning, and its losses or all candidates."""
    lines = list(facts["verdict"])
    if not facts["steps"]:
        return lines
    baselines = ", ".join(f"{name} {loss:.4g}" for name, loss in facts["baselines"].items())
    if not lists_steps:
        loss = facts["steps"][facts["chosen"]]["loss"]
        return [*lines, f"validation loss: fit {loss:.4g}; baselines: {baselines}"]
    folds = "" if facts["folds"] == 1 else f" in {facts['folds']} folds"
    lines.append(f"loss of the candidates on {facts['observations']:,} validation cells{folds}:")
    lines.append("    family       ridge  factors       loss   std. err.  omega")
    for place, step in enumerate(facts["steps"]):
        ridge = f"{step['reg']:10.4g}" if step["rank"] else f"{'':10}"
        level = step["effective_omega"]
        lines.append(
            f"  {'*' if place == facts['chosen'] else ' '} {step['family']:8}{ridge}  "
            f"{step['rank']:7}  {step['loss']:9.4g}  {step['standard_error']:10.2g}"
            + ("" if level is None or level != level else f"  {level:5.2f}")
        )
    return [*lines, f"  * chosen; baselines: {baselines}"]


def _render_update(facts: dict[str, Any]) -> Lines:
    """Return the lines about an update, including the observations that it left out."""
    lines = [("update", facts["update"])] if "update" in facts else []
    gone = [f"{count:,} {what}" for what, count in facts.get("gone", {}).items() if count]
    if gone:
        lines.append(("", f"{' and '.join(gone)} of the old model are not in these data"))
    if "left_out" in facts:
        text = f"{facts['new_rows']:,} new rows, {facts['observations']:,} observations"
        lines.append(("", text))
        left = [f"{count:,} {what}" for what, count in facts["left_out"].items() if count]
        if left:
            text = f"left out: {' and '.join(left)}; --all refits the model to all data"
            lines.append(("", text))
    return lines
