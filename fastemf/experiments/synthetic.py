"""The synthetic experiment of the paper: low rank plus χ² noise, errors against the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from fastemf import plot
from fastemf.datasets import make_skewed
from fastemf.experiments.error_summary import ErrorSummary
from fastemf.experiments.report import Report, panels
from fastemf.experiments.settings import LEVELS, ExperimentSettings
from fastemf.loss import combine_by_sign
from fastemf.models.factorization import Factorization
from fastemf.plot.axes import STYLES
from fastemf.support.validation import check_integer, check_level, check_rank

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATES = (0.05, 0.1)
SIZE = 1000
TRUE_RANK = 10
DEGREES = 3
OMEGAS = (0.1, 0.5, 0.9)


def run(settings: ExperimentSettings, *, size: int = SIZE) -> Report:
    """Run all sampling rates, levels and draws, and return the report."""
    check_integer(size, "size", minimum=TRUE_RANK)
    check_rank(settings.rank, (size, size), "rank")
    summary, example = measure(settings, size)
    report = Report(
        "synthetic",
        "Synthetic data: low rank plus skewed noise",
        [
            f"{size} × {size} matrices of rank {TRUE_RANK}, factors uniform on [0, 1], plus half "
            f"a χ² variable with three degrees of freedom; {settings.repeats} draws. "
            f"Fits: {settings.description}.",
            "Relative error (RE) is relative to the noiseless matrix, on the unobserved cells. The "
            "noise is nonnegative, so lower levels are closer: ω = 0.1 is the lowest level of the "
            "paper, not an optimum. Skill (1 − expectile loss / loss of the best constant), "
            "effective ω (the level of the predictions) and coverage refer to the noisy values of "
            "the same cells.",
        ],
        rows=summary.rows,
    )
    _show_loss(report)
    figure, axes = panels(len(RATES))
    for ax, rate in zip(axes, RATES, strict=True):
        plot.error_distribution(summary.errors(rate), ax=ax)
        ax.set_title(f"{rate:.0%} of the cells observed", fontsize=11)
    report.figure("cdf", figure, "Cumulative distribution of the error on unobserved cells.")
    figure, (ax,) = panels(1)
    plot.convergence(example, unit="unit of the data", ax=ax)
    report.figure(
        "convergence", figure, f"Objective after each sweep, {RATES[-1]:.0%} observed, first draw."
    )
    for rate in RATES:
        title = f"{rate:.0%} observed: means over {settings.repeats} draws"
        report.table(title, summary.table(rate))
    return report


def measure(
    settings: ExperimentSettings, size: int = SIZE
) -> tuple[ErrorSummary, dict[str, Factorization]]:
    """Return all errors, and the fits of the first draw at the highest rate."""
    from tqdm.auto import tqdm

    summary, example = ErrorSummary(), {}
    total = len(RATES) * settings.repeats * len(LEVELS)
    with tqdm(total=total, unit="fit", disable=not settings.progress) as bar:
        for rate in RATES:
            for repeat in range(settings.repeats):
                data = make_skewed(size, size, rank=TRUE_RANK, density=rate, random_state=repeat)
                missing = np.ones(data.R.shape, bool)
                missing[data.R.nonzero()] = False
                for omega in LEVELS:
                    fit = settings.fit(data.R, omega)
                    summary.add(
                        rate, repeat, fit, data.R.data, fit.to_dense()[missing],
                        data.noisy[missing], data.truth[missing],
                    )  # fmt: skip
                    if (rate, repeat) == (RATES[-1], 0):
                        example[f"ω = {omega:g}"] = fit
                    bar.update()
    return summary, example


def chi_squared_expectile(omega: float, degrees: float = DEGREES) -> float:
    """Return the ω-expectile e of a χ² variable: ω E(V − e)⁺ = (1 − ω) E(e − V)⁺.

    Examples
    --------
    >>> from fastemf.experiments.synthetic import chi_squared_expectile
    >>> [round(chi_squared_expectile(omega), 3) for omega in (0.1, 0.5, 0.9)]
    [1.435, 3.0, 5.496]
    """
    omega = check_level(omega)

    def balance(e: float) -> float:
        # E V 1(V > e) is d P(χ²_{d+2} > e); E(e − V)⁺ = E(V − e)⁺ − (d − e).
        above = degrees * chi2.sf(e, degrees + 2) - e * chi2.sf(e, degrees)
        return float(combine_by_sign(above, (degrees - e) - above, omega))

    return float(brentq(balance, 0.0, chi2.isf(1e-12, degrees), xtol=1e-13))


def _show_loss(report: Report) -> None:
    """Add a figure of the loss at three levels, and of the χ²₃ density with its expectiles."""
    figure, (left, right) = panels(2, height=3.6)
    plot.asymmetric_loss(OMEGAS, ax=left)
    _draw_density(right)
    places = ", ".join(f"{chi_squared_expectile(omega):.3f}" for omega in OMEGAS)
    report.figure(
        "loss",
        figure,
        "Left: the asymmetric squared loss. Right: density of the χ² distribution with three "
        f"degrees of freedom and its expectiles at ω = 0.1, 0.5 and 0.9: {places} (computed; the "
        "sketch in the paper differs).",
    )


def _draw_density(ax: Axes) -> None:
    v = np.linspace(0, 14, 561)
    density = chi2.pdf(v, DEGREES)
    ax.plot(v, density, color="0.3", lw=1.5)
    ax.fill_between(v, density, color="0.92")
    ax.spines[["top", "right"]].set_visible(False)
    for omega, (colour, dashes) in zip(OMEGAS, STYLES[::2], strict=True):
        at = chi_squared_expectile(omega)
        ax.axvline(at, color=colour, ls=dashes, lw=2, label=f"ω = {omega:g}: at {at:.3f}")
    ax.legend(frameon=False, title="expectile", loc="upper right", handlelength=1.5)
    ax.set(xlim=(0, 14), ylim=(0, None))
    ax.set(xlabel="value of χ²₃ (no unit)", ylabel="probability density")
