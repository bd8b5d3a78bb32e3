"""Algorithm 1 of the paper, once: alternate, record, stop, call back.

It knows nothing of sparse or dense, of threads or machines: an `Engine` solves
one side given the other and says what the loss is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.records import HalfSweep, Ridge, SweepRecord
from fastemf.solver.ridge import RidgeSchedule

__all__ = ["Alternation", "Engine", "Outcome", "Point", "State"]

PLAIN_SWEEPS = 3  # before momentum has a direction worth following


class Engine(Protocol):
    """What the loop asks of whatever solves half-sweeps."""

    omega: float
    mass: float  # Σ v
    rounding: float  # residuals of this root mean square are nothing but rounding

    def solve(self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge) -> HalfSweep:
        """Best rows (axis 0) or columns (axis 1) given the other factor."""

    def evaluate(self, X: NDArray[Any], Y: NDArray[Any]) -> HalfSweep:
        """Loss at a pair of factors."""

    def penalty(self, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge) -> float:
        """Ridge term of the objective."""

    def orthonormal(self, factor: NDArray[Any]) -> NDArray[Any]:
        """Q of the factor's QR decomposition."""


class Outcome(NamedTuple):
    """Where the loop ended."""

    X: NDArray[Any]
    Y: NDArray[Any]
    ridge: Ridge  # at which (X, Y) was solved
    history: tuple[SweepRecord, ...]
    converged: bool
    stopped: bool  # by the callback


@dataclass(frozen=True, eq=False)
class Point:
    """An iterate with the parts of its objective, which may be asked for at any ridge."""

    X: NDArray[Any]
    Y: NDArray[Any]
    ridge: Ridge  # at which it was solved
    loss: float
    rms: float
    validation_loss: float = math.nan


@dataclass
class State:
    """All that the loop remembers from one sweep to the next, but for the ridge's schedule.

    A loop that takes it up again goes on to the same bits.
    """

    point: Point
    previous: NDArray[Any]  # X before the last accepted sweep
    accepted_since: int = 0  # the start or the last restart
    remaining: float = 1.0  # F after over F before, in the last accepted sweep
    restarts: int = 0
    best: Point | None = None  # by the loss of what is held out, if anything is
    best_sweep: int = 0
    converged: bool = False
    history: list[SweepRecord] = field(default_factory=list)


@dataclass(frozen=True)
class Alternation:
    """The loop and its settings.

    `held_out` evaluates the iterates on observations that are not fitted. After `patience`
    sweeps without a lower loss there, the loop ends; in any case it ends at its best iterate.
    `keep` is shown the state after every sweep, and told whether it was the last.
    """

    tol: float
    max_iter: int
    momentum: bool
    orthogonalize: bool
    callback: Callable[[SweepRecord], Any]
    held_out: Engine | None = None
    patience: int = 0
    keep: Callable[[State, bool], None] | None = None

    def start(
        self, engine: Engine, X: NDArray[Any], Y: NDArray[Any], schedule: RidgeSchedule
    ) -> State:
        """The state before the first sweep."""
        point = self._point(engine, X, Y, schedule.ridge, engine.evaluate(X, Y))
        schedule.begin(X, Y, point.rms)
        return State(point, previous=X)

    def run(self, engine: Engine, state: State, schedule: RidgeSchedule) -> Outcome:
        """Alternate from a state until F falls by less than `tol` per sweep.

        1. Extrapolate X along its last change (momentum; β = 0 for a plain sweep).
        2. Y ← argmin F(X, ·), then X ← argmin F(·, Y), at one ridge.
        3. A plain sweep cannot raise F. An extrapolated one that did is undone.
        4. Record; let the ridge move; stop when it has settled and F has too, or when
           what is held out has not been fitted better for too long.
        """
        history = state.history
        stopped = False
        while not (state.converged or stopped) and len(history) < self.max_iter:
            began = time.perf_counter()
            point, ridge = state.point, schedule.ridge
            if self.orthogonalize and history:
                point = replace(point, X=engine.orthonormal(point.X))
            before = point.loss + engine.penalty(point.X, point.Y, ridge)

            beta = 0.0
            if self.momentum and len(history) >= PLAIN_SWEEPS and state.accepted_since:
                # Nesterov's, but no more than suits the rate: momentum β contracts F by β at
                # best, so where F falls faster than that by itself, β would only slow it.
                since = state.accepted_since
                beta = min((since - 1) / (since + 2), state.remaining)
            base = point.X
            if beta != 0:
                base = point.X + point.X.dtype.type(beta) * (point.X - state.previous)

            half_Y = engine.solve(1, point.Y, base, ridge)
            Y = engine.orthonormal(half_Y.factor) if self.orthogonalize else half_Y.factor
            half_X = engine.solve(0, point.X, Y, ridge)
            following = self._point(engine, half_X.factor, Y, ridge, half_X)

            penalty = engine.penalty(following.X, following.Y, ridge)
            after = following.loss + penalty
            accepted = beta == 0 or after <= before
            decrease = (before - after) / before if before > 0 else 0.0
            state.restarts += not accepted
            if accepted and self.held_out is not None:
                following = self._judged(following, self.held_out)
            solved = half_X.factor.shape[0] + half_Y.factor.shape[0]
            record = SweepRecord(
                sweep=len(history) + 1,
                objective=after,
                loss=following.loss,
                penalty=penalty,
                reg=ridge.factors,
                intercept_reg=ridge.intercepts,
                relative_decrease=decrease,
                gradient_norm=float(np.hypot(half_X.gradient, half_Y.gradient)),
                sign_flips=half_X.sign_flips + half_Y.sign_flips,
                inner_iterations=(half_X.inner_iterations + half_Y.inner_iterations) / solved,
                line_searches=half_X.line_searches + half_Y.line_searches,
                extrapolation=beta,
                accepted=accepted,
                restarts=state.restarts,
                seconds=time.perf_counter() - began,
                validation_loss=(following if accepted else point).validation_loss,
            )
            history.append(record)
            stopped = bool(self.callback(record))
            if accepted:
                state.previous, state.point = point.X, following
                state.accepted_since += 1
                state.remaining = max(0.0, 1.0 - decrease)
                settled = schedule.settled
                schedule.advance(following.rms)
                # Residuals that are rounding only would go up and down for ever.
                state.converged = settled and (
                    decrease <= self.tol or following.rms <= engine.rounding
                )
            else:
                state.accepted_since = 0
            if self.held_out is not None:
                if state.best is None or state.point.validation_loss < state.best.validation_loss:
                    state.best, state.best_sweep = state.point, record.sweep
                state.converged |= record.sweep - state.best_sweep >= self.patience
            if self.keep is not None:
                last = state.converged or stopped or len(history) == self.max_iter
                self.keep(state, last)

        end = state.point if state.best is None else state.best
        return Outcome(end.X, end.Y, end.ridge, tuple(history), state.converged, stopped)

    @staticmethod
    def _point(
        engine: Engine, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge, half: HalfSweep
    ) -> Point:
        rms = float(np.sqrt((half.above + half.below) / engine.mass))
        return Point(X, Y, ridge, _loss(engine, half), rms)

    @staticmethod
    def _judged(point: Point, judge: Engine) -> Point:
        """The point with its loss per summed weight on what is held out."""
        half = judge.evaluate(point.X, point.Y)
        return replace(point, validation_loss=_loss(judge, half) / judge.mass)


def _loss(engine: Engine, half: HalfSweep) -> float:
    return engine.omega * half.above + (1 - engine.omega) * half.below
