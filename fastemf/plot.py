"""Pictures, on the axes you give or on new ones (needs matplotlib, the extra ``plot``).

Each function draws on `ax`, labels its axes with units and returns it. Colours are
Okabe and Ito's, which colour-blind readers can tell apart, and lines differ in their
dashes too, for print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fastemf.loss import sign_weights
from fastemf.metrics import error_cdf
from fastemf.model.factorization import Factorization
from fastemf.model.levels import Levels
from fastemf.support.validation import check_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fastemf.selection import Selection, Setting  # which draws itself by this module

__all__ = [
    "against_level",
    "asymmetric_loss",
    "convergence",
    "error_boxes",
    "error_distribution",
    "histogram",
    "levels",
    "phase_diagram",
    "selection",
]

# From low levels to high ones: blue, black in the middle, red.
STYLES = (
    ("#0072B2", "-"),
    ("#56B4E9", "--"),
    ("#000000", "-."),
    ("#E69F00", (0, (5, 1))),
    ("#D55E00", ":"),
)
MARKERS = "osD^v"


def asymmetric_loss(omegas: Sequence[float] = (0.1, 0.5, 0.9), *, ax: Axes | None = None) -> Axes:
    """Draw the loss of a residual, ρ(r) = |ω − 1(r < 0)| r², at each level.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.asymmetric_loss([0.1, 0.5], ax=Figure().subplots())
    >>> len(ax.lines)
    2
    """
    ax = _axes(ax)
    r = np.linspace(-2, 2, 401)
    for omega, style in _styled([check_level(omega) for omega in omegas]):
        ax.plot(r, sign_weights(r, omega) * r**2, label=f"ω = {omega:g}", **style)
    ax.set_xlabel("residual r = observed − predicted (the data's unit)")
    ax.set_ylabel("loss (squared unit)")
    ax.legend(frameon=False)
    return ax


def convergence(
    fits: Mapping[str, Factorization] | Factorization,
    *,
    unit: str = "the data's unit",
    ax: Axes | None = None,
) -> Axes:
    """Draw the objective after each accepted sweep, of one fit or of several with labels.

    Where the ridge follows the noise, it moves during the first sweeps and the objective
    with it.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from fastemf import complete, plot
    >>> fit = complete(np.outer([1.0, 2.0, 4.0], [3.0, 4.0]), omega=0.5, k=1, reg=0.01)
    >>> ax = plot.convergence(fit, unit="ms", ax=Figure().subplots())
    >>> ax.get_ylabel()
    'objective F (ms squared)'
    """
    ax = _axes(ax)
    named = {"": fits} if isinstance(fits, Factorization) else fits
    for (label, fit), (_, style) in zip(named.items(), _styled(list(named)), strict=True):
        accepted = [record for record in fit.history if record.accepted]
        ax.plot(
            [record.sweep for record in accepted],
            [record.objective for record in accepted],
            label=label,
            **style,
        )
    _scale_by_logarithm(ax)
    ax.set_xlabel("sweep")
    ax.set_ylabel(f"objective F ({unit} squared)")
    if len(named) > 1:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def histogram(
    values: ArrayLike, *, label: str, unit: str, bins: Any = 80, ax: Axes | None = None
) -> Axes:
    """Draw how often values (data, residuals) occur, on a logarithmic axis that shows the tail.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.histogram([1, 1, 2], label="response time", unit="s", ax=Figure().subplots())
    >>> ax.get_xlabel()
    'response time (s)'
    """
    ax = _axes(ax)
    sample = np.asarray(values, dtype=np.float64).ravel()
    if sample.size == 0:
        raise ValueError("values must not be empty")
    share = np.full(sample.size, 1 / sample.size)
    ax.hist(sample, bins=bins, weights=share, color=STYLES[0][0])
    _scale_by_logarithm(ax)
    ax.set_xlabel(f"{label} ({unit})")
    ax.set_ylabel("share of the cells per bar")
    return ax


def error_distribution(
    errors: Mapping[float, ArrayLike], *, limit: float = 2.0, ax: Axes | None = None
) -> Axes:
    """Draw the cumulative distribution of relative errors at each level, up to `limit`.

    Parameters
    ----------
    errors
        Level → relative errors (`fastemf.metrics.relative_errors`).
    limit
        End of the horizontal axis.
    ax
        Axes to draw on; new ones by default.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.error_distribution({0.1: [0.2, 0.4], 0.9: [0.9]}, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['ω = 0.1', 'ω = 0.9']
    """
    ax = _axes(ax)
    at = np.linspace(0, limit, 401)
    for omega, style in _styled(list(errors)):
        ax.plot(at, error_cdf(errors[omega], at), label=f"ω = {omega:g}", **style)
    ax.set_xlim(0, limit)
    ax.set_ylim(0, 1)
    ax.set_xlabel("relative error |truth − predicted| / truth (no unit)")
    ax.set_ylabel("share of the cells")
    ax.legend(frameon=False, loc="lower right")
    return ax


def error_boxes(errors: Mapping[str, Mapping[float, ArrayLike]], *, ax: Axes | None = None) -> Axes:
    """Draw relative errors by bin, a box per level: quartiles, median, whiskers from 5 to 95 %.

    Parameters
    ----------
    errors
        Label of a bin → level → relative errors.
    ax
        Axes to draw on; new ones by default.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> errors = {"0 to 1 s": {0.1: [0.1, 0.2], 0.9: [0.5, 0.9]}}
    >>> ax = plot.error_boxes(errors, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['0 to 1 s']
    """
    levels = sorted({omega for bins in errors.values() for omega in bins})
    if not levels:
        raise ValueError(f"errors must hold at least one level's, got {errors!r}")
    ax = _axes(ax)
    width = 0.8 / len(levels)
    for i, (omega, style) in enumerate(_styled(levels)):
        here = [place for place, bins in enumerate(errors.values()) if omega in bins]
        ax.boxplot(
            [np.asarray(bins[omega]) for bins in errors.values() if omega in bins],
            positions=[place + (i - (len(levels) - 1) / 2) * width for place in here],
            widths=0.8 * width,
            whis=(5, 95),
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": style["color"], "alpha": 0.35, "edgecolor": style["color"]},
            medianprops={"color": "black", "lw": 2},
            whiskerprops={"color": style["color"], "lw": 1.4},
            capprops={"color": style["color"], "lw": 1.4},
        )
        ax.plot([], [], color=style["color"], lw=7, alpha=0.5, label=f"ω = {omega:g}")
    _scale_by_logarithm(ax)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xticks(range(len(errors)), list(errors))
    ax.set_xlim(-0.5, len(errors) - 0.5)
    ax.set_xlabel("truth")
    ax.set_ylabel("relative error (no unit)")
    ax.legend(frameon=False, ncols=len(levels), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def against_level(
    curves: Mapping[str, ArrayLike],
    omegas: Sequence[float],
    *,
    label: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw measures of the fit against the level ω, one labelled curve each.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.against_level(
    ...     {"0 to 0.3 s": [0.5, 0.8], "3.1 to 20 s": [0.4, 0.3]}, [0.1, 0.9],
    ...     label="median relative error (no unit)", ax=Figure().subplots(),
    ... )
    >>> ax.get_xlabel()
    'level ω'
    """
    ax = _axes(ax)
    levels = [check_level(omega) for omega in omegas]
    for (name, values), (_, style), marker in zip(
        curves.items(), _styled(list(curves)), MARKERS * len(curves), strict=False
    ):
        ax.plot(levels, np.asarray(values), marker=marker, label=name, **style)
    if min(levels) < 0.1 or max(levels) > 0.9:
        ax.set_xscale("logit")
        ax.minorticks_off()
    ax.set_xticks(levels, [f"{omega:g}" for omega in levels])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("level ω")
    ax.set_ylabel(label)
    if len(curves) > 1:
        ax.legend(frameon=False)
    return ax


def phase_diagram(
    shares: ArrayLike,
    ratios: Sequence[float],
    omegas: Sequence[float],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of problems recovered, by measurements per degree of freedom and level.

    Parameters
    ----------
    shares
        One number in [0, 1] for every (ratio, level).
    ratios
        Measurements over degrees of freedom, from below.
    omegas
        Levels, from the left.
    ax
        Axes to draw on; new ones by default.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.phase_diagram([[0.2], [1.0]], [1.25, 3.0], [0.5], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['0.2', '1']
    """
    ax = _axes(ax)
    values = np.asarray(shares, dtype=np.float64)
    if values.shape != (len(ratios), len(omegas)):
        raise ValueError(
            f"shares must have one row per ratio and one column per level, "
            f"({len(ratios)}, {len(omegas)}), got {values.shape}"
        )
    ax.grid(visible=False)
    image = ax.imshow(values, origin="lower", aspect="auto", vmin=0, vmax=1, cmap="viridis")
    for (i, j), value in np.ndenumerate(values):
        colour = "black" if value > 0.6 else "white"
        ax.text(j, i, f"{value:.2g}", ha="center", va="center", color=colour, fontsize=9)
    ax.set_xticks(range(len(omegas)), [f"{omega:g}" for omega in omegas])
    ax.set_yticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios])
    ax.set_xlabel("level ω")
    ax.set_ylabel("measurements / degrees of freedom")
    ax.figure.colorbar(image, ax=ax, label="share recovered")
    return ax


def levels(
    fitted: Levels, row: Any, *, unit: str = "the data's unit", ax: Axes | None = None
) -> Axes:
    """Draw the levels of one row as bands from each low level to its high counterpart.

    Columns are sorted by the middle level, which is a line where the number of levels is odd;
    where it is even, by the upper of the two.

    Parameters
    ----------
    fitted
        Result of `fastemf.complete_levels`.
    row
        Row to draw, as in `Levels.predict_block`.
    unit
        Unit of the data.
    ax
        Axes to draw on; new ones by default.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import complete_levels, datasets, plot
    >>> R = datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> fitted = complete_levels(R, (0.1, 0.5, 0.9), k=2)
    >>> ax = plot.levels(fitted, 3, unit="ms", ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['ω from 0.1 to 0.9', 'ω = 0.5']
    """
    values = fitted.predict_block([row])[0]
    ax = _axes(ax)
    omegas = fitted.omegas
    count = len(omegas)
    values = values[np.argsort(values[:, count // 2], kind="stable")]
    places = np.arange(1, len(values) + 1)
    for low in range(count // 2):
        high = count - 1 - low
        ax.fill_between(
            places, values[:, low], values[:, high], step="mid", color=STYLES[1][0],
            alpha=0.3 + 0.4 * low / (count // 2), lw=0,
            label=f"ω from {omegas[low]:g} to {omegas[high]:g}",
        )  # fmt: skip
    if count % 2:
        middle = count // 2
        ax.step(
            places, values[:, middle], where="mid", color="black", lw=1.5,
            label=f"ω = {omegas[middle]:g}",
        )  # fmt: skip
    ax.margins(x=0.01)
    first = fitted.fits[0]
    cols, rows = first.cols.name or "columns", first.rows.name or "row"
    ax.set_xlabel(f"{cols} of {rows} {row}, by the middle level")
    ax.set_ylabel(f"fitted value ({unit})")
    ax.legend(frameon=False, loc="upper left")
    return ax


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
    ax = _axes(ax)
    ranks = sorted({row.k for row in selected.table})
    for (k, style), marker in zip(_styled(ranks), MARKERS * len(ranks), strict=False):
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
    _scale_by_logarithm(ax)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    ax.set_xlabel(f"ridge λ ({unit})")
    ax.set_ylabel(f"held-out loss per observation ({unit} squared)")
    ax.legend(frameon=False)
    return ax


def _curve(rows: Sequence[Setting]) -> tuple[list[float], list[float]]:
    return [row.ridge for row in rows], [row.loss for row in rows]


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "plots need matplotlib: pip install 'fastemf[plot]'"
            ) from None
        ax = plt.subplots(layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9", lw=0.8)
    ax.set_axisbelow(True)
    return ax


def _scale_by_logarithm(ax: Axes) -> None:
    """Scale heights by their logarithm, unless none is positive, as where every loss is 0."""
    if np.isfinite(ax.dataLim.minposy):
        ax.set_yscale("log")


def _styled(keys: Sequence[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Return each key with a colour and dashes, spread over the whole palette."""
    count, last = len(keys), len(STYLES) - 1
    styled = []
    for i, key in enumerate(keys):
        place = round(i * last / (count - 1)) if 1 < count <= len(STYLES) else i % len(STYLES)
        colour, dashes = STYLES[place]
        styled.append((key, {"color": colour, "ls": dashes, "lw": 2}))
    return styled
