"""Algorithm 1 of the paper: the one loop that alternates, records, calls back and stops.

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

from fastemf.kernels.threads import single_threaded_blas
from fastemf.solver.records import HalfSweep, Ridge, SweepRecord
from fastemf.solver.ridge import RidgeSchedule
from fastemf.solver.settings import Settings

__all__ = ["Alternation", "Engine", "Outcome", "Point", "Solution", "State", "Sweep"]

RENEWALS, SWEEPS_BETWEEN = 12, 3  # of values that depend on the fit: how often, and when
PLAIN_SWEEPS = 3  # until then momentum has no direction worth following
ROUNDING = 32  # in units of the dtype's: sweeps may raise F by this share of it


class Engine(Protocol):
    """What the loop asks of whatever solves half-sweeps."""

    omega: float
    shape: tuple[int, int]  # of the matrix
    dtype: np.dtype[Any]  # of the factors
    mass: float  # Σ v
    size: float  # root mean square of the data
    eps: float  # rounding unit of what is computed
    rounding: float  # residuals with a root mean square up to this are nothing but rounding

    def solve(self, axis: int, this: NDArray[Any], other: NDArray[Any], ridge: Ridge) -> HalfSweep:
        """Find the best rows (axis 0) or columns (axis 1) given the other factor."""

    def evaluate(self, X: NDArray[Any], Y: NDArray[Any]) -> HalfSweep:
        """Compute the loss at a pair of factors."""

    def penalty(self, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge) -> float:
        """Compute the ridge term of the objective."""


class Solution(NamedTuple):
    """Factors, and the ridge at which they were solved."""

    X: NDArray[Any]
    Y: NDArray[Any]
    ridge: Ridge


class Outcome(NamedTuple):
    """Where the loop ended."""

    X: NDArray[Any]
    Y: NDArray[Any]
    ridge: Ridge  # at which (X, Y) was solved
    history: tuple[SweepRecord, ...]
    converged: bool
    stopped: bool  # by the callback
    spoilt: bool  # by rounding
    values_of: Solution | None = None  # that the values fitted last came from, where they do


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

    A loop that goes on from it ends bitwise identical to one that was never interrupted.
    """

    point: Point
    previous: NDArray[Any]  # X before the last accepted sweep
    accepted_since: int = 0  # sweeps accepted since the start or the last restart
    remaining: float = 1.0  # F after / F before, of the last accepted sweep
    restarts: int = 0
    best: Point | None = None  # by the loss on what is held out, if anything is
    best_sweep: int = 0
    stopped: bool = False  # by the callback
    converged: bool = False
    spoilt: bool = False  # by rounding: a plain sweep raised F
    renewals: int = 0  # of the values that depend on the fit
    renewed_at: int = 0  # sweeps before the last one
    values_of: Solution | None = None  # what they came from then
    early: bool = False  # whether its sweeps only lead the way
    history: list[SweepRecord] = field(default_factory=list)
    engine: Engine | None = None  # of those values; follows from the rest


class Sweep(NamedTuple):
    """One sweep tried: where it began, where it led, and what it met on the way."""

    began: float  # on the clock
    origin: Point
    beta: float  # of the extrapolation; 0 for a plain sweep
    ridge: Ridge
    halves: tuple[HalfSweep, HalfSweep]  # of X and of Y
    end: Point
    eps: float  # the engine's
    before: float  # F at the origin
    penalty: float  # the ridge's part of F at the end, at the same ridge

    @property
    def after(self) -> float:
        """F at the end."""
        return self.end.loss + self.penalty

    @property
    def decrease(self) -> float:
        """(F before − F after) / F before."""
        return (self.before - self.after) / self.before if self.before > 0 else 0.0

    @property
    def accepted(self) -> bool:
        """Whether to keep the sweep: one that raises F is undone.

        An extrapolated one may do so at any time, a plain one where rounding is all that is left
        to gain, or spoils the solves.
        """
        share = ROUNDING * self.eps if self.beta == 0 else 0.0
        return self.after <= self.before * (1 + share)


