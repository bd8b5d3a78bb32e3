"""The best columns of rows, found a block of rows at a time, without those already seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.threads import count_threads, side_by_side, single_threaded_blas
from fastemf.kernels.width import STRETCH
from fastemf.model.best_columns import Hidden, SearchMemory, gather, list_columns, write_best
from fastemf.model.bilinear import PAIRS_PER_BLOCK
from fastemf.model.prediction import Axes, Predicts
from fastemf.model.screen import TILE_COLUMNS, Near, Screen, nothing_added
from fastemf.observations.source import Side
from fastemf.support.memory import check_memory

__all__ = ["Ranking", "rank_rows", "smallest"]

CELLS_PER_BLOCK = 1 << 21  # that are predicted one by one
TILE_BYTES = 1 << 20  # of products that are searched before they leave the second-level cache
SPARE = 240  # columns beyond the n best that may be among them, before there is room for all


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
    cols = np.full((rows.size, n), -1, np.int64)
    values = np.full((rows.size, n), np.nan, axes[0].factor.dtype)
    no_rows = axes[0].unseen[:0] if axes[0].has_intercepts else axes[0].unseen
    hidden, sign = Hidden(axes[1].unseen, seen), 1.0 if largest else -1.0
    ranks = _Ranks(rows, axes[1].size, hidden, sign, (cols, values))
    has_columns = ~np.isin(rows, no_rows)
    is_fast = (rows >= 0) & (screen is not None)
    ranks.find_exactly(np.flatnonzero(has_columns & ~is_fast), predict)
    if screen is not None:
        ranks.find_fast(np.flatnonzero(has_columns & is_fast), screen, predict)
    return Ranking(axes[1].called(cols), values)


class _Ranks:
    """Rows, and their best columns and values, which are written as they are found."""

    def __init__(
        self,
        rows: NDArray[np.int64],
        n_cols: int,
        hidden: Hidden,
        sign: float,
        best: tuple[NDArray[np.int64], NDArray[Any]],
    ) -> None:
        self._rows, self._n_cols, self._hidden = rows, n_cols, hidden
        self._sign, self._best = sign, best

    def _memory(self, n_rows: int, width: int, most: int) -> SearchMemory:
        cols, values = self._best
        return SearchMemory.make(
            (n_rows, width), min(cols.shape[1], self._n_cols), most, values.dtype
        )

    def find_exactly(self, which: NDArray[np.int64], predict: Predicts) -> None:
        """Find the best of some rows by predicting every cell."""
        every, nothing = np.arange(self._n_cols), nothing_added(self._best[1].dtype)

        def predicted(rows: NDArray[np.int64]) -> Near:
            def fill(_: int, out: NDArray[Any]) -> None:
                out[:, : every.size] = predict(*np.meshgrid(rows, every, indexing="ij"))

            return Near(np.zeros(rows.size), wide, fill, nothing)

        wide = -(-every.size // STRETCH) * STRETCH
        for part in _parts(which, CELLS_PER_BLOCK // self._n_cols):
            self._find(part, predicted, self._memory(part.size, wide, self._n_cols), None)

    def find_fast(self, which: NDArray[np.int64], screen: Screen, predict: Predicts) -> None:
        """Find the best of some rows, all known, by a screen, in several threads."""
        cols, values = self._best
        most = min(cols.shape[1] + SPARE, self._n_cols)
        step = min(TILE_BYTES // (TILE_COLUMNS * values.itemsize), CELLS_PER_BLOCK // most)
        blocks, own = list(_parts(which, step)), threading.local()

        def find(block: int) -> None:
            if not hasattr(own, "memory"):  # memory that is mapped once, not for every block
                own.memory = self._memory(blocks[0].size, TILE_COLUMNS, most)
            many = self._find(blocks[block], screen, own.memory, predict)
            # Many that are equal, or nearly so, need more room.
            for part in _parts(many, CELLS_PER_BLOCK // (8 * self._n_cols)):
                memory = self._memory(part.size, TILE_COLUMNS, self._n_cols)
                self._find(part, screen, memory, predict)

        # Threads of BLAS, which wait for more work without sleeping, would be in the way.
        with single_threaded_blas():
            side_by_side(find, range(len(blocks)), count_threads(-1))

    def _find(
        self,
        which: NDArray[np.int64],
        screen: Screen,
        memory: SearchMemory,
        predict: Predicts | None,
    ) -> NDArray[np.int64]:
        """Write the best of some rows, and return those rows that there was no room for.

        Without `predict`, what the screen predicts is exact.
        """
        rows, memory, sign = self._rows[which], memory.first(which.size), self._sign
        near = screen(rows)
        list_columns(near, self._hidden.of(rows, near.width), self._n_cols, sign, memory)
        cells = gather(rows, memory.listed)
        found = sign * cells.near if predict is None else _in_parts(predict, cells.i, cells.j)
        write_best(cells, found, sign, which, self._best)
        return np.asarray(which[memory.listed.counts > memory.listed.places.shape[1]])


def _in_parts(predict: Predicts, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[Any]:
    """Predict cells, so few at a time that no thread waits for others to take part."""
    ends = range(PAIRS_PER_BLOCK, i.size, PAIRS_PER_BLOCK)
    parts = zip(np.split(i, ends), np.split(j, ends), strict=True)
    return np.concatenate([predict(*part) for part in parts])


def _parts(items: NDArray[np.int64], step: int) -> Iterator[NDArray[np.int64]]:
    """Cut into parts of so many items, at least one."""
    for first in range(0, items.size, max(1, step)):
        yield items[first : first + max(1, step)]


def smallest(keys: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Find the places of the n smallest finite keys of each row, in order; of equal keys the first.

    A row with fewer gets -1 in the places left.
    """
    every = np.arange(keys.shape[0])
    out = np.full((every.size, n), -1, np.int64)
    nowhere = Hidden(np.empty(0, np.int64), None)
    best = out, np.empty(out.shape, keys.dtype)
    ranks = _Ranks(every, keys.shape[1], nowhere, -1.0, best)
    ranks.find_exactly(every, lambda i, j: keys[i, j])
    return out
