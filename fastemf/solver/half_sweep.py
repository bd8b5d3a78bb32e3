"""Half-sweeps: every row of one side solved, block by block.

The solve of a block of rows is the unit of work of every engine, and a pure function of its
arguments. The solution of a row depends only on its own observations, the other factor and its
start, so blocks may be cut anywhere, solved anywhere and in any order, and solved again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import problem as kernels
from fastemf.kernels.intercept_rows import InterceptSweep, solve_intercepts
from fastemf.kernels.sweep import sweep_rows
from fastemf.kernels.threads import balance_blocks, launch
from fastemf.loss import level_weights
from fastemf.solver.records import HalfSweep, norm, sum_rows
from fastemf.sources.cell_sample import ALL_CELLS, HashRange
from fastemf.sources.source import BLOCKS_PER_THREAD, WORK_OF_LAUNCH, Grouped, Side
from fastemf.support.arrays import Array, Floats, Ints

NO_MARKS = np.empty(0, np.int64)
WORK_PER_LAUNCH = 4e9  # multiply-adds per thread, about a second, so that Ctrl-C is noticed


class Regressors(NamedTuple):
    """Arrays by index on the other side; all but the first may be empty."""

    other: Array  # the other factor, on which rows are regressed
    offset: Array  # subtracted from the values
    scales: Array  # multiply the weights
    marks: Ints = NO_MARKS  # determine which cells are in the sample

    @classmethod
    def of(cls, other: Array, offset: Array | None = None) -> Regressors:
        """Make regressors of all cells, with equal weights."""
        empty = np.empty(0, other.dtype)
        return cls(other, empty if offset is None else offset, empty)


class RowArrays(NamedTuple):
    """Arrays by row."""

    start: Array  # (rows, q): where Newton's method starts, or F is evaluated
    ridge: Floats  # (rows, 2): ridge of the first coordinates, and of the rest
    marks: Ints = NO_MARKS


class RowProblem(NamedTuple):
    """Parameters that all rows of a half-sweep share."""

    omega: float
    n_factors: int  # coordinates with the first of a row's two ridges; the rest have the second
    solve: bool = True  # False evaluates at the start and moves nothing
    steps: int = 0  # of conjugate gradients for each row; 0 for exact solves
    newton: int = kernels.MAX_NEWTON  # iterations of an exact solve, at most
    part: HashRange = ALL_CELLS  # the sample of cells
    leverages: str = ""  # "sums" by row or "each" observation's, where nothing is solved


class SolvedRows(NamedTuple):
    """Factors of rows, with the kernel's reports."""

    factor: Array
    stats: Floats
    status: NDArray[np.int8]
    leverages: Floats  # of each observation of a block, on request

    @classmethod
    def empty(cls, n_rows: int, q: int, dtype: np.dtype[Any], n_leverages: int = 0) -> SolvedRows:
        """Allocate the arrays of some rows."""
        return cls(
            np.empty((n_rows, q), dtype),
            np.zeros((n_rows, kernels.N_STATS)),
            np.zeros(n_rows, np.int8),
            np.zeros(n_leverages),
        )

    def put(self, rows: slice, block: SolvedRows) -> None:
        """Copy the rows of a block."""
        self.factor[rows], self.stats[rows], self.status[rows], _ = block


