"""The shape of the loss, and the expectiles of a skewed distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from fastemf import plot
from fastemf.experiments.report import Report, panels
from fastemf.plot.axes import STYLES
from fastemf.support.validation import check_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["chi_squared_expectile", "show"]

DEGREES = 3
OMEGAS = (0.1, 0.5, 0.9)


def chi_squared_expectile(omega: float, degrees: float = DEGREES) -> float:
    """Return the ω-expectile e of a χ² variable: ω E(V − e)⁺ = (1 − ω) E(e − V)⁺.

    Examples
    --------
    >>> from fastemf.experiments.chi_squared import chi_squared_expectile
    >>> [round(chi_squared_expectile(omega), 3) for omega in (0.1, 0.5, 0.9)]
    [1.435, 3.0, 5.496]
    """
    omega = check_level(omega)

    def balance(e: float) -> float:
        # E V 1(V > e) is d P(χ²_{d+2} > e); E(e − V)⁺ = E(V − e)⁺ − (d − e).
        above = degrees * chi2.sf(e, degrees + 2) - e * chi2.sf(e, degrees)
        return float(omega * above - (1 - omega) * (above - (degrees - e)))

    return float(brentq(balance, 0.0, chi2.isf(1e-12, degrees), xtol=1e-13))


def show(report: Report) -> None:
    """Add the figure: loss at three levels, χ²₃ density with its expectiles."""
    figure, (left, right) = panels(2, height=3.6)
    plot.asymmetric_loss(OMEGAS, ax=left)
    _density(right)
    places = ", ".join(f"{chi_squared_expectile(omega):.3f}" for omega in OMEGAS)
    report.figure(
        "loss",
        figure,
        "Left: the asymmetric squared loss. Right: density of the χ² distribution with three "
        f"degrees of freedom and its expectiles at ω = 0.1, 0.5 and 0.9, which lie at {places} "
        "(computed; the paper's sketch does not place them there).",
    )


def _density(ax: Axes) -> None:
    v = np.linspace(0, 14, 561)
    density = chi2.pdf(v, DEGREES)
    ax.plot(v, density, color="0.3", lw=1.5)
    ax.fill_between(v, density, color="0.92")
    ax.spines[["top", "right"]].set_visible(False)
    for omega, (colour, dashes) in zip(OMEGAS, STYLES[::2], strict=True):
        at = chi_squared_expectile(omega)
        ax.axvline(at, color=colour, ls=dashes, lw=2, label=f"ω = {omega:g}: at {at:.3f}")
    ax.legend(frameon=False, title="expectile", loc="upper right", handlelength=1.5)
    ax.set_ylim(bottom=0)
    ax.set_xlim(0, 14)
    ax.set_xlabel("value of χ²₃ (no unit)")
    ax.set_ylabel("probability density")
