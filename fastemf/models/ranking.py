"""The n best columns of rows: search by blocks of rows and tiles of columns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastemf.kernels import topk
from fastemf.kernels.threads import bind_unit, count_threads, map_threads, single_threaded_blas
from fastemf.kernels.topk import Candidates
from fastemf.kernels.vector_width import STRETCH
from fastemf.models.bilinear import PAIRS_PER_BLOCK, Axes, Predicts
from fastemf.models.tabular import LINES_SHOWN, Columns, Tabular, typed, unused_name
from fastemf.models.topk_screen import TILE_COLUMNS, ApproximateRows, Screen, no_corrections
from fastemf.sources.source import Side
from fastemf.support.arrays import Array, Ints
from fastemf.support.memory import check_memory
from fastemf.support.progress import count_steps

CELLS_PER_BLOCK = 1 << 21  # cells predicted one by one at a time
TILE_BYTES = 1 << 20  # of a tile of approximate predictions, which stays in second-level cache
SPARE = 240  # candidates beyond n for which there is memory in the first pass


@dataclass(frozen=True, eq=False)
class Ranking(Tabular):
    """The best columns and their predicted values, best first; see `Factorization.rank`.

    ``print(ranking)`` shows a table, and ``ranking.to_frame()`` is a data frame with one line per
    row and place.

    Attributes
    ----------
    cols : array of shape (n,) for one row, (rows, n) for several
        Columns, with -1 if a row has fewer than n candidates; or labels, with None or NaT.
    values : array of the same shape
        Their predicted values, in the units of the data; NaN for -1.
    rows : array of shape (1,) for one row, (rows,) for several
        The rows.
    names : (str, str)
        Names of the columns of labels.
    library : {"pandas", "polars"}
        Library of the data frame that `to_frame` returns.
    value_name : str
        Name of the column of values: ``"prediction"``, or for example ``"above 500"``, for
        the probability of a value above 500.
    """

    cols: Array
    values: Array
    rows: Array
    names: tuple[str, str]
    library: str = "pandas"
    value_name: str = "prediction"

    def __iter__(self) -> Iterator[Array]:
        return iter((self.cols, self.values))

    def columns(self) -> Columns:
        """Return the table: row, place, column and prediction, without empty places.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> table = fit.rank(None, 1, order="largest").columns()
        >>> table["row"].tolist(), table["place"].tolist(), table["col"].tolist()
        ([0, 1], [1, 1], [1, 1])
        """
        cols, values = np.atleast_2d(self.cols), np.atleast_2d(self.values)
        kept = ~np.isnan(values)
        place = np.broadcast_to(np.arange(1, values.shape[1] + 1), values.shape)
        return {
            self.names[0]: typed(np.repeat(self.rows, kept.sum(axis=1))),
            unused_name("place", self.names): place[kept],
            self.names[1]: typed(cols[kept]),
            unused_name(self.value_name, self.names): values[kept],
        }

    @property
    def _title(self) -> str:
        shown = f", of which the first {LINES_SHOWN} are shown"
        size = int(np.count_nonzero(~np.isnan(self.values)))
        of_rows = f"{self.rows.size:,} rows"
        if self.rows.size == 1:
            of_rows = f"{self.names[0]} {self.rows[0]}"
        return f"best columns of {of_rows}{shown if size > LINES_SHOWN else ''}"


def rank_rows(
    axes: Axes,
    predict: Predicts,
    rows: Ints,
    n: int,
    *,
    largest: bool,
    seen: Side | None,
    screen: Screen | None = None,
    ranks_unseen: bool = True,
) -> tuple[Array, Array]:
    """Find the n best columns of each row, and their values.

    Seen cells and columns without observations are left out.

    Rows without observations, and unknown rows (-1), are ranked by the columns alone, or get no
    columns unless `ranks_unseen`. With a `screen`, which predicts known rows approximately,
    `predict` is called only for the candidates.
    """
    what = f"a ranking of {n} columns for {rows.size} rows"
    check_memory(16 * rows.size * n, what, "lower n, or rank some")
    cols = np.full((rows.size, n), -1, np.int64)
    values = np.full((rows.size, n), np.nan, axes[0].factor.dtype)
    no_rows = axes[0].unseen[:0] if ranks_unseen else axes[0].unseen
    excluded, sign = _Excluded(axes[1].unseen, seen), 1.0 if largest else -1.0
    search = _Search(rows, axes[1].size, excluded, sign, (cols, values))
    has_columns = ~np.isin(rows, no_rows)
    is_fast = (rows >= 0) & (screen is not None)
    search.rank_exactly(np.flatnonzero(has_columns & ~is_fast), predict)
    if screen is not None:
        search.rank_screened(np.flatnonzero(has_columns & is_fast), screen, predict)
    return axes[1].ids_at(cols), values


def smallest(keys: Array, n: int) -> Ints:
    """Return the places of the n smallest finite keys of each row, in order; the first of equals.

    A row with fewer gets -1 in the remaining places.
    """
    every = np.arange(keys.shape[0])
    out = np.full((every.size, n), -1, np.int64)
    nothing = _Excluded(np.empty(0, np.int64), None)
    search = _Search(every, keys.shape[1], nothing, -1.0, (out, np.empty(out.shape, keys.dtype)))
    search.rank_exactly(every, lambda i, j: keys[i, j])
    return out


class _Memory(NamedTuple):
    """Memory for the predictions of a tile, and for the candidates of each row."""

    values: Array
    candidates: Candidates

    def first(self, size: int) -> _Memory:
        """Return the memory of the first rows."""
        return _Memory(self.values[:size], Candidates._make(one[:size] for one in self.candidates))


class _Search:
    """A search for the best columns of rows, which are written to arrays.

    Parameters
    ----------
    rows
        Row numbers, -1 for an unknown row.
    n_cols
        Number of columns.
    excluded
        Columns and cells that are never listed.
    sign
        1 to find the largest values, −1 for the smallest.
    best
        Arrays for columns and values, (rows, n).
    """

    def __init__(
        self, rows: Ints, n_cols: int, excluded: _Excluded, sign: float, best: tuple[Ints, Array]
    ) -> None:
        self._rows, self._n_cols, self._excluded = rows, n_cols, excluded
        self._sign, self._best = sign, best

    def _allocate(self, size: int, width: int, capacity: int) -> _Memory:
        """Allocate memory for rows, tiles of a width, and a number of candidates per row."""
        cols, values = self._best
        n, dtype = min(cols.shape[1], self._n_cols), values.dtype
        return _Memory(
            np.zeros((size, width), dtype),  # the kernel also compares the padding
            Candidates(
                np.empty((size, n)), np.empty(size), np.empty(size, np.int64),
                np.empty((size, capacity), np.int64), np.empty((size, capacity), dtype),
            ),
        )  # fmt: skip

    def rank_exactly(self, which: Ints, predict: Predicts) -> None:
        """Rank some rows by predicting every cell."""
        every, nothing = np.arange(self._n_cols), no_corrections(self._best[1].dtype)
        width = -(-every.size // STRETCH) * STRETCH

        def predict_rows(rows: Ints) -> ApproximateRows:
            def fill(_: int, out: Array) -> None:
                out[:, : every.size] = predict(*np.meshgrid(rows, every, indexing="ij"))

            return ApproximateRows(np.zeros(rows.size), width, fill, nothing)

        for part in _split(which, CELLS_PER_BLOCK // self._n_cols):
            self._rank(part, predict_rows, self._allocate(part.size, width, self._n_cols), None)

    def rank_screened(self, which: Ints, screen: Screen, predict: Predicts) -> None:
        """Rank some known rows with a screen, in several threads."""
        cols, values = self._best
        capacity = min(cols.shape[1] + SPARE, self._n_cols)
        step = min(TILE_BYTES // (TILE_COLUMNS * values.itemsize), CELLS_PER_BLOCK // capacity)
        blocks, own = list(_split(which, step)), threading.local()

        def rank_block(block: int) -> None:
            if not hasattr(own, "memory"):  # allocated once per thread
                own.memory = self._allocate(blocks[0].size, TILE_COLUMNS, capacity)
            many = self._rank(blocks[block], screen, own.memory, predict)
            advance(blocks[block].size)
            # Rows with many equal or nearly equal values need more memory.
            for part in _split(many, CELLS_PER_BLOCK // (8 * self._n_cols)):
                memory = self._allocate(part.size, TILE_COLUMNS, self._n_cols)
                self._rank(part, screen, memory, predict)

        # Idle BLAS threads would spin on the cores that these threads need.
        with single_threaded_blas(), count_steps(which.size, "row") as advance:
            map_threads(rank_block, range(len(blocks)), count_threads(-1))

    def _rank(self, which: Ints, screen: Screen, memory: _Memory, predict: Predicts | None) -> Ints:
        """Write the best columns of some rows, and return the rows with too many candidates.

        Without `predict`, the predictions of the screen are exact.
        """
        rows, sign = self._rows[which], self._sign
        candidates = self.find_candidates(rows, screen(rows), memory.first(which.size))
        cells = _gather(rows, candidates)
        found = sign * cells.near if predict is None else _predict_split(predict, cells)
        order = np.empty((2, found.size), np.int64)
        sorting = topk.SortArgs(cells.starts, cells.j, found, sign, order, which, *self._best)
        bind_unit(topk.sort_candidates, sorting)(0, which.size)
        return np.asarray(which[candidates.counts > candidates.places.shape[1]])

    def find_candidates(self, rows: Ints, near: ApproximateRows, memory: _Memory) -> Candidates:
        """List the columns that may be among the best of each row, tile by tile."""
        values, candidates = memory
        excluded = self._excluded.cells_of(rows, near.width)
        arguments = topk.ScreenArgs(
            values, self._n_cols, self._sign, near.margin, near.added, candidates
        )
        search = bind_unit(topk.screen_tile, arguments)
        for tile in range(-(-self._n_cols // near.width)):
            near.fill(tile, values)
            excluded.mask(tile, values)
            search(0, values.shape[0], tile)
        return candidates


class _Excluded:
    """Columns without observations, and seen cells."""

    def __init__(self, unseen: Ints, seen: Side | None) -> None:
        self._unseen, self._seen = np.sort(unseen), seen

    def cells_of(self, rows: Ints, width: int) -> _ExcludedCells:
        """Return the excluded cells of some rows, by tiles of a width; row -1 has seen none."""
        if self._seen is None:
            return _ExcludedCells(self._unseen, width, *np.empty((3, 0), np.int64))
        at, cols = _entries_of(self._seen, rows)
        # Small integers are sorted in one pass.
        tiles = (cols // width).astype(np.min_scalar_type(int(cols.max(initial=0)) // width))
        order = np.argsort(tiles, kind="stable")
        return _ExcludedCells(self._unseen, width, tiles[order], at[order], cols[order])


class _ExcludedCells(NamedTuple):
    """Excluded columns and cells, in the order of their tiles."""

    unseen: Ints
    width: int
    tiles: Array  # of the cells
    at: Ints
    cols: Array

    def mask(self, tile: int, values: Array) -> None:
        """Set the excluded cells of a tile to NaN."""
        begin = tile * self.width
        if self.unseen.size:
            first, last = np.searchsorted(self.unseen, (begin, begin + self.width))
            values[:, self.unseen[first:last] - begin] = np.nan
        if self.tiles.size:
            first, last = np.searchsorted(self.tiles, (tile, tile + 1))
            values[self.at[first:last], self.cols[first:last] - begin] = np.nan


def _entries_of(side: Side, rows: Ints) -> tuple[Ints, Array]:
    """Return the entries of some rows: the place of the row, and the column; -1 has none."""
    starts = side.indptr[rows]
    counts = np.where(rows < 0, 0, side.indptr[rows + 1] - starts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    entries = np.repeat(starts, counts) + within
    return np.repeat(np.arange(rows.size), counts), side.indices[entries]


def _gather(rows: Ints, candidates: Candidates) -> topk.GatherArgs:
    """Return the candidates as cells, except those of rows with too many."""
    size = int(candidates.counts.sum())
    starts, i, j = (np.empty(length, np.int64) for length in (rows.size + 1, size, size))
    near = np.empty(size, candidates.near.dtype)
    gathered = topk.GatherArgs(candidates, rows, starts, i, j, near)
    bind_unit(topk.gather_candidates, gathered)(0, rows.size)
    return topk.GatherArgs(candidates, rows, starts, *(part[: starts[-1]] for part in gathered[3:]))


def _predict_split(predict: Predicts, cells: topk.GatherArgs) -> Array:
    """Predict cells in parts so small that each is predicted by the calling thread."""
    ends = range(PAIRS_PER_BLOCK, cells.i.size, PAIRS_PER_BLOCK)
    parts = zip(np.split(cells.i, ends), np.split(cells.j, ends), strict=True)
    return np.concatenate([predict(*part) for part in parts])


def _split(items: Ints, step: int) -> Iterator[Ints]:
    """Split into parts of `step` items, at least one."""
    for first in range(0, items.size, max(1, step)):
        yield items[first : first + max(1, step)]
