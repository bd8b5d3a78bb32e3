"""Algorithm 1 of the paper: the loop that alternates, records, calls back and stops.

It is independent of data structures, threads and machines: an `Engine` solves one side given
the other, and computes the loss.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fastemf.kernels.threads import single_threaded_blas
from fastemf.solver.progress import sweep_progress
from fastemf.solver.records import HalfSweep, Ridge, SweepRecord
from fastemf.solver.ridge import RidgeSchedule
from fastemf.solver.settings import Settings
from fastemf.support.arrays import Array
from fastemf.support.warn import ConvergenceWarning, RoundingWarning, warn

if TYPE_CHECKING:
    from fastemf.solver.checkpoint import CheckpointFile

RENEWALS, SWEEPS_BETWEEN = 12, 3  # of imputed values: at most, and sweeps between two
PLAIN_SWEEPS = 3  # before the first extrapolation
ROUNDING = 32  # sweeps may raise F by so many times eps, relatively
WARM_UP_TOL = 1e-5  # relative decrease of F, which float32 can tell from rounding


class Engine(Protocol):
    """Solver of half-sweeps."""

    omega: float
    shape: tuple[int, int]  # of the matrix
    dtype: np.dtype[Any]  # of the factors
    mass: float  # Σ v
    size: float  # root mean square of the data
    eps: float  # machine epsilon of the computations
    rounding: float  # residuals with at most this root mean square are rounding errors

    def solve(self, axis: int, this: Array, other: Array, ridge: Ridge) -> HalfSweep:
        """Find the optimal rows (axis 0) or columns (axis 1) given the other factor."""

    def evaluate(self, X: Array, Y: Array) -> HalfSweep:
        """Compute the loss at a pair of factors."""

    def penalty(self, X: Array, Y: Array, ridge: Ridge) -> float:
        """Compute the ridge term of the objective."""


class Solution(NamedTuple):
    """Factors, and the ridge at which they were solved."""

    X: Array
    Y: Array
    ridge: Ridge


class Outcome(NamedTuple):
    """The end of the loop."""

    X: Array
    Y: Array
    ridge: Ridge  # at which (X, Y) was solved
    history: tuple[SweepRecord, ...]
    converged: bool
    stopped: bool  # by the callback
    stalled: bool  # by rounding
    values_from: Solution | None = None  # from which the last values were imputed


@dataclass(frozen=True, eq=False)
class Point:
    """An iterate, with its loss."""

    X: Array
    Y: Array
    ridge: Ridge  # at which it was solved
    loss: float
    rms: float
    validation_loss: float = math.nan


@dataclass
class State:
    """The state of the loop between sweeps, beside that of the ridge's schedule.

    A loop that continues from it is bitwise identical to an uninterrupted one.
    """

    point: Point
    previous: Array  # X before the last accepted sweep
    accepted_since: int = 0  # sweeps accepted since the start or the last restart
    contraction: float = 1.0  # F after / F before, of the last accepted sweep
    restarts: int = 0
    best: Point | None = None  # by validation loss
    best_sweep: int = 0
    stopped: bool = False  # by the callback
    converged: bool = False
    stalled: bool = False  # by rounding: a plain sweep raised F
    renewals: int = 0  # of imputed values
    renewed_at: int = 0  # sweeps before the last renewal
    values_from: Solution | None = None  # from which the values were then imputed
    warm_up: bool = False  # whether it is in the warm-up sweeps
    history: list[SweepRecord] = field(default_factory=list)
    engine: Engine | None = None  # of the current values; follows from the rest


class Sweep(NamedTuple):
    """One sweep, before it is accepted or rejected."""

    began: float  # time
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

        An extrapolated sweep may raise F at any time, a plain one only by rounding.
        """
        tolerance = ROUNDING * self.eps if self.beta == 0 else 0.0
        return self.after <= self.before * (1 + tolerance)


