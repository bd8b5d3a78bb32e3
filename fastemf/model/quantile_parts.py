"""`QuantileParts`: what one quantile of one cell is the sum of."""

from __future__ import annotations

from typing import NamedTuple

from fastemf.stacking.shrunk_quantile import Floats
from fastemf.stacking.stack import Stacked

__all__ = ["QuantileParts", "parts_of"]


class QuantileParts(NamedTuple):
    """What a quantile is the sum of, in the data's unit; see `Quantiles.explain`."""

    tau: float
    """The share below it."""
    parts: dict[str, float]
    """What each column of the regression adds: its coefficient times its value."""
    intercept: float
    """What the regression adds to every cell."""
    table: float
    """What the table over the size of the prediction adds."""
    value: float
    """The quantile: the sum, within the range of the data, in order with the other quantiles."""


def parts_of(
    tau: float, names: tuple[str, ...], columns: Floats, stacked: Stacked, value: float
) -> QuantileParts:
    """Take a quantile apart, given the columns of its cell and the value that is predicted."""
    regression, table = stacked
    before = regression.at(columns)
    added = (regression.coefficients * columns[:, 0]).tolist()
    return QuantileParts(
        tau,
        {name: part for name, part in zip(names, added, strict=True) if part},
        regression.intercept,
        float((table.corrected(before) - before)[0]),
        value,
    )
