"""Splits of the observed cells: into training and validation or test cells, and into folds."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastemf.inputs.file_lists import is_source
from fastemf.inputs.tables import is_table
from fastemf.sources.memory import Observations, observe
from fastemf.sources.source import Source
from fastemf.support.arrays import Ints, Mask
from fastemf.support.validation import check_choice, check_integer, check_number, check_rng


class Split(NamedTuple):
    """Training and test observations, as COO arrays of one shape."""

    train: Any
    test: Any


def split(R: Any, train: Any, *, by: str = "cell", random_state: Any = None) -> Split:
    """Split the observed cells of `R` at random into training and test cells.

    Repeated observations of a cell stay together. Weights are dropped, because COO arrays have
    none.

    Parameters
    ----------
    R
        Observations in any form that `fastemf.complete` takes.
    train
        Proportion of the cells for training, in (0, 1), or their number.
    by
        ``"cell"``: any cells; ``"row"``: this proportion, or number, of the cells of each row, at
        least one; ``"pair"``: unordered pairs, so that (i, j) and (j, i) are in the same part, for
        a symmetric matrix.
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
        raise ValueError(f"train must leave some test cells, got {train!r} of {found.size} cells")

    def part(mask: Mask) -> Any:
        entries = side.keys[mask].astype(np.int64), side.indices[mask].astype(np.int64)
        return sp.coo_array((side.values[mask], entries), shape=(m, n))

    return Split(part(kept), part(~kept))


def cells(observed: Observations, *, pairs: bool = False) -> tuple[Ints, Ints]:
    """Return the distinct observed cells, as row * columns + column, and each observation's cell.

    Splits are by cell, because repeated observations of a cell are correlated. With `pairs`,
    (i, j) and (j, i) are one cell. Observations are in the order of ``by_row``.
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
    """Return training and validation observations.

    `validation` is a proportion of the observed cells, or entries. The labels of entries are looked
    up among those of `observed`, if it has labels; `columns` are the column names of a table.
    """
    if not isinstance(validation, numbers.Real):
        schema = None if observed.features is None else observed.features.schema
        if observed.row_labels is not None:
            named = is_source(validation) or is_table(validation)
            rows, cols, values = columns if named else (None, None, None)
            given = observe(
                validation, rows=rows, cols=cols, values=values, features=schema,
                labels=(observed.row_labels, observed.col_labels), takes_intervals=True,
            )  # fmt: skip
        else:
            shape = observed.shape if isinstance(validation, tuple) else None
            given = observe(validation, shape=shape, features=schema, takes_intervals=True)
        if given.shape != observed.shape:
            raise ValueError(
                f"validation must have the shape of R, {observed.shape}, got {given.shape}"
            )
        return observed, given.astype(observed.dtype)
    if not 0 < check_number(validation, "validation") < 1:
        raise ValueError(
            "validation must be a proportion of the cells in (0, 1), or entries, got "
            f"{validation!r}"
        )
    if not isinstance(observed, Observations):
        raise TypeError(
            "validation must be entries if R is not in memory, because cells of a store or a "
            f"cluster cannot be held out; got the proportion {validation!r}"
        )
    mask = hold_out_mask(observed, float(validation), rng, "validation")
    return observed.subset(~mask), observed.subset(mask)


def hold_out_mask(
    observed: Observations, proportion: float, rng: np.random.Generator, name: str
) -> Mask:
    """Mark the observations of a random proportion of the cells, at least one cell."""
    found, of_cell = cells(observed)
    if found.size < 2:
        raise ValueError(f"{name} needs at least two cells observed, got {found.size}")
    chosen = np.zeros(found.size, bool)
    size = min(max(1, round(proportion * found.size)), found.size - 1)
    chosen[rng.choice(found.size, size, replace=False)] = True
    return chosen[of_cell]


def folds(
    observed: Observations, count: int, rng: np.random.Generator, *, parts: int = 1
) -> tuple[Ints, Ints]:
    """Return the fold of each observation and its part within the fold, both from 0.

    Folds and parts have about equally many cells. There are fewer parts if there are few cells.
    """
    found, of_cell = cells(observed)
    if count > found.size:
        raise ValueError(f"folds must be at most the {found.size} cells observed, got {count}")
    dealt = np.empty(found.size, np.int64)
    dealt[rng.permutation(found.size)] = np.arange(found.size)
    part, fold = np.divmod(dealt % (count * min(parts, found.size // count)), count)
    return fold[of_cell], part[of_cell]


def _train_size(train: Any, count: int, by: str) -> int:
    """Return the number of training cells out of `count`, at least one."""
    if isinstance(train, numbers.Integral):
        size = check_integer(train, "train", minimum=1)
        if by == "row":
            return min(size, count)
        if size >= count:
            raise ValueError(f"train must be below the {count} {by}s observed, got {train}")
        return size
    if not 0 < check_number(train, "train") < 1:
        raise ValueError(
            f"train must be a proportion in (0, 1) or a number of cells, got {train!r}"
        )
    return max(1, round(float(train) * count))
