"""`FitPlan`: how to fit all cells, and what a tuned fit adds to its factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.tally import LOSS, MASS
from fastemf.model.factorization import Factorization
from fastemf.solver.alternation import Outcome
from fastemf.solver.axis import AxisNoise
from fastemf.solver.checkpoint import Checkpoint
from fastemf.solver.early import early_engine, trial_engine
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.holding import Holding
from fastemf.solver.noise import kept_noise, noise_family, weighting_of
from fastemf.solver.opening import Data
from fastemf.solver.path import sees_all, tune
from fastemf.solver.records import Ridge, total
from fastemf.solver.ridge import FixedRidge, RidgeSchedule, asymmetry, noise_ridge
from fastemf.solver.search import Tuned
from fastemf.solver.settings import Settings
from fastemf.solver.start import EarlierModel, starting_factors, widened
from fastemf.solver.tables import AxisLevels, Tables
from fastemf.solver.trial import shift_of, swept
from fastemf.solver.tuner import INTERCEPT_SWEEPS, INTERCEPT_TOL
from fastemf.solver.tuning import Tuning

__all__ = ["FitPlan", "FitRemains", "planned"]

NOTHING = (None, None)
COMPARABLE = 0.1  # of the loss of cells set aside: what leave-one-out loss has, unless all is exact


class FitRemains(NamedTuple):
    """What a tuned fit adds to its factors: a shift, noise scales, levels and tables."""

    shift: float = 0.0
    noise: tuple[AxisNoise | None, AxisNoise | None] = NOTHING
    levels: tuple[AxisLevels | None, AxisLevels | None] = NOTHING


@dataclass(frozen=True, eq=False)
class FitPlan:
    """How to fit all cells, and what was learned on the way to it."""

    engine: CompletionEngine
    schedule: RidgeSchedule
    start: Callable[[CompletionEngine], tuple[NDArray[Any], NDArray[Any]]]  # for sweeps of this
    tuned: Tuned | None = None
    tuning: Tuning | None = None
    near: CompletionEngine | None = None  # the same, with its entries at hand where they are few
    early: CompletionEngine | None = None  # of sweeps that only lead the way

    @property
    def family(self) -> str:
        """How observations and ridge are weighted."""
        return "even" if self.tuned is None else noise_family(self.tuned.family)

    @property
    def intercept_ridge(self) -> float:
        """λ₀ of levels without factors: as tuned, or one observation's worth."""
        tuned = 0.0 if self.tuned is None else self.tuned.intercept_ridge
        return tuned or asymmetry(self.engine.omega)

    def with_values(self, engine: CompletionEngine, near: CompletionEngine) -> FitPlan:
        """Return the same plan for other values, those of `engine` and `near`."""
        moved = self.near and self.near.on(near.observations)
        return replace(self, engine=self.engine.on(engine.observations), near=moved)

    def remains(self, end: Outcome, settings: Settings) -> FitRemains:
        """Find the shift of a tuned fit, and what its tables and new rows need to know."""
        if self.tuned is None or self.near is None:
            return FitRemains()
        engine, factors, tuned = self.near, (end.X, end.Y), self.tuned
        leverages = engine.leverages(*factors, end.ridge)
        shift, levels, noise = 0.0, None, None
        if engine.has_intercepts:
            shift = shift_of(engine, factors, leverages, tuned.shift)
            sums = total(engine.tally(0, *factors, leverages, shift))
            # What trials left of noiseless data says how far they came, and nothing of this fit.
            if sums[LOSS] / sums[MASS] > COMPARABLE * tuned.tuning.steps[tuned.tuning.chosen].loss:
                shift += tuned.correction
                if tuned.tables:
                    levels = _levels(engine, Tables(tuned.tables, tuned.intercept_ridge), settings)
        if self.family != "even" or levels is not None:
            noise = kept_noise(engine, factors, leverages, tuned.variances)
        return FitRemains(shift, noise or NOTHING, levels or NOTHING)


