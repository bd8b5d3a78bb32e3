"""Entries that a tuning needs at hand: all of a small source, or a sample of a large one.

A tuning goes through its entries hundreds of times, and each time costs what it takes to ask for
them, on a cluster some 40 ms. What is gathered is bounded, and it is the same entries in the same
order wherever they come from, so that sums and solves over it are bitwise identical.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.cluster.source import ClusterSource
from fastemf.kernels.membership import Membership, mark_members
from fastemf.kernels.problem import Rows, Sample
from fastemf.kernels.threads import launch
from fastemf.observations.changed import ChangedSource
from fastemf.observations.memory import Observations, kept_entries
from fastemf.observations.source import Grouped, Side, Source
from fastemf.solver.blocks import Part
from fastemf.solver.remainder import enough, runs_of
from fastemf.solver.sampling import CellSample

__all__ = ["at_hand", "sampled_entries"]

AT_HAND = 4_000_000  # observations, about 100 MB, that may come here from a cluster


def at_hand(source: Source) -> Source:
    """Gather the entries of a small source that workers hold; any other is returned as it is."""
    if isinstance(source, ChangedSource):
        inner = at_hand(source.source)
        return source if inner is source.source else ChangedSource(inner, source.change)
    if not isinstance(source, ClusterSource) or source.size > AT_HAND:
        return source
    by_row, by_col = (
        _joined([block for _, block in side.each(_whole, (), (), n_threads=1)])
        for side in (source.by_row, source.by_col)
    )
    return Observations(source.shape, by_row, by_col, source.row_labels, source.col_labels)


def sampled_entries(source: Source, sample: CellSample, n_threads: int) -> Observations:
    """Gather the entries of a sample of the cells; shape and labels are those of the source."""
    by_row, by_col = (
        _joined([part for _, part in _members(side, axis, sample, n_threads)])
        for axis, side in enumerate((source.by_row, source.by_col))
    )
    return Observations(source.shape, by_row, by_col, source.row_labels, source.col_labels)


def _members(side: Grouped, axis: int, sample: CellSample, n_threads: int) -> Any:
    own, others = sample.marks[axis], sample.marks[1 - axis]
    no_factor = np.empty((others.size, 0), side.dtype)
    return side.each(_kept_block, (no_factor, others), (own,), sample.part, n_threads=n_threads)


def _whole(block: Side, n_threads: int) -> Side:
    return block


def _kept_block(
    block: Side,
    no_factor: NDArray[Any],
    marks: NDArray[np.int64],
    own_marks: NDArray[np.int64],
    part: Part,
    n_threads: int,
) -> Side:
    """Take the entries of a block that are in the sample."""
    rows = Rows(block.indptr, block.indices, block.values, block.weights)
    sample = Sample(np.empty(0, block.dtype), marks, own_marks, *part)
    members = np.empty(block.size, np.uint8)
    n_threads = enough(block, no_factor, n_threads)
    frame = Membership(rows, sample, members)
    launch(mark_members, n_threads, runs_of(block, n_threads), frame)
    return kept_entries(block, members.view(np.bool_))


def _joined(blocks: list[Side]) -> Side:
    """Join blocks of whole rows, in their order."""
    if len(blocks) == 1:
        return blocks[0]
    counts = np.concatenate([np.diff(block.indptr) for block in blocks])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices, values, weights, mass, censored = (
        np.concatenate([getattr(block, name) for block in blocks])
        for name in ("indices", "values", "weights", "mass", "censored")
    )
    return Side(indptr, indices, values, weights, mass, censored)
