"""Metrics of predictions: relative errors, scores of expectiles and quantiles, calibration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastemf.censoring.coverage import CensoredCells
from fastemf.censoring.limits import parse_codes, parse_limit
from fastemf.loss import expectile_loss, sign_weights
from fastemf.scores import (
    CRPS,
    MurphyDiagram,
    check_weights,
    crps,
    interval_score,
    murphy_diagram,
    pair_values,
    pit,
    weighted_interval_score,
)
from fastemf.support.arrays import Floats, Ints, Mask
from fastemf.support.validation import check_level, check_proportion

__all__ = [
    "CRPS",
    "BinSummary",
    "ErrorSummary",
    "MurphyDiagram",
    "RelativeErrors",
    "coverage",
    "crps",
    "effective_omega",
    "error_cdf",
    "expectile_skill",
    "interval_score",
    "murphy_diagram",
    "pinball_loss",
    "pit",
    "relative_errors",
    "summarize",
    "summarize_by_bin",
    "weighted_interval_score",
]


class RelativeErrors(NamedTuple):
    """Relative errors of cells with a nonzero truth, and a mask of these cells."""

    values: Floats
    """|truth − predicted| / |truth|, in the order of the cells."""
    defined: Mask
    """False where the truth is 0, so that the relative error is undefined."""

    @property
    def excluded(self) -> int:
        """Number of cells without a relative error."""
        return int(self.defined.size - np.count_nonzero(self.defined))


class ErrorSummary(NamedTuple):
    """Quantiles of errors; NaN for an empty sample."""

    cells: int
    median: float
    lower: float
    """25 % quantile."""
    upper: float
    """75 % quantile."""
    q90: float
    """90 % quantile."""

    @property
    def iqr(self) -> float:
        """Interquartile range."""
        return self.upper - self.lower


class BinSummary(NamedTuple):
    """Errors of the cells whose truth lies between two edges."""

    low: float
    high: float
    proportion: float
    """Proportion of all cells."""
    errors: ErrorSummary


def relative_errors(truth: ArrayLike, predicted: ArrayLike) -> RelativeErrors:
    """Return |truth − predicted| / |truth| for cells with a nonzero truth, and a mask of them.

    The relative error favours low predictions: it is at most 1 for positive predictions below the
    truth, and unbounded above it. `expectile_skill` is the proper score of an expectile; report
    both.

    Examples
    --------
    >>> from fastemf.metrics import relative_errors
    >>> errors = relative_errors([2.0, 0.0, 4.0], [1.0, 1.0, 5.0])
    >>> errors.values.tolist(), errors.excluded
    ([0.5, 0.25], 1)
    """
    true, fitted = pair_values(truth, predicted, "truth", "predicted")
    defined = true != 0
    return RelativeErrors(np.abs(true[defined] - fitted[defined]) / np.abs(true[defined]), defined)


def error_cdf(errors: ArrayLike, at: ArrayLike) -> Floats:
    """Return the proportion of errors that are at most each value of `at`.

    Examples
    --------
    >>> from fastemf.metrics import error_cdf
    >>> error_cdf([0.1, 0.2, 0.2, 0.8], at=[0.0, 0.2, 1.0]).tolist()
    [0.0, 0.75, 1.0]
    """
    sample = np.sort(np.asarray(errors, dtype=np.float64).ravel())
    if sample.size == 0:
        raise ValueError("errors must not be empty")
    places = np.searchsorted(sample, np.asarray(at, dtype=np.float64), side="right")
    return np.asarray(places / sample.size, dtype=np.float64)


def summarize(errors: ArrayLike) -> ErrorSummary:
    """Return the median, the quartiles and the 90 % quantile of errors.

    Examples
    --------
    >>> from fastemf.metrics import summarize
    >>> summary = summarize([0.0, 0.1, 0.2, 0.3, 0.4])
    >>> summary.median, round(summary.iqr, 12), round(summary.q90, 12)
    (0.2, 0.2, 0.36)
    """
    sample = np.asarray(errors, dtype=np.float64).ravel()
    if sample.size == 0:
        return ErrorSummary(0, *[float("nan")] * 4)
    lower, median, upper, q90 = np.quantile(sample, [0.25, 0.5, 0.75, 0.9]).tolist()
    return ErrorSummary(sample.size, median, lower, upper, q90)


def summarize_by_bin(
    truth: ArrayLike, predicted: ArrayLike, edges: Sequence[float]
) -> list[BinSummary]:
    """Summarize the relative errors of the cells in each bin of the truth.

    Parameters
    ----------
    truth, predicted
        Values of the same cells.
    edges
        Increasing. A bin includes its lower edge and excludes its upper edge; the last bin
        includes both.

    Examples
    --------
    >>> from fastemf.metrics import summarize_by_bin
    >>> low, high = summarize_by_bin([0.1, 0.2, 4.0, 30.0], [0.1, 0.1, 5.0, 3.0], [0, 1, 20])
    >>> low.errors.median, low.proportion, high.errors.median, high.proportion
    (0.25, 0.5, 0.25, 0.25)
    """
    true, fitted = pair_values(truth, predicted, "truth", "predicted")
    bounds = check_edges(edges)
    of_cell = bin_of(true, bounds)
    errors = relative_errors(true, fitted)
    of_error = of_cell[errors.defined]
    return [
        BinSummary(low, high, float(np.mean(of_cell == i)), summarize(errors.values[of_error == i]))
        for i, (low, high) in enumerate(itertools.pairwise(bounds))
    ]


def expectile_skill(
    values: ArrayLike,
    predicted: ArrayLike,
    omega: float,
    constant: float,
    weights: ArrayLike | None = None,
) -> float:
    """Return 1 − (expectile loss) / (loss of a constant): 1 is perfect, 0 equals the constant.

    On held-out values this is the proper score of an ω-expectile. The usual constant is
    ``fastemf.loss.expectile`` of the training values. The result is NaN if the loss of the
    constant is 0. `weights` are frequency weights, as in `fastemf.complete`.

    Examples
    --------
    >>> from fastemf.metrics import expectile_skill
    >>> expectile_skill([1.0, 3.0], [1.5, 2.5], omega=0.5, constant=2.0)
    0.75
    """
    observed, fitted = pair_values(values, predicted, "values", "predicted")
    level = check_level(omega)
    base = expectile_loss(observed - constant, level, weights)
    loss = expectile_loss(observed - fitted, level, weights)
    return 1 - loss / base if base > 0 else float("nan")


def effective_omega(residuals: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return the level at which predictions are expectiles: Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|).

    A residual r is observed − predicted. The result is ω for the ω-expectile of the sample, and
    NaN if all residuals are 0.

    Examples
    --------
    >>> from fastemf.metrics import effective_omega
    >>> effective_omega([-1.0, 3.0])
    0.25
    """
    r = np.asarray(residuals, dtype=np.float64)
    counts = (
        1.0 if weights is None else np.asarray(check_weights(weights)).reshape(np.shape(weights))
    )
    size = np.abs(r) * counts
    below, total = float(size[r < 0].sum()), float(size.sum())
    return below / total if total > 0 else float("nan")


