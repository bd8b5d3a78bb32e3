"""The solve of a block of rows, which is the unit of work of every engine.

It is a pure function of its arguments. A row's solution depends on nothing but its own
observations, the other factor and where it starts, so blocks may be cut anywhere, solved
anywhere and in any order, and solved again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import problem as kernels
from fastemf.kernels.sweep import sweep_rows
from fastemf.kernels.threads import balanced
from fastemf.observations.source import Side

__all__ = ["RowProblem", "Solved", "solve_block"]

BLOCKS_PER_THREAD = 8  # blocks are scheduled statically: several per thread even out the work
WORK_PER_LAUNCH = 4e9  # multiply-adds per thread, about a second, after which Ctrl-C is heard


class RowProblem(NamedTuple):
    """What all rows of a half-sweep have in common, beside the other factor."""

    omega: float
    n_factors: int  # coordinates with a row's own ridge
    intercept_ridge: float  # on the rest
    solve: bool = True  # False evaluates at the start and moves nothing
    steps: int = 0  # 0 for exact solves, or how many steps of conjugate gradients a row gets


class Solved(NamedTuple):
    """Rows that were solved: their factors, and the kernel's reports."""

    factor: NDArray[Any]
    stats: NDArray[np.float64]
    status: NDArray[np.int8]

    @classmethod
    def empty(cls, n_rows: int, q: int, dtype: np.dtype[Any]) -> Solved:
        """Make room for the rows of all blocks."""
        return cls(
            np.empty((n_rows, q), dtype),
            np.zeros((n_rows, kernels.N_STATS)),
            np.zeros(n_rows, np.int8),
        )

    def put(self, rows: slice, block: Solved) -> None:
        """Fill in the rows of a block."""
        self.factor[rows], self.stats[rows], self.status[rows] = block


def solve_block(
    side: Side,
    other: NDArray[Any],
    offset: NDArray[Any],
    start: NDArray[Any],
    ridge: NDArray[np.float64],
    problem: RowProblem,
    n_threads: int,
) -> Solved:
    """Solve the rows of one block.

    Parameters
    ----------
    side
        The rows' observations.
    other, offset
        What the rows are regressed on, as `fastemf.kernels.width.padded` gives it, and what is
        subtracted from the values first, both by index on the other side; `offset` may be
        empty.
    start
        (rows, q): where Newton's method starts, or where F is evaluated.
    ridge
        The ridge of each row.
    problem
        What the rows have in common.
    n_threads
        Threads; the result does not depend on it.
    """
    dtype = side.dtype.type
    n_rows, q = start.shape
    solved = Solved.empty(n_rows, q, start.dtype)
    limits = np.finfo(dtype)
    upper, lower = float(dtype(problem.omega)), float(dtype(1 - problem.omega))
    given = kernels.Problem(
        other, offset, ridge, float(problem.intercept_ridge), problem.n_factors,
        upper, lower, float(limits.eps), float(limits.tiny),
        kernels.MAX_NEWTON if problem.solve else 0, problem.steps, start,
    )  # fmt: skip
    rows = kernels.Rows(side.indptr, side.indices, side.values, side.weights)
    work = np.diff(side.indptr) * float(q * q) + q**3 / 3 + 10 * q
    for group in _launches(work, n_threads):
        blocks = group[0] + balanced(work[group[0] : group[1]], BLOCKS_PER_THREAD * n_threads)
        sweep_rows(blocks, rows, given, kernels.Reports(*solved), n_threads)
    return solved


def _launches(work: NDArray[np.float64], n_threads: int) -> list[tuple[int, int]]:
    n_launches = int(np.ceil(work.sum() / (WORK_PER_LAUNCH * n_threads)))
    cuts = balanced(work, n_launches).tolist()
    return list(pairwise(cuts))
