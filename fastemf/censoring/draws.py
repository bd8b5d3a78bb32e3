"""Imputation draws: censored values replaced by draws from their conditional distribution.

Imputed means, as expectile fits use them (see `imputation`), have no spread, which quantiles need.
The uniform number of a draw is a hash of the cell, and of the interval if values are in intervals:
it is the same in every source and every run.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fastemf.censoring.buckley_james import BuckleyJames
from fastemf.censoring.imputation import (
    Imputation,
    censored_entries,
    impute_source,
    map_censored,
)
from fastemf.censoring.kaplan_meier import ResidualDistribution
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.settings import Settings
from fastemf.sources.cell_sample import N_HASHES, hashes
from fastemf.sources.open_source import Data
from fastemf.sources.source import Arrays, Side, Source

SALT = 0x7F4A7C15  # added to the hash of a cell, so that draws are independent of folds


class ImputedSources(NamedTuple):
    """Observations with imputed values."""

    means: Source  # conditional means, for expectile fits
    draws: Source  # with the spread that quantiles need
    imputation: Imputation | None  # for later observations


def impute_censored(data: Data, settings: Settings) -> ImputedSources:
    """Impute the censored values by conditional means, and by draws."""
    if not data.is_censored:
        return ImputedSources(data.fitted, data.fitted, None)
    mu = data.fitted.expectile(settings.omega) if settings.intercepts else None
    engine = CompletionEngine(data.fitted, settings.omega, mu=mu, n_threads=settings.n_threads)
    censoring = BuckleyJames(engine, data.limit, data.marks)
    first = censoring.initial_solution(settings)
    imputation = censoring.imputation(first)
    factors = first.X, first.Y
    means = impute_source(data.fitted, imputation, factors, mu)
    draws = map_censored(
        data.fitted, imputation, factors, mu, _draw_block,
        more=((data.marks[0],), (data.marks[1],)),
        args=(censoring.residual_distributions(first),),
    )  # fmt: skip
    return ImputedSources(means, draws, imputation)


def _draw_block(
    block: Side,
    by_index: Arrays,
    by_row: Arrays,
    imputation: Imputation,
    distributions: tuple[ResidualDistribution, ResidualDistribution],
) -> Side:
    entries = censored_entries(block, by_index, by_row, imputation.limit)
    cells = hashes(by_row[2][entries.rows], by_index[2][entries.cols])
    salts = np.full(cells.size, SALT)
    if entries.half_widths.size:  # the intervals of a cell have different draws
        bits = entries.recorded.astype(np.float64).view(np.int64)
        salts += bits ^ bits >> 32
    uniform = (hashes(cells, salts) + 0.5) / N_HASHES
    right, left = (partial(one.draw, uniform=uniform) for one in distributions)
    of_intervals = imputation.intervals
    between = None if of_intervals is None else partial(of_intervals.draw, uniform=uniform)
    values = block.values.copy()
    values[entries.at] = imputation.impute(*entries[3:], (right, left, between))
    return replace(block, values=values)
