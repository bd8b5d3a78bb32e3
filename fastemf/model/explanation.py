"""`Explanation`: a prediction taken apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.model.bilinear import Axes, tables_at

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
    tables: float
    """What the tables add for the level and the noise of row and column; 0 without tables."""

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
    a, c = _number(rows.intercepts, i), _number(cols.intercepts, j)
    tables = tables_at(axes, np.array([i]), np.array([j]), np.array([a + c + product]))
    return Explanation(mu, shift, a, c, float(product), float(tables[0]))


def _number(intercepts: NDArray[np.floating] | None, at: int) -> float:
    return 0.0 if intercepts is None else float(intercepts[at])