@dataclass(frozen=True, eq=False)
class Alternation:
    """The loop with its constant parts.

    Parameters
    ----------
    engine, schedule, settings
        Engine of the half-sweeps, schedule of the ridge, and settings of the fit.
    callback
        Called with the record of each sweep.
    validation
        Engine of the validation entries. The loop returns the iterate with the lowest validation
        loss, and ends after the settings' patience without a lower one.
    save
        Called with the state after each sweep, and whether it was the last.
    renew
        Makes an engine with values imputed from a solution. It is called every few sweeps, up to
        `RENEWALS` times; F is another function after each.
    """

    engine: Engine
    schedule: RidgeSchedule
    settings: Settings
    callback: Callable[[SweepRecord], Any]
    validation: Engine | None = None
    save: Callable[[State, bool], None] | None = None
    renew: Callable[[Solution], Engine] | None = None

    def start(self, X: Array, Y: Array) -> State:
        """Make the state before the first sweep."""
        engine = self.engine
        point = _point(engine, X, Y, self.schedule.ridge, engine.evaluate(X, Y))
        self.schedule.begin(X, Y, point.rms)
        return State(point, previous=X)

    def _engine(self, state: State) -> Engine:
        """Return the engine of the current values."""
        if state.engine is None:
            state.engine = self.engine
            if state.values_from is not None and self.renew is not None:
                state.engine = self.renew(state.values_from)
        return state.engine

    def run(self, state: State) -> Outcome:
        """Alternate from a state until F falls by less than `tol` per sweep.

        1. Extrapolate X along its last change (momentum; β = 0 for a plain sweep).
        2. Y ← argmin F(X, ·), then X ← argmin F(·, Y), at one ridge.
        3. Record the sweep. Undo it if it raised F.
        4. Update the ridge. Stop when it is final and F has converged, when the validation loss
           has not fallen for too long, or when a plain sweep raised F by more than rounding.
        """
        # A level that a callback ended is done, as the next one began from it. A single fit
        # continues.
        state.stopped = state.stopped and bool(self.settings.omegas)
        while not self._is_over(state):
            if self._is_due(state):
                self._renew(state)
            sweep = self._validate(self._sweep(state))
            record = self._record(state, sweep)
            state.stopped = bool(self.callback(record))
            if sweep.accepted:
                self._accept(state, sweep)
            else:
                self._undo(state, sweep)
            self._update_best(state)
            if self.save is not None:
                self.save(state, self._is_over(state))

        end = state.point if state.best is None else state.best
        history = tuple(state.history)
        ended = (self._has_converged(state), state.stopped, state.stalled)
        return Outcome(end.X, end.Y, end.ridge, history, *ended, state.values_from)

    def take_over(self, state: State) -> State:
        """Convert the last state of the warm-up sweeps to one of this loop."""
        X, Y, previous = (
            factor.astype(self.engine.dtype)
            for factor in (state.point.X, state.point.Y, state.previous)
        )
        point = _point(self.engine, X, Y, state.point.ridge, self.engine.evaluate(X, Y))
        return replace(
            state, point=point, previous=previous, warm_up=False, converged=False, stalled=False,
            engine=None,
        )  # fmt: skip

    def _is_due(self, state: State) -> bool:
        """Return whether to impute values again."""
        if self.renew is None or state.renewals >= RENEWALS:
            return False
        return state.converged or len(state.history) - state.renewed_at >= SWEEPS_BETWEEN

    def _renew(self, state: State) -> None:
        """Continue with newly imputed values, and with F of these."""
        point = state.point
        state.values_from = Solution(point.X, point.Y, point.ridge)
        state.engine = None
        state.renewals += 1
        state.renewed_at = len(state.history)
        state.accepted_since, state.converged = 0, False
        engine = self._engine(state)
        new = _point(engine, point.X, point.Y, point.ridge, engine.evaluate(point.X, point.Y))
        state.point = replace(new, validation_loss=point.validation_loss)
        if state.best is point:
            state.best = state.point

    def _is_over(self, state: State) -> bool:
        out_of_sweeps = len(state.history) >= self.settings.max_iter
        return self._has_converged(state) or state.stopped or state.stalled or out_of_sweeps

    def _has_converged(self, state: State) -> bool:
        """Return whether F has converged with final values, or the validation loss has."""
        waited = self.validation is not None and (
            len(state.history) - state.best_sweep >= self.settings.patience
        )
        return waited or (state.converged and not self._is_due(state))

    def _sweep(self, state: State) -> Sweep:
        """Solve for Y, then for X, from an X that may be extrapolated."""
        began = time.perf_counter()
        engine, origin, ridge = self._engine(state), state.point, self.schedule.ridge
        basis = self.settings.solver.orthogonalize
        if basis:
            X, Y = orthonormalize(origin.X, origin.Y)
            origin = replace(origin, X=X, Y=Y)
        before = origin.loss + engine.penalty(origin.X, origin.Y, ridge)
        beta = self._momentum(state)
        base = origin.X
        if beta != 0:
            base = origin.X + origin.X.dtype.type(beta) * (origin.X - state.previous)

        half_Y = engine.solve(1, origin.Y, base, ridge)
        X, Y = origin.X, half_Y.factor
        if basis:
            Y, X = orthonormalize(Y, X)
        half_X = engine.solve(0, X, Y, ridge)
        end = _point(engine, half_X.factor, Y, ridge, half_X)
        with np.errstate(over="ignore"):  # an extrapolation may overflow, and is then undone
            penalty = engine.penalty(end.X, end.Y, ridge)
        halves = (half_X, half_Y)
        return Sweep(began, origin, beta, ridge, halves, end, engine.eps, before, penalty)

    def _momentum(self, state: State) -> float:
        """Choose β: Nesterov's, but no more than the rate of convergence.

        Momentum β contracts F by β at best, so it would slow down an F that falls faster.
        """
        since = state.accepted_since
        if not self.settings.solver.momentum or len(state.history) < PLAIN_SWEEPS or since == 0:
            return 0.0
        return min((since - 1) / (since + 2), state.contraction)

    def _validate(self, sweep: Sweep) -> Sweep:
        """Compute the validation loss of an accepted sweep, per summed weight."""
        engine = self.validation
        if engine is None or not sweep.accepted:
            return sweep
        loss = engine.evaluate(sweep.end.X, sweep.end.Y).loss(engine.omega) / engine.mass
        return sweep._replace(end=replace(sweep.end, validation_loss=loss))

    def _record(self, state: State, sweep: Sweep) -> SweepRecord:
        """Append the sweep to the history."""
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
        """Continue from the end of the sweep, and decide whether the loop has converged."""
        state.previous, state.point = sweep.origin.X, sweep.end
        state.accepted_since += 1
        state.contraction = max(0.0, 1.0 - sweep.decrease)
        settled = self.schedule.settled
        self.schedule.advance(sweep.end.rms)
        # Residuals that are rounding errors would rise and fall without end.
        small = sweep.decrease <= self.settings.tol or sweep.end.rms <= self.engine.rounding
        state.converged = settled and small

    def _undo(self, state: State, sweep: Sweep) -> None:
        """Continue from the start of the sweep, and decide why F rose."""
        state.accepted_since = 0
        if sweep.beta != 0:
            return
        if not self._is_rounding(sweep):
            state.stalled = True
            return
        # F cannot be improved at this ridge: a start that no sweep improved is its solution.
        if not any(record.accepted for record in state.history):
            state.point = replace(state.point, ridge=sweep.ridge)
        state.converged = self.schedule.settled
        self.schedule.advance(state.point.rms)

    def _is_rounding(self, sweep: Sweep) -> bool:
        """Return whether rounding explains the rise of F.

        Each solve may raise F by 64 eps of it (`fastemf.kernels.newton`). A residual has an error
        of eps times its value, so the root of F one of eps times the root of Σ v b².
        """
        engine = self.engine
        root = math.sqrt(sweep.before) * (1 + 4 * ROUNDING * engine.eps)
        root += engine.eps * engine.size * math.sqrt(engine.mass)
        return sweep.end.rms <= engine.rounding or sweep.after <= root**2

    def _update_best(self, state: State) -> None:
        """Keep the iterate with the lowest validation loss."""
        if self.validation is None:
            return
        # The validation loss of the start is NaN.
        if state.best is None or not state.point.validation_loss >= state.best.validation_loss:
            state.best, state.best_sweep = state.point, len(state.history)


