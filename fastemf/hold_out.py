"""Which observed cells to fit and which to judge by."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.observations import observe
from fastemf.validation import check_choice, check_integer, check_number, check_rng

__all__ = ["Split", "split"]


class Split(NamedTuple):
    """Observations to fit and observations to judge by, as COO arrays of one shape."""

    train: Any
    test: Any


def split(R: Any, train: Any, *, by: str = "cell", random_state: Any = None) -> Split:
    """Divide the observed cells of `R` at random into those to fit and those to judge by.

    Repeated observations of a cell stay together.

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
    side = observed.by_row
    rows, cols = side.keys.astype(np.int64), side.indices.astype(np.int64)
    if by == "pair":
        if m != n:
            raise ValueError(f'by="pair" needs a square matrix, got {m} x {n}')
        cells = np.minimum(rows, cols) * n + np.maximum(rows, cols)
    else:
        cells = rows * n + cols
    cells, of_cell = np.unique(cells, return_inverse=True)
    chosen = np.zeros(cells.size, bool)
    if by == "row":
        of_row = cells // n
        order = np.lexsort((rng.random(cells.size), of_row))  # cells of a row, shuffled
        counts = np.bincount(of_row, minlength=m)
        place = np.arange(cells.size) - np.repeat(np.cumsum(counts) - counts, counts)
        sizes = np.array([_train_size(train, count, "row") if count else 0 for count in counts])
        chosen[order] = place < sizes[of_row[order]]
    else:
        size = _train_size(train, cells.size, by)
        chosen[rng.choice(cells.size, size, replace=False)] = True
    kept = chosen[of_cell]
    if kept.all():
        raise ValueError(f"train must leave cells to judge by, got {train!r} of {cells.size} cells")

    def part(mask: NDArray[np.bool_]) -> Any:
        return sp.coo_array((side.values[mask], (rows[mask], cols[mask])), shape=(m, n))

    return Split(part(kept), part(~kept))


def _train_size(train: Any, count: int, by: str) -> int:
    """How many of `count` cells: a share of them, at least one, or the number itself."""
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
