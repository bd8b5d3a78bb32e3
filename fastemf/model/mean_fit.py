"""`MeanFit`: the mean of what several fits of one matrix predict, as one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.entries import Cells, fill_cells
from fastemf.kernels.threads import count_threads, launch
from fastemf.model.factorization import Factorization
from fastemf.model.prediction import PAIRS_PER_BLOCK, Axes
from fastemf.solver.axis import Axis

__all__ = ["MeanFit"]


class MeanFit:
    """The factors of several fits side by side, and the means of their intercepts.

    Last comes a row, and a column, of which nothing is known.
    """

    def __init__(self, fits: Sequence[Factorization]) -> None:
        share = fits[0].X.dtype.type(1 / len(fits))
        self._X = _side([fit.X * share for fit in fits])
        self._Y = _side([fit.Y for fit in fits])
        self._a = self._c = np.empty(0, self._X.dtype)
        if fits[0].rows.has_intercepts:
            self._a = _mean([fit.rows.intercepts for fit in fits])
            self._c = _mean([fit.cols.intercepts for fit in fits])
            self._a = self._a + self._a.dtype.type(np.mean([fit.constant for fit in fits]))

    @property
    def axes(self) -> Axes:
        """The sides of the product, without labels, of the items that are known."""
        sides = (self._X, self._a), (self._Y, self._c)
        rows, cols = (Axis(factor[:-1], part[:-1] if part.size else None) for factor, part in sides)
        return rows, cols

    def at(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.float64]:
        """Predict the cells (i, j), one-dimensional; −1 for an unknown row or column."""
        i, j = np.where(i < 0, len(self._X) - 1, i), np.where(j < 0, len(self._Y) - 1, j)
        out = np.empty(i.size, self._X.dtype)
        blocks = np.append(np.arange(0, i.size, PAIRS_PER_BLOCK), i.size)
        cells = Cells(i, j, self._X, self._Y, self._a, self._c, out)
        launch(fill_cells, count_threads(-1), blocks, cells)
        return out.astype(np.float64)


def _side(factors: list[NDArray[Any]]) -> NDArray[Any]:
    together = np.hstack(factors)
    return np.vstack([together, np.zeros_like(together[:1])])


def _mean(intercepts: list[Any]) -> NDArray[Any]:
    return np.append(np.mean(intercepts, axis=0), intercepts[0].dtype.type(0))