def pinball_loss(
    values: ArrayLike, predicted: ArrayLike, tau: float, weights: ArrayLike | None = None, *,
    censored: Any = None,
) -> float:  # fmt: skip
    """Return the mean of r (τ − 1(r < 0)), where r = value − prediction.

    This is the proper score of the τ-quantile, as the expectile loss is for an expectile; at 0.5 it
    is half the mean absolute error. `weights` are frequency weights, and `censored` is a limit or
    one mark per value, as in `fastemf.complete`. With a limit, r = min(value, limit) −
    min(prediction, limit), which is still a proper score; for a left limit, the larger ones.

    Examples
    --------
    >>> from fastemf.metrics import pinball_loss
    >>> pinball_loss([1.0, 3.0], [2.0, 2.0], tau=0.9)  # (0.1 * 1 + 0.9 * 1) / 2
    0.5
    >>> pinball_loss([1.0, 20.0], [2.0, 30.0], tau=0.75, censored=("right", 20.0))  # 0.25 * 1 / 2
    0.125
    """
    observed, fitted = pair_values(values, predicted, "values", "predicted")
    if observed.size == 0:
        raise ValueError("values must not be empty")
    cells = _censored_cells(observed, censored)
    r = observed - fitted if cells is None else cells.residuals(fitted)
    terms = sign_weights(r, check_proportion(tau, "tau")) * np.abs(r)
    return float(np.average(terms, weights=check_weights(weights)))


def coverage(
    values: ArrayLike, predicted: ArrayLike, weights: ArrayLike | None = None, *,
    censored: Any = None,
) -> float:  # fmt: skip
    """Return the (weighted) proportion of values that are at most the prediction.

    `censored` is a limit or one mark per value, as in `fastemf.complete`. Predictions at or beyond
    a limit that applies to all values are then left out, as it is unknown whether they cover their
    value; the result is NaN if none are left. If limits differ, it is a Kaplan–Meier estimate.

    Examples
    --------
    >>> from fastemf.metrics import coverage
    >>> coverage([1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, 2.0])
    0.5
    >>> coverage([1.0, 20.0, 20.0], [2.0, 10.0, 30.0], censored=("right", 20.0))  # of two
    0.5
    """
    observed, fitted = pair_values(values, predicted, "values", "predicted")
    if observed.size == 0:
        raise ValueError("values must not be empty")
    counts, cells = check_weights(weights), _censored_cells(observed, censored)
    if cells is None:
        return float(np.average(observed <= fitted, weights=counts))
    at = np.flatnonzero(cells.is_checkable(fitted))
    return cells.coverage(fitted, counts, at) if at.size else float("nan")


def check_edges(edges: Sequence[float]) -> tuple[float, ...]:
    """Return finite, increasing edges of at least one bin."""
    bounds = tuple(float(edge) for edge in edges)
    if len(bounds) < 2 or not np.isfinite(bounds).all() or not (np.diff(bounds) > 0).all():
        raise ValueError(f"bins must be at least two finite, increasing edges, got {list(bounds)}")
    return bounds


def bin_of(values: Floats, edges: tuple[float, ...]) -> Ints:
    """Return the bin of each value, from 0; -1 outside all bins."""
    places = np.searchsorted(edges, values, side="right") - 1
    places[values == edges[-1]] = len(edges) - 2
    places[(values < edges[0]) | (values > edges[-1])] = -1
    return places


def _censored_cells(values: Floats, censored: Any) -> CensoredCells | None:
    if censored is None:
        return None
    limit = parse_limit(censored)
    codes = parse_codes(np.ravel(censored)) if limit is None else limit.codes(values)
    if codes.size != values.size:
        raise ValueError(f"censored must mark each of the {values.size} values, got {codes.size}")
    return CensoredCells(values, codes, values, limit)
