"""`Stack`: the last steps to a quantile: regression on the columns, table, range, order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastemf.stacking.pinball import Regression, pinball_regression
from fastemf.stacking.shrunk_quantile import Floats, quantile
from fastemf.stacking.size_table import SizeTable, size_table

__all__ = ["Stack", "Stacked", "stacked"]


class Stacked(NamedTuple):
    """What makes one quantile of its columns."""

    regression: Regression
    table: SizeTable

    def at(self, columns: Floats) -> Floats:
        """Compute the quantile of columns, one row each."""
        return self.table.corrected(self.regression.at(columns))


def stacked(
    columns: Floats,
    values: Floats,
    tau: float,
    weights: Floats | None = None,
    held: Regression | None = None,
) -> Stacked:
    """Fit the τ-quantile of values by columns out of fold, one row each, and correct it.

    Of a regression that is `held` only the intercept is found anew.
    """
    if held is None:
        found = pinball_regression(columns, values, tau, weights)
    else:
        left = values - held._replace(intercept=0.0).at(columns)
        found = held._replace(intercept=quantile(left, tau, weights))
    sizes = found.at(columns)
    return Stacked(found, size_table(sizes, values - sizes, tau, weights))


@dataclass(frozen=True, eq=False)
class Stack:
    """Several quantiles of one matrix.

    Parameters
    ----------
    taus
        Shares below them, which rise.
    parts
        What makes each of them.
    low, high
        Range of the data, which quantiles are kept in.
    """

    taus: tuple[float, ...]
    parts: tuple[Stacked, ...]
    low: float
    high: float

    def at(self, columns: list[Floats]) -> Floats:
        """Compute all quantiles, given the columns of each, as (cells, quantiles) that rise."""
        found = [part.at(given) for part, given in zip(self.parts, columns, strict=True)]
        together = np.clip(np.stack(found, axis=-1), self.low, self.high)
        together.sort(axis=-1)
        return together
