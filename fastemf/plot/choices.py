"""Pictures of how settings were chosen: held-out loss against the ridge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastemf.model.factorization import Factorization
from fastemf.plot.axes import MARKERS, drawn_on, scale_by_logarithm, styled
from fastemf.plot.ridges import ridge_axis
from fastemf.solver.tuning import Tuning, TuningStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fastemf.selection import Selection, Setting  # which draws itself by this module

__all__ = ["selection", "tuning"]

BASELINE_DASHES = ((0, (1, 2)), (0, (3, 2)), (0, (8, 3)))


def selection(
    selected: Selection, *, unit: str = "the data's unit", ax: Axes | None = None
) -> Axes:
    """Draw the held-out loss of each setting against its ridge, a curve for each rank.

    Bars are standard errors. Settings that were dropped have empty markers: their loss is that
    of fewer folds. The one chosen is ringed.

    Parameters
    ----------
    selected
        Result of `fastemf.select`.
    unit
        The data's unit.
    ax
        Axes to draw on; new ones by default.

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
    ax = drawn_on(ax)
    ranks = sorted({row.k for row in selected.table})
    for (k, style), marker in zip(styled(ranks), MARKERS * len(ranks), strict=False):
        rows = sorted((row for row in selected.table if row.k == k), key=lambda row: row.ridge)
        ax.plot(*_curve(rows), label=f"k = {k}", marker=marker, mfc="none", **style)
        kept = [row for row in rows if not row.dropped]
        ax.errorbar(
            *_curve(kept), yerr=[row.standard_error for row in kept], color=style["color"],
            ls="none", marker=marker, capsize=3,
        )  # fmt: skip
    ax.plot(
        *_curve([selected.best]), ls="none", marker="o", ms=13, mfc="none", mec="black", mew=1.5,
        label="chosen",
    )  # fmt: skip
    weakest = min((row.ridge for row in selected.table if row.ridge > 0), default=1.0)
    ax.set_xscale("symlog", linthresh=weakest / 2)  # so that a ridge of 0 has a place
    ax.set_xlim(left=0.0 if any(row.ridge == 0 for row in selected.table) else weakest / 1.5)
    scale_by_logarithm(ax)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    ax.set_xlabel(f"ridge λ ({unit})")
    ax.set_ylabel(f"held-out loss per observation ({unit} squared)")
    ax.legend(frameon=False)
    return ax


def tuning(
    tuned: Factorization | Tuning, *, unit: str = "the data's unit", ax: Axes | None = None
) -> Axes:
    """Draw what ``reg="auto"`` tried: the loss on cells set aside against the ridge, by family.

    Losses are shares of a constant's, bars are standard errors. Models without factors are at the
    right, baselines are horizontal lines, and the candidate chosen is ringed.

    Parameters
    ----------
    tuned
        A fit with ``reg="auto"``, or its ``tuning``.
    unit
        The data's unit.
    ax
        Axes to draw on; new ones by default.

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
    found = tuned.tuning if isinstance(tuned, Factorization) else tuned
    if found is None or found.best is None:
        why = 'a fit whose reg was not "auto"' if found is None else found.verdict()
        raise ValueError(f"tuned must have candidates to draw, got {why}")
    ax = drawn_on(ax)
    baselines = {baseline.name: baseline.loss for baseline in found.baselines}
    unit_loss = baselines.get("constant") or 1.0  # all losses of constant data are 0
    places, ticks = ridge_axis([step.reg for step in found.steps])

    def curve(steps: Sequence[TuningStep]) -> tuple[list[float], list[float]]:
        return [places[step.reg] for step in steps], [step.loss / unit_loss for step in steps]

    families = list(dict.fromkeys(step.family for step in found.steps))
    for (family, style), marker in zip(styled(families), MARKERS * len(families), strict=False):
        steps = [step for step in found.steps if step.family == family]
        errors = [step.standard_error / unit_loss for step in steps]
        ax.errorbar(
            *curve(steps), yerr=errors, label=family, marker=marker, capsize=3, elinewidth=1,
            **style,
        )  # fmt: skip
    for (name, loss), dashes in zip(baselines.items(), BASELINE_DASHES, strict=False):
        ax.axhline(loss / unit_loss, color="0.5", ls=dashes, lw=1.5, label=f"baseline: {name}")
    ax.plot(
        *curve([found.best]), ls="none", marker="o", ms=13, mfc="none", mec="black", mew=1.5,
        label="chosen",
    )  # fmt: skip
    if math.inf in places:
        ax.text(
            places[math.inf], 1.01, "no factors", transform=ax.get_xaxis_transform(),
            ha="center", va="bottom",
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.minorticks_off()
    ax.set_xlabel(f"ridge λ ({unit})")
    ax.set_ylabel("loss on cells set aside / a constant's (no unit)")
    handles, labels = ax.get_legend_handles_labels()
    order = [*map(labels.index, families), *range(len(labels) - len(families))]
    ax.legend(
        [handles[at] for at in order], [labels[at] for at in order],
        frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5),
    )  # fmt: skip
    return ax


def _curve(rows: Sequence[Setting]) -> tuple[list[float], list[float]]:
    return [row.ridge for row in rows], [row.loss for row in rows]
