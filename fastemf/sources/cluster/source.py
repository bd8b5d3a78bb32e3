"""`ClusterSource`: observations on the workers of a cluster, in blocks by row and by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fastemf.features.schema import FeatureTable
from fastemf.inputs.entries import PART
from fastemf.inputs.labels import Labels
from fastemf.kernels.threads import balance_blocks
from fastemf.kernels.vector_width import pad_columns
from fastemf.sources.cluster.workers import Cluster
from fastemf.sources.source import Arrays, Results, Side, Source, Task
from fastemf.support.arrays import Array, Floats, Ints

if TYPE_CHECKING:
    from distributed import Future

BLOCKS_PER_WORKER = 3  # so that others can take over the work of a slow or lost worker
ROW_WORK = 10.0  # work of the decomposition of a row, in observations


def even_cuts(counts: Ints, cluster: Cluster) -> Ints:
    """Return boundaries of blocks of rows of about equal work, given their numbers of entries."""
    work = counts.astype(np.float64) + ROW_WORK
    return balance_blocks(work, BLOCKS_PER_WORKER * max(1, cluster.n_workers))


class ClusterSide:
    """One side of a matrix, by row or by column, in blocks held by workers.

    Parameters
    ----------
    cluster
        Cluster whose workers hold the blocks.
    blocks
        Futures of one `Side` each.
    cuts
        First rows of the blocks, and the number of rows.
    indptr, mass, dtype
        Attributes of all rows, as in `Side`.
    """

    def __init__(
        self,
        cluster: Cluster,
        blocks: Sequence[Future],
        cuts: Ints,
        indptr: Ints,
        mass: Floats,
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
        self, task: Task, others: Arrays, own: Arrays, *args: Any, n_threads: int
    ) -> Results:  # fmt: skip
        """Run a task on all blocks at once; see `fastemf.sources.source.Grouped`."""
        parts = [tuple(array[rows] for array in own) for rows in self._rows]
        results = self._cluster.run(_on_block, self._blocks, others, parts, task, *args)
        return zip(self._rows, results, strict=True)

    def sums(self, terms: Callable[..., Any], *args: Any) -> Floats:
        """Add up terms stretch by stretch; see `fastemf.sources.source.Grouped`.

        The entries of a stretch that crosses blocks are gathered in this process.
        """
        begins = [self.indptr[rows.start : rows.start + 1] for rows in self._rows]
        own = [(begin,) for begin in begins]
        found = self._cluster.run(_terms_of_block, self._blocks, (), own, terms, args)
        total: Floats = np.zeros(())
        pending: list[_Piece] = []  # of the stretch that crosses the last blocks

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
        """Release the blocks on the workers."""
        for block in self._blocks:
            block.release()


class ClusterSource(Source):
    """Observed entries of an (m, n) matrix on workers; released at the end of a `with`."""

    is_remote: ClassVar = True

    def __init__(
        self,
        shape: tuple[int, int],
        by_row: ClusterSide,
        by_col: ClusterSide,
        row_labels: Labels | None = None,
        col_labels: Labels | None = None,
        origin: Any = None,
        features: FeatureTable | None = None,
    ) -> None:
        self.shape = shape
        self._origin = origin  # source of lost blocks, which are read again
        self._sides = (by_row, by_col)
        self.by_row, self.by_col = self._sides
        self.row_labels = row_labels
        self.col_labels = col_labels
        self.features = features

    def __enter__(self) -> ClusterSource:
        return self

    def __exit__(self, *error: object) -> None:
        for side in self._sides:
            side.release()
        self._origin = None


class _Piece(NamedTuple):
    """Some of the entries of a stretch."""

    values: Array
    weights: Array


# --- on a worker ----------------------------------------------------------------------------


def _on_block(block: Side, others: Arrays, own: Arrays, task: Task, *args: Any) -> Any:
    return task(block, *map(pad_columns, others[:1]), *others[1:], *own, *args)


def _terms_of_block(
    block: Side,
    others: tuple[()],
    own: tuple[Ints],
    terms: Callable[..., Any],
    args: tuple[Any, ...],
    n_threads: int,
) -> tuple[_Piece, list[Any], _Piece]:
    """Return the terms of the complete stretches of a block, and the entries at both ends."""
    first = min(-int(own[0][0]) % PART, block.size)
    last = first + (block.size - first) // PART * PART

    def piece(start: int, stop: int) -> _Piece:
        return _Piece(block.values[start:stop], block.weights[start:stop])

    whole = [terms(*piece(at, at + PART), *args) for at in range(first, last, PART)]
    return piece(0, first), whole, piece(last, block.size)