def orthonormalize(this: Array, other: Array) -> tuple[Array, Array]:
    """Make the columns of one factor orthonormal, and transform the other to keep the product."""
    # A power of two keeps squares within the range of the dtype, without rounding.
    exponent = np.frexp(np.abs(this).max())[1]
    with single_threaded_blas():
        Q, R = np.linalg.qr(np.ldexp(this, -exponent))
        # For a factor of lower rank QR completes Q arbitrarily, also in unobserved rows.
        Q[~this.any(axis=1)] = 0
        return Q, np.ldexp(other @ R.T, exponent)


def _point(
    engine: Engine, X: Array, Y: Array, ridge: Ridge, half: HalfSweep
) -> Point:  # fmt: skip
    rms = float(np.sqrt((half.above + half.below) / engine.mass))
    return Point(X, Y, ridge, half.loss(engine.omega), rms)


def alternate(
    engine: Engine,
    start: Callable[[Any], tuple[Array, Array]],
    schedule: RidgeSchedule,
    settings: Settings,
    *,
    checkpoint: CheckpointFile | None = None,
    validation: Engine | None = None,
    renew: Callable[[Solution], Engine] | None = None,
    warm_up: Engine | None = None,
) -> Outcome:
    """Run the loop from the factors ``start(engine)``, or from a checkpoint.

    With `warm_up` that engine runs the first sweeps. The user's callback, the progress bar and
    warnings are handled here; see `Alternation` for the other parameters.
    """
    with sweep_progress(settings.callback, settings.max_iter, settings.progress) as report:
        save = None if checkpoint is None else partial(checkpoint.write_state, schedule)
        loop = Alternation(engine, schedule, settings, report, validation, save, renew)
        first = loop
        if warm_up is not None:
            coarse = replace(settings, tol=max(settings.tol, WARM_UP_TOL))
            first = Alternation(warm_up, schedule, coarse, report, save=save)
        state = None
        if checkpoint is not None:
            state = checkpoint.read_state(
                schedule, (first.engine, engine), settings.k + settings.intercepts,
                validated=validation is not None, renews=renew is not None,
            )  # fmt: skip
        if state is None:
            state = first.start(*_convert(start(first.engine), first.engine.dtype))
            state.warm_up = warm_up is not None
        done = len(state.history)
        blame: Any = nullcontext()
        if checkpoint is not None:
            blame = checkpoint.blamed_until(lambda: len(state.history) > done)
        with blame:
            end = loop.run(state) if not state.warm_up else _run_both(first, loop, state)
    _warn_of_end(end, engine, schedule, settings)
    return end


