"""The search for the best columns of rows, some columns at a time, of what is nearly predicted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.best import (
    Gathered,
    Listed,
    Screened,
    Sorting,
    gather_listed,
    list_best,
    sort_listed,
)
from fastemf.kernels.threads import ready
from fastemf.model.screen import Near
from fastemf.observations.source import Side

__all__ = ["Hidden", "SearchMemory", "gather", "list_columns", "write_best"]

Ranked = tuple[NDArray[np.int64], NDArray[Any]]  # columns and values, (rows, n)


class SearchMemory(NamedTuple):
    """Memory for predictions of a tile's columns, and for what is listed of each row."""

    values: NDArray[Any]
    listed: Listed

    @classmethod
    def make(cls, shape: tuple[int, int], n: int, most: int, dtype: np.dtype[Any]) -> SearchMemory:
        """Make it for rows and columns of that shape, and for `most` columns that are listed."""
        size = shape[0]
        return cls(
            np.zeros(shape, dtype),  # what lies after the last column is compared too
            Listed(
                np.empty((size, n)), np.empty(size), np.empty(size, np.int64),
                np.empty((size, most), np.int64), np.empty((size, most), dtype),
            ),
        )  # fmt: skip

    def first(self, size: int) -> SearchMemory:
        """Return the part for so many rows."""
        return SearchMemory(self.values[:size], Listed._make(part[:size] for part in self.listed))


class Hidden:
    """The columns that are never among the best: those unseen, and cells that were seen."""

    def __init__(self, unseen: NDArray[np.int64], seen: Side | None) -> None:
        self._unseen, self._seen = np.sort(unseen), seen

    def of(self, rows: NDArray[np.int64], width: int) -> HiddenCells:
        """Find those of some rows, -1 for one that has seen nothing, by tiles of such a width."""
        if self._seen is None:
            return HiddenCells(self._unseen, width, *np.empty((3, 0), np.int64))
        at, cols = _entries(self._seen, rows)
        # Small numbers are sorted in one pass.
        tiles = (cols // width).astype(np.min_scalar_type(int(cols.max(initial=0)) // width))
        order = np.argsort(tiles, kind="stable")
        return HiddenCells(self._unseen, width, tiles[order], at[order], cols[order])


class HiddenCells(NamedTuple):
    """Columns and cells that are hidden, in the order of the tiles they are in."""

    unseen: NDArray[np.int64]
    width: int
    tiles: NDArray[Any]  # of the cells
    at: NDArray[np.int64]
    cols: NDArray[Any]

    def hide(self, tile: int, values: NDArray[Any]) -> None:
        """Make those in a tile NaN."""
        begin = tile * self.width
        if self.unseen.size:
            first, last = np.searchsorted(self.unseen, (begin, begin + self.width))
            values[:, self.unseen[first:last] - begin] = np.nan
        if self.tiles.size:
            first, last = np.searchsorted(self.tiles, (tile, tile + 1))
            values[self.at[first:last], self.cols[first:last] - begin] = np.nan


def list_columns(
    near: Near, hidden: HiddenCells, n_cols: int, sign: float, memory: SearchMemory
) -> None:
    """List all columns that may be among the best of each row, a tile after the other."""
    values, listed = memory
    frame = Screened(values, n_cols, sign, near.margin, near.added, listed)
    search = ready(list_best, frame)
    for tile in range(-(-n_cols // near.width)):
        near.fill(tile, values)
        hidden.hide(tile, values)
        search(0, values.shape[0], tile)


def gather(rows: NDArray[np.int64], listed: Listed) -> Gathered:
    """Gather the cells that are listed, but for rows with too many."""
    size = int(listed.counts.sum())
    starts, i, j = (np.empty(length, np.int64) for length in (rows.size + 1, size, size))
    gathered = Gathered(listed, rows, starts, i, j, np.empty(size, listed.near.dtype))
    ready(gather_listed, gathered)(0, rows.size)
    return Gathered(listed, rows, starts, *(part[: starts[-1]] for part in gathered[3:]))


def write_best(
    cells: Gathered, found: NDArray[Any], sign: float, to: NDArray[np.int64], best: Ranked
) -> None:
    """Write the best columns and their values, given what is found in the cells."""
    order = np.empty((2, found.size), np.int64)
    frame = Sorting(cells.starts, cells.j, found, sign, order, to, *best)
    ready(sort_listed, frame)(0, to.size)


def _entries(side: Side, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Find the entries of some rows: which of the rows, and the column; -1 has none."""
    starts = side.indptr[rows]
    counts = np.where(rows < 0, 0, side.indptr[rows + 1] - starts)
    counted = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(np.arange(rows.size), counts), side.indices[
        np.repeat(starts, counts) + counted
    ]
