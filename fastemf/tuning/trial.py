"""Trials and candidates of a tuning: fits to some of the cells, evaluated on others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fastemf.kernels import residual_sums as columns
from fastemf.solver.alternation import Alternation
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge, sum_rows
from fastemf.solver.residual_sums import residual_sums
from fastemf.solver.ridge import FixedRidge, RidgeSchedule
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors
from fastemf.solver.weighting import Pair, count_weighting
from fastemf.sources.cell_sample import Marks
from fastemf.support.arrays import Floats
from fastemf.tuning.corrections import Correction
from fastemf.tuning.record import Tuning, TuningStep

NEWTON_STEPS = 40  # of the shift; it moves monotonically, and stops when no sign changes
INTERCEPT_SWEEPS, INTERCEPT_TOL = 10, 1e-4


@dataclass(frozen=True, eq=False)
class TrialFit:
    """A fit to the training cells of a trial, from which the next fit can start."""

    engine: CompletionEngine
    factors: Factors
    ridge: Ridge
    leverages: Pair
    variances: Pair
    shift: float

    @property
    def rank(self) -> int:
        """Number of factors, without the intercepts."""
        return self.engine.n_factors(self.factors[0])


@dataclass(frozen=True, eq=False)
class Trial:
    """Engines of the cells to fit, and of those to evaluate the fits on."""

    training: CompletionEngine
    validation: CompletionEngine

    def with_threads(self, n_threads: int) -> Trial:
        """Return the same trial with another number of threads."""
        training, validation = (
            engine.replace(n_threads=n_threads) for engine in (self.training, self.validation)
        )
        return Trial(training, validation)

    def evaluate(self, fit: TrialFit) -> Floats:
        """Compute sums over the validation residuals of a fit, row by row."""
        return residual_sums(self.validation, 0, *fit.factors, shift=fit.shift)


@dataclass(eq=False)
class Candidate:
    """A candidate, fitted in all trials."""

    step: TuningStep
    losses: Floats  # by row, in units whose squares neither overflow nor vanish
    fits: list[TrialFit]  # dropped once the candidate can no longer be chosen

    @property
    def family(self) -> str:
        """How observations and ridge are weighted."""
        return self.step.family


class TrialStart(NamedTuple):
    """The fit of one trial, from which that of a neighbouring level starts."""

    factors: Factors
    variances: Pair
    intercepts: Factors  # of the fit without factors


class WarmStart(NamedTuple):
    """The end of a tuning, from which that of a neighbouring level starts."""

    family: str
    ratio: float  # of the ridge to the noise norm, in the first trial
    trials: tuple[TrialStart, ...]


class TuningResult(NamedTuple):
    """What to fit to all cells, and where to start."""

    family: str
    ridge: Ridge
    variances: Pair
    factors: Factors
    shift: float  # that of the first trial
    correction: float  # of the leave-one-out shift, in addition to the correction tables
    plain_correction: float  # the same, without correction tables
    tables: tuple[Correction, ...]
    intercept_ridge: float  # λ₀, also where the fit has no intercepts
    marks: Marks  # which determine the validation cells
    tuning: Tuning
    warm_start: WarmStart | None = None  # for the next of several levels


def intercept_engine(engine: CompletionEngine) -> CompletionEngine:
    """Return an engine with intercepts that weights all observations equally."""
    mu = engine.observations.expectile(engine.omega) if engine.mu is None else engine.mu
    return engine.replace(mu=mu, weighting=count_weighting(engine.masses))


def summarize(family: str, reg: float, rank: int, sums: Floats, unit: float) -> TuningStep:
    """Summarize a candidate from its sums over all trials; `unit` is that of the data."""
    mass, loss = sums[columns.MASS], sums[columns.LOSS]
    above, below = sums[columns.ABOVE], sums[columns.BELOW]
    spread = max(0.0, sums[columns.SQUARED_LOSS] - (loss / unit**2) ** 2 / mass)
    return TuningStep(
        family, reg, rank, float(loss / mass), float(np.sqrt(spread) / mass * unit**2),
        float(below / (above + below)) if above + below > 0 else float("nan"),
    )  # fmt: skip


def run_sweeps(
    engine: CompletionEngine,
    factors: Factors,
    schedule: Ridge | RidgeSchedule,
    settings: Settings,
    sweeps: int,
    tol: float,
) -> tuple[Factors, Ridge]:
    """Alternate from given factors for at most `sweeps` sweeps."""
    if isinstance(schedule, Ridge):
        schedule = FixedRidge(schedule)
    if factors[0].shape[1] == 0:
        return factors, schedule.ridge
    loop = Alternation(
        engine, schedule, replace(settings, max_iter=sweeps, tol=tol), callback=lambda record: False
    )
    end = loop.run(loop.start(*factors))
    return (end.X, end.Y), end.ridge


def find_shift(
    engine: CompletionEngine,
    factors: Factors,
    leverages: Pair | None,
    start: float = 0.0,
    rounds: int | None = None,
) -> float:
    """Find the ω-expectile of the leave-one-out residuals, by at most `rounds` Newton steps."""
    shift = start
    for _ in range(NEWTON_STEPS if rounds is None else rounds):
        sums = sum_rows(residual_sums(engine, 0, *factors, leverages, shift))
        step = float(sums[columns.SLOPE] / sums[columns.CURVATURE])
        shift += step
        if abs(step) <= 1e-12 * engine.spread:
            break
    return shift


def measure_fit(
    engine: CompletionEngine,
    factors: Factors,
    ridge: Ridge,
    variances: Pair,
    shift: float = 0.0,
    rounds: int | None = None,
) -> TrialFit:
    """Compute the leverages of a fit and, where it has intercepts, its shift."""
    leverages = engine.leverages(*factors, ridge)
    if engine.has_intercepts:
        shift = find_shift(engine, factors, leverages, shift, rounds)
    return TrialFit(engine, factors, ridge, leverages, variances, shift)


def fit_intercepts(
    engine: CompletionEngine, factors: Factors, ridge: Ridge, variances: Pair, settings: Settings
) -> TrialFit:
    """Fit row and column intercepts without factors."""
    factors, _ = run_sweeps(engine, factors, ridge, settings, INTERCEPT_SWEEPS, INTERCEPT_TOL)
    return measure_fit(engine, factors, ridge, variances, rounds=4)
