"""`Explanation` and `QuantileParts`: the terms of one prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastemf.models.bilinear import Axes, corrections_at
from fastemf.support.arrays import Floats

if TYPE_CHECKING:
    from fastemf.quantile_model.stack import QuantileRegression


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


class QuantileParts(NamedTuple):
    """The terms of a predicted quantile, in the units of the data; see `Quantiles.explain`.

    Attributes
    ----------
    tau : float
        The quantile.
    parts : dict of str to float
        The term of each feature of the regression: its coefficient times its value.
    intercept : float
        The intercept of the regression.
    table : float
        The value of the correction table, which depends on the size of the prediction.
    value : float
        The prediction: the sum, clipped to the range of the data and sorted with the others.
    """

    tau: float
    parts: dict[str, float]
    intercept: float
    table: float
    value: float


def explain_quantile(
    tau: float, names: tuple[str, ...], columns: Floats, stacked: QuantileRegression, value: float
) -> QuantileParts:
    """Compute the terms of one quantile from the features of its cell and the predicted value."""
    regression, table = stacked
    before = regression.predict(columns)
    added = (regression.coefficients * columns[:, 0]).tolist()
    parts = {name: part for name, part in zip(names, added, strict=True) if part}
    correction = float((table.apply(before) - before)[0])
    return QuantileParts(tau, parts, regression.intercept, correction, value)
