"""Plots of errors by size, bin and level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fastemf.metrics import error_cdf
from fastemf.plot.axes import MARKERS, STYLES, assign_styles, get_axes, set_log_scale
from fastemf.support.display_names import expectile_name
from fastemf.support.validation import check_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BOXES: dict[str, Any] = {
    "whis": (5, 95), "showfliers": False, "patch_artist": True, "manage_ticks": False,
    "medianprops": {"color": "black", "lw": 2},
}  # fmt: skip


def histogram(
    values: ArrayLike, *, label: str, unit: str, bins: Any = 80, ax: Axes | None = None
) -> Axes:
    """Plot a histogram of values on a logarithmic axis, which shows the tail.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.histogram([1, 1, 2], label="response time", unit="s", ax=Figure().subplots())
    >>> ax.get_xlabel()
    'response time (s)'
    """
    ax = get_axes(ax)
    sample = np.asarray(values, dtype=np.float64).ravel()
    if sample.size == 0:
        raise ValueError("values must not be empty")
    weights = np.full(sample.size, 1 / sample.size)
    ax.hist(sample, bins=bins, weights=weights, color=STYLES[0][0])
    set_log_scale(ax)
    ax.set(xlabel=f"{label} ({unit})", ylabel="proportion of cells")
    return ax


def error_distribution(
    errors: Mapping[float, ArrayLike], *, limit: float = 2.0, ax: Axes | None = None
) -> Axes:
    """Plot the cumulative distribution of relative errors at each level.

    Parameters
    ----------
    errors
        Level → relative errors (`fastemf.metrics.relative_errors`).
    limit
        End of the horizontal axis.
    ax
        Axes to draw on; by default new ones.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.error_distribution({0.1: [0.2, 0.4], 0.9: [0.9]}, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['ω = 0.1', 'ω = 0.9']
    """
    ax = get_axes(ax)
    at = np.linspace(0, limit, 401)
    for omega, style in assign_styles(list(errors)):
        ax.plot(at, error_cdf(errors[omega], at), label=expectile_name(omega), **style)
    ax.set(xlim=(0, limit), ylim=(0, 1))
    ax.set(xlabel="relative error |true − predicted| / true", ylabel="proportion of cells")
    ax.legend(frameon=False, loc="lower right")
    return ax


def error_boxes(errors: Mapping[str, Mapping[float, ArrayLike]], *, ax: Axes | None = None) -> Axes:
    """Plot relative errors by bin, one box per level: quartiles, median, whiskers 5 to 95 %.

    Parameters
    ----------
    errors
        Label of a bin → level → relative errors.
    ax
        Axes to draw on; by default new ones.

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
        raise ValueError(f"errors must contain at least one level, got {errors!r}")
    ax = get_axes(ax)
    width = 0.8 / len(levels)
    for i, (omega, style) in enumerate(assign_styles(levels)):
        colour = style["color"]
        here = [place for place, bins in enumerate(errors.values()) if omega in bins]
        ax.boxplot(
            [np.asarray(bins[omega]) for bins in errors.values() if omega in bins],
            positions=[place + (i - (len(levels) - 1) / 2) * width for place in here],
            widths=0.8 * width,
            boxprops={"facecolor": colour, "alpha": 0.35, "edgecolor": colour},
            whiskerprops={"color": colour, "lw": 1.4},
            capprops={"color": colour, "lw": 1.4},
            **BOXES,
        )
        ax.plot([], [], color=colour, lw=7, alpha=0.5, label=expectile_name(omega))
    set_log_scale(ax)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xticks(range(len(errors)), list(errors))
    ax.set_xlim(-0.5, len(errors) - 0.5)
    ax.set(xlabel="true value", ylabel="relative error")
    ax.legend(frameon=False, ncols=len(levels), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def against_level(
    curves: Mapping[str, ArrayLike], omegas: Sequence[float], *, label: str, ax: Axes | None = None
) -> Axes:
    """Plot curves against the level ω.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.against_level(
    ...     {"0 to 0.3 s": [0.5, 0.8], "3.1 to 20 s": [0.4, 0.3]}, [0.1, 0.9],
    ...     label="median relative error", ax=Figure().subplots(),
    ... )
    >>> ax.get_xlabel()
    'level ω'
    """
    ax = get_axes(ax)
    levels = [check_level(omega) for omega in omegas]
    for (name, values), (_, style), marker in zip(
        curves.items(), assign_styles(list(curves)), MARKERS * len(curves), strict=False
    ):
        ax.plot(levels, np.asarray(values), marker=marker, label=name, **style)
    if min(levels) < 0.1 or max(levels) > 0.9:
        ax.set_xscale("logit")
        ax.minorticks_off()
    ax.set_xticks(levels, [f"{omega:g}" for omega in levels])
    ax.set_ylim(bottom=0)
    ax.set(xlabel="level ω", ylabel=label)
    if len(curves) > 1:
        ax.legend(frameon=False)
    return ax


def phase_diagram(
    recovered: ArrayLike,
    ratios: Sequence[float],
    omegas: Sequence[float],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Plot the proportion of problems recovered, by measurements per degree of freedom and level.

    Parameters
    ----------
    recovered
        Proportions in [0, 1], one row per ratio and one column per level.
    ratios
        Measurements per degree of freedom, from bottom to top.
    omegas
        Levels, from left to right.
    ax
        Axes to draw on; by default new ones.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.phase_diagram([[0.2], [1.0]], [1.25, 3.0], [0.5], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['0.2', '1']
    """
    ax = get_axes(ax)
    values = np.asarray(recovered, dtype=np.float64)
    if values.shape != (len(ratios), len(omegas)):
        raise ValueError(
            f"recovered must have one row per ratio and one column per level, "
            f"({len(ratios)}, {len(omegas)}), got {values.shape}"
        )
    ax.grid(visible=False)
    image = ax.imshow(values, origin="lower", aspect="auto", vmin=0, vmax=1, cmap="viridis")
    for (i, j), value in np.ndenumerate(values):
        colour = "black" if value > 0.6 else "white"
        ax.text(j, i, f"{value:.2g}", ha="center", va="center", color=colour, fontsize=9)
    ax.set_xticks(range(len(omegas)), [f"{omega:g}" for omega in omegas])
    ax.set_yticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios])
    ax.set(xlabel="level ω", ylabel="measurements / degrees of freedom")
    ax.figure.colorbar(image, ax=ax, label="proportion recovered")
    return ax
