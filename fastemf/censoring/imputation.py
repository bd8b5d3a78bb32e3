"""`Imputation`: the values that replace censored ones, given the predictions of a model.

A censored value is replaced by the prediction plus the conditional expectation of the residual
given the limit or the interval, in units of the noise of its row and column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.censoring.kaplan_meier import ConditionalExpectation
from fastemf.censoring.limits import BETWEEN, CensoringLimit
from fastemf.censoring.turnbull import IntervalDistributions
from fastemf.sources.mapped import BlockMap, MappedSource
from fastemf.sources.memory import Observations
from fastemf.sources.source import Arrays, Side, Source
from fastemf.support.arrays import Array, Floats, Indices, Ints

Curves = tuple[Callable[..., Floats], Callable[..., Floats], Callable[..., Floats] | None]

EMPTY = np.empty(0)


@dataclass(frozen=True, eq=False)
class Imputation:
    """A rule that replaces censored values, given the predictions of a model.

    Parameters
    ----------
    scales
        Noise of each row and of each column.
    right, left
        Conditional expectations given a limit, in units of the noise; the left one is mirrored.
    bounds
        The smallest and the largest imputed value.
    limit
        The common censoring limit; None where each observation has its own code.
    intervals
        Distributions of residuals in intervals; None if no observation of the fit is an interval.
    """

    scales: tuple[Floats, Floats]
    right: ConditionalExpectation
    left: ConditionalExpectation
    bounds: tuple[float, float]
    limit: CensoringLimit | None
    intervals: IntervalDistributions | None = None

    def resize_axis(self, axis: int, size: int, known: int) -> Imputation:
        """Return the rule for an axis of `size` items of which the first `known` stay.

        The noise of new items is unknown and set to the mean.
        """
        scales = list(self.scales)
        scales[axis] = np.append(scales[axis][:known], np.ones(size - known))
        return replace(self, scales=(scales[0], scales[1]))

    def impute(
        self,
        recorded: Array,
        codes: NDArray[np.int8],
        predicted: Floats,
        noise: Floats,
        half_widths: Array = EMPTY,
        curves: Curves | None = None,
    ) -> Floats:
        """Replace censored values, given predictions and noise of their cells.

        `half_widths` are those of intervals, if there are any. `curves` replace the conditional
        expectations of the rule: right, left, and in intervals.
        """
        of_intervals = None if self.intervals is None else self.intervals.impute
        right, left, between = (self.right, self.left, of_intervals) if curves is None else curves
        sign = codes.astype(np.float64)
        x = sign * (recorded - predicted) / noise
        u = np.where(sign > 0, right(x), left(x))
        values = np.clip(predicted + sign * noise * u, *self.bounds)
        values = np.where(sign > 0, np.maximum(values, recorded), np.minimum(values, recorded))
        if between is not None and half_widths.size:
            lower, upper = recorded - half_widths, recorded + half_widths
            u = between(predicted, (lower - predicted) / noise, (upper - predicted) / noise)
            inside = np.clip(predicted + noise * u, lower, upper)
            values = np.where(codes == BETWEEN, inside, values)
        return np.asarray(values, np.float64)


# --- sources -------------------------------------------------------------------------------


def impute_source(
    source: Source, imputation: Imputation, factors: tuple[Any, Any], mu: float | None
) -> MappedSource:
    """Return a source with imputed values, given the factors of a model."""
    return map_censored(source, imputation, factors, mu, _impute_block)


def map_censored(
    source: Source,
    imputation: Imputation,
    factors: tuple[Any, Any],
    mu: float | None,
    function: Callable[..., Side],
    *,
    more: tuple[Arrays, Arrays] = ((), ()),
    args: tuple[Any, ...] = (),
) -> MappedSource:
    """Return a source whose blocks are mapped, given the factors of a model and its imputation.

    `function` receives `more` arrays of rows and of columns after those of `censored_entries`.
    """
    arrays = []
    for axis, (factor, scale) in enumerate(zip(factors, imputation.scales, strict=True)):
        known = np.zeros((factor.shape[0], 2))  # intercept and noise
        if mu is not None:
            known[:, 0] = factor[:, -1] + (mu if axis == 0 else 0.0)
            factor = factor[:, :-1]
        known[:, 1] = scale
        arrays.append((np.ascontiguousarray(factor), known, *more[axis]))
    curves = replace(imputation, scales=(EMPTY, EMPTY))  # blocks receive their part of the scales
    return MappedSource(source, BlockMap(function, (arrays[0], arrays[1]), (curves, *args)))


def _impute_block(block: Side, by_index: Arrays, by_row: Arrays, imputation: Imputation) -> Side:
    entries = censored_entries(block, by_index, by_row, imputation.limit)
    values = block.values.copy()
    values[entries.at] = imputation.impute(*entries[3:])
    return replace(block, values=values)


class CensoredEntries(NamedTuple):
    """The censored entries of a block, with predictions and noise of their cells."""

    at: Ints
    rows: Ints
    cols: Indices
    recorded: Array
    codes: NDArray[np.int8]
    predicted: Floats
    noise: Floats
    half_widths: Array  # empty if there are no intervals


def censored_entries(
    block: Side, by_index: Arrays, by_row: Arrays, limit: CensoringLimit | None
) -> CensoredEntries:
    """Find the censored entries of a block, given factor, intercepts and noise of both sides."""
    codes = _codes(block, limit)
    at = np.flatnonzero(codes)
    rows = np.searchsorted(block.indptr, at, side="right") - 1
    cols = block.indices[at]
    (other, about), (this, own) = by_index[:2], by_row[:2]
    predicted = own[rows, 0] + about[cols, 0]
    for a in range(this.shape[1]):  # term by term, so that a sum does not depend on the block
        predicted += this[rows, a].astype(np.float64) * other[cols, a]
    noise = own[rows, 1] * about[cols, 1]
    widths = block.half_widths[at] if block.half_widths.size else block.half_widths
    return CensoredEntries(at, rows, cols, block.values[at], codes[at], predicted, noise, widths)


def without_censored(source: Source, limit: CensoringLimit | None = None) -> MappedSource:
    """Return a source in which entries beyond a limit have weight 0; intervals keep theirs."""
    return MappedSource(source, BlockMap(_weigh_block, args=(limit,), changes_weights=True))


def _weigh_block(
    block: Side, by_index: Arrays, by_row: Arrays, limit: CensoringLimit | None
) -> Side:
    weights = np.isin(_codes(block, limit), (0, BETWEEN)).astype(block.dtype)
    if block.weights.size:
        weights *= block.weights
    mass = np.bincount(block.keys, weights, block.mass.size).astype(np.float64)
    return replace(block, weights=weights, mass=mass)


def codes_as_values(source: Source, limit: CensoringLimit | None) -> MappedSource:
    """Return a source whose values are the codes of the observations."""
    return MappedSource(source, BlockMap(_codes_block, args=(limit,)))


def _codes_block(
    block: Side, by_index: Arrays, by_row: Arrays, limit: CensoringLimit | None
) -> Side:
    return replace(block, values=_codes(block, limit).astype(block.dtype))


def half_widths_as_values(source: Source) -> MappedSource:
    """Return a source whose values are the half-widths of the observations, 0 without intervals."""
    return MappedSource(source, BlockMap(_half_widths_block))


def _half_widths_block(block: Side, by_index: Arrays, by_row: Arrays) -> Side:
    widths = block.half_widths if block.half_widths.size else np.zeros_like(block.values)
    return replace(block, values=widths)


def _codes(block: Side, limit: CensoringLimit | None) -> NDArray[np.int8]:
    return block.censored if limit is None else limit.codes(block.values)


# --- observations passed to a fitted model -------------------------------------------------


def has_censored(observed: Observations) -> bool:
    """Return whether some of the observations are censored."""
    return bool(observed.by_row.censored.any())


def require_imputation(imputation: Imputation | None) -> Imputation:
    """Return the imputation of a model; raise an error if it has none."""
    if imputation is None:
        raise ValueError(
            "censored needs a model that was fitted to some censored values; censored=False takes "
            "all values as exact"
        )
    return imputation


def impute_observations(
    observed: Observations, imputation: Imputation, predict: Callable[[Ints, Ints], Array]
) -> Observations:
    """Replace the censored values of observations; `predict` takes rows and columns of cells."""

    def impute(side: Side, rows: Array, cols: Array) -> Side:
        at = np.flatnonzero(side.censored)
        i, j = rows[at].astype(np.int64), cols[at].astype(np.int64)
        predicted = predict(i, j).astype(np.float64)
        noise = imputation.scales[0][i] * imputation.scales[1][j]
        values = side.values.copy()
        widths = side.half_widths[at] if side.half_widths.size else EMPTY
        values[at] = imputation.impute(side.values[at], side.censored[at], predicted, noise, widths)
        return replace(side, values=values, censored=side.censored[:0], half_widths=EMPTY)

    row, col = observed.by_row, observed.by_col
    return replace(
        observed,
        by_row=impute(row, row.keys, row.indices),
        by_col=impute(col, col.indices, col.keys),
    )
