"""`Bilinear`: ``X Yᵀ``, with intercepts ``+ mu + a 1ᵀ + 1 cᵀ``, and tables: ready to predict."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.entries import Cells, fill_cells
from fastemf.kernels.tables import Tabled, add_tables
from fastemf.kernels.threads import count_threads, launch, prepared
from fastemf.model.screen import Screen, make_screen
from fastemf.solver.axis import Axis
from fastemf.support.memory import check_memory

__all__ = ["PAIRS_PER_BLOCK", "Axes", "Bilinear", "offsets", "tables_at"]

PAIRS_PER_BLOCK = 1 << 14  # less than a millisecond of work
FEW = 1 << 8  # cells that are predicted at once, without a launch

Axes = tuple[Axis, Axis]
NOTHING = np.empty(0, np.int64)


class _Laid(NamedTuple):
    """The numbers of a model as kernels read them."""

    axes: Axes
    constant: float
    X: NDArray[Any]
    Y: NDArray[Any]
    a: NDArray[Any]
    c: NDArray[Any]

    def frames(
        self, i: NDArray[np.int64], j: NDArray[np.int64], out: NDArray[Any]
    ) -> list[tuple[Any, Any]]:
        """List the kernels that predict the cells (i, j), and what they are given, in order."""
        cells = Cells(i, j, self.X, self.Y, self.a, self.c, out)
        return [(fill_cells, cells), *_tabled(self.axes, self.constant, i, j, out)]


class _SingleCell(threading.local):
    """Room for one cell and what is predicted there, which every thread has for itself."""

    def __init__(self, laid: _Laid) -> None:
        self._i, self._j = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._out = np.empty(1, laid.X.dtype)
        frames = laid.frames(self._i, self._j, self._out)
        self._calls = [prepared(unit, 0, 1, frame) for unit, frame in frames]

    def predict(self, i: int, j: int) -> Any:
        self._i[0] = i
        self._j[0] = j
        for call in self._calls:
            call()
        return self._out[0]


class Bilinear:
    """What predicts the cells of one fit, with all that does not depend on the cells made ready.

    Parameters
    ----------
    axes
        Rows and columns.
    constant
        What every prediction begins with, where there are intercepts.
    """

    def __init__(self, axes: Axes, constant: float) -> None:
        X, Y = (np.ascontiguousarray(axis.factor) for axis in axes)
        self._laid = _Laid(axes, float(constant), X, Y, *offsets(axes, constant))

    @cached_property
    def _single(self) -> _SingleCell:
        return _SingleCell(self._laid)

    def one(self, i: int, j: int) -> Any:
        """Predict one cell within the matrix, as a number; its bits are those of `at`."""
        return self._single.predict(i, j)

    def at(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
        """Predict the cells at indices of one shape, all within the matrix."""
        shape = i.shape
        i, j = (np.ascontiguousarray(index.ravel(), np.int64) for index in (i, j))
        out = np.empty(i.size, self._laid.X.dtype)
        _run(self._laid.frames(i, j, out), out.size)
        return out.reshape(shape)

    def rows(self, i: NDArray[np.int64]) -> NDArray[Any]:
        """Predict whole rows, as a (len(i), n) array."""
        axes, constant, *_, a, c = self._laid
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
        _run(_tabled(axes, constant, i, NOTHING, out), out.size)
        return np.asarray(block)

    def screen(self) -> Screen:
        """Make what predicts whole rows, all known, fast: up to a margin for each row."""
        axes, constant, X, Y, a, c = self._laid
        return make_screen(axes, constant, (X, Y), (a, c))

    def predict(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
        """Predict the cells at indices of one shape, all within the matrix or -1.

        A cell's value does not depend on the cells it is asked with. -1 is an item of which
        nothing is known: its factor, intercept and level are 0, as those of items without
        observations are. A model without intercepts knows nothing of its cells then, not even
        their level: NaN.
        """
        if min(i.min(initial=0), j.min(initial=0)) >= 0:
            return self.at(i, j)
        out = self.at(np.maximum(i, 0), np.maximum(j, 0))
        new = (i < 0) | (j < 0)
        axes = self._laid.axes
        if not axes[0].has_intercepts:
            out[new] = np.nan
            return out
        rows, cols = (
            _without_factors(axis, at[new]) for axis, at in zip(axes, (i, j), strict=True)
        )
        every = np.arange(rows.size)
        out[new] = Bilinear((rows, cols), self._laid.constant).at(every, every)
        return out


def offsets(axes: Axes, constant: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what rows and columns add to the product: constant + a and c, or two empty arrays."""
    rows, cols = axes
    dtype = rows.factor.dtype
    if rows.intercepts is None or cols.intercepts is None:
        return np.empty(0, dtype), np.empty(0, dtype)
    return rows.intercepts + dtype.type(constant), np.ascontiguousarray(cols.intercepts)


def tables_at(
    axes: Axes, i: NDArray[np.int64], j: NDArray[np.int64], product: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute what the tables add to cells, given what intercepts and factors do."""
    out = product.astype(np.float64)
    _run(_tabled(axes, 0.0, i, j, out), out.size)
    return out - product


def _tabled(
    axes: Axes, constant: float, i: NDArray[np.int64], j: NDArray[np.int64], out: NDArray[Any]
) -> list[tuple[Any, Any]]:
    """List what adds the tables to predictions of cells (i, j), or, with an empty j, of rows i.

    `constant` is what predictions have beside intercepts and factors.
    """
    rows, cols = axes
    if rows.levels is None:
        return []
    stacked, places = rows.levels.tables.stacked, (rows.table_places, cols.table_places)
    return [(add_tables, Tabled(i, j, *places, stacked, constant, out))]


def _run(frames: list[tuple[Any, Any]], size: int) -> None:
    """Run kernels over so many cells, in parallel where these are many."""
    if size <= FEW:
        for unit, frame in frames:
            prepared(unit, 0, size, frame)()
        return
    blocks = np.append(np.arange(0, size, PAIRS_PER_BLOCK), size)
    for unit, frame in frames:
        launch(unit, count_threads(-1), blocks, frame)


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
