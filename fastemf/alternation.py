"""Algorithm 1 of the paper, once: alternate, record, stop, call back.

It knows nothing of sparse or dense, of threads or machines: an `Engine` solves
one side given the other and says what the loss is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastemf.records import HalfSweep, Ridge, SweepRecord
from fastemf.ridge import RidgeSchedule

__all__ = ["Alternation", "Engine", "Outcome"]

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


@dataclass
class _Point:
    """An iterate with the parts of its objective, which may be asked for at any ridge."""

    X: NDArray[Any]
    Y: NDArray[Any]
    ridge: Ridge  # at which it was solved
    loss: float
    rms: float


@dataclass(frozen=True)
class Alternation:
    """The loop and its settings."""

    tol: float
    max_iter: int
    momentum: bool
    orthogonalize: bool
    callback: Callable[[SweepRecord], Any]

    def run(
        self, engine: Engine, X: NDArray[Any], Y: NDArray[Any], schedule: RidgeSchedule
    ) -> Outcome:
        """Alternate from (X, Y) until F falls by less than `tol` per sweep.

        1. Extrapolate X along its last change (momentum; β = 0 for a plain sweep).
        2. Y ← argmin F(X, ·), then X ← argmin F(·, Y), at one ridge.
        3. A plain sweep cannot raise F. An extrapolated one that did is undone.
        4. Record; let the ridge move; stop when it has settled and F has too.
        """
        point = self._point(engine, X, Y, schedule.ridge, engine.evaluate(X, Y))
        schedule.begin(X, Y, point.rms)
        history: list[SweepRecord] = []
        converged = stopped = False
        previous = X
        accepted_since = restarts = 0
        remaining = 1.0  # F after over F before, in the last accepted sweep
        while not (converged or stopped) and len(history) < self.max_iter:
            began = time.perf_counter()
            ridge = schedule.ridge
            before = point.loss + engine.penalty(point.X, point.Y, ridge)

            beta = 0.0
            if self.momentum and len(history) >= PLAIN_SWEEPS and accepted_since:
                # Nesterov's, but no more than suits the rate: momentum β contracts F by β at
                # best, so where F falls faster than that by itself, β would only slow it.
                beta = min((accepted_since - 1) / (accepted_since + 2), remaining)
            base = (
                point.X if beta == 0 else point.X + point.X.dtype.type(beta) * (point.X - previous)
            )

            half_Y = engine.solve(1, point.Y, base, ridge)
            Y = engine.orthonormal(half_Y.factor) if self.orthogonalize else half_Y.factor
            half_X = engine.solve(0, point.X, Y, ridge)
            following = self._point(engine, half_X.factor, Y, ridge, half_X)

            penalty = engine.penalty(following.X, following.Y, ridge)
            after = following.loss + penalty
            accepted = beta == 0 or after <= before
            decrease = (before - after) / before if before > 0 else 0.0
            restarts += not accepted
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
                restarts=restarts,
                seconds=time.perf_counter() - began,
            )
            history.append(record)
            stopped = bool(self.callback(record))
            if not accepted:
                accepted_since = 0
                continue

            previous, point = point.X, following
            accepted_since += 1
            remaining = max(0.0, 1.0 - decrease)
            settled = schedule.settled
            schedule.advance(point.rms)
            # Residuals that are rounding only would go up and down for ever.
            converged = settled and (decrease <= self.tol or point.rms <= engine.rounding)
            if self.orthogonalize and not (converged or stopped or len(history) == self.max_iter):
                point.X = engine.orthonormal(point.X)

        return Outcome(point.X, point.Y, point.ridge, tuple(history), converged, stopped)

    @staticmethod
    def _point(
        engine: Engine, X: NDArray[Any], Y: NDArray[Any], ridge: Ridge, half: HalfSweep
    ) -> _Point:
        loss = engine.omega * half.above + (1 - engine.omega) * half.below
        return _Point(X, Y, ridge, loss, float(np.sqrt((half.above + half.below) / engine.mass)))
