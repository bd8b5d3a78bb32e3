"""Pictures of errors by size, bin and level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fastemf.metrics import error_cdf
from fastemf.plot.axes import MARKERS, STYLES, drawn_on, scale_by_logarithm, styled
from fastemf.support.level_names import expectile_name
from fastemf.support.validation import check_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["against_level", "error_boxes", "error_distribution", "histogram", "phase_diagram"]


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
    ax = drawn_on(ax)
    sample = np.asarray(values, dtype=np.float64).ravel()
    if sample.size == 0:
        raise ValueError("values must not be empty")
    share = np.full(sample.size, 1 / sample.size)
    ax.hist(sample, bins=bins, weights=share, color=STYLES[0][0])
    scale_by_logarithm(ax)
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
    ax = drawn_on(ax)
    at = np.linspace(0, limit, 401)
    for omega, style in styled(list(errors)):
        ax.plot(at, error_cdf(errors[omega], at), label=expectile_name(omega), **style)
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
    ax = drawn_on(ax)
    width = 0.8 / len(levels)
    for i, (omega, style) in enumerate(styled(levels)):
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
        ax.plot([], [], color=style["color"], lw=7, alpha=0.5, label=expectile_name(omega))
    scale_by_logarithm(ax)
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
    ax = drawn_on(ax)
    levels = [check_level(omega) for omega in omegas]
    for (name, values), (_, style), marker in zip(
        curves.items(), styled(list(curves)), MARKERS * len(curves), strict=False
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
    ax = drawn_on(ax)
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
