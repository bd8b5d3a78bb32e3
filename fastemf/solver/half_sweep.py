"""Half-sweeps: every row of one side solved, block by block, and joined to one outcome."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import problem as kernels
from fastemf.observations.source import Grouped
from fastemf.solver.blocks import RowProblem, Solved, solve_block
from fastemf.solver.records import HalfSweep, norm

__all__ = ["Own", "Regressors", "half_sweep", "outcome_of", "solve_side"]

NO_MARKS = np.empty(0, np.int64)


class Regressors(NamedTuple):
    """What the rows are regressed on, by index on the other side, as in `solve_block`."""

    other: NDArray[Any]  # without its padding
    offset: NDArray[Any]
    scales: NDArray[Any]
    marks: NDArray[np.int64] = NO_MARKS

    @classmethod
    def of(cls, other: NDArray[Any], offset: NDArray[Any] | None = None) -> Regressors:
        """Take all cells as they are."""
        none = np.empty(0, other.dtype)
        return cls(other, none if offset is None else offset, none)


class Own(NamedTuple):
    """What each row brings along, as in `solve_block`."""

    start: NDArray[Any]
    ridge: NDArray[np.float64]
    marks: NDArray[np.int64] = NO_MARKS


def half_sweep(
    side: Grouped,
    given: Regressors,
    own: Own,
    problem: RowProblem,
    *,
    n_threads: int,
    name: str = "row",
) -> HalfSweep:
    """Solve every row of one side; this is a pure function of its arguments.

    `name` is what a row is called in an error.
    """
    return outcome_of(solve_side(side, given, own, problem, n_threads=n_threads), name)


def solve_side(
    side: Grouped, given: Regressors, own: Own, problem: RowProblem, *, n_threads: int
) -> Solved:
    """Solve every row of one side, block after block, and return the reports of all."""
    n_rows, q = own.start.shape
    whole: Solved | None = None
    for rows, solved in side.each(solve_block, given, own, problem, n_threads=n_threads):
        if whole is None:
            if rows.stop == n_rows:
                return solved  # type: ignore[no-any-return]
            whole = Solved.empty(n_rows, q, own.start.dtype)
        whole.put(rows, solved)
    assert whole is not None  # a matrix has at least one row
    return whole


def outcome_of(solved: Solved, name: str) -> HalfSweep:
    """Sum up the outcome of all rows of a side; raise where the equations of one are not finite."""
    check_finite(solved, name)
    # Sums over rows happen here, in one order, whatever the blocks were; `sum` is much slower.
    total = np.einsum("ij->j", solved.stats)
    return HalfSweep(
        factor=solved.factor,
        above=float(total[kernels.ABOVE]),
        below=float(total[kernels.BELOW]),
        gradient=norm(solved.stats[:, kernels.GRADIENT]),
        inner_iterations=int(total[kernels.ITERATIONS]),
        sign_flips=int(total[kernels.FLIPS]),
        line_searches=int(total[kernels.SEARCHES]),
    )


def check_finite(solved: Solved, name: str) -> None:
    """Raise where the equations of a row are not finite."""
    broken = np.flatnonzero(solved.status == kernels.NOT_FINITE)
    if broken.size:
        raise FloatingPointError(
            f"the normal equations of {name} {broken[0]} are not finite in "
            f"{solved.factor.dtype} ({broken.size} such {name}s): the data or the factors are too "
            "large; rescale the data, use float64, or raise reg"
        )
