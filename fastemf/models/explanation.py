"""`Explanation`: the terms of one prediction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastemf.models.bilinear import Axes, corrections_at


class Explanation(NamedTuple):
    """The terms of a prediction, in the units of the data; see `Factorization.explain`.

    Attributes
    ----------
    mu : float
        The ω-expectile of the data; 0 without intercepts.
    shift : float
        The calibration constant of a tuned fit.
    row : float
        The row intercept.
    column : float
        The column intercept.
    factors : float
        The inner product of the row and column factors.
    corrections : float
        The sum of the correction tables; 0 without tables.
    """

    mu: float
    shift: float
    row: float
    column: float
    factors: float
    corrections: float

    @property
    def value(self) -> float:
        """The prediction: the sum of all terms."""
        return sum(self)


def explain_cell(axes: Axes, mu: float, shift: float, i: int, j: int) -> Explanation:
    """Compute the terms of the prediction of the cell (i, j)."""
    rows, cols = axes
    product = rows.factor[i].astype(np.float64) @ cols.factor[j].astype(np.float64)
    if not rows.has_intercepts:  # mu and shift go with them
        mu = shift = 0.0
    a = 0.0 if rows.intercepts is None else float(rows.intercepts[i])
    c = 0.0 if cols.intercepts is None else float(cols.intercepts[j])
    tables = corrections_at(axes, np.array([i]), np.array([j]), np.array([a + c + product]))
    return Explanation(mu, shift, a, c, float(product), float(tables[0]))