def _levels(
    engine: CompletionEngine, tables: Tables, settings: Settings
) -> tuple[AxisLevels, AxisLevels]:
    """Find the level of each row and each column: intercepts without factors."""
    even, ridge = engine.with_intercepts(), Ridge(0.0, tables.ridge)
    factors, _ = swept(
        even, even.no_factors(), ridge, settings, INTERCEPT_SWEEPS, INTERCEPT_TOL
    )  # fmt: skip
    rows, cols = (AxisLevels(factor[:, 0].astype(np.float64), tables) for factor in factors)
    return rows, cols


def planned(
    data: Data,
    engine: CompletionEngine,
    near: CompletionEngine,
    judge: CompletionEngine | None,
    settings: Settings,
    rng: np.random.Generator,
    holding: Holding,
    checkpoint: Checkpoint | None,
) -> FitPlan:
    """Choose the ridge, by tuning where that is asked for, and where to start.

    `near` is the same as `engine`, with its entries at hand where they are few.
    """
    init = settings.init

    def early(chosen: CompletionEngine) -> CompletionEngine | None:
        # Cells to judge by, and values that are made anew, are not worth having in another type.
        plain = judge is None and not data.is_censored
        return early_engine(chosen, settings) if plain else None

    def start(swept: CompletionEngine) -> tuple[NDArray[Any], NDArray[Any]]:
        first = init
        if isinstance(init, Factorization):
            mu = init.mu
            if engine.mu is not None and init.rows.has_intercepts and init.omega != engine.omega:
                # Rows of a level are about as far from its own centre as from that of another.
                mu = engine.mu
            first = EarlierModel(init.axes, mu)
        return starting_factors(first, swept, settings.k, rng, settings.n_threads)

    if not isinstance(settings.reg, str):
        m, n = engine.shape
        counted = settings.reg_scaling == "count"
        count = 1.0 if counted else engine.observations.mass / float(m * n) ** 0.5
        return FitPlan(engine, settings.numbered_ridge(count), start, early=early(engine))
    following: RidgeSchedule = noise_ridge(engine, settings.k, settings.intercepts)
    if settings.reg == "noise":
        return FitPlan(engine, following, start)
    earlier = init.tuning if isinstance(init, Factorization) else None
    tried = trial_engine(near, settings)
    found = holding.tuned(
        tried,
        settings,
        lambda near: tune(tried, settings, data.seed, data.marks, judge, earlier, checkpoint, near),
    )
    if isinstance(found, Tuning):
        return FitPlan(engine, following, start, tuning=found)
    follows = found.family == "noise"
    chosen, schedule = engine, following
    if not follows:
        chosen = engine.view(weighting=weighting_of(found.family, near, found.variances))
        schedule = FixedRidge(found.ridge)

    def start_found(swept: CompletionEngine) -> tuple[NDArray[Any], NDArray[Any]]:
        rank = engine.n_factors(found.factors[0])
        ours = widened(found.factors, rank, settings.k)
        if not isinstance(init, Factorization):
            return ours
        # An earlier fit may lack factors, which would then stay away, or be of another level.
        theirs = start(engine)
        return min((theirs, ours), key=lambda factors: _objective(chosen, factors, found.ridge))

    # The factors of a sample may be fewer than those of all cells.
    use_found = init == "spectral" and not follows and sees_all(engine)
    use_found |= isinstance(init, Factorization)
    first = start_found if use_found else start
    at_hand = chosen.on(near.observations)
    leading = None if follows else early(chosen)
    return FitPlan(chosen, schedule, first, found, found.tuning, at_hand, leading)


def _objective(
    engine: CompletionEngine, factors: tuple[NDArray[Any], NDArray[Any]], ridge: Ridge
) -> float:
    half = engine.evaluate(*factors)
    loss = engine.omega * half.above + (1 - engine.omega) * half.below
    return loss + engine.penalty(*factors, ridge)
