"""`Bilinear`: the predictions of one fit, ``mu + a 1ᵀ + 1 cᵀ + X Yᵀ`` plus correction tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastemf.kernels.corrections import CorrectedCells, add_corrections
from fastemf.kernels.entries import PredictArgs, predict_cells
from fastemf.kernels.threads import bind_block, count_threads, launch
from fastemf.models.entities import Entities
from fastemf.models.topk_screen import Screen, make_screen
from fastemf.sources.memory import Observations
from fastemf.support.arrays import Array, Floats, Indices, Ints
from fastemf.support.memory import check_memory

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization

PAIRS_PER_BLOCK = 1 << 14  # less than a millisecond of work
FEW = 1 << 8  # cells that are predicted without threads

Axes = tuple[Entities, Entities]
Predicts = Callable[..., Array]  # of cells (i, j), and their side features if there are any
KernelCalls = list[tuple[Any, Any]]  # kernels and their arguments, in order
NO_COLUMNS = np.empty(0, np.int64)


class _KernelArrays(NamedTuple):
    """The numbers of a fit in the layout of the kernels."""

    axes: Axes
    constant: float
    X: Array
    Y: Array
    a: Array
    c: Array

    def calls(self, i: Ints, j: Ints, out: Array) -> KernelCalls:
        """List the kernel calls that predict the cells (i, j)."""
        cells = PredictArgs(i, j, self.X, self.Y, self.a, self.c, out)
        return [(predict_cells, cells), *_correction_calls(self.axes, self.constant, i, j, out)]


class _SingleCell(threading.local):
    """Prepared kernel calls for one cell, with arrays for each thread."""

    def __init__(self, arrays: _KernelArrays) -> None:
        self._i, self._j = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._out = np.empty(1, arrays.X.dtype)
        calls = arrays.calls(self._i, self._j, self._out)
        self._calls = [bind_block(unit, 0, 1, arguments) for unit, arguments in calls]

    def predict(self, i: int, j: int) -> Any:
        self._i[0] = i
        self._j[0] = j
        for call in self._calls:
            call()
        return self._out[0]


class Bilinear:
    """Predicts the cells of one fit; everything independent of the cells is prepared once.

    Parameters
    ----------
    axes
        Rows and columns.
    constant
        The constant of a model with intercepts.
    """

    def __init__(self, axes: Axes, constant: float) -> None:
        X, Y = (np.ascontiguousarray(axis.factor) for axis in axes)
        self._arrays = _KernelArrays(axes, float(constant), X, Y, *_offsets(axes, constant))

    @cached_property
    def _single(self) -> _SingleCell:
        return _SingleCell(self._arrays)

    def predict_cell(self, i: int, j: int) -> Any:
        """Predict one cell of the matrix, bitwise as `predict_known`."""
        return self._single.predict(i, j)

    def predict_known(self, i: Indices, j: Indices) -> Array:
        """Predict cells of the matrix, at indices of one shape."""
        shape = i.shape
        i, j = (np.ascontiguousarray(index.ravel(), np.int64) for index in (i, j))
        out = np.empty(i.size, self._arrays.X.dtype)
        _run(self._arrays.calls(i, j, out), out.size)
        return out.reshape(shape)

    def predict_rows(self, i: Ints) -> Array:
        """Predict whole rows, as a (len(i), n) array."""
        axes, constant, *_, a, c = self._arrays
        rows, cols = axes
        check_memory(
            i.size * cols.size * cols.factor.itemsize,
            f"a block of {i.size} rows and {cols.size} columns",
            "predict fewer rows at a time",
        )
        block = rows.factor[i] @ cols.factor.T
        if rows.has_intercepts:
            block += a[i, None] + c
        out = block.reshape(-1)
        _run(_correction_calls(axes, constant, i, NO_COLUMNS, out), out.size)
        return np.asarray(block)

    def make_screen(self) -> Screen:
        """Return a fast approximate prediction of whole rows, with an error bound per row."""
        axes, constant, X, Y, a, c = self._arrays
        return make_screen(axes, constant, (X, Y), (a, c))

    def predict(self, i: Indices, j: Indices) -> Array:
        """Predict cells at indices of one shape, where -1 is an unknown row or column.

        The value of a cell does not depend on the other cells. An unknown row has a factor, an
        intercept and an effect of 0, like a row without observations. Without intercepts its
        cells are NaN.
        """
        if min(i.min(initial=0), j.min(initial=0)) >= 0:
            return self.predict_known(i, j)
        out = self.predict_known(np.maximum(i, 0), np.maximum(j, 0))
        new = (i < 0) | (j < 0)
        axes = self._arrays.axes
        if not axes[0].has_intercepts:
            out[new] = np.nan
            return out
        rows, cols = map(_without_factors, axes, (i[new], j[new]))
        every = np.arange(rows.size)
        out[new] = Bilinear((rows, cols), self._arrays.constant).predict_known(every, every)
        return out


class MeanFit:
    """The concatenated factors of several fits, and the means of their intercepts.

    The last row and the last column stand for unknown ones.
    """

    def __init__(self, fits: Sequence[Factorization]) -> None:
        one = fits[0].X.dtype.type
        rows, cols = [fit.rows for fit in fits], [fit.cols for fit in fits]
        self._sides = (_merge(rows, one(1 / len(fits))), _merge(cols, one(1)))
        self._constant = float(np.mean([fit.constant for fit in fits]))
        self._mean = Bilinear(self._sides, self._constant)

    @property
    def axes(self) -> Axes:
        """Known rows and columns of the product, without labels."""
        rows, cols = (
            Entities(side.factor[:-1], None if side.intercepts is None else side.intercepts[:-1])
            for side in self._sides
        )
        return rows, cols

    def predict_cell(self, i: int, j: int) -> float:
        """Predict one cell of a known row and column."""
        return float(self._mean.predict_cell(i, j))

    def terms(self, i: int, j: int) -> tuple[float, float, float, float]:
        """Return the constant, both intercepts, and the product of the factors of one cell."""
        rows, cols = self._sides
        product = float(rows.factor[i].astype(np.float64) @ cols.factor[j].astype(np.float64))
        if rows.intercepts is None or cols.intercepts is None:
            return 0.0, 0.0, 0.0, product
        return self._constant, float(rows.intercepts[i]), float(cols.intercepts[j]), product

    def predict(self, i: Indices, j: Indices) -> Floats:
        """Predict one-dimensional cells (i, j), where −1 is an unknown row or column."""
        rows, cols = (
            np.where(at < 0, side.size - 1, at)
            for at, side in zip((i, j), self._sides, strict=True)
        )
        return self._mean.predict_known(rows, cols).astype(np.float64)


def _merge(axes: list[Entities], weight: Any) -> Entities:
    """Concatenate weighted factors, average intercepts, and append an item of zeros."""
    joined = np.hstack([axis.factor * weight for axis in axes])
    factor = np.vstack([joined, np.zeros_like(joined[:1])])
    if not axes[0].has_intercepts:
        return Entities(factor)
    intercepts: list[Any] = [axis.intercepts for axis in axes]
    return Entities(factor, np.append(np.mean(intercepts, axis=0), intercepts[0].dtype.type(0)))


def residuals(axes: Axes, constant: float, observed: Observations) -> Floats:
    """Compute observed minus predicted values, in the order of the entries by row."""
    side = observed.by_row
    predicted = Bilinear(axes, constant).predict_known(side.keys, side.indices)
    return side.values.astype(np.float64) - predicted.astype(np.float64)


def without_corrections(axes: Axes) -> Axes:
    """Return the axes without correction tables, which are added after the fit."""
    return replace(axes[0], effects=None), replace(axes[1], effects=None)


def as_product(axes: Axes, constant: float) -> tuple[Array, Array]:
    """Return two matrices with product M̂: of rank k, k + 2 with intercepts, full with tables."""
    if axes[0].effects is not None:
        dense = Bilinear(axes, constant).predict_rows(np.arange(axes[0].size))
        return dense, np.eye(axes[1].size, dtype=axes[1].factor.dtype)
    X, Y = (axis.factor for axis in axes)
    if not axes[0].has_intercepts:
        return X, Y
    a, c = _offsets(axes, constant)
    ones = np.ones_like(a), np.ones_like(c)
    return np.column_stack([X, a, ones[0]]), np.column_stack([Y, ones[1], c])


def corrections_at(axes: Axes, i: Ints, j: Ints, product: Floats) -> Floats:
    """Compute the sum of the correction tables in cells with known intercepts + factor products."""
    out = product.astype(np.float64)
    _run(_correction_calls(axes, 0.0, i, j, out), out.size)
    return out - product


def _offsets(axes: Axes, constant: float) -> tuple[Array, Array]:
    """Return constant + a and c, or two empty arrays without intercepts."""
    rows, cols = axes
    dtype = rows.factor.dtype
    if rows.intercepts is None or cols.intercepts is None:
        return np.empty(0, dtype), np.empty(0, dtype)
    return rows.intercepts + dtype.type(constant), np.ascontiguousarray(cols.intercepts)


def _correction_calls(axes: Axes, constant: float, i: Ints, j: Ints, out: Array) -> KernelCalls:
    """List the call that adds correction tables to predictions of cells (i, j), if there are any.

    With an empty j the predictions are of whole rows i. They include `constant`.
    """
    rows, cols = axes
    if rows.effects is None:
        return []
    stack, places = rows.effects.corrections.stack, (rows.knot_positions, cols.knot_positions)
    return [(add_corrections, CorrectedCells(i, j, *places, stack, constant, out))]


def _run(calls: KernelCalls, size: int) -> None:
    """Run kernels over cells, in parallel if there are many."""
    if size <= FEW:
        for unit, arguments in calls:
            bind_block(unit, 0, size, arguments)()
        return
    blocks = np.append(np.arange(0, size, PAIRS_PER_BLOCK), size)
    for unit, arguments in calls:
        launch(unit, count_threads(-1), blocks, arguments)


def _without_factors(axis: Entities, at: Indices) -> Entities:
    """Select items of an axis without their factors; -1 has intercept and effect 0, variance 1."""

    def take(array: Array, unknown: float = 0.0) -> Array:
        return np.asarray(np.where(at < 0, array.dtype.type(unknown), array[at]))

    noise, effects = axis.noise, axis.effects
    return Entities(
        np.empty((at.size, 0), axis.factor.dtype),
        None if axis.intercepts is None else take(axis.intercepts),
        noise=None if noise is None else replace(noise, variances=take(noise.variances, 1.0)),
        effects=None if effects is None else replace(effects, values=take(effects.values)),
    )
