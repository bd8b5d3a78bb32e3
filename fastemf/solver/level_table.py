"""`LevelTable`, a function of a row's and a column's own level that a fit adds to its product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["AxisLevels", "LevelTable", "places", "weights_of"]


@dataclass(frozen=True, eq=False)
class LevelTable:
    """What a prediction adds for the levels of its row and column, in the data's unit.

    Levels are the intercepts of a model without factors. Between the centres of the bins values
    are interpolated, beyond the outermost ones they are constant.

    Parameters
    ----------
    row_centres, col_centres
        Levels at the centres of the bins, which rise.
    values
        One number for each pair of bins, by row and column.
    ridge
        The ridge λ₀ of the levels.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.solver.level_table import LevelTable
    >>> table = LevelTable(np.array([0.0, 1.0]), np.array([5.0]), np.array([[2.0], [4.0]]), 1.0)
    >>> table.at(np.array([-3.0, 0.5]), np.array([5.0, 6.0])).tolist()
    [2.0, 3.0]
    """

    row_centres: NDArray[np.float64]
    col_centres: NDArray[np.float64]
    values: NDArray[np.float64]
    ridge: float

    @property
    def centres(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Centres of the bins of rows and of columns, to be indexed by axis."""
        return self.row_centres, self.col_centres

    def at(self, rows: NDArray[np.float64], cols: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the values at levels of rows and columns, of one shape."""
        (a, b, s), (c, d, t) = map(places, (rows, cols), self.centres)
        V = self.values
        low = V[a, c] + t * (V[a, d] - V[a, c])
        high = V[b, c] + t * (V[b, d] - V[b, c])
        return np.asarray(low + s * (high - low))


@dataclass(frozen=True, eq=False)
class AxisLevels:
    """The levels of the rows, or of the columns, of a fit, and the table over those of both."""

    values: NDArray[np.float64]
    table: LevelTable


def places(
    levels: NDArray[np.float64], centres: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Find the two centres that each level lies between, and how far it is from the first."""
    last = centres.size - 1
    if last == 0:
        none = np.zeros(np.shape(levels), np.int64)
        return none, none, np.zeros(np.shape(levels))
    first = np.clip(np.searchsorted(centres, levels, side="right") - 1, 0, last - 1)
    share = (levels - centres[first]) / (centres[first + 1] - centres[first])
    return first, first + 1, np.clip(share, 0.0, 1.0)


def weights_of(levels: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[Any]:
    """Write interpolation at levels as a matrix, of which each row has at most two numbers."""
    first, second, share = places(levels, centres)
    weights, every = np.zeros((levels.size, centres.size)), np.arange(levels.size)
    weights[every, second] = share
    weights[every, first] += 1 - share
    return weights
