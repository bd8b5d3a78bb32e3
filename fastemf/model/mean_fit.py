"""`MeanFit`: the mean of what several fits of one matrix predict, as one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.model.bilinear import Axes, Bilinear
from fastemf.model.factorization import Factorization
from fastemf.solver.axis import Axis

__all__ = ["MeanFit"]


class MeanFit:
    """The factors of several fits side by side, and the means of their intercepts.

    Last comes a row, and a column, of which nothing is known.
    """

    def __init__(self, fits: Sequence[Factorization]) -> None:
        share = fits[0].X.dtype.type(1 / len(fits))
        with_intercepts = fits[0].rows.has_intercepts
        self._sides = (
            Axis(
                _side([fit.X * share for fit in fits]),
                _mean([fit.rows.intercepts for fit in fits]) if with_intercepts else None,
            ),
            Axis(
                _side([fit.Y for fit in fits]),
                _mean([fit.cols.intercepts for fit in fits]) if with_intercepts else None,
            ),
        )
        self._mean = Bilinear(self._sides, float(np.mean([fit.constant for fit in fits])))

    @property
    def axes(self) -> Axes:
        """The sides of the product, without labels, of the items that are known."""
        rows, cols = (
            Axis(side.factor[:-1], None if side.intercepts is None else side.intercepts[:-1])
            for side in self._sides
        )
        return rows, cols

    def one(self, i: int, j: int) -> float:
        """Predict one cell of a row and a column that are known."""
        return float(self._mean.one(i, j))

    def at(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.float64]:
        """Predict the cells (i, j), one-dimensional; −1 for an unknown row or column."""
        rows, cols = (
            np.where(at < 0, side.size - 1, at)
            for at, side in zip((i, j), self._sides, strict=True)
        )
        return self._mean.at(rows, cols).astype(np.float64)


def _side(factors: list[NDArray[Any]]) -> NDArray[Any]:
    together = np.hstack(factors)
    return np.vstack([together, np.zeros_like(together[:1])])


def _mean(intercepts: list[Any]) -> NDArray[Any]:
    return np.append(np.mean(intercepts, axis=0), intercepts[0].dtype.type(0))
