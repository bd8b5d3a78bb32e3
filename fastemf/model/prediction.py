"""What a model predicts: ``M̂ = X Yᵀ``, with intercepts ``+ mu + a 1ᵀ + 1 cᵀ``, and its table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import check_known
from fastemf.kernels.entries import Cells, fill_cells
from fastemf.kernels.threads import count_threads, launch
from fastemf.observations.memory import Observations
from fastemf.solver.axis import Axis
from fastemf.solver.level_table import AxisLevels, weights_of
from fastemf.support.memory import check_memory

__all__ = ["Axes", "as_product", "predict_cells", "predict_pairs", "predict_rows", "residuals"]

PAIRS_PER_BLOCK = 1 << 14  # less than a millisecond of work

Axes = tuple[Axis, Axis]


def predict_cells(
    axes: Axes, mu: float, i: NDArray[np.integer], j: NDArray[np.integer]
) -> NDArray[Any]:
    """Predict the cells at indices of one shape, all within the matrix.

    A cell's value does not depend on the cells it is asked with.
    """
    shape = i.shape
    i, j = (np.ascontiguousarray(index.ravel(), np.int64) for index in (i, j))
    X, Y = (np.ascontiguousarray(axis.factor) for axis in axes)
    out = np.empty(i.size, X.dtype)
    blocks = np.append(np.arange(0, i.size, PAIRS_PER_BLOCK), i.size)
    a, c = _offsets(axes, mu)
    launch(fill_cells, count_threads(-1), blocks, Cells(i, j, X, Y, a, c, out))
    levels = _levels(axes)
    if levels is not None:
        rows, cols = levels
        for part in map(slice, blocks[:-1], blocks[1:]):
            out[part] += rows.table.at(rows.values[i[part]], cols.values[j[part]]).astype(out.dtype)
    return out.reshape(shape)


def predict_rows(axes: Axes, mu: float, i: NDArray[np.int64]) -> NDArray[Any]:
    """Predict whole rows, as a (len(i), n) array."""
    rows, cols = axes
    check_memory(
        i.size * cols.size * cols.factor.itemsize,
        f"a block of {i.size} rows and {cols.size} columns",
        "predict fewer rows at a time",
    )
    block = rows.factor[i] @ cols.factor.T
    if rows.has_intercepts:
        a, c = _offsets(axes, mu)
        block += a[i, None] + c
    levels = _levels(axes)
    if levels is not None:
        own, about = _table_product(levels, i)
        block += (own @ about.T).astype(block.dtype)
    return np.asarray(block)


def residuals(axes: Axes, mu: float, observed: Observations) -> NDArray[np.float64]:
    """Compute observed minus predicted, in the order of the entries by row."""
    side = observed.by_row
    predicted = predict_cells(axes, mu, side.keys, side.indices)
    return side.values.astype(np.float64) - predicted.astype(np.float64)


def as_product(axes: Axes, mu: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Make two matrices whose product is M̂: of rank k, and more with intercepts and a table."""
    X, Y = (axis.factor for axis in axes)
    if not axes[0].has_intercepts:
        return X, Y
    a, c = _offsets(axes, mu)
    left, right = [X, a, np.ones_like(a)], [Y, np.ones_like(c), c]
    levels = _levels(axes)
    if levels is not None:
        own, about = _table_product(levels, np.arange(axes[0].size))
        left.append(own.astype(X.dtype))
        right.append(about.astype(X.dtype))
    return np.column_stack(left), np.column_stack(right)


def predict_pairs(
    axes: Axes, mu: float, rows: Any, cols: Any, *, unseen: str, unknown: str
) -> NDArray[Any]:
    """Predict the cells (rows[i], cols[i]), given by index or label, broadcast.

    Items that were never observed, and unknown labels, get what `unseen` and `unknown` say:
    ``"nan"``, or the model's value and an error that lists the unknown labels of both sides.
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
    absent = (i < 0) | (j < 0)
    if absent.any():
        i, j = np.maximum(i, 0), np.maximum(j, 0)
    out = predict_cells(axes, mu, i, j)
    out[absent] = np.nan
    if unseen == "nan":
        out[np.isin(i, axes[0].unseen) | np.isin(j, axes[1].unseen)] = np.nan
    return out


def _levels(axes: Axes) -> tuple[AxisLevels, AxisLevels] | None:
    """Return the levels of both sides, where predictions add a table over them."""
    rows, cols = axes
    if rows.levels is None or cols.levels is None:
        return None
    return rows.levels, cols.levels


def _table_product(
    levels: tuple[AxisLevels, AxisLevels], i: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Write what the table adds to rows `i` as a product: it is linear in the weights of bins."""
    rows, cols = levels
    table = rows.table
    return (
        weights_of(rows.values[i], table.row_centres) @ table.values,
        weights_of(cols.values, table.col_centres),
    )


def _offsets(axes: Axes, mu: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what rows and columns add to the product: mu + a and c, or two empty arrays."""
    rows, cols = axes
    dtype = rows.factor.dtype
    if rows.intercepts is None or cols.intercepts is None:
        return np.empty(0, dtype), np.empty(0, dtype)
    return rows.intercepts + dtype.type(mu), np.ascontiguousarray(cols.intercepts)
