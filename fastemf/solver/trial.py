"""Candidates of a tuned fit: fitted to some cells, judged by others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import tally as tallies
from fastemf.solver.alternation import Alternation
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge, total
from fastemf.solver.ridge import FixedRidge, RidgeSchedule
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors
from fastemf.solver.tuning import TuningStep
from fastemf.solver.weighting import Pair

__all__ = ["Fitted", "Trial", "shift_of", "step_of", "swept"]

NEWTON_STEPS = 40  # of the shift: it moves one way, and lands when the signs no longer change


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of the cells fitted, with all that the next one starts from."""

    engine: CompletionEngine
    factors: Factors
    ridge: Ridge
    leverages: Pair
    variances: Pair
    shift: float

    @property
    def rank(self) -> int:
        """Factors beside the intercepts."""
        return self.engine.n_factors(self.factors[0])


@dataclass(frozen=True, eq=False)
class Trial:
    """Cells to fit, and cells to judge by."""

    fitted: CompletionEngine
    judge: CompletionEngine

    def on_threads(self, n_threads: int) -> Trial:
        """Return the same trial, on so many threads."""
        return Trial(self.fitted.on_threads(n_threads), self.judge.on_threads(n_threads))

    def judged(self, factors: Factors, shift: float) -> NDArray[np.float64]:
        """Sum over what a model leaves of the cells it has not seen, row by row."""
        return self.judge.tally(0, *factors, shift=shift)

    def judged_fit(self, fit: Fitted) -> NDArray[np.float64]:
        """Sum over what a fit leaves of the cells it has not seen, row by row."""
        return self.judged(fit.factors, fit.shift)


def step_of(
    family: str, reg: float, rank: int, sums: NDArray[np.float64], unit: float
) -> TuningStep:
    """Summarise the sums of all trials of a candidate, of data in a unit."""
    mass, loss = sums[tallies.MASS], sums[tallies.LOSS]
    above, below = sums[tallies.ABOVE], sums[tallies.BELOW]
    spread = max(0.0, sums[tallies.SQUARED_LOSS] - (loss / unit**2) ** 2 / mass)
    return TuningStep(
        family, reg, rank, float(loss / mass), float(np.sqrt(spread) / mass * unit**2),
        float(below / (above + below)) if above + below > 0 else float("nan"),
    )  # fmt: skip


def swept(
    engine: CompletionEngine,
    factors: Factors,
    schedule: Ridge | RidgeSchedule,
    settings: Settings,
    sweeps: int,
    tol: float,
) -> tuple[Factors, Ridge]:
    """Alternate from given factors for some sweeps."""
    if isinstance(schedule, Ridge):
        schedule = FixedRidge(schedule)
    if factors[0].shape[1] == 0:
        return factors, schedule.ridge
    loop = Alternation(
        engine, schedule, replace(settings, max_iter=sweeps, tol=tol), callback=lambda record: False
    )
    end = loop.run(loop.start(*factors))
    return (end.X, end.Y), end.ridge


def shift_of(
    engine: CompletionEngine,
    factors: Factors,
    leverages: Pair | None,
    start: float = 0.0,
    rounds: int = NEWTON_STEPS,
) -> float:
    """Find the ω-expectile of the leave-one-out residuals, by at most `rounds` Newton steps."""
    shift = start
    for _ in range(rounds):
        sums = total(engine.tally(0, *factors, leverages, shift))
        step = float(sums[tallies.SLOPE] / sums[tallies.CURVATURE])
        shift += step
        if abs(step) <= 1e-12 * engine.spread:
            break
    return shift
