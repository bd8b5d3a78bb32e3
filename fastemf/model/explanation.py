"""`Explanation`: a prediction taken apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.model.prediction import Axes

__all__ = ["Explanation", "explain_cell"]


class Explanation(NamedTuple):
    """What a prediction is the sum of, in the data's unit; see `Factorization.explain`."""

    mu: float
    """The data's ω-expectile; 0 without intercepts."""
    shift: float
    """What the fit adds to every prediction, so that new cells lie at its level."""
    row: float
    """The row's intercept."""
    column: float
    """The column's intercept."""
    factors: float
    """The product of the row's and the column's factors."""
    table: float
    """What the table over row and column levels adds; 0 where there is none."""

    @property
    def value(self) -> float:
        """The prediction: the sum of all parts."""
        return sum(self)


def explain_cell(axes: Axes, mu: float, shift: float, i: int, j: int) -> Explanation:
    """Compute the parts of what a model predicts for the cell (i, j)."""
    rows, cols = axes
    product = rows.factor[i].astype(np.float64) @ cols.factor[j].astype(np.float64)
    if not rows.has_intercepts:  # mu and shift go with them
        mu = shift = 0.0
    table = 0.0
    if rows.levels is not None and cols.levels is not None:
        table = float(rows.levels.table.at(rows.levels.values[i], cols.levels.values[j]))
    a, c = _number(rows.intercepts, i), _number(cols.intercepts, j)
    return Explanation(mu, shift, a, c, float(product), table)


def _number(intercepts: NDArray[np.floating] | None, at: int) -> float:
    return 0.0 if intercepts is None else float(intercepts[at])
