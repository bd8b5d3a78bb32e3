"""Schedules of the ridge: how it is chosen and how it moves during a fit.

All three schedules answer the same questions: which `ridge` is in force, and
is it `settled`, so that the fit may stop? `begin` sees the start, `advance` every
accepted sweep.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.records import Ridge

__all__ = ["AnnealedRidge", "FixedRidge", "NoiseRidge", "RidgeSchedule", "noise_ridge"]


# What multiplies the residuals' size in reg="noise": these had the lowest held-out loss over
# synthetic and real data, without and with intercepts.
NOISE_FACTOR = 0.06
NOISE_FACTOR_INTERCEPTS = 0.1


class Fitting(Protocol):
    """What the noise-following ridge asks of an engine."""

    omega: float
    masses: tuple[NDArray[np.float64], NDArray[np.float64]]
    mass: float
    spread: float
    rounding: float


class RidgeSchedule(Protocol):
    """A ridge that may move between sweeps, never within one."""

    ridge: Ridge
    settled: bool

    def begin(self, X: NDArray[Any], Y: NDArray[Any], rms: float) -> None:
        """Choose the first ridge from the start and its residuals' root mean square."""

    def advance(self, rms: float) -> None:
        """Choose the next ridge from an accepted sweep's residuals."""

    def memory(self) -> list[float]:
        """Return what decides the ridges to come, beyond the settings."""

    def recall(self, memory: list[float]) -> None:
        """Go to where another schedule of these settings was, given its memory.

        Numbers that are finite and not negative, but no schedule's memory, raise ValueError.
        """


def asymmetry(omega: float) -> float:
    """Compute 4 ω (1 − ω), which makes one ridge right for all levels (weights are about half)."""
    return 4 * omega * (1 - omega)


class FixedRidge:
    """A ridge that is known from the start."""

    settled = True

    def __init__(self, ridge: Ridge) -> None:
        self.ridge = ridge

    @classmethod
    def given(cls, reg: float, omega: float) -> FixedRidge:
        """Take a number the user gave; 0 leaves the intercepts free too."""
        return cls(Ridge(reg, asymmetry(omega) if reg > 0 else 0.0))

    def begin(self, X: NDArray[Any], Y: NDArray[Any], rms: float) -> None:
        """Do nothing: the ridge does not depend on the start."""

    def advance(self, rms: float) -> None:
        """Do nothing: the ridge does not move."""

    def memory(self) -> list[float]:
        """Return nothing: the settings decide all."""
        return []

    def recall(self, memory: list[float]) -> None:
        """Do nothing: there is nothing to remember."""


class AnnealedRidge:
    """A ridge that falls in stages to exactly 0.

    Stage s has λ = δ_s · 2ω(1 − ω) · (typical squared factor entry), times the typical
    number of observations where the ridge is not scaled by it, so that a row's ridge is
    about δ_s of the mean diagonal of its normal equations.
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

    def begin(self, X: NDArray[Any], Y: NDArray[Any], rms: float) -> None:
        """Measure the factors once; the stages are relative to that."""
        sizes = [np.sqrt(np.mean(np.square(F[:, : self._k], dtype=float))) for F in (X, Y)]
        self._unit = 0.5 * asymmetry(self._omega) * float(sizes[0] * sizes[1]) * self._count
        self._set()

    def advance(self, rms: float) -> None:
        """Count the sweep."""
        self._sweeps += 1
        self._set()

    def memory(self) -> list[float]:
        """Return the factors' size at the start, and the sweeps since."""
        return [self._unit, float(self._sweeps)]

    def recall(self, memory: list[float]) -> None:
        """Go to the same stage."""
        unit, sweeps = memory
        if sweeps % 1 != 0:
            raise ValueError(f"schedule must have a whole number of sweeps, got {sweeps}")
        self._unit, self._sweeps = unit, int(sweeps)
        self._set()

    def _set(self) -> None:
        stage = self._sweeps // self.SWEEPS
        self.settled = stage >= len(self.STAGES)
        share = 0.0 if self.settled else self.STAGES[stage]
        self.ridge = Ridge(share * self._unit, share * asymmetry(self._omega))


def noise_ridge(engine: Fitting, k: int, intercepts: bool, moving: int = 0) -> NoiseRidge:
    """Make the noise-following ridge for the cells that an engine fits.

    For `moving` sweeps it is not frozen: those from a fit at another ridge hardly move at first.
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
    """A ridge as large as the noise: λ = c · RMS(r) / sqrt(1 − min(dof/p, 0.9)) · 4ω(1 − ω).

    The residuals, corrected for the degrees of freedom the fit has spent, say
    how noisy the data are; noiseless data drive λ to 0 and are recovered exactly.
    The intercepts' ridge, worth one observation, falls to 0 with it once the
    residuals are small against the data.
    """

    FROZEN_BELOW = 0.01  # λ is frozen once a sweep changes it by less, relatively
    SMALL = 0.1  # residuals below this share of the data's spread lower the intercepts' ridge

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

    def begin(self, X: NDArray[Any], Y: NDArray[Any], rms: float) -> None:
        """Follow the start's residuals, up to the data's spread."""
        self._set(min(rms, self._spread))  # a rescaled spectral start may overshoot the data

    def advance(self, rms: float) -> None:
        """Follow the residuals until they hardly move, then freeze."""
        if self.settled:
            return
        before = self.ridge.factors
        self._set(rms)
        moved = abs(self.ridge.factors - before)
        steady = moved <= self.FROZEN_BELOW * before and self._moving <= 0
        self.settled = steady or rms <= self._rounding
        self._moving -= 1

    def memory(self) -> list[float]:
        """Return the ridge, and whether it is frozen."""
        return [*self.ridge, float(self.settled)]

    def recall(self, memory: list[float]) -> None:
        """Go on from the same ridge."""
        factors, intercepts, settled = memory
        if settled not in (0, 1) or intercepts > self._intercepts:
            raise ValueError(
                f"schedule must be settled or not, with an intercepts' ridge up to "
                f"{self._intercepts:g}, got {settled:g} and {intercepts:g}"
            )
        self.ridge, self.settled = Ridge(factors, intercepts), bool(settled)

    def _set(self, rms: float) -> None:
        noisy = min(1.0, rms / (self.SMALL * self._spread)) if self._spread > 0 else 1.0
        self.ridge = Ridge(self._per_rms * rms, self._intercepts * noisy)
