"""What a model predicts: ``M̂ = X Yᵀ``, with intercepts ``+ mu + a 1ᵀ + 1 cᵀ``, and its tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import check_known
from fastemf.kernels.entries import Cells, fill_cells
from fastemf.kernels.tables import Tabled, add_tables
from fastemf.kernels.threads import count_threads, launch
from fastemf.observations.memory import Observations
from fastemf.solver.axis import Axis
from fastemf.support.memory import check_memory

__all__ = [
    "Axes",
    "Predicts",
    "as_product",
    "predict_cells",
    "predict_pairs",
    "predict_rows",
    "residuals",
    "tables_at",
]

PAIRS_PER_BLOCK = 1 << 14  # less than a millisecond of work

Axes = tuple[Axis, Axis]
Predicts = Callable[[NDArray[np.integer], NDArray[np.integer]], NDArray[Any]]  # of cells (i, j)


def predict_cells(
    axes: Axes, mu: float, i: NDArray[np.integer], j: NDArray[np.integer]
) -> NDArray[Any]:
    """Predict the cells at indices of one shape, all within the matrix or -1.

    A cell's value does not depend on the cells it is asked with. -1 is an item of which nothing
    is known: its factor, intercept and level are 0, as those of items without observations are.
    A model without intercepts knows nothing of its cells then, not even their level: NaN.
    """
    if min(i.min(initial=0), j.min(initial=0)) >= 0:
        return _of_known(axes, mu, i, j)
    out = _of_known(axes, mu, np.maximum(i, 0), np.maximum(j, 0))
    new = (i < 0) | (j < 0)
    if not axes[0].has_intercepts:
        out[new] = np.nan
        return out
    rows, cols = (_without_factors(axis, at[new]) for axis, at in zip(axes, (i, j), strict=True))
    every = np.arange(rows.size)
    out[new] = _of_known((rows, cols), mu, every, every)
    return out


def _without_factors(axis: Axis, at: NDArray[np.integer]) -> Axis:
    """Make an axis of the items at these places, with all but their factors.

    -1 has intercept and level 0, and the mean's noise.
    """

    def taken(array: NDArray[Any], unknown: float = 0.0) -> NDArray[Any]:
        return np.asarray(np.where(at < 0, array.dtype.type(unknown), array[at]))

    noise, levels = axis.noise, axis.levels
    return Axis(
        np.empty((at.size, 0), axis.factor.dtype),
        None if axis.intercepts is None else taken(axis.intercepts),
        noise=None if noise is None else replace(noise, variances=taken(noise.variances, 1.0)),
        levels=None if levels is None else replace(levels, values=taken(levels.values)),
    )


def _of_known(
    axes: Axes, mu: float, i: NDArray[np.integer], j: NDArray[np.integer]
) -> NDArray[Any]:
    shape = i.shape
    i, j = (np.ascontiguousarray(index.ravel(), np.int64) for index in (i, j))
    X, Y = (np.ascontiguousarray(axis.factor) for axis in axes)
    out = np.empty(i.size, X.dtype)
    blocks = np.append(np.arange(0, i.size, PAIRS_PER_BLOCK), i.size)
    a, c = _offsets(axes, mu)
    launch(fill_cells, count_threads(-1), blocks, Cells(i, j, X, Y, a, c, out))
    _add_tables(axes, mu, i, j, out)
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
    _add_tables(axes, mu, i, np.empty(0, np.int64), block.reshape(-1))
    return np.asarray(block)


def residuals(axes: Axes, mu: float, observed: Observations) -> NDArray[np.float64]:
    """Compute observed minus predicted, in the order of the entries by row."""
    side = observed.by_row
    predicted = _of_known(axes, mu, side.keys, side.indices)
    return side.values.astype(np.float64) - predicted.astype(np.float64)


def as_product(axes: Axes, mu: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Make two matrices whose product is M̂: of rank k, more with intercepts, full with tables."""
    if axes[0].levels is not None:
        every = np.arange(axes[0].size)
        return predict_rows(axes, mu, every), np.eye(axes[1].size, dtype=axes[1].factor.dtype)
    X, Y = (axis.factor for axis in axes)
    if not axes[0].has_intercepts:
        return X, Y
    a, c = _offsets(axes, mu)
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


def tables_at(
    axes: Axes, i: NDArray[np.int64], j: NDArray[np.int64], product: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute what the tables add to cells, given what intercepts and factors do."""
    out = product.astype(np.float64)
    _add_tables(axes, 0.0, i, j, out)
    return out - product


def _add_tables(
    axes: Axes, constant: float, i: NDArray[np.int64], j: NDArray[np.int64], out: NDArray[Any]
) -> None:
    """Add what the tables say to predictions of cells (i, j), or, with an empty j, of rows i.

    `constant` is what predictions have beside intercepts and factors.
    """
    rows, cols = axes
    if rows.levels is None:
        return
    tables = rows.levels.tables.stacked
    frame = Tabled(i, j, rows.table_places, cols.table_places, tables, float(constant), out)
    blocks = np.append(np.arange(0, out.size, PAIRS_PER_BLOCK), out.size)
    launch(add_tables, count_threads(-1), blocks, frame)


def _offsets(axes: Axes, mu: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what rows and columns add to the product: mu + a and c, or two empty arrays."""
    rows, cols = axes
    dtype = rows.factor.dtype
    if rows.intercepts is None or cols.intercepts is None:
        return np.empty(0, dtype), np.empty(0, dtype)
    return rows.intercepts + dtype.type(mu), np.ascontiguousarray(cols.intercepts)
