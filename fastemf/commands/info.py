"""``fastemf info``: what a model file holds, in a screen."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from fastemf.commands.arguments import add_json
from fastemf.commands.output import as_json
from fastemf.commands.promises import render_promises
from fastemf.commands.worth import describe_tuning, render_tuning

__all__ = ["add", "describe", "print_facts", "render", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "info",
        help="say what a model file holds",
        description="Say what a model file holds: the matrix and its labels, what a prediction is "
        "made of, and for each level its ridge and how the fit went, or for each quantile what it "
        "was worth on cells it had not seen.",
    )
    parser.add_argument("model", help="model file, of fastemf fit, levels, quantiles or select")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print what the file says."""
    from fastemf import load

    print_facts(args.model, load(args.model), to_json=args.json, lists_steps=True)


def print_facts(
    path: str, model: Any, *, to_json: bool, lists_steps: bool = False, **found: Any
) -> None:
    """Print what the model in a file is, and what else was found about it."""
    facts = {"model": path, **describe(model), **found}
    print(as_json(facts) if to_json else render(facts, lists_steps=lists_steps))


def describe(model: Any) -> dict[str, Any]:
    """Return the facts of a `Factorization`, of every level of a `Levels`, or of `Quantiles`."""
    promises = getattr(model, "promises", None)
    fits = list(getattr(model, "fits", [model])) if promises is None else list(model.fits[0])
    first = fits[0]
    about = {
        "shape": list(model.shape),
        "rows": _labels(model.row_labels),
        "cols": _labels(model.col_labels),
        "unseen_rows": int(model.unseen_rows.size),
        "unseen_cols": int(model.unseen_cols.size),
        "rank": first.k,
        "dtype": str(first.X.dtype),
        "intercepts": first.rows.has_intercepts,
        "censored": first.imputation is not None,
    }
    if promises is not None:
        about["fits"] = sum(map(len, model.fits))
        about["quantiles"] = [asdict(promise) for promise in promises]
        return about
    share = getattr(model, "coverage", None)
    if share is not None:
        about |= {"coverage": share.coverage, "coverage_error": share.standard_error}
        about |= {"coverage_wanted": share.wanted, "shift": share.shift}
    return about | {
        "levels": [
            {
                "omega": fit.omega,
                "mu": fit.mu,
                "reg": fit.reg,
                "reg_scaling": fit.reg_scaling,
                "converged": fit.converged,
                "sweeps": fit.n_iter,
                "objective": _objective(fit.history),
                "shift": fit.shift,
                "tables": [list(table.over) for table in fit.tables],
                "tuning": describe_tuning(fit.tuning),
            }
            for fit in fits
        ],
    }


def _objective(history: Any) -> float | None:
    """Return F at the factors, of the last sweep accepted or, with validation, of the best."""
    if not any(record.accepted for record in history):
        return None
    if history[-1].validation_loss == history[-1].validation_loss:
        return float(min(history, key=lambda record: record.validation_loss).objective)
    return float(next(record for record in reversed(history) if record.accepted).objective)


def _labels(labels: Any) -> dict[str, Any] | None:
    if labels is None:
        return None
    shown = [str(label) for label in labels.values[:3].tolist()]
    return {"name": labels.name, "first": shown}


def render(facts: dict[str, Any], *, lists_steps: bool = False) -> str:
    """Return the facts as lines for a person, with what was compared if that is asked for."""
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
    terms = ["mu + row + column intercepts"] if facts["intercepts"] else []
    terms += ["X Yᵀ"] if facts["rank"] else []
    if "quantiles" in facts:
        predicts = f"quantiles, from {facts['fits']} expectile fits, in the data's unit"
        promised = render_promises(facts["quantiles"])
        limits = _limits(facts)
        return _lines([*lines, ("predicts", predicts), *limits, *promised, *_update(facts)])
    lines += [("predicts", f"{' + '.join(terms)}, in the data's unit"), *_limits(facts)]
    for level in facts["levels"]:
        omega = level["omega"]
        lines.append(
            (
                "level",
                f"omega = {omega:g}: values above the fit weigh {omega:g}, below {1 - omega:g}",
            )
        )
        if facts["intercepts"]:
            shift = f", and {level['shift']:+.4g} to keep the level" if level["shift"] else ""
            lines.append(("", f"mu = {level['mu']:.4g}{shift}"))
        per = "per observation" if level["reg_scaling"] == "count" else "per row and column"
        lines.append(("", f"ridge {level['reg']:.4g} {per}"))
        if level["tables"]:
            over = "; ".join(" and ".join(pair) for pair in level["tables"])
            lines.append(("", f"tables are added, over {over}"))
        end = "converged after" if level["converged"] else "did not converge in"
        lines.append(("", f"{end} {level['sweeps']} sweeps" if level["sweeps"] else "folded in"))
        if level["tuning"] is not None:
            worth = render_tuning(level["tuning"], lists_steps=lists_steps)
            worth = worth if lists_steps or len(facts["levels"]) == 1 else worth[:1]
            lines += [("", line) for line in worth]
    if "coverage" in facts:
        share = f"{facts['coverage']:.3f} ± {facts['coverage_error']:.3f} of held-out values below"
        added = f", with {facts['shift']:.4g} added to mu" if facts["shift"] else ""
        lines.append(("coverage", share + added))
    return _lines([*lines, *_update(facts)])


def _limits(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [("limits", "censored values were replaced on the way")] if facts["censored"] else []


def _update(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Say what an update did, and what it left out."""
    lines = [("update", facts["update"])] if "update" in facts else []
    gone = [f"{count:,} {what}" for what, count in facts.get("gone", {}).items() if count]
    if gone:
        lines.append(("", f"the old model's {' and '.join(gone)} that these data lack are gone"))
    if "left_out" in facts:
        added = f"{facts['new_rows']:,} new rows, {facts['observations']:,} observations"
        lines.append(("", added))
        left = [f"{count:,} {what}" for what, count in facts["left_out"].items() if count]
        if left:
            lines.append(("", f"left out: {' and '.join(left)}; --all refits with all data"))
    return lines


def _lines(lines: list[tuple[str, str]]) -> str:
    return "\n".join(f"{name:9} {text}" for name, text in lines)
