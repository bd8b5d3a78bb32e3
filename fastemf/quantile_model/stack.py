"""Stacking: from out-of-fold features to quantiles in the range of the data that never cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastemf.quantile_model.pinball import Regression, pinball_regression
from fastemf.quantile_model.shrunk_quantile import Floats, Pool, quantile, shrunk_quantiles

BINS = 10
PRIOR = 100.0  # weight of the quantile of all residuals, in observations


class CorrectionTable(NamedTuple):
    """Corrections at increasing centres of bins of the prediction, interpolated in between."""

    centres: Floats
    values: Floats

    def apply(self, predicted: Floats) -> Floats:
        """Add the correction to each predicted quantile."""
        return np.asarray(predicted + np.interp(predicted, self.centres, self.values))


class QuantileRegression(NamedTuple):
    """A pinball regression on features, followed by a correction table."""

    regression: Regression
    table: CorrectionTable

    def predict(self, features: Floats) -> Floats:
        """Compute the quantile of cells, given one row per feature."""
        return self.table.apply(self.regression.predict(features))


def fit_quantile_regression(
    features: Floats,
    values: Floats,
    tau: float,
    weights: Floats | None = None,
    fixed: Regression | None = None,
) -> QuantileRegression:
    """Fit the τ-quantile of values to out-of-fold features, one row each.

    With `fixed` only the intercept of that regression is fitted again.
    """
    if fixed is None:
        regression = pinball_regression(features, values, tau, weights)
    else:
        residuals = values - fixed._replace(intercept=0.0).predict(features)
        regression = fixed._replace(intercept=quantile(residuals, tau, weights))
    predicted = regression.predict(features)
    table = _fit_correction_table(predicted, values - predicted, tau, weights)
    return QuantileRegression(regression, table)


def _fit_correction_table(
    predicted: Floats, residuals: Floats, tau: float, weights: Floats | None
) -> CorrectionTable:
    """Compute the shrunken τ-quantile of the residuals in bins of the prediction."""
    proportions = np.arange(1, BINS) / BINS
    edges = np.unique([quantile(predicted, one, weights) for one in proportions.tolist()])
    bins = np.searchsorted(edges, predicted, side="left")
    mass = np.bincount(bins, weights, edges.size + 1).astype(np.float64)
    corrections = shrunk_quantiles(
        residuals, bins, edges.size + 1, tau, PRIOR, Pool.fit(residuals, weights), weights
    )[:-1]
    total = np.bincount(bins, predicted if weights is None else predicted * weights, edges.size + 1)
    some = mass > 0
    centres = total[some] / mass[some]
    increasing = np.append(True, np.diff(centres) > 0)
    return CorrectionTable(centres[increasing], corrections[some][increasing])


@dataclass(frozen=True, eq=False)
class Stack:
    """Regressions of several quantiles of one matrix.

    Parameters
    ----------
    taus
        The quantiles, in increasing order.
    parts
        The regression of each.
    low, high
        Range of the data. Predictions are clipped to it.
    """

    taus: tuple[float, ...]
    parts: tuple[QuantileRegression, ...]
    low: float
    high: float

    def predict(self, features: list[Floats]) -> Floats:
        """Compute all quantiles from the features of each, as an array (cells, quantiles)."""
        each = [part.predict(given) for part, given in zip(self.parts, features, strict=True)]
        quantiles = np.clip(np.stack(each, axis=-1), self.low, self.high)
        quantiles.sort(axis=-1)
        return quantiles
