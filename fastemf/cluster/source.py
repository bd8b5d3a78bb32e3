"""Observations that the workers of a cluster hold, in blocks by row and in blocks by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.cluster.workers import Cluster
from fastemf.inputs.entries import PART
from fastemf.inputs.labels import Labels
from fastemf.kernels.threads import balanced
from fastemf.kernels.width import padded
from fastemf.observations.source import Side, Source

if TYPE_CHECKING:
    from distributed import Future

__all__ = ["ClusterSide", "ClusterSource", "even_cuts"]

BLOCKS_PER_WORKER = 3  # so that a worker that is slow, or gone, leaves work others can take
ROW_WORK = 10.0  # of a row's decomposition, in observations


def even_cuts(
    counts: NDArray[np.int64], cluster: Cluster, rows_per_count: int = 1
) -> NDArray[np.int64]:
    """Return boundaries of blocks of about equal work, given observations by (run of) row."""
    work = counts.astype(np.float64) + ROW_WORK * rows_per_count
    return balanced(work, BLOCKS_PER_WORKER * max(1, cluster.n_workers))


class ClusterSide:
    """One side of a matrix, by row or by column, in blocks that workers hold.

    Parameters
    ----------
    cluster
        Cluster whose workers hold the blocks.
    blocks
        Futures of a `Side` each.
    cuts
        First rows of the blocks, and the number of rows.
    indptr, mass, dtype
        Those of all rows, as in `Side`.
    """

    def __init__(
        self,
        cluster: Cluster,
        blocks: Sequence[Future],
        cuts: NDArray[np.int64],
        indptr: NDArray[np.int64],
        mass: NDArray[np.float64],
        dtype: np.dtype[Any],
    ) -> None:
        self._cluster = cluster
        self._blocks = blocks
        self._rows = [slice(first, last) for first, last in pairwise(cuts.tolist())]
        self.indptr = indptr
        self.mass = mass
        self.dtype = dtype

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.indptr[-1])

    def each(
        self,
        task: Callable[..., Any],
        others: tuple[NDArray[Any], ...],
        own: tuple[NDArray[Any], ...],
        *args: Any,
        n_threads: int,
    ) -> Iterator[tuple[slice, Any]]:
        """Run a task on all blocks at once; see `fastemf.observations.source.Grouped`."""
        parts = [tuple(array[rows] for array in own) for rows in self._rows]
        results = self._cluster.run(_on_block, self._blocks, others, parts, task, *args)
        return zip(self._rows, results, strict=True)

    def sums(self, terms: Callable[..., Any], *args: Any) -> NDArray[np.float64]:
        """Add terms up here, stretch by stretch; see `fastemf.observations.source.Grouped`.

        A stretch that two blocks share comes here whole.
        """
        begins = [self.indptr[rows.start : rows.start + 1] for rows in self._rows]
        own = [(begin,) for begin in begins]
        found = self._cluster.run(_terms_of_block, self._blocks, (), own, terms, args)
        total: NDArray[np.float64] = np.zeros(())
        pending: list[_Piece] = []  # of the stretch that the last blocks share

        def complete_stretch() -> None:
            nonlocal total
            if pending:
                total = total + terms(*map(np.concatenate, zip(*pending, strict=True)), *args)
                pending.clear()

        for begin, (head, whole, tail) in zip(begins, found, strict=True):
            pending += [head] * bool(head.values.size)
            if (int(begin[0]) + head.values.size) % PART == 0:
                complete_stretch()
            for part in whole:
                total = total + part
            pending += [tail] * bool(tail.values.size)
        complete_stretch()
        return total

    def release(self) -> None:
        """Let the workers forget the blocks."""
        for block in self._blocks:
            block.release()


class ClusterSource(Source):
    """Observed entries of an (m, n) matrix that workers hold; released at the end of a `with`."""

    def __init__(
        self,
        shape: tuple[int, int],
        by_row: ClusterSide,
        by_col: ClusterSide,
        row_labels: Labels | None = None,
        col_labels: Labels | None = None,
        origin: Any = None,
    ) -> None:
        self.shape = shape
        self._origin = origin  # what lost blocks are read from again
        self._sides = (by_row, by_col)
        self.by_row, self.by_col = self._sides
        self.row_labels = row_labels
        self.col_labels = col_labels

    def __enter__(self) -> ClusterSource:
        return self

    def __exit__(self, *error: object) -> None:
        for side in self._sides:
            side.release()
        self._origin = None


class _Piece(NamedTuple):
    """Some of a stretch's entries."""

    values: NDArray[Any]
    weights: NDArray[Any]


# --- on a worker ----------------------------------------------------------------------------


def _on_block(
    block: Side,
    others: tuple[NDArray[Any], ...],
    own: tuple[NDArray[Any], ...],
    task: Callable[..., Any],
    *args: Any,
) -> Any:
    return task(block, *map(padded, others[:1]), *others[1:], *own, *args)


def _terms_of_block(
    block: Side,
    others: tuple[()],
    own: tuple[NDArray[np.int64]],
    terms: Callable[..., Any],
    args: tuple[Any, ...],
    n_threads: int,
) -> tuple[_Piece, list[Any], _Piece]:
    """Return the terms of a block's whole stretches, and the entries left at both ends."""
    first = min(-int(own[0][0]) % PART, block.size)
    last = first + (block.size - first) // PART * PART

    def piece(start: int, stop: int) -> _Piece:
        return _Piece(block.values[start:stop], block.weights[start:stop])

    whole = [terms(*piece(at, at + PART), *args) for at in range(first, last, PART)]
    return piece(0, first), whole, piece(last, block.size)
