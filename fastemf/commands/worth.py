"""What commands tell of a tuning: the verdict, what was compared, and with what."""

from __future__ import annotations

from typing import Any

__all__ = ["describe_tuning", "render_tuning"]


def describe_tuning(tuning: Any) -> dict[str, Any] | None:
    """Return the facts of a `Tuning`, or None where a fit has none."""
    if tuning is None:
        return None
    from dataclasses import asdict

    return {
        "verdict": tuning.verdict().splitlines(),
        "note": tuning.note,
        "observations": tuning.cells,
        "folds": tuning.folds,
        "steps": [asdict(step) for step in tuning.steps],
        "chosen": tuning.chosen if tuning.steps else None,
        "baselines": {baseline.name: baseline.loss for baseline in tuning.baselines},
    }


def render_tuning(facts: dict[str, Any], *, lists_steps: bool) -> list[str]:
    """Return the facts as lines for a person: the verdict and, if asked for, what was compared."""
    lines = list(facts["verdict"])
    if not facts["steps"]:
        return lines
    if not lists_steps:
        ours = facts["steps"][facts["chosen"]]["loss"]
        losses = {"fit": ours} | facts["baselines"]
        told = ", ".join(f"{name} {loss:.4g}" for name, loss in losses.items())
        return [*lines, f"mean loss of what was set aside: {told}"]
    folds = "once" if facts["folds"] == 1 else f"in {facts['folds']} turns"
    judged = f"{facts['observations']:,} observations set aside {folds}"
    lines.append(f"compared by the loss of {judged}:")
    lines.append("    family       ridge  factors       loss    ± error  level")
    for place, step in enumerate(facts["steps"]):
        ridge = f"{step['reg']:10.4g}" if step["rank"] else f"{'':10}"
        level = step["effective_omega"]
        lines.append(
            f"  {'*' if place == facts['chosen'] else ' '} {step['family']:8}{ridge}  "
            f"{step['rank']:7}  {step['loss']:9.4g}  {step['standard_error']:9.2g}"
            + ("" if level is None or level != level else f"  {level:5.2f}")
        )
    lines.append("  * chosen. With the same observations, simpler predictions have the losses")
    lines.append(
        "  " + ", ".join(f"{name} {loss:.4g}" for name, loss in facts["baselines"].items())
    )
    return lines
