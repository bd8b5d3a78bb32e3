"""`BuckleyJames`: a fit of censored data that alternates between imputation and sweeps.

Buckley and James (1979) replace each censored value by its conditional expectation given the
limit, under the Kaplan–Meier estimate of the residuals, and refit. Here residuals are in units of
the noise of rows and columns. A first fit gives the censored entries weight 0; then imputed values
and factors are updated in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastemf.censoring.imputation import (
    Imputation,
    codes_as_values,
    half_widths_as_values,
    impute_source,
    without_censored,
)
from fastemf.censoring.kaplan_meier import (
    ResidualDistribution,
    conditional_expectation,
    residual_distribution,
)
from fastemf.censoring.limits import BETWEEN, LEFT, RIGHT, CensoringLimit
from fastemf.censoring.turnbull import IntervalDistributions, interval_distributions
from fastemf.loss import level_weights
from fastemf.solver.alternation import Solution
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.ridge import noise_ridge
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors, starting_factors
from fastemf.solver.weighting import Pair
from fastemf.sources.cell_sample import Marks
from fastemf.support.arrays import Array, Floats, Ints, Mask
from fastemf.tuning.noise import unit_variances, update_variances
from fastemf.tuning.trial import run_sweeps
from fastemf.tuning.validation_cells import pick_cells

FIRST_SWEEPS, SWEEPS = 10, 5  # without the censored entries, and after each imputation
ROUNDS = 3
INTERVAL_ROUNDS = 10  # fits in intervals start from their middles, and approach slowly
NOISE_ROUNDS = 4
LARGEST_EXCESS = 8.0  # imputed values are at most so many spreads beyond the furthest limit
MOST_CELLS = 300_000  # observations for the distribution of the residuals
TOL = 1e-6
OUTLIERS = 0.01  # proportion of the censored cells with the lowest fitted values
FEWEST = 100  # observed cells that suffice for a conditional expectation


class _Cells(NamedTuple):
    """A sample of cells, for the distribution of the residuals."""

    rows: Ints
    cols: Ints
    values: Floats
    weights: Floats
    fitted: Floats
    codes: Array
    half_widths: Floats

    def residuals(self, scales: Pair) -> Floats:
        """Compute residuals in units of the noise."""
        return (self.values - self.fitted) / (scales[0][self.rows] * scales[1][self.cols])

    def estimate(
        self, estimator: Callable[..., Any], scales: Pair, *args: tuple[Any, Any]
    ) -> list[Any]:
        """Estimate from the residuals towards the right and, mirrored, towards the left.

        Each of `args` has a value for the right and one for the left.
        """
        r = self.residuals(scales)
        found = []
        for code, *more in zip((RIGHT, LEFT), *args, strict=True):
            near = self._similar_to_censored(code)
            lost = self.codes[near] == code
            found.append(estimator(code * r[near], lost, self.weights[near], *more))
        return found

    def estimate_intervals(self, scales: Pair, omega: float) -> IntervalDistributions | None:
        """Estimate the distributions of residuals in intervals; None if there are none."""
        if not (self.codes == BETWEEN).any():
            return None
        r, noise = self.residuals(scales), scales[0][self.rows] * scales[1][self.cols]
        lower = np.where(self.codes == LEFT, -np.inf, r - self.half_widths / noise)
        upper = np.where(self.codes == RIGHT, np.inf, r + self.half_widths / noise)
        return interval_distributions(self.fitted, lower, upper, self.weights, omega)

    def _similar_to_censored(self, code: int) -> Mask:
        """Mark the cells whose fitted values are similar to those of censored cells.

        Their residuals contain the shrinkage of large values by a ridge, and noise that grows
        with the value. All cells are marked if too few similar ones were observed.
        """
        censored = self.codes == code
        if not censored.any():
            return np.ones(censored.size, bool)
        towards = code * self.fitted
        order = np.argsort(towards[censored])
        reached = np.cumsum(self.weights[censored][order])
        least = towards[censored][order][np.searchsorted(reached, OUTLIERS * reached[-1])]
        similar = towards >= least
        enough = self.weights[similar & ~censored].sum() >= FEWEST
        return similar if enough else np.ones_like(similar)


class BuckleyJames:
    """Imputation of the censored observations of a fit.

    Parameters
    ----------
    engine
        Engine of all observations, with censored values as recorded.
    limit
        The common censoring limit; None where each observation has its own code.
    marks
        Marks of rows and columns, which select the cells for the distribution of the residuals.
    """

    def __init__(
        self, engine: CompletionEngine, limit: CensoringLimit | None, marks: Marks
    ) -> None:
        self._engine, self._limit, self._marks = engine, limit, marks
        self._uncensored = engine.replace(
            observations=without_censored(engine.observations, limit)
        ).replace(recount=True)
        if not self._uncensored.mass > 0:
            raise ValueError("censored must leave some observations uncensored, got all censored")
        self._latest: tuple[Solution, Imputation] | None = None

    def initial_solution(self, settings: Settings) -> Solution:
        """Fit the uncensored entries, then all entries in turn with the imputed values.

        The ridge is the noise-adaptive one, independent of the final fit.
        """
        uncensored, k, rng = self._uncensored, settings.k, np.random.default_rng(0)
        factors = starting_factors("spectral", uncensored, k, rng, settings.n_threads)
        schedule = noise_ridge(uncensored, k, settings.intercepts)
        plain = replace(settings, solver=replace(settings.solver, orthogonalize=False))
        factors, ridge = run_sweeps(uncensored, factors, schedule, plain, FIRST_SWEEPS, TOL)
        solution = Solution(*factors, ridge)
        for _ in range(ROUNDS if self.imputation(solution).intervals is None else INTERVAL_ROUNDS):
            engine = self.impute(solution).replace(recount=True)
            schedule = noise_ridge(engine, k, settings.intercepts)
            factors, ridge = run_sweeps(engine, factors, schedule, plain, SWEEPS, TOL)
            solution = Solution(*factors, ridge)
        return solution

    def impute(self, solution: Solution) -> CompletionEngine:
        """Return the engine of all observations, with values imputed by a solution."""
        return self.impute_engine(self._engine, solution)

    def impute_engine(self, engine: CompletionEngine, solution: Solution) -> CompletionEngine:
        """Return another engine, for example of validation cells, with imputed values."""
        factors, imputation = (solution.X, solution.Y), self.imputation(solution)
        return engine.replace(
            observations=impute_source(engine.observations, imputation, factors, engine.mu)
        )

    def update(self, engine: CompletionEngine, solution: Solution) -> CompletionEngine:
        """Return an engine of the same observations, with newly imputed values."""
        return engine.replace(observations=self.impute(solution).observations)

    def imputation(self, solution: Solution) -> Imputation:
        """Return the imputation by a solution, which depends on nothing else."""
        if self._latest is None or self._latest[0] is not solution:
            self._latest = solution, self._estimate(solution)
        return self._latest[1]

    def residual_distributions(
        self, solution: Solution
    ) -> tuple[ResidualDistribution, ResidualDistribution]:
        """Estimate the distributions of the residuals of a solution; the left one is mirrored."""
        cells = self._sample((solution.X, solution.Y))
        imputation = self.imputation(solution)
        cells = _impute_intervals(cells, imputation.scales, imputation.intervals)
        right, left = cells.estimate(residual_distribution, imputation.scales)
        return right, left

    def _estimate(self, solution: Solution) -> Imputation:
        """Estimate the noise of rows and columns from values imputed under equal noise."""
        engine, factors = self._engine, (solution.X, solution.Y)
        cells = self._sample(factors)
        equal = np.ones(engine.shape[0]), np.ones(engine.shape[1])
        imputation = self._imputation_of(cells, equal)
        first = engine.replace(
            observations=impute_source(engine.observations, imputation, factors, engine.mu)
        )
        leverages = first.leverages(*factors, solution.ridge)
        variances = update_variances(
            first, factors, leverages, unit_variances(first.masses), NOISE_ROUNDS
        )
        return self._imputation_of(cells, (np.sqrt(variances[0]), np.sqrt(variances[1])))

    def _imputation_of(self, cells: _Cells, scales: Pair) -> Imputation:
        """Estimate the conditional expectations, given the noise of rows and columns."""
        levels = level_weights(self._engine.omega)
        intervals = cells.estimate_intervals(scales, self._engine.omega)
        cells = _impute_intervals(cells, scales, intervals)
        right, left = cells.estimate(conditional_expectation, scales, levels)
        limits = cells.values[cells.codes != 0] if cells.codes.any() else cells.values
        excess = LARGEST_EXCESS * self._engine.spread
        bounds = float(limits.min() - excess), float(limits.max() + excess)
        return Imputation(scales, right, left, bounds, self._limit, intervals)

    def _sample(self, factors: Factors) -> _Cells:
        """Sample at most `MOST_CELLS` observations."""
        engine = self._engine
        picked = pick_cells(engine, factors, self._marks, MOST_CELLS)
        rows, cols, _, values, weights, fitted = picked
        if self._limit is not None:
            codes = self._limit.codes(values.astype(engine.dtype))
            return _Cells(rows, cols, values, weights, fitted, codes, np.zeros(values.size))
        codes, half_widths = (
            pick_cells(engine.replace(observations=other), factors, self._marks, MOST_CELLS)[3]
            for other in (
                codes_as_values(engine.observations, None),
                half_widths_as_values(engine.observations),
            )
        )
        return _Cells(rows, cols, values, weights, fitted, codes, half_widths)


def _impute_intervals(
    cells: _Cells, scales: Pair, intervals: IntervalDistributions | None
) -> _Cells:
    """Return cells with imputed values in intervals, for the distribution beyond limits."""
    if intervals is None:
        return cells
    noise, r = scales[0][cells.rows] * scales[1][cells.cols], cells.residuals(scales)
    half = cells.half_widths / noise
    values = cells.fitted + noise * intervals.impute(cells.fitted, r - half, r + half)
    between = cells.codes == BETWEEN
    return cells._replace(
        values=np.where(between, values, cells.values), codes=np.where(between, 0, cells.codes)
    )
