"""The paper's synthetic experiment: low rank plus χ² noise, errors against the noiseless truth."""

from __future__ import annotations

import numpy as np

from fastemf import plot
from fastemf.datasets import make_skewed
from fastemf.experiments import chi_squared
from fastemf.experiments.report import Report, panels
from fastemf.experiments.settings import LEVELS, ExperimentSettings
from fastemf.experiments.tally import Tally
from fastemf.model.factorization import Factorization
from fastemf.support.validation import check_integer, check_rank

__all__ = ["measure", "run"]

RATES = (0.05, 0.1)
SIZE = 1000
TRUE_RANK = 10


def run(settings: ExperimentSettings, *, size: int = SIZE) -> Report:
    """Run both sampling rates with every level and draw; return the report with its figures."""
    check_integer(size, "size", minimum=TRUE_RANK)
    check_rank(settings.rank, (size, size), "rank")
    tally, example = measure(settings, size)
    report = Report(
        "synthetic",
        "Synthetic data: low rank plus skewed noise",
        [
            f"{size} × {size} matrices of rank {TRUE_RANK}, factors uniform on [0, 1], plus half "
            f"a χ² variable with three degrees of freedom; {settings.repeats} draws. "
            f"Fits: {settings.description}.",
            "Relative error (RE) is against the noiseless matrix, on the cells not observed. The "
            "noise only adds, so the lower the level, the closer: ω = 0.1 is the edge of the "
            "paper's grid, not an optimum. Skill (1 − expectile loss / that of the best "
            "constant), w_eff (the level at which predictions lie) and the share below are "
            "against the noisy values of the same cells.",
        ],
        rows=tally.rows,
    )
    chi_squared.show(report)
    figure, axes = panels(len(RATES))
    for ax, rate in zip(axes, RATES, strict=True):
        plot.error_distribution(tally.errors(rate), ax=ax)
        ax.set_title(f"{rate:.0%} of the cells observed", fontsize=11)
    report.figure("cdf", figure, "Cumulative distribution of the relative error on missing cells.")
    figure, (ax,) = panels(1)
    plot.convergence(example, unit="unit of the data", ax=ax)
    report.figure(
        "convergence", figure, f"Objective after each sweep, {RATES[-1]:.0%} observed, first draw."
    )
    for rate in RATES:
        title = f"{rate:.0%} observed: means over {settings.repeats} draws"
        report.table(title, tally.table(rate))
    return report


def measure(
    settings: ExperimentSettings, size: int = SIZE
) -> tuple[Tally, dict[str, Factorization]]:
    """Return all numbers, and the fits of the first draw at the highest rate."""
    from tqdm.auto import tqdm

    tally, example = Tally(), {}
    total = len(RATES) * settings.repeats * len(LEVELS)
    with tqdm(total=total, unit="fit", disable=not settings.progress) as bar:
        for rate in RATES:
            for repeat in range(settings.repeats):
                data = make_skewed(size, size, rank=TRUE_RANK, density=rate, random_state=repeat)
                missing = np.ones(data.R.shape, bool)
                missing[data.R.nonzero()] = False
                for omega in LEVELS:
                    fit = settings.fit(data.R, omega)
                    tally.add(
                        rate, repeat, fit, data.R.data, fit.to_dense()[missing],
                        data.noisy[missing], data.truth[missing],
                    )  # fmt: skip
                    if (rate, repeat) == (RATES[-1], 0):
                        example[f"ω = {omega:g}"] = fit
                    bar.update()
    return tally, example
