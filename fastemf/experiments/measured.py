"""An experiment on a measured matrix: fit a sample, judge on the held-out cells, by bin."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from fastemf import plot
from fastemf.datasets import Split
from fastemf.experiments.report import Report, panels
from fastemf.experiments.settings import LEVELS, ExperimentSettings
from fastemf.experiments.tally import ALL, Tally
from fastemf.metrics import bin_of, check_edges

__all__ = ["Draw", "check_bins", "judge_draws", "show_data", "show_errors"]


class Draw(NamedTuple):
    """One sample of the cells, with its rate and the number of the repeat."""

    rate: float
    repeat: int
    cells: Split


def check_bins(values: NDArray[np.float64], edges: Sequence[float], unit: str) -> tuple[float, ...]:
    """Return the edges of bins that all hold data."""
    bounds = check_edges(edges)
    place = bin_of(values, bounds)
    for i, (low, high) in enumerate(itertools.pairwise(bounds)):
        if not (place == i).any():
            raise ValueError(
                f"bins must hold data, got none from {low:g} to {high:g} {unit} (the data lie "
                f"between {values.min():g} and {values.max():g} {unit})"
            )
    return bounds


def judge_draws(
    settings: ExperimentSettings, draws: Sequence[Draw], edges: tuple[float, ...], unit: str
) -> Tally:
    """Fit every draw at every level and judge it."""
    from tqdm.auto import tqdm

    tally = Tally(edges, unit)
    with tqdm(total=len(draws) * len(LEVELS), unit="fit", disable=not settings.progress) as bar:
        for rate, repeat, (train, test) in draws:
            for omega in LEVELS:
                fit = settings.fit(train, omega)
                predicted = fit.predict(test.row, test.col)
                tally.add(rate, repeat, fit, train.data, predicted, test.data)
                bar.update()
    return tally


def show_data(report: Report, R: Any, settings: ExperimentSettings, label: str, unit: str) -> None:
    """Add histograms of the data and of what least squares leaves of them."""
    figure, (left, right) = panels(2, height=3.6)
    plot.histogram(R.data, label=label, unit=unit, ax=left)
    left.set_title("data", fontsize=11)
    if R.nnz == R.shape[0] * R.shape[1]:
        residuals = _beyond_svd(R.toarray(), settings.rank)
        kind = f"residuals of the SVD of rank {settings.rank}"
    else:
        fit = settings.fit(R, 0.5)
        residuals = R.data - fit.predict(R.row, R.col)
        kind = f"residuals of the ω = 0.5 fit, k = {settings.rank}"
    plot.histogram(residuals, label="residual", unit=unit, ax=right)
    right.set_title(kind, fontsize=11)
    size = np.quantile(np.abs(residuals), 0.9)
    report.figure(
        "histograms",
        figure,
        f"Left: the {R.nnz:,} observed values. Right: {kind}, on the cells it was fitted to; 90 % "
        f"of them are below {size:.3g} {unit} in size, the largest is "
        f"{np.abs(residuals).max():.4g} {unit}.",
    )


def show_errors(report: Report, tally: Tally, draws: Sequence[Draw]) -> None:
    """Add the figures and tables of relative errors."""
    report.rows.extend(tally.rows)
    rates = tally.rates
    figure, axes = panels(len(rates))
    for ax, rate in zip(axes, rates, strict=True):
        plot.error_distribution(tally.errors(rate), ax=ax)
        ax.set_title(f"{rate:.0%} of the cells observed", fontsize=11)
    report.figure("cdf", figure, "Cumulative distribution of the relative error, held-out cells.")

    for rate in rates:
        figure, (ax,) = panels(1)
        by_level = {label: tally.errors(rate, label) for label in tally.bins}
        plot.error_boxes(by_level, ax=ax)
        ax.set_xlabel(f"true value (bins, in {tally.unit})")
        report.figure(
            f"boxes_{rate * 100:g}",
            figure,
            f"Relative error by size of the true value, {rate:.0%} of the cells observed. Boxes: "
            "quartiles and median; whiskers: 5 % to 95 %.",
        )

    figure, axes = panels(2, height=3.6)
    for ax, (name, word) in zip(
        axes, (("median", "median"), ("iqr", "interquartile range of")), strict=True
    ):
        curves = {
            label: [tally.mean(name, rates[-1], omega, label) for omega in LEVELS]
            for label in dict.fromkeys((tally.bins[0], tally.bins[-1]))
        }
        plot.against_level(curves, LEVELS, label=f"{word} relative error (no unit)", ax=ax)
    report.figure(
        "levels",
        figure,
        f"Median and interquartile range of the relative error against the level, for the lowest "
        f"and the highest bin, {rates[-1]:.0%} of the cells observed.",
    )
    for rate in rates:
        count = sum(draw.rate == rate for draw in draws)
        excluded = int(tally.mean("excluded", rate, LEVELS[0], ALL))
        report.table(
            f"{rate:.0%} observed: means over {count} draw{'s' if count > 1 else ''} (last "
            f"columns: median RE by bin; {excluded} held-out zeros have no RE)",
            tally.table(rate),
        )


def _beyond_svd(matrix: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Return what the best matrix of a rank leaves of a complete one."""
    if rank >= min(matrix.shape):
        return np.zeros(matrix.size)
    U, s, V = svds(matrix, k=rank, v0=np.ones(min(matrix.shape)))
    return np.ravel(matrix - (U * s) @ V)
