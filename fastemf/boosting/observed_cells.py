"""`ObservedCells`: a bounded sample of the observations, identical for every source of data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastemf.sources.cell_sample import FOLDS, N_HASHES, Marks, hashes
from fastemf.sources.memory import Observations
from fastemf.sources.source import Side, Source
from fastemf.support.arrays import Array, Floats, Ints, Mask

MAX_SAMPLE = 1_000_000  # approximate number of observations
OTHER_HASH = 0x9E3779B9  # added to a cell's hash, so that the sample is independent of the folds


@dataclass(frozen=True, eq=False)
class ObservedCells:
    """Observations sorted by row, with the fold of each.

    Parameters
    ----------
    shape
        Shape of the whole matrix.
    rows, cols, values
        One entry per observation.
    weights
        Likewise, or None if all weights are one.
    hashes
        Hash of each cell. Repeated and mirrored observations share one.
    features
        Features of the observations, one row each.
    proportion
        Proportion of all observations that were sampled, about.
    """

    shape: tuple[int, int]
    rows: Ints
    cols: Ints
    values: Floats
    weights: Floats | None
    hashes: Ints
    features: Floats
    proportion: float = 1.0

    @cached_property
    def folds(self) -> Ints:
        """The fold of each observation."""
        return np.asarray((self.hashes * FOLDS) >> 32)

    @cached_property
    def effective_size(self) -> float:
        """Effective number of cells, (Σw)² / Σw² over cells."""
        _, of_cell = np.unique(self.hashes, return_inverse=True)
        mass = np.bincount(of_cell, self.weights).astype(np.float64)
        return float(mass.sum() ** 2 / np.sum(mass**2))

    def effective_sizes(self) -> Floats:
        """Return the effective number of cells in each fold."""
        parts = (self.select(self.folds == fold) for fold in range(FOLDS))
        return np.array([part.effective_size if part.values.size else 0.0 for part in parts])

    def select(self, mask: Mask | Ints) -> ObservedCells:
        """Return the observations that a mask or positions select."""
        weights = None if self.weights is None else self.weights[mask]
        return ObservedCells(
            self.shape, self.rows[mask], self.cols[mask], self.values[mask], weights,
            self.hashes[mask], self.features[mask], self.proportion,
        )  # fmt: skip


def sample_cells(source: Source, marks: Marks) -> ObservedCells:
    """Sample whole cells of a source, about `MAX_SAMPLE` observations; all if there are fewer."""
    proportion = min(1.0, MAX_SAMPLE / source.size)
    first = np.arange(source.shape[0])
    dummy = np.zeros((source.shape[1], 1))  # in place of a factor
    blocks = source.by_row.each(
        _sample_block,
        (dummy, marks[1]),
        (first, marks[0], source.by_row.indptr[:-1]),
        round(proportion * N_HASHES),
        n_threads=1,
    )
    parts = [part for _, part in blocks]
    rows, cols, values, weights, cells, places = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    table = source.features
    return ObservedCells(
        source.shape, rows, cols, values, weights if weights.size else None, cells,
        np.empty((rows.size, 0)) if table is None else table.values[places], proportion,
    )  # fmt: skip


def cells_in_memory(observed: Observations) -> ObservedCells:
    """Return all observations of a source in memory. Cells are identified by position."""
    side = observed.by_row
    weights = side.weights if side.weights.size else None
    return cells_at(observed.shape, side.keys, side.indices, side.values, weights)


def cells_at(
    shape: tuple[int, int], rows: Array, cols: Array, values: Array, weights: Array | None
) -> ObservedCells:
    """Return observations of a matrix of this shape, in any order.

    Unknown rows and columns have the index −1. They become one more row or column at the end.
    """
    m, n = shape
    i, j = (np.where(at < 0, size, at).astype(np.int64) for at, size in ((rows, m), (cols, n)))
    return ObservedCells(
        shape, i, j, values.astype(np.float64),
        None if weights is None else weights.astype(np.float64), i * (n + 1) + j,
        np.empty((i.size, 0)),
    )  # fmt: skip


def _sample_block(
    block: Side, dummy: Array, marks: Ints, rows: Ints, own_marks: Ints, begins: Ints, span: int,
    n_threads: int,
) -> tuple[Array, ...]:  # fmt: skip
    """Select the sampled observations of one block; `begins` holds where its groups begin."""
    keys, indices = block.keys, block.indices
    cells = hashes(own_marks[keys], marks[indices])
    kept = hashes(cells, np.int64(OTHER_HASH)) < span
    weights = block.weights[kept] if block.weights.size else block.weights
    return (
        rows[keys[kept]], indices[kept].astype(np.int64), block.values[kept].astype(np.float64),
        weights.astype(np.float64), cells[kept], begins[0] + np.flatnonzero(kept),
    )  # fmt: skip
