"""Censored values, replaced by what a fit and the residuals of all others let expect.

It is Buckley and James' way (1979), in units of the noise of rows and columns: a value that is
only known to lie beyond a limit becomes the fit plus the mean residual beyond it (see `beyond`).
A first fit leaves the censored entries out; then values and fit improve each other in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.censoring import LEFT, RIGHT, Cap
from fastemf.observations.changed import BlockChange, ChangedSource
from fastemf.observations.memory import Observations
from fastemf.observations.source import Side, Source
from fastemf.solver.alternation import Solution
from fastemf.solver.beyond import Beyond, Tail, beyond, tail
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.judged import picked_cells
from fastemf.solver.noise import even, renewed
from fastemf.solver.ridge import noise_ridge
from fastemf.solver.sampling import Marks
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors, starting_factors
from fastemf.solver.trial import swept
from fastemf.solver.weighting import Pair

__all__ = [
    "Censoring",
    "Imputation",
    "censored_at",
    "codes_of",
    "imputed",
    "with_each_replaced",
    "without_censored",
]

Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]

FIRST_SWEEPS, SWEEPS = 10, 5  # of the fit without censored entries, and after each imputation
ROUNDS = 3
NOISE_ROUNDS = 4
WIDEST = 8.0  # spreads of the data beyond the furthest limit: no value is put further out
MOST = 300_000  # observations that tell the distribution of the residuals
TOL = 1e-6
NOTHING = np.empty(0)
OUTLIERS, FEWEST = 0.01, 100  # share of the censored cells, and number of others that are enough


@dataclass(frozen=True, eq=False)
class Imputation:
    """How censored values are replaced, given a model's predictions.

    Parameters
    ----------
    scales
        How noisy each row and each column is.
    right, left
        Curves in units of the noise, of which that on the left is mirrored.
    bounds
        The least and the greatest value that any is replaced by.
    cap
        Where values are censored, unless the observations themselves say so.
    """

    scales: tuple[NDArray[np.float64], NDArray[np.float64]]
    right: Beyond
    left: Beyond
    bounds: tuple[float, float]
    cap: Cap | None

    def with_axis(self, axis: int, size: int, known: int) -> Imputation:
        """Return the same for an axis of which the first `known` items stay, the rest are new.

        Nothing is known of the noise of new ones, which is taken to be the mean.
        """
        scales = list(self.scales)
        scales[axis] = np.append(scales[axis][:known], np.ones(size - known))
        return replace(self, scales=(scales[0], scales[1]))

    def values(
        self,
        given: NDArray[Any],
        codes: NDArray[np.int8],
        predicted: NDArray[np.float64],
        noise: NDArray[np.float64],
        curves: tuple[Curve, Curve] | None = None,
    ) -> NDArray[np.float64]:
        """Replace values, all of them censored; `noise` is that of their cells.

        Other `curves` are used instead of the imputation's own.
        """
        right, left = (self.right, self.left) if curves is None else curves
        sign = codes.astype(np.float64)
        x = sign * (given - predicted) / noise
        u = np.where(sign > 0, right(x), left(x))
        found = np.clip(predicted + sign * noise * u, *self.bounds)
        beyond = np.where(sign > 0, np.maximum(found, given), np.minimum(found, given))
        return np.asarray(beyond, np.float64)


def imputed(
    source: Source, imputation: Imputation, factors: Factors, mu: float | None
) -> ChangedSource:
    """Return observations whose censored values are replaced, given a model of them."""
    return with_each_replaced(source, imputation, factors, mu, _imputed_block)


def with_each_replaced(
    source: Source,
    imputation: Imputation,
    factors: Factors,
    mu: float | None,
    make: Callable[..., Side],
    more: tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]] = ((), ()),
    args: tuple[Any, ...] = (),
) -> ChangedSource:
    """Return observations whose blocks are made anew, given a model of them and its imputation.

    `make` gets `more` arrays of rows and of columns after those that `censored_at` takes.
    """
    arrays = []
    for axis, (factor, scale) in enumerate(zip(factors, imputation.scales, strict=True)):
        known = np.zeros((factor.shape[0], 2))
        if mu is not None:
            known[:, 0] = factor[:, -1] + (mu if axis == 0 else 0.0)
            factor = factor[:, :-1]
        known[:, 1] = scale
        arrays.append((np.ascontiguousarray(factor), known, *more[axis]))
    curves = replace(imputation, scales=(NOTHING, NOTHING))  # blocks get their part of the scales
    return ChangedSource(source, BlockChange(make, (arrays[0], arrays[1]), (curves, *args)))


def _codes(block: Side, cap: Cap | None) -> NDArray[np.int8]:
    return block.censored if cap is None else cap.codes(block.values)


def _imputed_block(
    block: Side, by_index: tuple[Any, ...], by_row: tuple[Any, ...], imputation: Imputation
) -> Side:
    found = censored_at(block, by_index, by_row, imputation.cap)
    values = block.values.copy()
    values[found.at] = imputation.values(*found[3:])
    return replace(block, values=values)


class CensoredEntries(NamedTuple):
    """The censored entries of a block: where they are, what they are, and what is expected."""

    at: NDArray[np.int64]
    rows: NDArray[np.int64]
    cols: NDArray[np.integer]
    given: NDArray[Any]
    codes: NDArray[np.int8]
    predicted: NDArray[np.float64]
    noise: NDArray[np.float64]


def censored_at(
    block: Side, by_index: tuple[Any, ...], by_row: tuple[Any, ...], cap: Cap | None
) -> CensoredEntries:
    """Find the censored entries of a block, given factors, intercepts and noise of both sides."""
    codes = _codes(block, cap)
    at = np.flatnonzero(codes)
    rows = np.searchsorted(block.indptr, at, side="right") - 1
    cols = block.indices[at]
    (other, about), (this, own) = by_index[:2], by_row[:2]
    predicted = own[rows, 0] + about[cols, 0]
    for a in range(this.shape[1]):  # one by one: the sum of a cell does not depend on its block
        predicted += this[rows, a].astype(np.float64) * other[cols, a]
    noise = own[rows, 1] * about[cols, 1]
    return CensoredEntries(at, rows, cols, block.values[at], codes[at], predicted, noise)


def _without(block: Side, by_index: tuple[Any, ...], by_row: tuple[Any, ...], cap: Any) -> Side:
    """Give censored entries the weight 0."""
    kept = _codes(block, cap) == 0
    weights = kept.astype(block.dtype)
    if block.weights.size:
        weights *= block.weights
    mass = np.bincount(block.keys, weights, block.mass.size).astype(np.float64)
    return replace(block, weights=weights, mass=mass)


def codes_of(source: Source, cap: Cap | None) -> ChangedSource:
    """Return observations whose values say which of them are censored."""
    return ChangedSource(source, BlockChange(_codes_for_values, ((), ()), (cap,)))


def _codes_for_values(
    block: Side, by_index: tuple[Any, ...], by_row: tuple[Any, ...], cap: Cap | None
) -> Side:
    return replace(block, values=_codes(block, cap).astype(block.dtype))


def without_censored(observed: Observations) -> Observations:
    """Return observations of which the censored ones count nothing."""
    by_row, by_col = (_without(side, (), (), None) for side in (observed.by_row, observed.by_col))
    return replace(observed, by_row=by_row, by_col=by_col)


class _Cells(NamedTuple):
    """Cells that tell the distribution of the residuals."""

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    fitted: NDArray[np.float64]
    codes: NDArray[Any]

    def residuals(self, scales: Pair) -> NDArray[np.float64]:
        """Compute residuals in units of the noise."""
        return (self.values - self.fitted) / (scales[0][self.rows] * scales[1][self.cols])

    def like_censored(self, code: int) -> NDArray[np.bool_]:
        """Mark the cells whose fitted values are like those of cells that are censored.

        What a ridge takes from large values, and noise that grows with them, is in the residuals
        of these and not in those of others. All cells where few such ones were observed.
        """
        censored = self.codes == code
        if not censored.any():
            return np.ones(censored.size, bool)
        towards = code * self.fitted
        order = np.argsort(towards[censored])
        reached = np.cumsum(self.weights[censored][order])
        least = towards[censored][order][np.searchsorted(reached, OUTLIERS * reached[-1])]
        found = towards >= least
        enough = self.weights[found & ~censored].sum() >= FEWEST
        return found if enough else np.ones_like(found)


class Censoring:
    """What is censored of a fit's observations, and how it is replaced on the way.

    Parameters
    ----------
    engine
        That of all observations, with censored ones as they are.
    near
        The same with its entries at hand where they are few.
    cap
        Where values are censored; None where the observations themselves say so.
    marks
        What decides which cells tell the distribution of the residuals.
    """

    def __init__(
        self, engine: CompletionEngine, near: CompletionEngine, cap: Cap | None, marks: Marks
    ) -> None:
        self._engine, self._near, self._cap, self._marks = engine, near, cap, marks
        change = BlockChange(_without, ((), ()), (cap,), counts=True)
        self._others = engine.on(ChangedSource(engine.observations, change)).recounted()
        if not self._others.mass > 0:
            raise ValueError("censored must leave some observations as they are, got all marked")
        self._latest: tuple[Solution, Imputation] | None = None

    def first(self, settings: Settings) -> Solution:
        """Fit the entries that are not censored, then all of them in turn with their values.

        The ridge follows the noise and the counts, whatever that of the fit will do.
        """
        others, k, rng = self._others, settings.k, np.random.default_rng(0)
        factors = starting_factors("spectral", others, k, rng, settings.n_threads)
        schedule = noise_ridge(others, k, settings.intercepts)
        plain = replace(settings, orthogonalize=False)
        factors, ridge = swept(others, factors, schedule, plain, FIRST_SWEEPS, TOL)
        for _ in range(ROUNDS):
            engine = self.engine(Solution(*factors, ridge)).recounted()
            schedule = noise_ridge(engine, k, settings.intercepts)
            factors, ridge = swept(engine, factors, schedule, plain, SWEEPS, TOL)
        return Solution(*factors, ridge)

    def engine(self, of: Solution) -> CompletionEngine:
        """Return the engine of values that a solution lets expect."""
        return self._with_values(self._engine, of)

    def near(self, of: Solution) -> CompletionEngine:
        """Return the same with its entries at hand where they are few."""
        return self._with_values(self._near, of)

    def judge(self, judge: CompletionEngine, of: Solution) -> CompletionEngine:
        """Return an engine of held-out entries, those of them that are censored replaced."""
        return judge.on(imputed(judge.observations, self.imputation(of), (of.X, of.Y), judge.mu))

    def renewing(self, chosen: CompletionEngine) -> Callable[[Solution], CompletionEngine]:
        """Return what makes values anew, for an engine with another weighting."""
        return lambda of: chosen.on(self.engine(of).observations)

    def _with_values(self, engine: CompletionEngine, of: Solution) -> CompletionEngine:
        source = imputed(engine.observations, self.imputation(of), (of.X, of.Y), engine.mu)
        return engine.on(source)

    def imputation(self, of: Solution) -> Imputation:
        """Find how a solution replaces censored values; this depends on nothing else."""
        if self._latest is None or self._latest[0] is not of:
            self._latest = of, self._found(of)
        return self._latest[1]

    def tails(self, of: Solution) -> tuple[Tail, Tail]:
        """Find the distributions of residuals that a solution leaves, the left one mirrored."""
        cells = self._sample((of.X, of.Y))
        r = cells.residuals(self.imputation(of).scales)
        right, left = (
            tail(code * r[near], cells.codes[near] == code, cells.weights[near])
            for code in (RIGHT, LEFT)
            for near in [cells.like_censored(code)]
        )
        return right, left

    def _found(self, of: Solution) -> Imputation:
        """Find the noise of rows and columns from values that are replaced as if all had one."""
        engine, factors, cells = self._engine, (of.X, of.Y), self._sample((of.X, of.Y))
        alike = np.ones(engine.shape[0]), np.ones(engine.shape[1])
        source = imputed(engine.observations, self._curves(cells, alike), factors, engine.mu)
        first = engine.on(source)
        leverages = first.leverages(*factors, of.ridge)
        variances = renewed(first, factors, leverages, even(first.masses), NOISE_ROUNDS)
        return self._curves(cells, (np.sqrt(variances[0]), np.sqrt(variances[1])))

    def _curves(self, cells: _Cells, scales: Pair) -> Imputation:
        """Find the curves of cells, given the noise of rows and columns."""
        omega, r = self._engine.omega, cells.residuals(scales)
        right, left = (
            beyond(sign * r[near], cells.codes[near] == code, cells.weights[near], level)
            for sign, code, level in ((1, RIGHT, omega), (-1, LEFT, 1 - omega))
            for near in [cells.like_censored(code)]
        )
        limits = cells.values[cells.codes != 0] if cells.codes.any() else cells.values
        room = WIDEST * self._engine.spread
        bounds = float(limits.min() - room), float(limits.max() + room)
        return Imputation(scales, right, left, bounds, self._cap)

    def _sample(self, factors: Factors) -> _Cells:
        """Take at most so many cells."""
        engine = self._engine
        picked = picked_cells(engine, factors, self._marks, MOST)
        rows, cols, _, values, weights, fitted = picked
        if self._cap is not None:
            codes = self._cap.codes(values.astype(engine.dtype))
        else:
            marked = engine.on(codes_of(engine.observations, None))
            codes = picked_cells(marked, factors, self._marks, MOST)[3]
        return _Cells(rows, cols, values, weights, fitted, codes)
