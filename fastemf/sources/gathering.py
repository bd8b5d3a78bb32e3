"""Gather entries in this process: all of a small source, or a sample of a large one.

A tuning passes over its entries hundreds of times, and each pass over a cluster has an overhead of
about 40 ms. The gathered entries have the same order for every source, so sums and solves over
them are bitwise identical.
"""

from __future__ import annotations

import numpy as np

from fastemf.kernels.problem import Rows, Sample
from fastemf.kernels.threads import launch
from fastemf.kernels.validation_cells import MembershipArgs, mark_members
from fastemf.sources.cell_sample import CellSample, HashRange
from fastemf.sources.grouping import select_entries
from fastemf.sources.mapped import MappedSource
from fastemf.sources.memory import Observations
from fastemf.sources.source import Results, Side, Source
from fastemf.support.arrays import Array, Ints

MOST_GATHERED = 4_000_000  # observations, about 100 MB


def gather_small(source: Source) -> Source:
    """Gather the entries of a small source from the workers; return any other unchanged."""
    if isinstance(source, MappedSource):
        inner = gather_small(source.source)
        return source if inner is source.source else MappedSource(inner, source.block_map)
    if not source.is_remote or source.size > MOST_GATHERED:
        return source
    sides = (source.by_row, source.by_col)
    return _join(source, [side.each(_whole, (), (), n_threads=1) for side in sides])


def gather_sample(source: Source, sample: CellSample, n_threads: int) -> Observations:
    """Gather the entries of a sample of the cells; shape and labels stay those of the source."""
    selected = []
    for axis, side in enumerate((source.by_row, source.by_col)):
        own, others = sample.marks[axis], sample.marks[1 - axis]
        given = (np.empty((others.size, 0), side.dtype), others), (own,)  # without factors
        selected.append(side.each(_select_block, *given, sample.part, n_threads=n_threads))
    return _join(source, selected)


def _join(source: Source, sides: list[Results]) -> Observations:
    """Concatenate the blocks of both sides of a source."""
    by_row, by_col = (_concatenate([block for _, block in results]) for results in sides)
    return Observations(source.shape, by_row, by_col, source.row_labels, source.col_labels)


def _whole(block: Side, n_threads: int) -> Side:
    return block


def _select_block(
    block: Side, no_factor: Array, marks: Ints, own_marks: Ints, part: HashRange, n_threads: int
) -> Side:
    """Select the entries of a block that are in the sample."""
    rows = Rows(block.indptr, block.indices, block.values, block.weights)
    sample = Sample(np.empty(0, block.dtype), marks, own_marks, *part)
    members = np.empty(block.size, np.uint8)
    n_threads, runs = block.plan_launch(0, n_threads)
    launch(mark_members, n_threads, runs, MembershipArgs(rows, sample, members))
    return select_entries(block, members.view(np.bool_))


def _concatenate(blocks: list[Side]) -> Side:
    """Concatenate blocks of whole rows."""
    if len(blocks) == 1:
        return blocks[0]
    counts = np.concatenate([np.diff(block.indptr) for block in blocks])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices, values, weights, mass, censored, half_widths = (
        np.concatenate([getattr(block, name) for block in blocks])
        for name in ("indices", "values", "weights", "mass", "censored", "half_widths")
    )
    return Side(indptr, indices, values, weights, mass, censored, half_widths)
