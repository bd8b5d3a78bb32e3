"""Pictures of the loss, of the way of a fit, and of what it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastemf.loss import sign_weights
from fastemf.model.factorization import Factorization
from fastemf.model.levels import Levels
from fastemf.model.quantiles import Quantiles
from fastemf.plot.axes import STYLES, drawn_on, scale_by_logarithm, styled
from fastemf.support.level_names import expectile_name, quantile_name
from fastemf.support.validation import check_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["asymmetric_loss", "convergence", "levels"]

NAMED = 60  # columns whose names fit below an axis


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
    ax = drawn_on(ax)
    r = np.linspace(-2, 2, 401)
    for omega, style in styled([check_level(omega) for omega in omegas]):
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
    ax = drawn_on(ax)
    named = {"": fits} if isinstance(fits, Factorization) else fits
    for (label, fit), (_, style) in zip(named.items(), styled(list(named)), strict=True):
        accepted = [record for record in fit.history if record.accepted]
        ax.plot(
            [record.sweep for record in accepted],
            [record.objective for record in accepted],
            label=label,
            **style,
        )
    scale_by_logarithm(ax)
    ax.set_xlabel("sweep")
    ax.set_ylabel(f"objective F ({unit} squared)")
    if len(named) > 1:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def levels(
    fitted: Levels | Quantiles, row: Any, *, unit: str = "the data's unit", ax: Axes | None = None
) -> Axes:
    """Draw the levels of one row as bands from each low level to its high counterpart.

    Columns are sorted by the middle level, which is a line where the number of levels is odd;
    where it is even, by the upper of the two. They go by their labels where these fit. Of quantiles
    the line is the one nearest to the median, and bands reach from it, or from those below it, to
    those above.

    Parameters
    ----------
    fitted
        Result of `fastemf.complete_levels` or `fastemf.complete_quantiles`.
    row
        Row to draw, as in `Levels.predict_block`.
    unit
        Unit of the data.
    ax
        Axes to draw on; new ones by default.

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
    values = fitted.predict_block([row])[0]
    ax = drawn_on(ax)
    order_by, bands, lines = _of_levels(fitted)
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
    if fitted.col_labels is not None and len(places) <= NAMED:
        names = [str(label) for label in fitted.col_labels.take(order).tolist()]
        ax.set_xticks(places, names, rotation=90, fontsize="small")
    what = "median" if isinstance(fitted, Quantiles) else "middle level"
    ax.set_xlabel(f"{cols} of {rows} {row}, by the {what}")
    ax.set_ylabel(f"fitted value ({unit})")
    ax.legend(frameon=False, loc="upper left")
    return ax


def _of_levels(
    fitted: Levels | Quantiles,
) -> tuple[int, list[tuple[int, int, str]], list[tuple[int, str]]]:
    """Find what to sort by, and the bands and lines to draw, the widest first."""
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
