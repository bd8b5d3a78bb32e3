"""Plots of the loss, of the convergence of a fit, and of predicted levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastemf.loss import sign_weights
from fastemf.models.factorization import Factorization
from fastemf.models.levels import Levels
from fastemf.models.quantiles import Quantiles
from fastemf.plot.axes import STYLES, assign_styles, get_axes, set_log_scale
from fastemf.support.display_names import expectile_name, quantile_name
from fastemf.support.validation import check_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABELS = 60  # labels that fit below the axis


def asymmetric_loss(omegas: Sequence[float] = (0.1, 0.5, 0.9), *, ax: Axes | None = None) -> Axes:
    """Plot the loss ρ(r) = |ω − 1(r < 0)| r² of a residual at each level.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import plot
    >>> ax = plot.asymmetric_loss([0.1, 0.5], ax=Figure().subplots())
    >>> len(ax.lines)
    2
    """
    ax = get_axes(ax)
    r = np.linspace(-2, 2, 401)
    for omega, style in assign_styles([check_level(omega) for omega in omegas]):
        ax.plot(r, sign_weights(r, omega) * r**2, label=expectile_name(omega), **style)
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
    """Plot the objective after each accepted sweep, of one fit or of several with labels.

    A noise-adaptive ridge, and with it the objective, changes during the first sweeps.

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
    ax = get_axes(ax)
    named = {"": fits} if isinstance(fits, Factorization) else fits
    for (label, fit), (_, style) in zip(named.items(), assign_styles(list(named)), strict=True):
        accepted = [record for record in fit.history if record.accepted]
        ax.plot(
            [record.sweep for record in accepted],
            [record.objective for record in accepted],
            label=label,
            **style,
        )
    set_log_scale(ax)
    ax.set(xlabel="sweep", ylabel=f"objective F ({unit} squared)")
    if len(named) > 1:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def levels(
    fitted: Levels | Quantiles, row: Any, *, features: Any = None, unit: str = "the data's unit",
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Plot the levels or quantiles of one row, as bands and a line.

    For levels, bands extend from each low level to its high counterpart, and the line is the middle
    level if their number is odd. For quantiles, the line is the one nearest to the median, and
    bands extend from it, or from lower quantiles, to higher ones. Columns are sorted by the
    middle level and labelled if there is room.

    Parameters
    ----------
    fitted
        Result of `fastemf.complete_levels` or `fastemf.complete_quantiles`.
    row
        Row to draw, as in `Levels.predict_block`.
    features
        Side features of its cells, as in `Quantiles.predict`; absent ones are missing.
    unit
        Unit of the data.
    ax
        Axes to draw on; by default new ones.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from fastemf import complete_levels, complete_quantiles, datasets, plot
    >>> R = datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> fitted = complete_levels(R, (0.1, 0.5, 0.9), k=2)
    >>> ax = plot.levels(fitted, 3, unit="ms", ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['ω from 0.1 to 0.9', 'ω = 0.5']
    >>> fitted = complete_quantiles(R, (0.5, 0.9, 0.95), k=2)
    >>> ax = plot.levels(fitted, 3, unit="ms", ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['p50 to p95', 'p50 to p90', 'p50']
    """
    values = fitted.predict_block([row], features=features)[0]
    ax = get_axes(ax)
    order_by, bands, lines = _bands_and_lines(fitted)
    order = np.argsort(values[:, order_by], kind="stable")
    values = values[order]
    places = np.arange(1, len(values) + 1)
    for at, (low, high, label) in enumerate(bands):
        ax.fill_between(
            places, values[:, low], values[:, high], step="mid", color=STYLES[1][0],
            alpha=0.3 + 0.4 * at / len(bands), lw=0, label=label,
        )  # fmt: skip
    for middle, label in lines:
        ax.step(places, values[:, middle], where="mid", color="black", lw=1.5, label=label)
    ax.margins(x=0.01)
    cols, rows = fitted.axes[1].name or "columns", fitted.axes[0].name or "row"
    if fitted.col_labels is not None and len(places) <= MAX_LABELS:
        names = [str(label) for label in fitted.col_labels.take(order).tolist()]
        ax.set_xticks(places, names, rotation=90, fontsize="small")
    what = "median" if isinstance(fitted, Quantiles) else "middle level"
    ax.set(xlabel=f"{cols} of {rows} {row}, sorted by {what}", ylabel=f"predicted value ({unit})")
    ax.legend(frameon=False, loc="upper left")
    return ax


def _bands_and_lines(
    fitted: Levels | Quantiles,
) -> tuple[int, list[tuple[int, int, str]], list[tuple[int, str]]]:
    """Return the index to sort by, and the bands and lines to draw, the widest first."""
    if isinstance(fitted, Quantiles):
        names = [quantile_name(tau) for tau in fitted.taus]
        last = len(names) - 1
        middle = int(np.argmin(np.abs(np.array(fitted.taus) - 0.5)))
        ends = [(max(middle - step, 0), min(middle + step, last)) for step in range(last, 0, -1)]
        ends = list(dict.fromkeys(pair for pair in ends if pair[0] < pair[1]))
        return (
            middle,
            [(a, b, f"{names[a]} to {names[b]}") for a, b in ends],
            [(middle, names[middle])],
        )
    omegas = fitted.omegas
    count = len(omegas)
    pairs = [(low, count - 1 - low) for low in range(count // 2)]
    bands = [(a, b, f"ω from {omegas[a]:g} to {omegas[b]:g}") for a, b in pairs]
    middle = count // 2
    return middle, bands, [(middle, expectile_name(omegas[middle]))] if count % 2 else []
