"""`ClusterSource`: a store whose blocks, by row and by column, are held by workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from fastemf.kernels.threads import balance_blocks
from fastemf.kernels.vector_width import pad_columns
from fastemf.sources.cluster.workers import Cluster
from fastemf.sources.source import Arrays, Results, Side, Source, Task
from fastemf.sources.store.reading import Store, StoredSide, read_state
from fastemf.support.arrays import Floats

BLOCKS_PER_WORKER = 3  # so that others can take over the work of a slow or lost worker
ROW_WORK = 10.0  # work of the decomposition of a row, in observations


class ClusterSide:
    """One side of a store, in blocks of about equal work; lost blocks are read again."""

    def __init__(self, stored: StoredSide, cluster: Cluster) -> None:
        self._stored, self._cluster = stored, cluster
        self.indptr, self.mass = stored.indptr, stored.mass
        self.size, self.dtype = stored.size, stored.dtype
        n_blocks = BLOCKS_PER_WORKER * max(1, cluster.n_workers)
        cuts = balance_blocks(np.diff(stored.indptr) + ROW_WORK, n_blocks)
        self._rows = [slice(first, last) for first, last in pairwise(cuts.tolist())]
        state = str(stored.folder), stored.manifest, stored.axis
        self._blocks = [
            cluster.client.submit(read_state, *state, rows.start, rows.stop, pure=False)
            for rows in self._rows
        ]

    def each(self, task: Task, others: Arrays, own: Arrays, *args: Any, n_threads: int) -> Results:
        """Run a task on all blocks at once; see `fastemf.sources.source.Grouped`."""
        parts = [tuple(array[rows] for array in own) for rows in self._rows]
        results = self._cluster.run(_on_block, self._blocks, others, parts, task, *args)
        return zip(self._rows, results, strict=True)

    def sums(self, terms: Callable[..., Any], *args: Any) -> Floats:
        """Add up terms in this process, which reads the store."""
        return self._stored.sums(terms, *args)

    def release(self) -> None:
        """Release the blocks on the workers, and the store."""
        for block in self._blocks:
            block.release()
        del self._stored


class ClusterSource(Source):
    """Observed entries of an (m, n) matrix on workers; released at the end of a `with`."""

    is_remote: ClassVar = True

    def __init__(self, store: Store, cluster: Cluster) -> None:
        self.shape, self.features = store.shape, store.features
        self.row_labels, self.col_labels = store.row_labels, store.col_labels
        self._sides = ClusterSide(store.by_row, cluster), ClusterSide(store.by_col, cluster)
        self.by_row, self.by_col = self._sides

    def __enter__(self) -> ClusterSource:
        return self

    def __exit__(self, *error: object) -> None:
        for side in self._sides:
            side.release()


def _on_block(block: Side, others: Arrays, own: Arrays, task: Task, *args: Any) -> Any:
    return task(block, *map(pad_columns, others[:1]), *others[1:], *own, *args)
