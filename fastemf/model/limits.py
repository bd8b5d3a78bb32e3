"""Censored values in questions to a fit: replaced by what it lets expect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastemf.model.prediction import Axes, predict_cells
from fastemf.observations.memory import Observations
from fastemf.observations.source import Side
from fastemf.solver.imputation import Imputation

__all__ = ["has_limits", "known_imputation", "with_limits_replaced"]


def has_limits(observed: Observations) -> bool:
    """Tell whether some of the values are censored."""
    return bool(observed.by_row.censored.any())


def known_imputation(imputation: Imputation | None) -> Imputation:
    """Return what replaces censored values; an error where a fit has none."""
    if imputation is None:
        raise ValueError(
            "censored needs a fit some of whose own values were censored, to know what lies beyond"
        )
    return imputation


def with_limits_replaced(
    observed: Observations,
    axes: Axes,
    mu: float,
    imputation: Imputation,
) -> Observations:
    """Replace the censored values, given axes without tables."""

    def replaced(side: Side, rows: NDArray[np.int64], cols: NDArray[np.int64]) -> Side:
        at = np.flatnonzero(side.censored)
        i, j = rows[at].astype(np.int64), cols[at].astype(np.int64)
        predicted = predict_cells(axes, mu, i, j).astype(np.float64)
        noise = imputation.scales[0][i] * imputation.scales[1][j]
        values = side.values.copy()
        values[at] = imputation.values(side.values[at], side.censored[at], predicted, noise)
        return replace(side, values=values, censored=side.censored[:0])

    row, col = observed.by_row, observed.by_col
    return replace(
        observed,
        by_row=replaced(row, row.keys, row.indices),
        by_col=replaced(col, col.indices, col.keys),
    )
