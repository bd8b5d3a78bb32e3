"""Experiments on measured matrices: fit a sample, and evaluate held-out cells by bin."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from fastemf import plot
from fastemf.datasets import MeasuredMatrix, Split, load_netlatency, load_wsdream, split
from fastemf.experiments.error_summary import ALL, ErrorSummary
from fastemf.experiments.report import Report, panels
from fastemf.experiments.settings import LEVELS, ExperimentSettings
from fastemf.metrics import bin_of, check_edges
from fastemf.support.arrays import Floats, Mask
from fastemf.support.validation import check_rank

Path = str | os.PathLike[str]
RATES = (0.05, 0.1)
WSDREAM_BINS = (0.0, 0.3, 3.1, 20.0)  # seconds, the paper's
NETLATENCY_BINS = (0.0, 50.0, 200.0, 3000.0)  # milliseconds

# Bits of the source of WS-DREAM fragments: a uniform 5 % sample of the matrix; all samples, without
# the dense block that would bias every statistic.
UNIFORM = 1
SAMPLED = 7


class Draw(NamedTuple):
    """A random sample of the cells."""

    rate: float
    repeat: int
    cells: Split


def check_bins(values: Floats, edges: Sequence[float], unit: str) -> tuple[float, ...]:
    """Return the edges of bins, each of which must contain data."""
    bounds = check_edges(edges)
    place = bin_of(values, bounds)
    for i, (low, high) in enumerate(itertools.pairwise(bounds)):
        if not (place == i).any():
            raise ValueError(
                f"bins must contain data, got none from {low:g} to {high:g} {unit} (the data range "
                f"from {values.min():g} to {values.max():g} {unit})"
            )
    return bounds


def evaluate_draws(
    settings: ExperimentSettings, draws: Sequence[Draw], edges: tuple[float, ...], unit: str
) -> ErrorSummary:
    """Fit every draw at every level, and collect the errors on held-out cells."""
    from tqdm.auto import tqdm

    errors = ErrorSummary(edges, unit)
    with tqdm(total=len(draws) * len(LEVELS), unit="fit", disable=not settings.progress) as bar:
        for rate, repeat, (train, test) in draws:
            for omega in LEVELS:
                fit = settings.fit(train, omega)
                predicted = fit.predict(test.row, test.col)
                errors.add(rate, repeat, fit, train.data, predicted, test.data)
                bar.update()
    return errors


def show_data(report: Report, R: Any, settings: ExperimentSettings, label: str, unit: str) -> None:
    """Add histograms of the data and of the residuals of a least-squares fit."""
    figure, (left, right) = panels(2, height=3.6)
    plot.histogram(R.data, label=label, unit=unit, ax=left)
    left.set_title("data", fontsize=11)
    if R.nnz == R.shape[0] * R.shape[1]:
        residuals = _svd_residuals(R.toarray(), settings.rank)
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
        f"Left: the {R.nnz:,} observed values. Right: {kind}, on the training cells; 90 % of them "
        f"are below {size:.3g} {unit} in absolute value, the largest is "
        f"{np.abs(residuals).max():.4g} {unit}.",
    )


def show_errors(report: Report, errors: ErrorSummary, draws: Sequence[Draw]) -> None:
    """Add the figures and tables of relative errors."""
    report.rows.extend(errors.rows)
    rates = errors.rates
    figure, axes = panels(len(rates))
    for ax, rate in zip(axes, rates, strict=True):
        plot.error_distribution(errors.errors(rate), ax=ax)
        ax.set_title(f"{rate:.0%} of the cells observed", fontsize=11)
    report.figure("cdf", figure, "Cumulative distribution of the relative error, held-out cells.")

    for rate in rates:
        figure, (ax,) = panels(1)
        by_level = {label: errors.errors(rate, label) for label in errors.bins}
        plot.error_boxes(by_level, ax=ax)
        ax.set_xlabel(f"true value (bins, in {errors.unit})")
        report.figure(
            f"boxes_{rate * 100:g}",
            figure,
            f"Relative error by true value, {rate:.0%} of the cells observed. Boxes: quartiles and "
            "median; whiskers: 5 % to 95 %.",
        )

    figure, axes = panels(2, height=3.6)
    words = {"median": "median", "iqr": "interquartile range of"}
    for ax, (name, word) in zip(axes, words.items(), strict=True):
        curves = {
            label: [errors.mean(name, rates[-1], omega, label) for omega in LEVELS]
            for label in dict.fromkeys((errors.bins[0], errors.bins[-1]))
        }
        plot.against_level(curves, LEVELS, label=f"{word} relative error", ax=ax)
    report.figure(
        "levels",
        figure,
        f"Median and interquartile range of the relative error against the level, for the lowest "
        f"and the highest bin, {rates[-1]:.0%} of the cells observed.",
    )
    for rate in rates:
        count = sum(draw.rate == rate for draw in draws)
        excluded = int(errors.mean("excluded", rate, LEVELS[0], ALL))
        report.table(
            f"{rate:.0%} observed: means over {count} draw{'s' if count > 1 else ''} (last "
            f"columns: median RE by bin; {excluded} held-out zeros have no RE)",
            errors.table(rate),
        )


def _svd_residuals(matrix: Floats, rank: int) -> Floats:
    """Return the residuals of the best approximation of a given rank."""
    if rank >= min(matrix.shape):
        return np.zeros(matrix.size)
    U, s, V = svds(matrix, k=rank, v0=np.ones(min(matrix.shape)))
    return np.ravel(matrix - (U * s) @ V)


def run_netlatency(
    settings: ExperimentSettings, data: Path, *, bins: Sequence[float] = NETLATENCY_BINS
) -> Report:
    """Run the experiment on round-trip times, which the paper does not have."""
    measured = load_netlatency(data)
    R = measured.R
    check_rank(settings.rank, R.shape, "rank")
    edges = check_bins(R.data, bins, measured.unit)
    draws = [
        Draw(rate, repeat, split(R, rate, by="pair", random_state=repeat))
        for rate in RATES
        for repeat in range(settings.repeats)
    ]
    report = Report(
        "netlatency",
        "Round-trip times between network nodes",
        [
            f"NetLatency-Data, first snapshot: {R.shape[0]} nodes, {R.nnz:,} ordered pairs without "
            "the diagonal. Unordered pairs are held out, because both directions are the same "
            f"measurement. The paper does not include these data. Fits: {settings.description}.",
            "Relative error (RE) is relative to the measured value of held-out pairs. Skill is 1 − "
            "expectile loss / loss of the best constant; effective ω is the level of the "
            "predictions.",
        ],
    )
    errors = evaluate_draws(settings, draws, edges, measured.unit)
    show_data(report, R, settings, "round-trip time", measured.unit)
    show_errors(report, errors, draws)
    return report


def run_wsdream(
    settings: ExperimentSettings, data: Path, *, bins: Sequence[float] = WSDREAM_BINS
) -> Report:
    """Run the experiment of the paper on web-service response times (WS-DREAM data set 1)."""
    measured = load_wsdream(data)
    R = _of_source(measured, SAMPLED)
    check_rank(settings.rank, R.shape, "rank")
    edges = check_bins(R.data, bins, measured.unit)
    draws = sample_draws(measured, settings.repeats)
    m, n = R.shape
    known = f"{R.nnz:,} of {m * n:,} cells ({R.nnz / (m * n):.1%})"
    what = (
        f"WS-DREAM data set 1, {m} users × {n} services: {known} are known; failed calls are left "
        "out."
        if measured.source is None
        else f"Recovered fragments of WS-DREAM data set 1, not the full matrix of {m} users × {n} "
        f"services: {known}. At 5 % there is one draw, the uniform sample among them; at 10 % "
        "cells are drawn at random from all of them."
    )
    report = Report(
        "wsdream",
        "Web-service response times",
        [
            f"{what} Fits: {settings.description}.",
            "Relative error (RE) is relative to the measured value of held-out cells; it favours "
            "low predictions. Skill (1 − expectile loss / loss of the best constant) is a proper "
            "score of a level; effective ω is the level of the predictions.",
        ],
    )
    errors = evaluate_draws(settings, draws, edges, measured.unit)
    show_data(report, _of_source(measured, UNIFORM), settings, "response time", measured.unit)
    show_errors(report, errors, draws)
    return report


def sample_draws(data: MeasuredMatrix, repeats: int) -> list[Draw]:
    """Draw samples of 5 % and 10 % of the cells; all other known cells are held out."""
    R = _of_source(data, SAMPLED)
    m, n = R.shape
    draws = []
    for rate in RATES:
        if data.source is not None and rate == RATES[0]:
            known = data.source[(data.source & SAMPLED) > 0]
            uniform = (known & UNIFORM) > 0
            draws.append(Draw(rate, 0, Split(_part(R, uniform), _part(R, ~uniform))))
            continue
        size = round(rate * m * n)
        if size >= R.nnz:
            raise ValueError(
                f"data must have more than {rate:.0%} of the cells of the matrix ({size:,}), to "
                f"hold some out, got {R.nnz:,}"
            )
        draws += [
            Draw(rate, repeat, split(R, size, random_state=repeat)) for repeat in range(repeats)
        ]
    return draws


def _of_source(data: MeasuredMatrix, bits: int) -> Any:
    if data.source is None:
        return data.R
    return _part(data.R, (data.source & bits) > 0)


def _part(R: Any, mask: Mask) -> Any:
    return sp.coo_array((R.data[mask], (R.row[mask], R.col[mask])), shape=R.shape)
