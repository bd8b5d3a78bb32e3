"""The solve of a block of rows, which is the unit of work of every engine.

It is a pure function of its arguments. A row's solution depends on nothing but its own
observations, the other factor and where it starts, so blocks may be cut anywhere, solved
anywhere and in any order, and solved again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import problem as kernels
from fastemf.kernels.levels import LevelSweep, solve_levels
from fastemf.kernels.sweep import sweep_rows
from fastemf.kernels.threads import balanced, launch
from fastemf.observations.source import Side

__all__ = ["EVERYTHING", "Part", "RowProblem", "Solved", "solve_block"]

BLOCKS_PER_THREAD = 8  # blocks are scheduled statically: several per thread even out the work
ALL = 1 << 32  # hashes there are
WORK_OF_LAUNCH = 2e6  # below this the threads would wait longer than they work
WORK_PER_LAUNCH = 4e9  # multiply-adds per thread, about a second, after which Ctrl-C is heard


class Part(NamedTuple):
    """The cells whose hash is one of `span` numbers from `first` on, modulo 2³²."""

    first: int
    span: int

    def rest(self) -> Part:
        """Return all other cells."""
        return Part((self.first + self.span) % ALL, ALL - self.span)


EVERYTHING = Part(0, ALL)


class RowProblem(NamedTuple):
    """What all rows of a half-sweep have in common, beside the other factor."""

    omega: float
    n_factors: int  # coordinates with the first of a row's two ridges; the rest have the second
    solve: bool = True  # False evaluates at the start and moves nothing
    steps: int = 0  # 0 for exact solves, or how many steps of conjugate gradients a row gets
    newton: int = kernels.MAX_NEWTON  # iterations of an exact solve, at most
    part: Part = EVERYTHING  # cells that count, by the hash of their marks
    leverages: str = ""  # "sums" of each row's, where nothing is solved, or "each" observation's


class Solved(NamedTuple):
    """Rows that were solved: their factors, and the kernel's reports."""

    factor: NDArray[Any]
    stats: NDArray[np.float64]
    status: NDArray[np.int8]
    leverages: NDArray[np.float64]  # of each observation of a block, where asked for

    @classmethod
    def empty(cls, n_rows: int, q: int, dtype: np.dtype[Any], n_leverages: int = 0) -> Solved:
        """Make room for the rows of all blocks."""
        return cls(
            np.empty((n_rows, q), dtype),
            np.zeros((n_rows, kernels.N_STATS)),
            np.zeros(n_rows, np.int8),
            np.zeros(n_leverages),
        )

    def put(self, rows: slice, block: Solved) -> None:
        """Fill in the rows of a block."""
        self.factor[rows], self.stats[rows], self.status[rows], _ = block


def solve_block(
    side: Side,
    other: NDArray[Any],
    offset: NDArray[Any],
    scales: NDArray[Any],
    marks: NDArray[np.int64],
    start: NDArray[Any],
    ridge: NDArray[np.float64],
    own_marks: NDArray[np.int64],
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
    scales, marks
        What multiplies the weights, and what decides which cells count, by index on the other
        side; each may be empty.
    start
        (rows, q): where Newton's method starts, or where F is evaluated.
    ridge
        (rows, 2): the ridge of each row on its first coordinates, and on the rest.
    own_marks
        The marks of the rows, where those of the other side are given.
    problem
        What the rows have in common.
    n_threads
        Threads; the result does not depend on it.
    """
    dtype = side.dtype.type
    n_rows, q = start.shape
    n_leverages = side.size if problem.leverages == "each" else 0
    solved = Solved.empty(n_rows, q, start.dtype, n_leverages)
    limits = np.finfo(dtype)
    upper, lower = float(dtype(problem.omega)), float(dtype(1 - problem.omega))
    given = kernels.Problem(
        other, offset, kernels.Sample(scales, marks, own_marks, *problem.part),
        ridge, problem.n_factors, upper, lower, float(limits.eps), float(limits.tiny),
        problem.newton if problem.solve else 0, problem.steps, int(problem.leverages != ""),
        start,
    )  # fmt: skip
    rows = kernels.Rows(side.indptr, side.indices, side.values, side.weights)
    per_row = (q**3 / 3 + 10 * q) / (q * q)  # in units of an observation's q² multiply-adds
    work = (side.size + n_rows * per_row) * q * q
    if work < WORK_OF_LAUNCH:
        n_threads = 1
    for blocks in _launches(side, per_row, work, n_threads):
        if q == 1 and problem.n_factors == 0 and problem.leverages != "each":
            # One unknown: its solve has no line search to make a single step safe, nor is it dear.
            exact = given._replace(max_newton=kernels.MAX_NEWTON if problem.solve else 0)
            sweep = LevelSweep(rows, exact, kernels.Reports(*solved))
            launch(solve_levels, n_threads, blocks, sweep)
        else:
            sweep_rows(blocks, rows, given, kernels.Reports(*solved), n_threads)
    return solved


def _launches(
    side: Side, per_row: float, work: float, n_threads: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the blocks of each launch: all of them at once, unless that would take long."""
    n_launches = int(np.ceil(work / (WORK_PER_LAUNCH * n_threads)))
    if n_launches <= 1:
        yield side.runs(BLOCKS_PER_THREAD * n_threads, per_row)
        return
    for first, last in pairwise(side.runs(n_launches, per_row).tolist()):
        each = np.diff(side.indptr[first : last + 1]) + per_row
        yield first + balanced(each, BLOCKS_PER_THREAD * n_threads)
