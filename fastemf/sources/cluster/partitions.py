"""Observations in files or in the partitions of a Dask DataFrame, shuffled into blocks.

Each part is cut by rows and by columns, and a block is assembled from its pieces in the order of
the parts. The result is the same as if all parts had been sorted in memory. The workers exchange
the pieces, and repeat the work of a lost worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastemf.inputs.entries import CheckedEntries, index_dtype
from fastemf.inputs.labels import Labels
from fastemf.inputs.value_check import ValueCheck
from fastemf.sources.cluster.source import ClusterSide, ClusterSource, even_cuts
from fastemf.sources.cluster.workers import Cluster, threads_of_worker
from fastemf.sources.memory import group
from fastemf.sources.source import Side
from fastemf.sources.store.chunks import Chunk, TableColumns, read_chunks
from fastemf.sources.store.label_index import LabelIndex
from fastemf.support.arrays import Array, Floats, Ints
from fastemf.support.validation import check_dtype, check_indices, check_shape

if TYPE_CHECKING:
    from distributed import Future

BINS = 1 << 12  # runs of rows whose entries are counted together to balance blocks


class PartSummary(NamedTuple):
    """Properties of a part that all parts must agree on."""

    name: str
    dtype: np.dtype[Any]
    check: ValueCheck | None  # None for an empty part
    is_text: bool  # whether labels are the strings of a CSV file


class ReadPart(NamedTuple):
    """A part; its positions refer to its own labels, if it has labels."""

    part: CheckedEntries
    summary: PartSummary
    row_labels: Labels | None  # None for positions and for an empty part
    col_labels: Labels | None


def from_parts(
    parts: Sequence[Any], names: Sequence[str], columns: TableColumns, shape: Any, cluster: Cluster
) -> ClusterSource:
    """Shuffle the observations of all parts into blocks on the workers.

    Parameters
    ----------
    parts
        Paths of Parquet or CSV files that every worker can read, or futures of tables.
    names
        Their names in messages.
    columns
        Names of the columns.
    shape
        (rows, columns) if the columns hold positions, else None.
    cluster
        The cluster whose workers read the parts.
    """
    shape = None if shape is None else check_shape(shape, "shape")
    with _Shuffle(cluster) as shuffle:
        read = shuffle.map(_read, parts, names, columns=columns, shape=shape)
        summaries = cluster.results(shuffle.items(read, "summary"))
        dtype = _common_type(summaries)
        entries = shuffle.items(read, "part")
        row_labels = col_labels = None
        if shape is None:
            is_text = any(summary.is_text for summary in summaries)
            numbered = [
                shuffle.submit(_number, shuffle.items(read, field), name, is_text)
                for field, name in (("row_labels", columns.rows), ("col_labels", columns.cols))
            ]
            row_labels, col_labels = cluster.results(shuffle.items(numbered, 0))
            places = [
                shuffle.map(getitem, [of_all] * len(parts), range(len(parts)))
                for of_all in shuffle.items(numbered, 1)
            ]
            entries = shuffle.map(_renumber, entries, *places)
            shape = (len(row_labels), len(col_labels))
        by_row, by_col = (shuffle.side(entries, axis, shape, dtype) for axis in (0, 1))
        return ClusterSource(shape, by_row, by_col, row_labels, col_labels)


class _Shuffle:
    """Tasks that result in blocks; all other results are released, and blocks after an error."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._temporary: list[Future] = []
        self._blocks: list[Future] = []

    def __enter__(self) -> _Shuffle:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._release(0)
        if error is not None:
            for block in self._blocks:
                block.release()

    def _release(self, mark: int) -> None:
        """Release the tasks since `mark`; Dask keeps results that other tasks need."""
        for future in self._temporary[mark:]:
            future.release()
        del self._temporary[mark:]

    def submit(self, function: Any, *args: Any) -> Future:
        """Submit one task."""
        future = self._cluster.client.submit(function, *args, pure=False)
        self._temporary.append(future)
        return future

    def map(self, function: Any, *arguments: Sequence[Any], **common: Any) -> list[Future]:
        """Submit a task for each part."""
        futures: list[Future] = self._cluster.client.map(function, *arguments, pure=False, **common)
        self._temporary += futures
        return futures

    def items(self, futures: list[Future], item: str | int) -> list[Future]:
        """Submit tasks that return a field or an element of each result."""
        take = getattr if isinstance(item, str) else getitem
        return self.map(take, futures, [item] * len(futures))

    def side(
        self, entries: list[Future], axis: int, shape: tuple[int, int], dtype: np.dtype[Any]
    ) -> ClusterSide:
        """Assemble blocks by row (axis 0) or by column (axis 1), of about equal work."""
        cluster, n = self._cluster, shape[axis]
        width = -(-n // BINS)
        counts_by_run = cluster.results(self.map(_count, entries, axis=axis, width=width, n=n))
        cuts = np.minimum(even_cuts(np.sum(counts_by_run, axis=0), cluster, width) * width, n)
        mark = len(self._temporary)
        pieces = self.map(_cut, entries, axis=axis, cuts=cuts)
        blocks = [
            cluster.client.submit(
                _assemble, self.items(pieces, number), axis, first, last, shape, dtype,
                pure=False,
            )
            for number, (first, last) in enumerate(pairwise(cuts.tolist()))
        ]  # fmt: skip
        self._blocks += blocks
        self._release(mark)
        counts, mass = (
            np.concatenate(arrays)
            for arrays in zip(*cluster.results(self.map(_counts_and_mass, blocks)), strict=True)
        )
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return ClusterSide(cluster, blocks, cuts, indptr, mass, dtype)


def _common_type(summaries: list[PartSummary]) -> np.dtype[Any]:
    """Check the values of all parts together; return their common type."""
    filled = [(summary, summary.check) for summary in summaries if summary.check is not None]
    if not filled:
        raise ValueError(
            f"R must hold at least one observation, got none in {len(summaries)} parts"
        )
    (first, whole), *others = filled
    for summary, check in others:
        if summary.dtype != first.dtype:
            raise ValueError(
                f"values must have one type in all parts, got {first.dtype} in {first.name} and "
                f"{summary.dtype} in {summary.name}"
            )
        whole.add(check)
    whole.finish()
    return first.dtype


# --- on a worker ----------------------------------------------------------------------------


def _read(
    source: Any, name: str, *, columns: TableColumns, shape: tuple[int, int] | None
) -> ReadPart:
    """Read the entries of a file or a table."""
    is_file = isinstance(source, str)
    found = read_chunks([source] if is_file else iter([source]), columns, 1 << 20)
    chunks = [
        chunk if is_file else chunk._replace(name=name) for chunk in found if len(chunk.values)
    ]
    if not chunks:
        none = np.empty(0, np.int64)
        summary = PartSummary(name, np.dtype(np.float64), None, False)
        return ReadPart(CheckedEntries((none, none), np.empty(0), np.empty(0)), summary, None, None)
    # Labels of CSV files stay strings until all parts are read.
    labels = [LabelIndex(word, is_text=False) for word in chunks[0].labels or ()]
    dtype = check_dtype(chunks[0].values.dtype, f"values of {name}")
    check = ValueCheck(dtype)
    parts = [_checked(chunk, shape, dtype, check, labels) for chunk in chunks]
    part = CheckedEntries(
        (_concatenate([p.indices[0] for p in parts]), _concatenate([p.indices[1] for p in parts])),
        _concatenate([p.values for p in parts]),
        _concatenate([p.weights for p in parts]),
    )
    row_labels, col_labels = (index.finish() for index in labels) if labels else (None, None)
    summary = PartSummary(name, dtype, check, chunks[0].is_text)
    return ReadPart(part, summary, row_labels, col_labels)


def _concatenate(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _checked(
    chunk: Chunk,
    shape: tuple[int, int] | None,
    dtype: np.dtype[Any],
    check: ValueCheck,
    labels: list[LabelIndex],
) -> CheckedEntries:
    if shape is None:
        columns = zip(labels, (chunk.rows, chunk.cols), chunk.labels or (), strict=True)
        rows, cols = (
            index.positions(column, f"column {word!r}", chunk.place)
            for index, column, word in columns
        )
    else:
        rows = check_indices(chunk.rows, f"rows of {chunk.name}", shape[0])
        cols = check_indices(chunk.cols, f"cols of {chunk.name}", shape[1])
    check.see(chunk.values, chunk.place)
    weights = chunk.checked_weights(dtype, chunk.place)
    return CheckedEntries((rows, cols), chunk.values.astype(dtype, copy=False), weights)


def _number(parts: list[Labels | None], name: str, is_text: bool) -> tuple[Labels, list[Ints]]:
    """Return all labels in order of first appearance, and the positions of each part's labels."""
    index = LabelIndex(name, is_text=is_text)
    places = [np.empty(0, np.int64)] * len(parts)
    for number, labels in enumerate(parts):
        if labels is not None:
            places[number] = index.positions(labels.values, f"column {name!r}", str)
    return index.finish(), places


def _renumber(part: CheckedEntries, rows: Ints, cols: Ints) -> CheckedEntries:
    """Convert positions in the labels of a part to positions in all labels."""
    return part._replace(indices=(rows[part.indices[0]], cols[part.indices[1]]))


def _count(part: CheckedEntries, *, axis: int, width: int, n: int) -> Ints:
    """Count the entries in each run of `width` rows."""
    return np.bincount(part.indices[axis] // width, minlength=-(-n // width))


def _cut(part: CheckedEntries, *, axis: int, cuts: Ints) -> list[CheckedEntries]:
    """Cut a part into its pieces of each block, in order."""
    block = np.searchsorted(cuts, part.indices[axis], side="right") - 1
    order = np.argsort(block, kind="stable")
    bounds = np.searchsorted(block[order], np.arange(cuts.size)).tolist()
    pieces = []
    for first, last in pairwise(bounds):
        own = order[first:last]
        rows, cols = (index[own] for index in part.indices)
        weights = part.weights[own] if part.weights.size else part.weights
        pieces.append(CheckedEntries((rows, cols), part.values[own], weights))
    return pieces


def _assemble(
    pieces: list[CheckedEntries],
    axis: int,
    first: int,
    last: int,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
) -> Side:
    """Assemble the block of rows `first` to `last` − 1."""
    index = index_dtype(shape)
    keys = np.concatenate([piece.indices[axis] - first for piece in pieces]).astype(index)
    others = np.concatenate([piece.indices[1 - axis] for piece in pieces]).astype(index)
    values = np.concatenate([piece.values for piece in pieces]).astype(dtype, copy=False)
    weights = np.concatenate([piece.weights for piece in pieces]).astype(dtype, copy=False)
    return group(keys, others, None, values, weights, last - first, threads_of_worker(-1))


def _counts_and_mass(block: Side) -> tuple[Ints, Floats]:
    """Return the counts and masses of the rows of a block."""
    return np.diff(block.indptr), block.mass
