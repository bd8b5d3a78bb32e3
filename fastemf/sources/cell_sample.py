"""Samples of cells, such as validation cells and folds, selected by a hash of row and column.

The hash of a cell is computed from random marks of its row and column, so no data are copied or
stored per entry. Repeated observations of a cell belong to the same sample, and so do (i, j) and
(j, i) where rows and columns are the same entities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastemf.kernels.problem import hash_of_cell
from fastemf.sources.source import Source
from fastemf.support.arrays import Ints

N_HASHES = 1 << 32
FOLDS = 5
MOST_FOLDS = 10  # of a tuning; small data have more folds

Marks = tuple[Ints, Ints]


class HashRange(NamedTuple):
    """The cells whose hash is one of `span` numbers from `first` on, modulo 2³²."""

    first: int
    span: int

    def rest(self) -> HashRange:
        """Return the range of all other cells."""
        return HashRange((self.first + self.span) % N_HASHES, N_HASHES - self.span)


ALL_CELLS = HashRange(0, N_HASHES)


@dataclass(frozen=True, eq=False)
class CellSample:
    """The cells whose hash is in one part of the range."""

    marks: Marks
    part: HashRange

    @classmethod
    def of_proportion(cls, marks: Marks, proportion: float) -> CellSample:
        """Sample about this proportion of the cells."""
        return cls(marks, HashRange(0, min(max(round(proportion * N_HASHES), 1), N_HASHES - 1)))

    def rest(self) -> CellSample:
        """Return the sample of all other cells."""
        return CellSample(self.marks, self.part.rest())


def draw_marks(
    observations: Source, rng: np.random.Generator, earlier: Marks | None = None
) -> Marks:
    """Draw a random mark for each row and column, the same for a row and column of one entity.

    Row i and column i of a square matrix without labels are one entity. With labels, a row and a
    column of the same label are, if most labels of the shorter side occur on both sides. Rows and
    columns with an `earlier` mark, which is not −1, keep it.
    """
    m, n = observations.shape
    rows, cols = (rng.integers(0, N_HASHES, size, dtype=np.int64) for size in (m, n))
    is_new = np.ones(m, bool), np.ones(n, bool)
    if earlier is not None:
        is_new = earlier[0] < 0, earlier[1] < 0
        rows, cols = np.where(is_new[0], rows, earlier[0]), np.where(is_new[1], cols, earlier[1])
    ours, theirs = _common_entities(observations)
    cols[theirs] = np.where(is_new[1][theirs], rows[ours], cols[theirs])
    rows[ours] = np.where(is_new[0][ours], cols[theirs], rows[ours])
    return rows, cols


def hashes(own: Ints, marks: Any) -> Ints:
    """Compute the hashes of cells from the marks of their rows and columns, as kernels do."""
    rule = getattr(hash_of_cell, "py_func", hash_of_cell)  # works for arrays too
    return np.asarray(rule(own, marks))


def fold_part(fold: int) -> HashRange:
    """Return the range of hashes of a fold."""
    first, last = (-(-number * N_HASHES // FOLDS) for number in (fold, fold + 1))
    return HashRange(first, last - first)


def _common_entities(observations: Source) -> tuple[Any, Any]:
    """Return the rows and the columns that are the same entities."""
    m, n = observations.shape
    none = np.empty(0, np.int64)
    row_labels, col_labels = observations.row_labels, observations.col_labels
    if row_labels is None or col_labels is None:
        same = np.arange(m if m == n else 0)
        return same, same
    if row_labels.kind != col_labels.kind:
        return none, none
    found = row_labels.positions(col_labels, what="column labels")
    theirs = np.flatnonzero(found >= 0)
    if 2 * theirs.size <= min(m, n):
        return none, none
    return found[theirs], theirs
