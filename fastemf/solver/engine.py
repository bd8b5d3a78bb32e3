"""The engine of a completion: half-sweeps and sums over the entries of a matrix."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from fastemf.inputs.value_check import check_totals
from fastemf.kernels import problem as kernels
from fastemf.kernels import residual_sums as sums
from fastemf.solver.half_sweep import (
    NO_MARKS,
    Regressors,
    RowArrays,
    RowProblem,
    SolvedRows,
    check_finite,
    solve_side,
    summarize_rows,
)
from fastemf.solver.records import HalfSweep, Ridge
from fastemf.solver.residual_sums import residual_sums
from fastemf.solver.weighting import Pair, Weighting, count_weighting
from fastemf.sources.cell_sample import ALL_CELLS, CellSample
from fastemf.sources.source import Source
from fastemf.support.arrays import Array, Floats

NAMES = ("row", "column")


class CompletionEngine:
    """Half-sweeps over the entries of a matrix, which may be in memory, on disk or on a cluster.

    Intercepts are the last column of the factors: rows then solve for (x_i, a_i) against (y_j, 1)
    with target b − μ − c_j, and columns likewise, so one kernel serves both.

    Parameters
    ----------
    observations
        The entries.
    omega
        Expectile level.
    mu
        The constant of a model with intercepts; None without intercepts.
    scale
        Spread around `mu` of the data to which a model was fitted. Defaults to that of the entries.
    weighting
        Weights of rows and columns and of their ridge. Defaults to `count_weighting`.
    sample
        The cells to use. Defaults to all.
    n_threads
        Threads of each launch.
    steps
        Steps of conjugate gradients for each row; 0 for exact solves.
    """

    def __init__(
        self,
        observations: Source,
        omega: float,
        *,
        mu: float | None,
        scale: float | None = None,
        weighting: Weighting | None = None,
        sample: CellSample | None = None,
        n_threads: int,
        steps: int = 0,
    ) -> None:
        self.observations = observations
        self.omega = omega
        self.mu = mu
        self.sample = sample
        self.cells = ALL_CELLS  # from which the observations were sampled
        self.n_threads = n_threads
        self.max_newton = kernels.MAX_NEWTON  # iterations of an exact solve
        self._steps = steps
        self.size = observations.rms()
        _check_range(observations, self.size)
        self._use_source()
        self.spread = observations.rms(mu) if mu else self.size  # around mu
        if self.spread <= self.rounding:  # constant data have no spread: use their size
            self.spread = self.size
        # The constant column beside the factors is as large as their entries should be (to a
        # power of two, so that nothing is rounded): then the minimum norm of a singular row
        # follows the data's unit, and the normal equations are evenly scaled.
        scale = self.spread if scale is None else scale
        exponent = np.frexp(np.sqrt(scale))[1] if scale > 0 else 0
        self._unit = 2.0**exponent
        self.unit = 4.0**exponent  # of the data
        self._count()
        if weighting is not None:
            self.weighting = weighting

    def replace(self, *, recount: bool = False, **changes: Any) -> CompletionEngine:
        """Return a copy with other attributes, in the units of this engine.

        Parameters
        ----------
        recount
            Whether to sum the weights of rows and columns again, as after a change of weights;
            the weighting is then that of `count_weighting`. A new `sample` implies it.
        **changes
            ``observations`` (the same entries elsewhere, or with other values or weights),
            ``sample``, ``weighting``, ``mu``, ``cells``, ``n_threads`` and ``max_newton``.
        """
        other = copy.copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        if "observations" in changes:
            other._use_source()
        if recount or "sample" in changes:
            other._count()
        if "weighting" in changes:
            other.weighting = changes["weighting"]
        return other

    def _use_source(self) -> None:
        """Set the attributes that follow from the observations."""
        observations = self.observations
        self._sides = (observations.by_row, observations.by_col)
        self.shape, self.dtype = observations.shape, observations.dtype
        self.eps = float(np.finfo(self.dtype).eps)
        self.rounding = 16 * self.eps * self.size

    def _count(self) -> None:
        """Sum the weights of each row and each column, of the cells in the sample."""
        if self.sample is None:
            self.masses: Pair = self._sides[0].mass, self._sides[1].mass
        else:
            zero = self.no_factors()
            ones = np.ones(zero[0].shape[0]), np.ones(zero[1].shape[0])
            rows, cols = (
                residual_sums(self, axis, *zero, scales=ones)[:, sums.MASS] for axis in (0, 1)
            )
            self.masses = rows, cols
        self.mass = float(np.sum(self.masses[0]))
        self.weighting = count_weighting(self.masses)

    @property
    def has_intercepts(self) -> bool:
        """Whether the last column of the factors are intercepts."""
        return self.mu is not None

    @property
    def count(self) -> int:
        """Approximate number of observations in the sample."""
        proportion = 1.0 if self.sample is None else self.sample.part.span / self.cells.span
        return round(min(proportion, 1.0) * self.observations.size)

    def no_factors(self) -> tuple[Array, Array]:
        """Return factors of rank 0, with zero intercepts where the model has intercepts."""
        width, dtype = int(self.mu is not None), self.observations.dtype
        m, n = self.observations.shape
        return np.zeros((m, width), dtype), np.zeros((n, width), dtype)

    # --- half-sweeps -----------------------------------------------------------------------

    def solve(self, axis: int, this: Array, other: Array, ridge: Ridge) -> HalfSweep:
        """Find the optimal `this` (rows for axis 0, columns for axis 1) given `other`."""
        return self._half(axis, this, other, ridge, solve=True)

    def evaluate(self, X: Array, Y: Array) -> HalfSweep:
        """Compute loss and gradient at (X, Y) without moving anything."""
        return self._half(0, X, Y, Ridge(0.0, 0.0), solve=False)

    def penalty(self, X: Array, Y: Array, ridge: Ridge) -> float:
        """Compute λ (Σ d‖x‖² + Σ e‖y‖²) + λ₀ (Σ f a² + Σ g c²)."""
        total = 0.0
        weighting = self.weighting
        for factor, scale, scale_0 in zip(
            (X, Y), weighting.ridge, weighting.intercepts, strict=True
        ):
            k = factor.shape[1] - (self.mu is not None)
            for part, weight in (
                (factor[:, :k], ridge.factors * scale),
                (factor[:, k:], ridge.intercepts * scale_0),
            ):
                # einsum sums row by row in float64, without a copy of the factor.
                total += float(np.sum(np.einsum("ij,ij->i", part, part, dtype=np.float64) * weight))
        return total

    def _half(
        self, axis: int, this: Array, other: Array, ridge: Ridge, *, solve: bool
    ) -> HalfSweep:
        problem = RowProblem(
            self.omega, self.n_factors(this), solve, self._steps, self.max_newton
        )  # fmt: skip
        solved = self._solve_rows(axis, this, other, ridge, problem)
        observed = self.weighting.observations
        if observed is not None:
            # A row was solved in units of its own weight.
            for column in (kernels.ABOVE, kernels.BELOW, kernels.GRADIENT):
                solved.stats[:, column] *= observed[axis]
        half = summarize_rows(solved, NAMES[axis])
        if self.mu is not None:
            half.factor[:, -1] *= half.factor.dtype.type(self._unit)
        return half

    def n_factors(self, this: Array) -> int:
        """Return the number of columns of a factor without the intercepts."""
        return int(this.shape[1]) - (self.mu is not None)

    def _solve_rows(
        self, axis: int, this: Array, other: Array, ridge: Ridge, problem: RowProblem
    ) -> SolvedRows:
        """Solve or evaluate the rows of one side."""
        weighting, sample, dtype = self.weighting, self.sample, this.dtype
        k, offset, intercepts = problem.n_factors, np.empty(0, dtype), ridge.intercepts
        scales, penalties = np.empty(0, dtype), np.empty((this.shape[0], 2))
        if self.mu is not None:
            unit = dtype.type(self._unit)
            offset = (self.mu + other[:, k]).astype(dtype)
            other = np.column_stack([other[:, :k], np.full_like(offset, unit)])
            this = np.column_stack([this[:, :k], this[:, k] / unit])
            intercepts *= float(unit) ** 2
        penalties[:, 0] = ridge.factors * weighting.solved_ridge[axis]
        penalties[:, 1] = intercepts * weighting.intercepts[axis]
        if weighting.observations is not None:
            scales = weighting.observations[1 - axis].astype(dtype)
            penalties /= weighting.observations[axis][:, None]
        marks = own_marks = NO_MARKS
        if sample is not None:
            marks, own_marks = sample.marks[1 - axis], sample.marks[axis]
            problem = problem._replace(part=sample.part)
        return solve_side(
            self._sides[axis],
            Regressors(other, offset, scales, marks),
            RowArrays(np.ascontiguousarray(this), penalties, own_marks),
            problem,
            n_threads=self.n_threads,
        )

    # --- leverages -------------------------------------------------------------------------

    def leverages(self, X: Array, Y: Array, ridge: Ridge) -> Pair:
        """Compute the mean leverage per unit of weight of each row and each column."""
        return self.leverage(0, X, Y, ridge), self.leverage(1, Y, X, ridge)

    def _leverage_rows(
        self, axis: int, this: Array, other: Array, ridge: Ridge, kind: str
    ) -> SolvedRows:
        problem = RowProblem(self.omega, self.n_factors(this), solve=False, leverages=kind)
        return self._solve_rows(axis, this, other, ridge, problem)

    def leverage(self, axis: int, this: Array, other: Array, ridge: Ridge) -> Floats:
        """Compute the mean leverage per unit of weight of each row (axis 0) or column."""
        if this.shape[1] == 0:
            return np.zeros(this.shape[0])
        solved = self._leverage_rows(axis, this, other, ridge, "sums")
        check_finite(solved, NAMES[axis])
        freedom, weight = solved.stats[:, kernels.FREEDOM], solved.stats[:, kernels.WEIGHT]
        mean = np.divide(freedom, weight, out=np.zeros_like(weight), where=weight > 0)
        if self.weighting.observations is not None:
            mean /= self.weighting.observations[axis]
        return mean

    def leverage_of_each(self, axis: int, this: Array, other: Array, ridge: Ridge) -> Floats:
        """Compute the leverage of each observation in memory, by row (axis 0) or by column.

        In a row whose equations are singular it is 1.
        """
        solved = self._leverage_rows(axis, this, other, ridge, "each")
        singular = solved.status == kernels.NOT_FINITE
        found = solved.leverages
        found[np.repeat(singular, np.diff(self._sides[axis].indptr))] = 1.0
        return found


def _check_range(observations: Source, size: float) -> None:
    """Refuse observations whose weighted sums leave their dtype's range; `size` is their RMS."""
    if size == 0 and not observations.sums(_sizes) > 0:
        return  # all are zero
    heaviest = max(float(side.mass.max()) for side in (observations.by_row, observations.by_col))
    check_totals("R", size, observations.mass, heaviest, observations.dtype)


def _sizes(values: Array, weights: Array) -> float:
    return float(np.sum(np.abs(values), dtype=np.float64))
