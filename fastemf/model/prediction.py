"""What a model predicts of cells that are given by index or label, of data, and as a product."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import check_known
from fastemf.model.bilinear import Axes, Bilinear, offsets
from fastemf.observations.memory import Observations
from fastemf.support.memory import check_memory

__all__ = [
    "Axes", "Predicts", "as_product", "predict_cells", "predict_pairs", "residuals",
    "without_tables",
]  # fmt: skip

Predicts = Callable[[NDArray[np.integer], NDArray[np.integer]], NDArray[Any]]  # of cells (i, j)


def predict_cells(
    axes: Axes, mu: float, i: NDArray[np.integer], j: NDArray[np.integer]
) -> NDArray[Any]:
    """Predict the cells at indices of one shape, all within the matrix or -1: see `Bilinear`."""
    return Bilinear(axes, mu).predict(i, j)


def residuals(axes: Axes, mu: float, observed: Observations) -> NDArray[np.float64]:
    """Compute observed minus predicted, in the order of the entries by row."""
    side = observed.by_row
    predicted = Bilinear(axes, mu).at(side.keys, side.indices)
    return side.values.astype(np.float64) - predicted.astype(np.float64)


def without_tables(axes: Axes) -> Axes:
    """Return axes whose predictions are what was fitted, to which tables were added later."""
    return replace(axes[0], levels=None), replace(axes[1], levels=None)


def as_product(axes: Axes, mu: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Make two matrices whose product is M̂: of rank k, more with intercepts, full with tables."""
    if axes[0].levels is not None:
        every = np.arange(axes[0].size)
        return Bilinear(axes, mu).rows(every), np.eye(axes[1].size, dtype=axes[1].factor.dtype)
    X, Y = (axis.factor for axis in axes)
    if not axes[0].has_intercepts:
        return X, Y
    a, c = offsets(axes, mu)
    ones = np.ones_like(a), np.ones_like(c)
    return np.column_stack([X, a, ones[0]]), np.column_stack([Y, ones[1], c])


def predict_pairs(
    axes: Axes, predict: Predicts, rows: Any, cols: Any, *, unseen: str, unknown: str
) -> NDArray[Any]:
    """Predict the cells (rows[i], cols[i]), given by index or label, broadcast.

    `predict` may give each cell several values, along a last axis. Items that were never
    observed, and unknown labels, get what `unseen` and `unknown` say: ``"nan"``, the model's
    value, or an error that lists the unknown labels of both sides.
    """
    i, j = axes[0].positions(rows, "rows"), axes[1].positions(cols, "cols")
    if unknown == "error":
        check_known((i, rows, "rows"), (j, cols, "cols"))
    try:
        size = math.prod(np.broadcast_shapes(i.shape, j.shape))
        check_memory(
            (16 + axes[0].factor.itemsize) * size,
            f"a prediction of {size} cells",
            "predict fewer at a time, or whole rows with predict_block",
        )
        if i.shape != j.shape:  # views of the same memory, not to be written to
            i, j = (index.copy() for index in np.broadcast_arrays(i, j))
    except ValueError:
        raise ValueError(
            f"rows and cols must have shapes that broadcast, got {i.shape} and {j.shape}"
        ) from None
    out = predict(i, j)
    if unknown == "nan":
        out[(i < 0) | (j < 0)] = np.nan
    if unseen == "nan":
        out[np.isin(i, axes[0].unseen) | np.isin(j, axes[1].unseen)] = np.nan
    return out
