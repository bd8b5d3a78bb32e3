"""Plots of model selection and tuning: held-out loss against the ridge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastemf.models.factorization import Factorization
from fastemf.plot.axes import MARKERS, assign_styles, get_axes, ridge_axis, set_log_scale
from fastemf.tuning.record import Tuning, TuningStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fastemf.selection import Candidate, Selection  # avoids an import cycle

CHOSEN: dict[str, Any] = {
    "ls": "none", "marker": "o", "ms": 13, "mfc": "none", "mec": "black", "mew": 1.5,
    "label": "chosen",
}  # fmt: skip
BASELINE_DASHES = ((0, (1, 2)), (0, (3, 2)), (0, (8, 3)))


def selection(
    selected: Selection, *, unit: str = "the data's unit", ax: Axes | None = None
) -> Axes:
    """Plot the held-out loss of each setting against its ridge, with one curve per rank.

    Bars are standard errors. Settings that were dropped have hollow markers, because their loss is
    that of fewer folds. A ring marks the chosen setting.

    Parameters
    ----------
    selected
        Result of `fastemf.select`.
    unit
        Unit of the data.
    ax
        Axes to draw on; by default new ones.

    Examples
    --------
    >>> import fastemf
    >>> from matplotlib.figure import Figure
    >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
    >>> chosen = fastemf.select(R, omega=0.1, ks=[1, 2], regs=["auto", 0.1], folds=2)
    >>> ax = fastemf.plot.selection(chosen, unit="ms", ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['k = 1', 'k = 2', 'chosen']
    """
    ax = get_axes(ax)
    ranks = sorted({row.k for row in selected.table})
    for (k, style), marker in zip(assign_styles(ranks), MARKERS * len(ranks), strict=False):
        rows = sorted((row for row in selected.table if row.k == k), key=lambda row: row.ridge)
        ax.plot(*_curve(rows), label=f"k = {k}", marker=marker, mfc="none", **style)
        kept = [row for row in rows if not row.dropped]
        ax.errorbar(
            *_curve(kept), yerr=[row.standard_error for row in kept], color=style["color"],
            ls="none", marker=marker, capsize=3,
        )  # fmt: skip
    ax.plot(*_curve([selected.best]), **CHOSEN)
    weakest = min((row.ridge for row in selected.table if row.ridge > 0), default=1.0)
    ax.set_xscale("symlog", linthresh=weakest / 2)  # shows a ridge of 0
    ax.set_xlim(left=0.0 if any(row.ridge == 0 for row in selected.table) else weakest / 1.5)
    set_log_scale(ax)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    ax.set(xlabel=f"ridge λ ({unit})", ylabel=f"held-out loss per observation ({unit} squared)")
    ax.legend(frameon=False)
    return ax


def tuning(
    tuned: Factorization | Tuning, *, unit: str = "the data's unit", ax: Axes | None = None
) -> Axes:
    """Plot the validation loss of the candidates of ``reg="auto"`` against the ridge, by family.

    Losses are relative to a constant, and bars are standard errors. Models without factors are on
    the right. Horizontal lines are baselines, and a ring marks the chosen candidate.

    Parameters
    ----------
    tuned
        A fit with ``reg="auto"``, or its ``tuning``.
    unit
        Unit of the data.
    ax
        Axes to draw on; by default new ones.

    Examples
    --------
    >>> import fastemf
    >>> from matplotlib.figure import Figure
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> fit = fastemf.complete(R, omega=0.1, k=2, intercepts=True)
    >>> ax = fastemf.plot.tuning(fit, unit="ms", ax=Figure().subplots())
    >>> ax.get_xlabel()
    'ridge λ (ms)'
    """
    record = tuned.tuning if isinstance(tuned, Factorization) else tuned
    if record is None or record.best is None:
        why = 'a fit whose reg was not "auto"' if record is None else record.verdict()
        raise ValueError(f"tuned must have candidates to draw, got {why}")
    ax = get_axes(ax)
    baselines = {baseline.name: baseline.loss for baseline in record.baselines}
    unit_loss = baselines.get("constant") or 1.0  # for constant data all losses are 0
    places, ticks = ridge_axis([step.reg for step in record.steps])

    def curve(steps: Sequence[TuningStep]) -> tuple[list[float], list[float]]:
        return [places[step.reg] for step in steps], [step.loss / unit_loss for step in steps]

    families = list(dict.fromkeys(step.family for step in record.steps))
    for (family, style), marker in zip(
        assign_styles(families), MARKERS * len(families), strict=False
    ):
        steps = [step for step in record.steps if step.family == family]
        errors = [step.standard_error / unit_loss for step in steps]
        ax.errorbar(
            *curve(steps), yerr=errors, label=family, marker=marker, capsize=3, elinewidth=1,
            **style,
        )  # fmt: skip
    for (name, loss), dashes in zip(baselines.items(), BASELINE_DASHES, strict=False):
        ax.axhline(loss / unit_loss, color="0.5", ls=dashes, lw=1.5, label=f"baseline: {name}")
    ax.plot(*curve([record.best]), **CHOSEN)
    if math.inf in places:
        ax.text(
            places[math.inf], 1.01, "no factors", transform=ax.get_xaxis_transform(),
            ha="center", va="bottom",
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.minorticks_off()
    ax.set(xlabel=f"ridge λ ({unit})", ylabel="validation loss / loss of a constant")
    handles, labels = ax.get_legend_handles_labels()
    order = [*map(labels.index, families), *range(len(labels) - len(families))]
    ax.legend(
        [handles[at] for at in order], [labels[at] for at in order],
        frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5),
    )  # fmt: skip
    return ax


def _curve(rows: Sequence[Candidate]) -> tuple[list[float], list[float]]:
    return [row.ridge for row in rows], [row.loss for row in rows]
