"""Half-sweeps: every row of one side solved, block by block, and joined to one outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import problem as kernels
from fastemf.observations.source import Grouped, Source
from fastemf.solver.blocks import RowProblem, Solved, solve_block
from fastemf.solver.records import HalfSweep, Ridge

__all__ = ["CompletionEngine", "half_sweep", "outcome_of"]


def half_sweep(
    side: Grouped,
    other: NDArray[Any],
    offset: NDArray[Any],
    start: NDArray[Any],
    ridge: NDArray[np.float64],
    problem: RowProblem,
    *,
    n_threads: int,
    name: str = "row",
) -> HalfSweep:
    """Solve every row of one side, block after block; this is a pure function of its arguments.

    Parameters
    ----------
    side
        The rows' observations.
    other, offset, start, ridge, problem
        As in `solve_block`, for all rows, and `other` without its padding.
    name
        What a row is called in an error.
    """
    n_rows = start.shape[0]
    whole: Solved | None = None
    for rows, solved in side.each(
        solve_block, (other, offset), (start, ridge), problem, n_threads=n_threads
    ):
        if whole is None:
            if rows.stop == n_rows:
                return outcome_of(solved, name)
            whole = Solved.empty(n_rows, start.shape[1], start.dtype)
        whole.put(rows, solved)
    assert whole is not None  # a matrix has at least one row
    return outcome_of(whole, name)


def outcome_of(solved: Solved, name: str) -> HalfSweep:
    """Sum up the outcome of all rows of a side; raise where the equations of one are not finite."""
    broken = np.flatnonzero(solved.status == kernels.NOT_FINITE)
    if broken.size:
        raise FloatingPointError(
            f"the normal equations of {name} {broken[0]} are not finite in "
            f"{solved.factor.dtype} ({broken.size} such {name}s): the data or the factors are too "
            "large; rescale the data, use float64, or raise reg"
        )
    # Sums over rows happen here, in one order, whatever the blocks were.
    total = solved.stats.sum(axis=0)
    return HalfSweep(
        factor=solved.factor,
        above=float(total[kernels.ABOVE]),
        below=float(total[kernels.BELOW]),
        gradient=float(np.sqrt(total[kernels.GRADIENT])),
        inner_iterations=int(total[kernels.ITERATIONS]),
        sign_flips=int(total[kernels.FLIPS]),
        line_searches=int(total[kernels.SEARCHES]),
    )


class CompletionEngine:
    """Half-sweeps over the entries of a matrix, in this process, wherever they are kept.

    Factors carry an intercept as their last column where there are intercepts:
    rows then solve for (x_i, a_i) against (y_j, 1) with target b − μ − c_j, and
    the other way round, so one kernel serves both.

    Parameters
    ----------
    observations
        The entries.
    omega
        Expectile level.
    mu
        The constant that all intercepts are around, or None for a model without them.
    scale
        Spread around `mu` of the data the model was fitted to; the default is theirs.
    count_scaled
        Whether a row's ridge is multiplied by its number of observations.
    n_threads
        Threads of each launch.
    steps
        0 for exact solves, or how many steps of conjugate gradients a row gets.
    """

    def __init__(
        self,
        observations: Source,
        omega: float,
        *,
        mu: float | None,
        scale: float | None = None,
        count_scaled: bool,
        n_threads: int,
        steps: int = 0,
    ) -> None:
        self.omega = omega
        self.shape = observations.shape
        self.dtype = observations.dtype
        self._steps = steps
        self._mu = mu
        self._n_threads = n_threads
        self._sides = (observations.by_row, observations.by_col)
        self._scales = tuple(
            side.mass if count_scaled else np.ones_like(side.mass) for side in self._sides
        )
        self.mass = observations.mass
        self.size = observations.rms()
        self.rounding = 16 * float(np.finfo(observations.dtype).eps) * self.size
        self.spread = observations.rms(mu) if mu else self.size  # around mu
        if self.spread <= self.rounding:  # constant data have no spread: their size must do
            self.spread = self.size
        # The constant column beside the factors is as large as their entries should be (to a
        # power of two, so that nothing is rounded): then the minimum norm of a singular row
        # follows the data's unit, and the normal equations are evenly scaled.
        scale = self.spread if scale is None else scale
        exponent = np.frexp(np.sqrt(scale))[1] if scale > 0 else 0
        self._unit = observations.dtype.type(2.0**exponent)

    def solve(self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge) -> HalfSweep:
        """Find the best `this` (rows for axis 0, columns for axis 1) given `other`."""
        return self._half(axis, this, other, ridge, solve=True)

    def evaluate(self, X: NDArray[Any], Y: NDArray[Any]) -> HalfSweep:
        """Compute loss and gradient at (X, Y) without moving anything."""
        return self._half(0, X, Y, Ridge(0.0, 0.0), solve=False)

    def penalty(self, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge) -> float:
        """Compute λ (Σ n‖x‖² + Σ n‖y‖²) + λ₀ (Σ a² + Σ c²)."""
        total = 0.0
        for factor, scale in zip((X, Y), self._scales, strict=True):
            k = factor.shape[1] - (self._mu is not None)
            for part, weight in (
                (factor[:, :k], ridge.factors * scale),
                (factor[:, k:], np.full_like(scale, ridge.intercepts)),
            ):
                # This goes row by row in float64 without a copy of the factor.
                total += float(np.sum(np.einsum("ij,ij->i", part, part, dtype=np.float64) * weight))
        return total

    def _half(
        self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge, *, solve: bool
    ) -> HalfSweep:
        factors, intercepts, unit = this, ridge.intercepts, self._unit
        offset = np.empty(0, this.dtype)
        k = this.shape[1]
        if self._mu is not None:
            k -= 1
            offset = (self._mu + other[:, k]).astype(this.dtype)
            other = np.column_stack([other[:, :k], np.full_like(offset, unit)])
            factors = np.column_stack([this[:, :k], this[:, k] / unit])
            intercepts *= float(unit) ** 2
        half = half_sweep(
            self._sides[axis],
            other,
            offset,
            np.ascontiguousarray(factors),
            ridge.factors * self._scales[axis],
            RowProblem(self.omega, k, intercepts, solve, self._steps),
            n_threads=self._n_threads,
            name="row" if axis == 0 else "column",
        )
        if self._mu is not None:
            half.factor[:, k] *= unit
        return half