@dataclass(frozen=True, eq=False)
class Alternation:
    """The loop, and all that stays the same while it runs.

    `held_out` evaluates the iterates on observations that are not fitted. After the settings'
    patience without a lower loss there, the loop ends; in any case it ends at its best iterate.
    `keep` is shown the state after every sweep, and told whether it was the last. `renew` makes
    the engine whose values depend on the fit, those of censored entries, from where that is; every
    few sweeps, until it has been asked often enough, F is then another one.
    """

    engine: Engine
    schedule: RidgeSchedule
    settings: Settings
    callback: Callable[[SweepRecord], Any]
    held_out: Engine | None = None
    keep: Callable[[State, bool], None] | None = None
    renew: Callable[[Solution], Engine] | None = None

    def start(self, X: NDArray[Any], Y: NDArray[Any]) -> State:
        """Make the state before the first sweep."""
        engine = self.engine
        point = _point(engine, X, Y, self.schedule.ridge, engine.evaluate(X, Y))
        self.schedule.begin(X, Y, point.rms)
        return State(point, previous=X)

    def _engine(self, state: State) -> Engine:
        """Return the engine of the values that are fitted now."""
        if state.engine is None:
            state.engine = self.engine
            if state.values_of is not None and self.renew is not None:
                state.engine = self.renew(state.values_of)
        return state.engine

    def run(self, state: State) -> Outcome:
        """Alternate from a state until F falls by less than `tol` per sweep.

        1. Extrapolate X along its last change (momentum; β = 0 for a plain sweep).
        2. Y ← argmin F(X, ·), then X ← argmin F(·, Y), at one ridge.
        3. Record the sweep. Undo it if it raised F.
        4. Let the ridge move; stop when it has come to rest and F has converged, when what is
           held out has not been fitted better for too long, or when a plain sweep raised F by
           more than the residuals' rounding explains.
        """
        # A level that a callback ended is done: the next one began from it. A single fit goes on.
        state.stopped = state.stopped and bool(self.settings.omegas)
        while not self._is_over(state):
            if self._is_due(state):
                self._renew(state)
            sweep = self._judged(self._swept(state))
            record = self._recorded(state, sweep)
            state.stopped = bool(self.callback(record))
            if sweep.accepted:
                self._accept(state, sweep)
            else:
                self._undo(state, sweep)
            self._look_for_the_best(state)
            if self.keep is not None:
                self.keep(state, self._is_over(state))

        end = state.point if state.best is None else state.best
        history = tuple(state.history)
        ended = (self._has_converged(state), state.stopped, state.spoilt)
        return Outcome(end.X, end.Y, end.ridge, history, *ended, state.values_of)

    def taken_over(self, state: State) -> State:
        """Go on from the state of a loop of early sweeps, whose end does not end this one."""
        X, Y, previous = (
            factor.astype(self.engine.dtype)
            for factor in (state.point.X, state.point.Y, state.previous)
        )
        point = _point(self.engine, X, Y, state.point.ridge, self.engine.evaluate(X, Y))
        return replace(
            state, point=point, previous=previous, early=False, converged=False, spoilt=False,
            engine=None,
        )  # fmt: skip

    def _is_due(self, state: State) -> bool:
        """Tell whether the values that depend on the fit are to be made anew."""
        if self.renew is None or state.renewals >= RENEWALS:
            return False
        return state.converged or len(state.history) - state.renewed_at >= SWEEPS_BETWEEN

    def _renew(self, state: State) -> None:
        """Go on with other values, whose F has to be computed first."""
        point = state.point
        state.values_of = Solution(point.X, point.Y, point.ridge)
        state.engine = None
        state.renewals += 1
        state.renewed_at = len(state.history)
        state.accepted_since, state.converged = 0, False
        engine = self._engine(state)
        there = _point(engine, point.X, point.Y, point.ridge, engine.evaluate(point.X, point.Y))
        state.point = replace(there, validation_loss=point.validation_loss)
        if state.best is point:
            state.best = state.point

    def _is_over(self, state: State) -> bool:
        out_of_sweeps = len(state.history) >= self.settings.max_iter
        return self._has_converged(state) or state.stopped or state.spoilt or out_of_sweeps

    def _has_converged(self, state: State) -> bool:
        """Tell whether F has, with values that are final, or nothing held out gains any more."""
        waited = self.held_out is not None and (
            len(state.history) - state.best_sweep >= self.settings.sweeps_to_wait
        )
        return waited or (state.converged and not self._is_due(state))

    def _swept(self, state: State) -> Sweep:
        """Solve for Y, then for X, from an X that may be extrapolated."""
        began = time.perf_counter()
        engine, origin, ridge = self._engine(state), state.point, self.schedule.ridge
        basis = self.settings.orthogonalize
        if basis:
            X, Y = orthonormalised(origin.X, origin.Y)
            origin = replace(origin, X=X, Y=Y)
        before = origin.loss + engine.penalty(origin.X, origin.Y, ridge)
        beta = self._momentum(state)
        base = origin.X
        if beta != 0:
            base = origin.X + origin.X.dtype.type(beta) * (origin.X - state.previous)

        half_Y = engine.solve(1, origin.Y, base, ridge)
        X, Y = origin.X, half_Y.factor
        if basis:
            Y, X = orthonormalised(Y, X)
        half_X = engine.solve(0, X, Y, ridge)
        end = _point(engine, half_X.factor, Y, ridge, half_X)
        with np.errstate(over="ignore"):  # an extrapolation may go anywhere, and is then undone
            penalty = engine.penalty(end.X, end.Y, ridge)
        halves = (half_X, half_Y)
        return Sweep(began, origin, beta, ridge, halves, end, engine.eps, before, penalty)

    def _momentum(self, state: State) -> float:
        """Choose β: Nesterov's, but no more than the rate of convergence.

        Momentum β contracts F by β at best, so where F falls faster than that by itself, β
        would only slow it.
        """
        since = state.accepted_since
        if not self.settings.momentum or len(state.history) < PLAIN_SWEEPS or since == 0:
            return 0.0
        return min((since - 1) / (since + 2), state.remaining)

    def _judged(self, sweep: Sweep) -> Sweep:
        """Evaluate an accepted sweep's end on what is held out, per summed weight."""
        judge = self.held_out
        if judge is None or not sweep.accepted:
            return sweep
        loss = _loss(judge, judge.evaluate(sweep.end.X, sweep.end.Y)) / judge.mass
        return sweep._replace(end=replace(sweep.end, validation_loss=loss))

    def _recorded(self, state: State, sweep: Sweep) -> SweepRecord:
        """Write the sweep into the history."""
        half_X, half_Y = sweep.halves
        solved = half_X.factor.shape[0] + half_Y.factor.shape[0]
        state.restarts += not sweep.accepted
        record = SweepRecord(
            sweep=len(state.history) + 1,
            objective=sweep.after,
            loss=sweep.end.loss,
            penalty=sweep.penalty,
            reg=sweep.ridge.factors,
            intercept_reg=sweep.ridge.intercepts,
            relative_decrease=sweep.decrease,
            gradient_norm=float(np.hypot(half_X.gradient, half_Y.gradient)),
            sign_flips=half_X.sign_flips + half_Y.sign_flips,
            inner_iterations=(half_X.inner_iterations + half_Y.inner_iterations) / solved,
            line_searches=half_X.line_searches + half_Y.line_searches,
            extrapolation=sweep.beta,
            accepted=sweep.accepted,
            restarts=state.restarts,
            seconds=time.perf_counter() - sweep.began,
            validation_loss=(sweep.end if sweep.accepted else sweep.origin).validation_loss,
            renewals=state.renewals,
        )
        state.history.append(record)
        return record

    def _accept(self, state: State, sweep: Sweep) -> None:
        """Go on from where the sweep led, and decide whether the loop has converged."""
        state.previous, state.point = sweep.origin.X, sweep.end
        state.accepted_since += 1
        state.remaining = max(0.0, 1.0 - sweep.decrease)
        settled = self.schedule.settled
        self.schedule.advance(sweep.end.rms)
        # Residuals that are nothing but rounding would go up and down for ever.
        small = sweep.decrease <= self.settings.tol or sweep.end.rms <= self.engine.rounding
        state.converged = settled and small

    def _undo(self, state: State, sweep: Sweep) -> None:
        """Go on from where the sweep began, and decide what it means that F rose."""
        state.accepted_since = 0
        if sweep.beta != 0:
            return
        if not self._is_rounding(sweep):
            state.spoilt = True
            return
        # Nothing is left to gain at this ridge: a start that no sweep improved on is its solution.
        if not any(record.accepted for record in state.history):
            state.point = replace(state.point, ridge=sweep.ridge)
        state.converged = self.schedule.settled
        self.schedule.advance(state.point.rms)

    def _is_rounding(self, sweep: Sweep) -> bool:
        """Tell whether F rose by no more than rounding explains.

        The rule of the solves (`fastemf.kernels.newton`) lets each raise F by 64 eps of it. And a
        residual is off by eps times its value, so the root of F by eps times that of Σ v b².
        """
        engine = self.engine
        root = math.sqrt(sweep.before) * (1 + 4 * ROUNDING * engine.eps)
        root += engine.eps * engine.size * math.sqrt(engine.mass)
        return sweep.end.rms <= engine.rounding or sweep.after <= root**2

    def _look_for_the_best(self, state: State) -> None:
        """Remember the iterate that fits what is held out best."""
        if self.held_out is None:
            return
        sweep = len(state.history)
        # The start has not been judged: its loss is NaN.
        if state.best is None or not state.point.validation_loss >= state.best.validation_loss:
            state.best, state.best_sweep = state.point, sweep


def orthonormalised(this: NDArray[Any], other: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Make the columns of one factor orthonormal, and the other such that the product stays."""
    # Powers of two keep squares within the dtype's range, whatever the data's unit, exactly.
    exponent = np.frexp(np.abs(this).max())[1]
    with single_threaded_blas():
        Q, R = np.linalg.qr(np.ldexp(this, -exponent))
        # Of a factor of lower rank Q is completed arbitrarily, rows without observations too.
        Q[~this.any(axis=1)] = 0
        return Q, np.ldexp(other @ R.T, exponent)


def _loss(engine: Engine, half: HalfSweep) -> float:
    return engine.omega * half.above + (1 - engine.omega) * half.below


def _point(
    engine: Engine, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge, half: HalfSweep
) -> Point:  # fmt: skip
    rms = float(np.sqrt((half.above + half.below) / engine.mass))
    return Point(X, Y, ridge, _loss(engine, half), rms)
