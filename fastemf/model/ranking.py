"""The best columns of rows, found a block of rows at a time, without those already seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.model.prediction import Axes, Predicts
from fastemf.observations.source import Side
from fastemf.support.memory import check_memory

__all__ = ["Ranking", "rank_rows", "smallest"]

CELLS_PER_BLOCK = 1 << 20  # about 50 MB of temporary arrays


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
) -> Ranking:
    """Find the n best columns of each row, without those seen and those never observed.

    Rows never observed, and those that are -1, are ranked by what is known of the columns;
    without intercepts they get no columns.
    """
    every_col = np.arange(axes[1].size)
    check_memory(
        16 * rows.size * n,
        f"a ranking of {n} columns for {rows.size} rows",
        "lower n, or rank some",
    )
    no_rows = axes[0].unseen[:0] if axes[0].has_intercepts else axes[0].unseen
    cols = np.full((rows.size, n), -1, np.int64)
    values = np.full((rows.size, n), np.nan, axes[0].factor.dtype)
    step = max(1, CELLS_PER_BLOCK // every_col.size)
    for first in range(0, rows.size, step):
        block = rows[first : first + step]
        predicted = predict(*np.meshgrid(block, every_col, indexing="ij"))
        keys = -predicted if largest else predicted.copy()
        keys[:, axes[1].unseen] = np.nan
        keys[np.isin(block, no_rows)] = np.nan
        if seen is not None:
            keys[_cells(seen, block)] = np.nan
        places = smallest(keys, n)
        at, rank = np.nonzero(places >= 0)
        picked = places[at, rank]
        cols[first + at, rank] = picked
        values[first + at, rank] = predicted[at, picked]
    return Ranking(axes[1].called(cols), values)


def smallest(keys: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Find the places of the n smallest finite keys of each row, in order; of equal keys the first.

    A row with fewer gets -1 in the places left.
    """
    possible = np.isfinite(keys)
    if n < keys.shape[1]:
        keys = np.where(possible, keys, np.inf)
        possible &= keys <= np.partition(keys, n - 1, axis=1)[:, n - 1, None]
    rows, places = np.nonzero(possible)
    order = np.lexsort((keys[rows, places], rows))  # stable: ties stay in order
    rank = _counted(np.count_nonzero(possible, axis=1))
    kept = rank < n
    out = np.full((keys.shape[0], n), -1, np.int64)
    out[rows[kept], rank[kept]] = places[order][kept]
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