def solve_block(side: Side, *args: Any) -> SolvedRows:
    """Solve the rows of one block.

    The arguments after `side`, the rows' observations, are the fields of `Regressors` with
    ``other`` as `pad_columns` returns it, those of `RowArrays`, the `RowProblem` and the number of
    threads, on which the result does not depend.
    """
    given, own = Regressors(*args[:4]), RowArrays(*args[4:7])
    problem: RowProblem = args[7]
    n_threads: int = args[8]
    dtype = side.dtype.type
    n_rows, q = own.start.shape
    n_leverages = side.size if problem.leverages == "each" else 0
    solved = SolvedRows.empty(n_rows, q, own.start.dtype, n_leverages)
    limits = np.finfo(dtype)
    upper, lower = (float(dtype(weight)) for weight in level_weights(problem.omega))
    kernel_problem = kernels.Problem(
        given.other, given.offset,
        kernels.Sample(given.scales, given.marks, own.marks, *problem.part),
        own.ridge, problem.n_factors, upper, lower, float(limits.eps), float(limits.tiny),
        problem.newton if problem.solve else 0, problem.steps, int(problem.leverages != ""),
        own.start,
    )  # fmt: skip
    rows = kernels.Rows(side.indptr, side.indices, side.values, side.weights)
    per_row = (q**3 / 3 + 10 * q) / (q * q)  # in units of an observation's q² multiply-adds
    work = (side.size + n_rows * per_row) * q * q
    if work < WORK_OF_LAUNCH:
        n_threads = 1
    for blocks in _plan_launches(side, per_row, work, n_threads):
        if q == 1 and problem.n_factors == 0 and problem.leverages != "each":
            # One unknown: without a line search a single step is not safe, and a solve is cheap.
            exact = kernel_problem._replace(max_newton=kernels.MAX_NEWTON if problem.solve else 0)
            sweep = InterceptSweep(rows, exact, kernels.Reports(*solved))
            launch(solve_intercepts, n_threads, blocks, sweep)
        else:
            sweep_rows(blocks, rows, kernel_problem, kernels.Reports(*solved), n_threads)
    return solved


def _plan_launches(side: Side, per_row: float, work: float, n_threads: int) -> Iterator[Ints]:
    """Yield the blocks of each launch: a single launch, unless that would take long."""
    n_launches = int(np.ceil(work / (WORK_PER_LAUNCH * n_threads)))
    if n_launches <= 1:
        yield side.runs(BLOCKS_PER_THREAD * n_threads, per_row)
        return
    for first, last in pairwise(side.runs(n_launches, per_row).tolist()):
        each = np.diff(side.indptr[first : last + 1]) + per_row
        yield first + balance_blocks(each, BLOCKS_PER_THREAD * n_threads)


def solve_side(
    side: Grouped, given: Regressors, own: RowArrays, problem: RowProblem, *, n_threads: int
) -> SolvedRows:
    """Solve every row of one side, block after block."""
    n_rows, q = own.start.shape
    whole: SolvedRows | None = None
    for rows, solved in side.each(solve_block, given, own, problem, n_threads=n_threads):
        if whole is None:
            if rows.stop == n_rows:
                return solved  # type: ignore[no-any-return]
            whole = SolvedRows.empty(n_rows, q, own.start.dtype)
        whole.put(rows, solved)
    assert whole is not None  # a matrix has at least one row
    return whole


def summarize_rows(solved: SolvedRows, name: str) -> HalfSweep:
    """Sum up the reports of all rows of a side; `name` is that of a row in errors."""
    check_finite(solved, name)
    # Sums over rows have one order, whatever the blocks.
    sums = sum_rows(solved.stats)
    return HalfSweep(
        factor=solved.factor,
        above=float(sums[kernels.ABOVE]),
        below=float(sums[kernels.BELOW]),
        gradient=norm(solved.stats[:, kernels.GRADIENT]),
        inner_iterations=int(sums[kernels.ITERATIONS]),
        sign_flips=int(sums[kernels.FLIPS]),
        line_searches=int(sums[kernels.SEARCHES]),
    )


def check_finite(solved: SolvedRows, name: str) -> None:
    """Raise where the equations of a row are not finite."""
    broken = np.flatnonzero(solved.status == kernels.NOT_FINITE)
    if broken.size:
        raise FloatingPointError(
            f"the normal equations of {name} {broken[0]} are not finite in "
            f"{solved.factor.dtype} ({broken.size} such {name}s): the data or the factors are too "
            "large; rescale the data, use float64, or raise reg"
        )
