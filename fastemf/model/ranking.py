"""The best columns of rows, found a block of rows at a time, without those already seen."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.best import Screened, list_best
from fastemf.kernels.threads import (
    count_threads,
    launch,
    side_by_side,
    single_threaded_blas,
)
from fastemf.model.prediction import Axes, Predicts
from fastemf.model.screen import Screen
from fastemf.observations.source import Side
from fastemf.support.memory import check_memory

__all__ = ["Ranking", "rank_rows", "smallest"]

CELLS_PER_BLOCK = 1 << 21  # in each thread, some 10 MB
STRIPS = 8  # for each of the n best: their maxima show about what these reach
SPARE = 240  # columns beyond the n best that may be among them, before all are looked at


class Ranking(NamedTuple):
    """The best columns and their predicted values, best first; see `Factorization.rank`.

    Both have shape (n,) for one row and (rows, n) for several.
    """

    cols: NDArray[Any]
    """Columns, -1 where a row has fewer than n candidates; or labels, and None or NaT."""
    values: NDArray[Any]
    """Their predicted values, in the data's unit; NaN where there is no column."""


def rank_rows(
    axes: Axes,
    predict: Predicts,
    rows: NDArray[np.int64],
    n: int,
    *,
    largest: bool,
    seen: Side | None,
    screen: Screen | None = None,
) -> Ranking:
    """Find the n best columns of each row, without those seen and those never observed.

    Rows never observed, and those that are -1, are ranked by what is known of the columns;
    without intercepts they get no columns. A `screen` predicts known rows fast and nearly right;
    then `predict` is asked about the cells only that may be among the best.
    """
    check_memory(
        16 * rows.size * n,
        f"a ranking of {n} columns for {rows.size} rows",
        "lower n, or rank some",
    )
    no_rows = axes[0].unseen[:0] if axes[0].has_intercepts else axes[0].unseen
    cols = np.full((rows.size, n), -1, np.int64)
    values = np.full((rows.size, n), np.nan, axes[0].factor.dtype)
    step = max(1, CELLS_PER_BLOCK // axes[1].size)
    own = threading.local()  # memory that is mapped once, not for every block

    def rank_block(first: int) -> None:
        if not hasattr(own, "room"):
            own.room = np.empty((min(step, rows.size), axes[1].size), values.dtype)
        block = rows[first : first + step]
        near, fast = own.room[: block.size], False
        if screen is not None and block.min() >= 0:
            margin, fast = screen(block, near), True
        else:
            near[...] = predict(*np.meshgrid(block, np.arange(axes[1].size), indexing="ij"))
            margin = np.zeros(block.size)
        near[:, axes[1].unseen] = np.nan
        near[np.isin(block, no_rows)] = np.nan
        if seen is not None:
            near[_cells(seen, block)] = np.nan
        at, places = _candidates(near, n, margin, largest)
        found = predict(block[at], places) if fast else near[at, places]
        kept, rank = _ranked(at, -found if largest else found, n)
        cols[first + at[kept], rank] = places[kept]
        values[first + at[kept], rank] = found[kept]

    firsts = range(0, rows.size, step)
    if screen is None:
        for first in firsts:
            rank_block(first)
    else:
        # Threads of BLAS, which wait for more work without sleeping, would be in the way.
        with single_threaded_blas():
            side_by_side(rank_block, firsts, count_threads(-1))
    return Ranking(axes[1].called(cols), values)


def _candidates(
    near: NDArray[Any], n: int, margin: NDArray[np.float64], largest: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the cells that may be among the n best of their rows: row and column, in order."""
    n_rows, n_cols = near.shape
    n = min(n, n_cols)
    room = min(n + SPARE, n_cols)
    places, counts = np.empty((n_rows, room), np.int64), np.empty(n_rows, np.int64)
    heap, sign = np.empty((n_rows, n)), 1.0 if largest else -1.0
    strips = -(-STRIPS * n // 64) * 64
    tops = np.empty(strips if 4 * strips < n_cols else 0, near.dtype)
    frame = Screened(np.ascontiguousarray(near), sign, margin, tops, heap, places, counts)
    launch(list_best, 1, np.array([0, n_rows]), frame)
    listed = [places[i, :count] for i, count in enumerate(counts.tolist())]
    for i in np.flatnonzero(counts > room):  # many that are equal, or nearly so
        with np.errstate(invalid="ignore"):
            bound = heap[i, 0] - 2 * margin[i]
            listed[i] = np.flatnonzero((sign * near[i] >= bound) & np.isfinite(near[i]))
        counts[i] = listed[i].size
    return np.repeat(np.arange(n_rows), counts), np.concatenate(listed)


def _ranked(
    at: NDArray[np.int64], keys: NDArray[Any], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the n smallest finite keys of each row, of equal ones the first: which, and their rank.

    `at` has the rows of the keys, in order.
    """
    order = np.lexsort((keys, at))  # stable: ties stay in order
    order = order[np.isfinite(keys[order])]
    rank = _counted(np.bincount(at[order]))
    return order[rank < n], rank[rank < n]


def smallest(keys: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Find the places of the n smallest finite keys of each row, in order; of equal keys the first.

    A row with fewer gets -1 in the places left.
    """
    at, places = _candidates(keys, n, np.zeros(keys.shape[0]), largest=False)
    kept, rank = _ranked(at, keys[at, places], n)
    out = np.full((keys.shape[0], n), -1, np.int64)
    out[at[kept], rank] = places[kept]
    return out


def _cells(side: Side, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Find the entries of some rows: which of the rows, and the column; -1 has none."""
    starts = side.indptr[rows]
    counts = np.where(rows < 0, 0, side.indptr[rows + 1] - starts)
    entries = np.repeat(starts, counts) + _counted(counts)
    return np.repeat(np.arange(rows.size), counts), side.indices[entries]


def _counted(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count 0, 1, ..., count - 1 for each count, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
