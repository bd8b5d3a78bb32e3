"""The engine of a completion: half-sweeps and sums over the entries of a matrix."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.value_check import check_totals
from fastemf.kernels import problem as kernels
from fastemf.kernels import tally as tallies
from fastemf.observations.source import Grouped, Source
from fastemf.solver.blocks import EVERYTHING, RowProblem, Solved
from fastemf.solver.gathering import sampled_entries
from fastemf.solver.half_sweep import (
    NO_MARKS,
    Own,
    Regressors,
    check_finite,
    outcome_of,
    solve_side,
)
from fastemf.solver.records import HalfSweep, Ridge
from fastemf.solver.remainder import Remainder, Slopes, tally_block
from fastemf.solver.sampling import CellSample
from fastemf.solver.weighting import Pair, Weighting, count_scaled

__all__ = ["CompletionEngine"]

NAMES = ("row", "column")


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
    weighting
        How much rows, columns and their ridge count: the default is that of `count_scaled`.
    sample
        The cells that count; the default is all.
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
        weighting: Weighting | None = None,
        sample: CellSample | None = None,
        n_threads: int,
        steps: int = 0,
    ) -> None:
        self.omega = omega
        self.observations = observations
        self.shape = observations.shape
        self.dtype = observations.dtype
        self.sample = sample
        self.cells = EVERYTHING  # of which the observations are all there are
        self._steps = steps
        self._newton = kernels.MAX_NEWTON
        self.mu = mu
        self.n_threads = n_threads
        self._sides = (observations.by_row, observations.by_col)
        self.size = observations.rms()
        _check_range(observations, self.size)
        self.eps = float(np.finfo(observations.dtype).eps)
        self.rounding = 16 * self.eps * self.size
        self.spread = observations.rms(mu) if mu else self.size  # around mu
        if self.spread <= self.rounding:  # constant data have no spread: their size must do
            self.spread = self.size
        # The constant column beside the factors is as large as their entries should be (to a
        # power of two, so that nothing is rounded): then the minimum norm of a singular row
        # follows the data's unit, and the normal equations are evenly scaled.
        scale = self.spread if scale is None else scale
        exponent = np.frexp(np.sqrt(scale))[1] if scale > 0 else 0
        self._unit = observations.dtype.type(2.0**exponent)
        self.unit = 4.0**exponent  # of the data
        self.masses = self._masses()  # summed weights of rows and columns, of the cells that count
        self.mass = float(np.sum(self.masses[0]))
        self.weighting = count_scaled(self.masses) if weighting is None else weighting

    def view(
        self, sample: CellSample | None = None, weighting: Weighting | None = None
    ) -> CompletionEngine:
        """Return an engine for a sample of the same entries, or with another weighting.

        The default is this engine's sample, and, for its own sample, its weighting.
        """
        other = copy.copy(self)
        if sample is not None:
            other.sample = sample
            other = other.recounted()
        if weighting is not None:
            other.weighting = weighting
        return other

    def on(self, observations: Source) -> CompletionEngine:
        """Return an engine for the same entries, kept elsewhere."""
        other = copy.copy(self)
        other.observations = observations
        other._sides = (observations.by_row, observations.by_col)
        return other

    def in_type(self, dtype: np.dtype[Any]) -> CompletionEngine:
        """Return the same engine for entries that have been turned into another type."""
        other = copy.copy(self)
        other.dtype = dtype
        other.eps = float(np.finfo(dtype).eps)
        other.rounding = 16 * other.eps * self.size
        other._unit = dtype.type(self._unit)
        return other

    def stepping(self, most: int = 1) -> CompletionEngine:
        """Return the same engine, whose solves take so many Newton steps: F falls, or stays."""
        other = copy.copy(self)
        other._newton = most
        return other

    def solving(self) -> CompletionEngine:
        """Return the same engine, whose solves are exact."""
        return self.stepping(kernels.MAX_NEWTON)

    def on_threads(self, n_threads: int) -> CompletionEngine:
        """Return the same engine, on so many threads; several may be used at once on one each."""
        other = copy.copy(self)
        other.n_threads = n_threads
        return other

    def recounted(self) -> CompletionEngine:
        """Return the same engine for entries of which some have other weights than they had."""
        other = copy.copy(self)
        other.masses = other._masses()
        other.mass = float(np.sum(other.masses[0]))
        other.weighting = count_scaled(other.masses)
        return other

    def sampled(self, sample: CellSample) -> CompletionEngine:
        """Return an engine for the entries of a sample alone, in memory, in this one's units."""
        other = self.on(sampled_entries(self.observations, sample, self.n_threads)).recounted()
        other.cells = sample.part
        return other

    @property
    def has_intercepts(self) -> bool:
        """Whether the last column of the factors are intercepts."""
        return self.mu is not None

    def _masses(self) -> Pair:
        """Sum the weights of each row and each column, of the cells that count."""
        if self.sample is None:
            return self._sides[0].mass, self._sides[1].mass
        nothing = self.no_factors()
        ones = np.ones(nothing[0].shape[0]), np.ones(nothing[1].shape[0])
        rows, cols = (self.tally(axis, *nothing, scales=ones)[:, tallies.MASS] for axis in (0, 1))
        return rows, cols

    @property
    def count(self) -> int:
        """About how many observations count: all of them, or the sample's share."""
        share = 1.0 if self.sample is None else self.sample.part.span / self.cells.span
        return round(min(share, 1.0) * self.observations.size)

    def no_factors(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return a model of intercepts alone, all of them zero, or of nothing."""
        width, dtype = int(self.mu is not None), self.observations.dtype
        m, n = self.observations.shape
        return np.zeros((m, width), dtype), np.zeros((n, width), dtype)

    def with_intercepts(self) -> CompletionEngine:
        """Return an engine that has intercepts and weighs all observations alike."""
        other = copy.copy(self)
        other.weighting = count_scaled(self.masses)
        if self.mu is None:
            other.mu = self.observations.expectile(self.omega)
        return other

    # --- what the loop asks ----------------------------------------------------------------

    def solve(self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge) -> HalfSweep:
        """Find the best `this` (rows for axis 0, columns for axis 1) given `other`."""
        return self._half(axis, this, other, ridge, solve=True)

    def evaluate(self, X: NDArray[Any], Y: NDArray[Any]) -> HalfSweep:
        """Compute loss and gradient at (X, Y) without moving anything."""
        return self._half(0, X, Y, Ridge(0.0, 0.0), solve=False)

    def penalty(self, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge) -> float:
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
                # This goes row by row in float64 without a copy of the factor.
                total += float(np.sum(np.einsum("ij,ij->i", part, part, dtype=np.float64) * weight))
        return total

    def _half(
        self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge, *, solve: bool
    ) -> HalfSweep:
        problem = RowProblem(
            self.omega, self.n_factors(this), solve, self._steps, self._newton
        )  # fmt: skip
        solved = solve_side(
            self._sides[axis], *self._row_problem(axis, this, other, ridge, problem),
            n_threads=self.n_threads,
        )  # fmt: skip
        observed = self.weighting.observations
        if observed is not None:
            # A row was solved in units of its own weight.
            p = observed[axis]
            for column, factor in (
                (kernels.ABOVE, p), (kernels.BELOW, p), (kernels.GRADIENT, p)
            ):  # fmt: skip
                solved.stats[:, column] *= factor
        half = outcome_of(solved, NAMES[axis])
        if self.mu is not None:
            half.factor[:, -1] *= self._unit
        return half

    def n_factors(self, this: NDArray[Any]) -> int:
        """Count the columns of a factor beside the intercepts."""
        return int(this.shape[1]) - (self.mu is not None)

    def _row_problem(
        self,
        axis: int,
        this: NDArray[Any],
        other: NDArray[Any],
        ridge: Ridge,
        problem: RowProblem,
    ) -> tuple[Regressors, Own, RowProblem]:
        """Write the problem of one side as `solve_block` takes it."""
        weighting, sample, dtype = self.weighting, self.sample, this.dtype
        k, offset, intercepts = problem.n_factors, np.empty(0, dtype), ridge.intercepts
        scales, penalties = np.empty(0, dtype), np.empty((this.shape[0], 2))
        if self.mu is not None:
            unit = self._unit
            offset = (self.mu + other[:, k]).astype(dtype)
            other = np.column_stack([other[:, :k], np.full_like(offset, unit)])
            this = np.column_stack([this[:, :k], this[:, k] / unit])
            intercepts *= float(unit) ** 2
        penalties[:, 0] = ridge.factors * weighting.solved_ridge[axis]
        penalties[:, 1] = intercepts * weighting.intercepts[axis]
        if weighting.observations is not None:
            scales = weighting.observations[1 - axis].astype(dtype)
            penalties /= weighting.observations[axis][:, None]
        marks, own_marks, part = NO_MARKS, NO_MARKS, EVERYTHING
        if sample is not None:
            marks, own_marks, part = sample.marks[1 - axis], sample.marks[axis], sample.part
        return (
            Regressors(other, offset, scales, marks),
            Own(np.ascontiguousarray(this), penalties, own_marks),
            problem._replace(part=part),
        )

    # --- what a fit leaves -----------------------------------------------------------------

    def leverages(self, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge) -> Pair:
        """Compute the mean leverage per unit of weight of each row and each column."""
        return self.leverage(0, X, Y, ridge), self.leverage(1, Y, X, ridge)

    def leverage(
        self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge
    ) -> NDArray[np.float64]:
        """Compute the mean leverage per unit of weight of each row (axis 0) or column."""
        if this.shape[1] == 0:
            return np.zeros(this.shape[0])
        solved = self._levers(axis, this, other, ridge, "sums")
        check_finite(solved, NAMES[axis])
        freedom, weight = solved.stats[:, kernels.FREEDOM], solved.stats[:, kernels.WEIGHT]
        mean = np.divide(freedom, weight, out=np.zeros_like(weight), where=weight > 0)
        if self.weighting.observations is not None:
            mean /= self.weighting.observations[axis]
        return mean

    def leverage_of_each(
        self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge
    ) -> NDArray[np.float64]:
        """Compute the leverage of each observation in memory, by row (axis 0) or by column.

        It is 1 throughout a row whose equations are singular.
        """
        solved = self._levers(axis, this, other, ridge, "each")
        singular = solved.status == kernels.NOT_FINITE
        found = solved.leverages
        found[np.repeat(singular, np.diff(self._sides[axis].indptr))] = 1.0
        return found

    def _levers(
        self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge, kind: str
    ) -> Solved:
        problem = RowProblem(self.omega, self.n_factors(this), solve=False, leverages=kind)
        return solve_side(
            self._sides[axis], *self._row_problem(axis, this, other, ridge, problem),
            n_threads=self.n_threads,
        )  # fmt: skip

    def tally(
        self,
        axis: int,
        X: NDArray[Any],
        Y: NDArray[Any],
        leverages: Pair | None = None,
        shift: float = 0.0,
        variances: Pair | None = None,
        scales: Pair | None = None,
    ) -> NDArray[np.float64]:
        """Sum over what (X, Y) leave of each row (axis 0) or column: see `fastemf.kernels.tally`.

        `leverages` are those of `leverages`, or None for residuals as they are; `scales` are by
        default those of the weighting.
        """
        scales = self.weighting.observations if scales is None else scales
        known = self._known(X, Y, scales, leverages, variances)
        return self._remainder(axis, X, Y, known, shift).sums(self._sides[axis], tally_block)

    def remainder(self, X: NDArray[Any], Y: NDArray[Any]) -> tuple[Grouped, Remainder]:
        """Return the entries by row, and what (X, Y) leave of them, for other tasks."""
        known = self._known(X, Y, None, None, None)
        return self._sides[0], self._remainder(0, X, Y, known, 0.0)

    def slopes(
        self, X: NDArray[Any], Y: NDArray[Any], scales: Pair, *, signed: bool
    ) -> tuple[Slopes, Slopes]:
        """Return the matrix of slopes of the loss, scaled by row and column, by its products."""
        if signed and self.sample is None:
            raise ValueError("random signs need the marks of a sample")
        known = self._known(X, Y, scales, None, None)
        forward, backward = (
            Slopes(self._sides[axis], self._remainder(axis, X, Y, known, 0.0), signed)
            for axis in (0, 1)
        )
        return forward, backward

    def _known(
        self,
        X: NDArray[Any],
        Y: NDArray[Any],
        scales: Pair | None,
        leverages: Pair | None,
        variances: Pair | None,
    ) -> Pair:
        """Gather what is known of each row and each column, in the columns of a tally."""
        found = []
        for axis, factor in enumerate((X, Y)):
            known = np.zeros((factor.shape[0], tallies.N_KNOWN))
            if self.mu is not None:
                known[:, tallies.OFFSET] = factor[:, -1]
            if self.mu is not None and axis == 0:
                known[:, tallies.OFFSET] += self.mu
            known[:, tallies.SCALE] = 1.0 if scales is None else scales[axis]
            known[:, tallies.LEVERAGE] = 0.0 if leverages is None else leverages[axis]
            known[:, tallies.VARIANCE] = 1.0 if variances is None else variances[axis]
            found.append(known)
        return found[0], found[1]

    def _remainder(
        self, axis: int, X: NDArray[Any], Y: NDArray[Any], known: Pair, shift: float
    ) -> Remainder:
        k = self.n_factors(X)
        factors = X[:, :k], Y[:, :k]
        marks, part = (NO_MARKS, NO_MARKS), EVERYTHING
        if self.sample is not None:
            marks, part = self.sample.marks, self.sample.part
        return Remainder(
            np.ascontiguousarray(factors[axis]), np.ascontiguousarray(factors[1 - axis]),
            known[axis], known[1 - axis], marks[axis], marks[1 - axis],
            part, self.omega, shift, self.unit, self.n_threads,
        )  # fmt: skip


def _check_range(observations: Source, size: float) -> None:
    """Refuse observations whose weighted sums leave their dtype's range; `size` is their RMS."""
    if size == 0 and not observations.by_row.sums(_sizes) > 0:
        return  # all are zero
    heaviest = max(float(side.mass.max()) for side in (observations.by_row, observations.by_col))
    check_totals("R", size, observations.mass, heaviest, observations.dtype)


def _sizes(values: NDArray[Any], weights: NDArray[Any]) -> float:
    return float(np.sum(np.abs(values), dtype=np.float64))
