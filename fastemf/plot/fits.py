"""Pictures of the loss, of the way of a fit, and of what it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastemf.loss import sign_weights
from fastemf.model.factorization import Factorization
from fastemf.model.levels import Levels
from fastemf.plot.axes import STYLES, drawn_on, scale_by_logarithm, styled
from fastemf.support.validation import check_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["asymmetric_loss", "convergence", "levels"]


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
    ax = drawn_on(ax)
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
