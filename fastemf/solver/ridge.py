"""Schedules of the ridge: fixed, annealed to zero, or adapted to the noise.

A schedule has the current `ridge`, and is `settled` once the ridge is final, so that the fit may
stop. `begin` is called with the start, `advance` after every accepted sweep.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fastemf.loss import level_weights
from fastemf.solver.records import Ridge
from fastemf.support.arrays import Array, Floats

# Factors of the residuals' size in reg="noise", without and with intercepts: these had the lowest
# validation loss over synthetic and real data.
NOISE_FACTOR = 0.06
NOISE_FACTOR_INTERCEPTS = 0.1


class Fitting(Protocol):
    """The attributes of an engine that the noise-adaptive ridge needs."""

    omega: float
    masses: tuple[Floats, Floats]
    mass: float
    spread: float
    rounding: float


class RidgeSchedule(Protocol):
    """A ridge that may change between sweeps, but not within one."""

    ridge: Ridge
    settled: bool

    def begin(self, X: Array, Y: Array, rms: float) -> None:
        """Choose the first ridge from the start and its residuals' root mean square."""

    def advance(self, rms: float) -> None:
        """Choose the next ridge from an accepted sweep's residuals."""

    def state(self) -> list[float]:
        """Return the numbers that, with the settings, determine all further ridges."""

    def restore(self, state: list[float]) -> None:
        """Continue from the state of another schedule with the same settings.

        The numbers are finite and not negative; ValueError if they are not a state.
        """


def asymmetry(omega: float) -> float:
    """Compute 4 ω (1 − ω), which scales a ridge for ω = 0.5 to another level."""
    above, below = level_weights(omega)
    return 4 * above * below


class FixedRidge:
    """A constant ridge."""

    settled = True

    def __init__(self, ridge: Ridge) -> None:
        self.ridge = ridge

    @classmethod
    def from_number(cls, reg: float, omega: float) -> FixedRidge:
        """Make the schedule of a given number; with 0, intercepts have no ridge either."""
        return cls(Ridge(reg, asymmetry(omega) if reg > 0 else 0.0))

    def begin(self, X: Array, Y: Array, rms: float) -> None:
        """Do nothing: the ridge does not depend on the start."""

    def advance(self, rms: float) -> None:
        """Do nothing: the ridge is constant."""

    def state(self) -> list[float]:
        """Return no numbers: the settings determine the ridge."""
        return []

    def restore(self, state: list[float]) -> None:
        """Do nothing: there is no state."""


class AnnealedRidge:
    """A ridge that falls in stages to exactly 0.

    Stage s has λ = δ_s · 2ω(1 − ω) · (typical squared factor entry), times the typical number of
    observations of a row unless the ridge is scaled by it. So a row's ridge is about δ_s of the
    mean diagonal of its normal equations.
    """

    STAGES = (1e-2, 1e-3, 1e-4)
    SWEEPS = 8

    def __init__(self, omega: float, k: int, count: float) -> None:
        self._omega = omega
        self._k = k
        self._count = count
        self._unit = 0.0
        self._sweeps = 0
        self.ridge = Ridge(0.0, 0.0)
        self.settled = False

    def begin(self, X: Array, Y: Array, rms: float) -> None:
        """Measure the size of the factors, to which the stages are relative."""
        sizes = [np.sqrt(np.mean(np.square(F[:, : self._k], dtype=float))) for F in (X, Y)]
        self._unit = 0.5 * asymmetry(self._omega) * float(sizes[0] * sizes[1]) * self._count
        self._set()

    def advance(self, rms: float) -> None:
        """Count the sweep."""
        self._sweeps += 1
        self._set()

    def state(self) -> list[float]:
        """Return the size of the factors at the start, and the number of sweeps."""
        return [self._unit, float(self._sweeps)]

    def restore(self, state: list[float]) -> None:
        """Continue in the same stage."""
        unit, sweeps = state
        if sweeps % 1 != 0:
            raise ValueError(f"schedule must have a whole number of sweeps, got {sweeps}")
        self._unit, self._sweeps = unit, int(sweeps)
        self._set()

    def _set(self) -> None:
        stage = self._sweeps // self.SWEEPS
        self.settled = stage >= len(self.STAGES)
        delta = 0.0 if self.settled else self.STAGES[stage]
        self.ridge = Ridge(delta * self._unit, delta * asymmetry(self._omega))


def noise_ridge(engine: Fitting, k: int, intercepts: bool, moving: int = 0) -> NoiseRidge:
    """Make the noise-adaptive ridge of an engine.

    It is not frozen within the first `moving` sweeps: a start from a fit at another ridge hardly
    moves at first.
    """
    width = k + intercepts
    spent = sum(float(np.minimum(mass, width).sum()) for mass in engine.masses)
    return NoiseRidge(
        NOISE_FACTOR_INTERCEPTS if intercepts else NOISE_FACTOR,
        engine.omega,
        dof=spent - width**2,
        mass=engine.mass,
        spread=engine.spread,
        rounding=engine.rounding,
        moving=moving,
    )


class NoiseRidge:
    """A noise-adaptive ridge: λ = c · RMS(r) / sqrt(1 − min(dof/p, 0.9)) · 4ω(1 − ω).

    The residuals, corrected for the degrees of freedom of the fit, estimate the noise. For
    noiseless data λ falls to 0, and these are recovered exactly. The ridge of the intercepts,
    equivalent to one observation, falls to 0 with it once the residuals are small relative to the
    data.
    """

    FROZEN_BELOW = 0.01  # λ is frozen once a sweep changes it by less, relatively
    SMALL = 0.1  # residuals below this fraction of the data's spread lower the intercepts' ridge

    def __init__(
        self,
        factor: float,
        omega: float,
        *,
        dof: float,
        mass: float,
        spread: float,
        rounding: float,
        moving: int = 0,
    ) -> None:
        spent = min(dof / mass, 0.9)
        self._per_rms = factor * asymmetry(omega) / float(np.sqrt(1 - spent))
        self._spread = spread
        self._rounding = rounding
        self._moving = moving
        self._intercepts = asymmetry(omega)
        self.ridge = Ridge(0.0, self._intercepts)
        self.settled = False

    def begin(self, X: Array, Y: Array, rms: float) -> None:
        """Set the ridge from the start's residuals, up to the data's spread."""
        self._set(min(rms, self._spread))  # a rescaled spectral start may overshoot the data

    def advance(self, rms: float) -> None:
        """Update the ridge until it hardly changes, then freeze it."""
        if self.settled:
            return
        before = self.ridge.factors
        self._set(rms)
        moved = abs(self.ridge.factors - before)
        steady = moved <= self.FROZEN_BELOW * before and self._moving <= 0
        self.settled = steady or rms <= self._rounding
        self._moving -= 1

    def state(self) -> list[float]:
        """Return the ridge, and whether it is frozen."""
        return [*self.ridge, float(self.settled)]

    def restore(self, state: list[float]) -> None:
        """Continue from the same ridge."""
        factors, intercepts, settled = state
        if settled not in (0, 1) or intercepts > self._intercepts:
            raise ValueError(
                f"schedule must be settled or not, with an intercepts' ridge up to "
                f"{self._intercepts:g}, got {settled:g} and {intercepts:g}"
            )
        self.ridge, self.settled = Ridge(factors, intercepts), bool(settled)

    def _set(self, rms: float) -> None:
        noisy = min(1.0, rms / (self.SMALL * self._spread)) if self._spread > 0 else 1.0
        self.ridge = Ridge(self._per_rms * rms, self._intercepts * noisy)