def _run_both(first: Alternation, loop: Alternation, state: State) -> Outcome:
    """Run the warm-up sweeps, then the others."""
    end = first.run(state)
    if not end.stopped and len(end.history) < loop.settings.max_iter:
        return loop.run(loop.take_over(state))
    # There were too few sweeps, or the callback stopped them. A checkpoint continues from the
    # state; returned is the optimal X, in the data's type, for the last Y.
    end = end._replace(converged=False, stalled=False)
    X, Y = _convert((end.X, end.Y), loop.engine.dtype)
    return end._replace(X=loop.engine.solve(0, X, Y, end.ridge).factor, Y=Y)


def _convert(factors: tuple[Array, Array], dtype: np.dtype[Any]) -> Any:
    return tuple(np.ascontiguousarray(factor, dtype) for factor in factors)


def _warn_of_end(
    end: Outcome, engine: Engine, schedule: RidgeSchedule, settings: Settings
) -> None:  # fmt: skip
    """Warn if rounding, or too few sweeps, ended the fit."""
    if end.stalled:
        coarse = engine.eps > np.finfo(np.float64).eps
        warn(
            "the fit ended before it converged: a sweep raised the objective by more than the "
            f"rounding of its residuals in {'float32' if coarse else 'float64'} explains, and was "
            f"undone; {'pass float64' if coarse else 'raise reg'}, or take a constant off the data "
            "(intercepts=True does)",
            RoundingWarning,
        )
    elif not (end.converged or end.stopped):
        warn(
            f"the fit did not converge within max_iter={settings.max_iter} sweeps: the last one "
            f"lowered the objective by {end.history[-1].relative_decrease:.2g} "
            f"(tol={settings.tol:g})"
            + ("" if schedule.settled else " and the ridge was still moving")
            + "; raise max_iter"
            + (" or tol" if schedule.settled else ""),
            ConvergenceWarning,
        )
