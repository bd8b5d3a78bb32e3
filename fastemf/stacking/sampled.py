"""`Sampled`: a bounded sample of the observations, the same wherever these are kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.observations.memory import Observations
from fastemf.observations.source import Side, Source
from fastemf.solver.blocks import ALL
from fastemf.solver.sampling import FOLDS, Marks, hashes

__all__ = ["Sampled", "in_memory", "placed", "sampled"]

MOST = 1_000_000  # observations in the sample, about
OTHER_HASH = 0x9E3779B9  # added to a cell's hash, so that the sample is independent of the folds


@dataclass(frozen=True, eq=False)
class Sampled:
    """Observations by row: where they are, what they are, and in which fold.

    Parameters
    ----------
    shape
        Of the whole matrix.
    rows, cols, values
        One entry for each observation.
    weights
        Likewise, or None where every weight is one.
    hashes
        Of the cells: repeated and mirrored ones have the same.
    """

    shape: tuple[int, int]
    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    values: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    hashes: NDArray[np.int64]

    @cached_property
    def folds(self) -> NDArray[np.int64]:
        """The fold that each observation is in."""
        return np.asarray((self.hashes * FOLDS) >> 32)

    @cached_property
    def independent(self) -> float:
        """How many cells of equal weight tell as much as these: (Σw)² / Σw² over cells."""
        _, of_cell = np.unique(self.hashes, return_inverse=True)
        mass = np.bincount(of_cell, self.weights).astype(np.float64)
        return float(mass.sum() ** 2 / np.sum(mass**2))

    def where(self, chosen: NDArray[np.bool_]) -> Sampled:
        """Return the observations of a mask."""
        weights = None if self.weights is None else self.weights[chosen]
        return Sampled(
            self.shape, self.rows[chosen], self.cols[chosen], self.values[chosen], weights,
            self.hashes[chosen],
        )  # fmt: skip


def sampled(source: Source, marks: Marks) -> Sampled:
    """Take all observations, or those of a share of the cells where there are many."""
    share = min(1.0, MOST / source.size)
    first = np.arange(source.shape[0])
    nothing = np.zeros((source.shape[1], 1))  # in the place of a factor
    found = source.by_row.each(
        _sampled, (nothing, marks[1]), (first, marks[0]), round(share * ALL), n_threads=1
    )
    parts = [part for _, part in found]
    rows, cols, values, weights, cells = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return Sampled(source.shape, rows, cols, values, weights if weights.size else None, cells)


def in_memory(observed: Observations) -> Sampled:
    """Take all observations that are in memory, of which cells are told apart by their places."""
    side = observed.by_row
    weights = side.weights if side.weights.size else None
    return placed(observed.shape, side.keys, side.indices, side.values, weights)


def placed(
    shape: tuple[int, int],
    rows: NDArray[Any],
    cols: NDArray[Any],
    values: NDArray[Any],
    weights: NDArray[Any] | None,
) -> Sampled:
    """Take observations of a matrix of this shape, in any order.

    Those of unknown rows, at −1, are taken for one row after the others, and likewise of columns.
    """
    m, n = shape
    i, j = (np.where(at < 0, size, at).astype(np.int64) for at, size in ((rows, m), (cols, n)))
    return Sampled(
        shape, i, j, values.astype(np.float64),
        None if weights is None else weights.astype(np.float64), i * (n + 1) + j,
    )  # fmt: skip


def _sampled(
    block: Side,
    nothing: NDArray[Any],
    marks: NDArray[np.int64],
    rows: NDArray[np.int64],
    own_marks: NDArray[np.int64],
    span: int,
    n_threads: int,
) -> tuple[NDArray[Any], ...]:
    """Pick the observations of one block."""
    keys, indices = block.keys, block.indices
    cells = hashes(own_marks[keys], marks[indices])
    kept = hashes(cells, np.int64(OTHER_HASH)) < span
    weights = block.weights[kept] if block.weights.size else block.weights
    return (
        rows[keys[kept]], indices[kept].astype(np.int64), block.values[kept].astype(np.float64),
        weights.astype(np.float64), cells[kept],
    )  # fmt: skip
