"""Cells that are fitted and cells that are set aside, by a hash of where they are.

Nothing is copied or stored per entry: a cell's hash comes from the marks of its row and column,
wherever its entries are kept. Repeated observations of a cell are in one sample, and so are
(i, j) and (j, i) where rows and columns are the same things.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.hashing import hash_of_cell
from fastemf.observations.source import Source
from fastemf.solver.blocks import ALL, Part

__all__ = ["FOLDS", "MOST_FOLDS", "CellSample", "Marks", "fold_part", "hashes", "marks_of"]

FOLDS = 5
MOST_FOLDS = 10  # of a tuning, which has the more the fewer cells there are

Marks = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class CellSample:
    """The cells of one part, by the marks of rows and columns."""

    marks: Marks
    part: Part

    @classmethod
    def share(cls, marks: Marks, share: float) -> CellSample:
        """Take about this share of the cells."""
        return cls(marks, Part(0, min(max(round(share * ALL), 1), ALL - 1)))

    def rest(self) -> CellSample:
        """Take all other cells."""
        return CellSample(self.marks, self.part.rest())


def marks_of(observations: Source, rng: np.random.Generator) -> Marks:
    """Draw a mark for each row and column; those that are the same thing share theirs.

    In a square matrix without labels row i and column i are; with labels, those of one label,
    if most of the labels of the shorter side are common.
    """
    m, n = observations.shape
    rows, cols = (rng.integers(0, ALL, size, dtype=np.int64) for size in (m, n))
    ours, theirs = _common(observations)
    cols[theirs] = rows[ours]
    return rows, cols


def hashes(own: NDArray[np.int64], marks: Any) -> NDArray[np.int64]:
    """Compute the hashes of cells by the marks of their rows and columns, as kernels do."""
    rule = getattr(hash_of_cell, "py_func", hash_of_cell)  # whole numbers, so arrays as well
    return np.asarray(rule(own, marks))


def fold_part(fold: int) -> Part:
    """Return the cells of a fold, of which a cell's hash says in which it is."""
    first, last = (-(-number * ALL // FOLDS) for number in (fold, fold + 1))
    return Part(first, last - first)


def _common(observations: Source) -> tuple[Any, Any]:
    """Find rows and columns that are the same things."""
    m, n = observations.shape
    none = np.empty(0, np.int64)
    row_labels, col_labels = observations.row_labels, observations.col_labels
    if row_labels is None or col_labels is None:
        same = np.arange(m if m == n else 0)
        return same, same
    if row_labels.kind != col_labels.kind:
        return none, none
    found = row_labels.positions(col_labels.values, what="column labels")
    theirs = np.flatnonzero(found >= 0)
    if 2 * theirs.size <= min(m, n):
        return none, none
    return found[theirs], theirs
