"""Which observed cells to fit and which to judge by."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.inputs.table_files import is_source
from fastemf.inputs.tables import is_table
from fastemf.observations.memory import Observations, observe
from fastemf.observations.source import Source
from fastemf.support.validation import check_choice, check_integer, check_number, check_rng

__all__ = ["Split", "cells", "folds", "held_out", "hold_out", "split"]


class Split(NamedTuple):
    """Observations to fit and observations to judge by, as COO arrays of one shape."""

    train: Any
    test: Any


def split(R: Any, train: Any, *, by: str = "cell", random_state: Any = None) -> Split:
    """Divide the observed cells of `R` at random into those to fit and those to judge by.

    Repeated observations of a cell stay together. COO arrays hold no weights: those of
    observations that have some stay behind.

    Parameters
    ----------
    R
        Observations in any form that `fastemf.complete` takes.
    train
        Share of the cells to fit, in (0, 1), or their number.
    by
        ``"cell"``: any cells; ``"row"``: that share, or number, of each row's cells, at least
        one; ``"pair"``: unordered pairs, so that (i, j) and (j, i) are on the same side,
        for a square matrix that is symmetric.
    random_state
        Seed or numpy Generator.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.datasets import split
    >>> train, test = split(np.ones((4, 5)), 0.25, random_state=0)
    >>> train.nnz, test.nnz
    (5, 15)
    >>> split(np.ones((4, 5)), 2, by="row", random_state=0).train.sum(axis=1).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    check_choice(by, "by", ("cell", "row", "pair"))
    rng = check_rng(random_state)
    observed = observe(R)
    m, n = observed.shape
    if by == "pair" and m != n:
        raise ValueError(f'by="pair" needs a square matrix, got {m} x {n}')
    found, of_cell = cells(observed, pairs=by == "pair")
    chosen = np.zeros(found.size, bool)
    if by == "row":
        of_row = found // n
        order = np.lexsort((rng.random(found.size), of_row))  # cells of a row, shuffled
        counts = np.bincount(of_row, minlength=m)
        place = np.arange(found.size) - np.repeat(np.cumsum(counts) - counts, counts)
        sizes = np.array([_train_size(train, count, "row") if count else 0 for count in counts])
        chosen[order] = place < sizes[of_row[order]]
    else:
        size = _train_size(train, found.size, by)
        chosen[rng.choice(found.size, size, replace=False)] = True
    side, kept = observed.by_row, chosen[of_cell]
    if kept.all():
        raise ValueError(f"train must leave cells to judge by, got {train!r} of {found.size} cells")

    def part(mask: NDArray[np.bool_]) -> Any:
        entries = side.keys[mask].astype(np.int64), side.indices[mask].astype(np.int64)
        return sp.coo_array((side.values[mask], entries), shape=(m, n))

    return Split(part(kept), part(~kept))


def cells(
    observed: Observations, *, pairs: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List the distinct cells observed, row * columns + column, and each observation's among them.

    What is held out is held out by cell: repeated observations of one say much about each
    other. With `pairs`, (i, j) and (j, i) are one cell. Observations are in the order of
    ``by_row``.
    """
    side, n = observed.by_row, observed.shape[1]
    rows, cols = side.keys.astype(np.int64), side.indices.astype(np.int64)
    if pairs:
        rows, cols = np.minimum(rows, cols), np.maximum(rows, cols)
    found, of_cell = np.unique(rows * n + cols, return_inverse=True)
    return found, of_cell


def hold_out(
    observed: Source,
    validation: Any,
    rng: np.random.Generator,
    columns: tuple[Any, Any, Any] = (None, None, None),
) -> tuple[Source, Observations]:
    """Return what to fit and what to judge by: a share of the cells observed, or entries given.

    Entries are placed by the labels of what is observed, where it has some; `columns` are the
    names of a table's.
    """
    if not isinstance(validation, numbers.Real):
        if observed.row_labels is not None:
            named = is_source(validation) or is_table(validation)
            rows, cols, values = columns if named else (None, None, None)
            given = observe(
                validation, rows=rows, cols=cols, values=values,
                labels=(observed.row_labels, observed.col_labels),
            )  # fmt: skip
        else:
            shape = observed.shape if isinstance(validation, tuple) else None
            given = observe(validation, shape=shape)
        if given.shape != observed.shape:
            raise ValueError(
                f"validation must have the shape of R, {observed.shape}, got {given.shape}"
            )
        return observed, given.astype(observed.dtype)
    if not 0 < check_number(validation, "validation") < 1:
        raise ValueError(
            f"validation must be a share in (0, 1) of the cells, or entries, got {validation!r}"
        )
    if not isinstance(observed, Observations):
        raise TypeError(
            "validation must be entries where R is not in memory: what a store or a cluster holds "
            f"is fitted as it is; got the share {validation!r}"
        )
    mask = held_out(observed, float(validation), rng, "validation")
    return observed.subset(~mask), observed.subset(mask)


def held_out(
    observed: Observations, share: float, rng: np.random.Generator, name: str
) -> NDArray[np.bool_]:
    """Mark the observations to judge by: those of a random share of the cells, at least one."""
    found, of_cell = cells(observed)
    if found.size < 2:
        raise ValueError(f"{name} needs at least two cells observed, got {found.size}")
    chosen = np.zeros(found.size, bool)
    size = min(max(1, round(share * found.size)), found.size - 1)
    chosen[rng.choice(found.size, size, replace=False)] = True
    return chosen[of_cell]


def folds(
    observed: Observations, count: int, rng: np.random.Generator, *, parts: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each observation's fold and, within that, its part, both from 0.

    Cells are dealt at random and evenly; there are fewer than `parts` where cells are.
    """
    found, of_cell = cells(observed)
    if count > found.size:
        raise ValueError(f"folds must be at most the {found.size} cells observed, got {count}")
    dealt = np.empty(found.size, np.int64)
    dealt[rng.permutation(found.size)] = np.arange(found.size)
    part, fold = np.divmod(dealt % (count * min(parts, found.size // count)), count)
    return fold[of_cell], part[of_cell]


def _train_size(train: Any, count: int, by: str) -> int:
    """Return how many of `count` cells: a share of them, at least one, or the number itself."""
    if isinstance(train, numbers.Integral):
        size = check_integer(train, "train", minimum=1)
        if by == "row":
            return min(size, count)
        if size >= count:
            raise ValueError(f"train must be below the {count} {by}s observed, got {train}")
        return size
    if not 0 < check_number(train, "train") < 1:
        raise ValueError(f"train must be a share in (0, 1) or a number of cells, got {train!r}")
    return max(1, round(float(train) * count))
