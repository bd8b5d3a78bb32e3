"""`Tables`, functions of two statistics of a cell that a fit adds to its product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.tables import OF_COL, OF_PRODUCT, OF_ROW, TableStack

__all__ = [
    "COL_LEVEL", "COL_NOISE", "PRODUCT", "ROW_LEVEL", "ROW_NOISE", "STATISTICS", "AxisLevels",
    "Table", "Tables", "places",
]  # fmt: skip

ROW_LEVEL, COL_LEVEL, ROW_NOISE, COL_NOISE, PRODUCT = STATISTICS = (
    "row level", "column level", "row noise", "column noise", "product",
)  # fmt: skip
LEVELS = (ROW_LEVEL, COL_LEVEL)
OF = {
    ROW_LEVEL: OF_ROW, ROW_NOISE: OF_ROW, COL_LEVEL: OF_COL, COL_NOISE: OF_COL, PRODUCT: OF_PRODUCT,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Table:
    """What a prediction adds for two statistics of its cell, in the data's unit.

    Between the knots values are interpolated, beyond the outermost ones they are constant.

    Parameters
    ----------
    over
        The two statistics: ``"row level"`` and ``"column level"`` are the intercepts of a model
        without factors, ``"row noise"`` and ``"column noise"`` the logarithms of how much larger
        than the mean the variance of residuals is, and ``"product"`` is what the fit adds to its
        constant before any table: intercepts and factors.
    knots
        Values of the first and of the second statistic, which rise.
    values
        One number for each pair of knots.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.solver.tables import Table
    >>> knots = np.array([0.0, 1.0]), np.array([5.0])
    >>> table = Table(("row level", "column level"), knots, np.array([[2.0], [4.0]]))
    >>> table.at(np.array([-3.0, 0.5]), np.array([5.0, 6.0])).tolist()
    [2.0, 3.0]
    """

    over: tuple[str, str]
    knots: tuple[NDArray[np.float64], NDArray[np.float64]]
    values: NDArray[np.float64]

    def at(self, first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the values at statistics of one shape."""
        return self.between(places(first, self.knots[0]), places(second, self.knots[1]))

    def between(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the values at places among the knots."""
        V = self.values
        a, c = x.astype(np.int64), y.astype(np.int64)
        b, d = np.minimum(a + 1, V.shape[0] - 1), np.minimum(c + 1, V.shape[1] - 1)
        s, t = x - a, y - c
        near = V[a, c] + t * (V[a, d] - V[a, c])
        far = V[b, c] + t * (V[b, d] - V[b, c])
        return np.asarray(near + s * (far - near))


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of a fit, and the ridge λ₀ of the levels that they are over."""

    each: tuple[Table, ...]
    ridge: float

    @cached_property
    def stacked(self) -> TableStack:
        """The tables as their kernel takes them."""
        most = max(max(table.values.shape) for table in self.each)
        knots, values = np.zeros((len(self.each), 2, most)), np.zeros((len(self.each), most, most))
        for t, table in enumerate(self.each):
            values[t, : table.values.shape[0], : table.values.shape[1]] = table.values
            for side in (0, 1):
                knots[t, side, : table.knots[side].size] = table.knots[side]
        of = np.array([[OF[name] for name in table.over] for table in self.each])
        return TableStack(of, knots, np.array([table.values.shape for table in self.each]), values)

    @property
    def largest(self) -> float:
        """How much the tables add or take, at most."""
        return float(sum(np.abs(table.values).max() for table in self.each))

    def places(
        self, levels: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Find the items of an axis among the knots of every table, two columns each.

        Those of a side that is over a statistic of the other axis, or over the product, mean
        nothing.
        """
        found = np.zeros((levels.size, 2 * len(self.each)))
        for t, table in enumerate(self.each):
            for side, (name, knots) in enumerate(zip(table.over, table.knots, strict=True)):
                if name != PRODUCT:
                    found[:, 2 * t + side] = places(levels if name in LEVELS else noise, knots)
        return found


@dataclass(frozen=True, eq=False)
class AxisLevels:
    """The levels of the rows, or of the columns, of a fit, and the tables it has."""

    values: NDArray[np.float64]
    tables: Tables


def places(statistic: NDArray[np.float64], knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """Count the knots up to each number after the first, with the share of the way to the next."""
    last = knots.size - 1
    if last == 0:
        return np.zeros(np.shape(statistic))
    first = np.clip(np.searchsorted(knots, statistic, side="right") - 1, 0, last - 1)
    low, high = knots[first], knots[first + 1]
    return np.asarray(first + (np.clip(statistic, low, high) - low) / (high - low))
