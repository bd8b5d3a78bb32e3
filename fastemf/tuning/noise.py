"""Noise scales: the relative size of the residuals of rows and of columns.

With G = (w(r̃) r̃)² / mean, the variances of rows s and of columns u solve

    s_i = (Σ_j G_ij / u_j + 3) / (n_i + 3),     u_j = (Σ_i G_ij / s_i + 3) / (n_j + 3)

each with a count-weighted mean of 1; a prior of three observations shrinks those with few
observations to the mean. σ = √s and τ = √u enter a fit in one of two ways:

- ``"weighted"``: observations have weights 1 / (σ_i τ_j), and the ridge is scaled accordingly;
- ``"ridged"``: all observations have equal weights, and a noisy row has a larger ridge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastemf.kernels import residual_sums as columns
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.residual_sums import residual_sums
from fastemf.solver.start import Factors
from fastemf.solver.weighting import Pair, Weighting, count_weighting
from fastemf.support.arrays import Floats

PRIOR = 3.0  # observations with the mean noise
WIDEST = 30.0  # scales are clipped to this factor of 1


@dataclass(frozen=True, eq=False)
class EntityNoise:
    """How noisy the rows, or the columns, of a fit are.

    Parameters
    ----------
    variances
        One number for each entity, around 1.
    base
        Mean square of the slopes of the loss over the other side's variances: the variance, in
        squared units of the data, that corresponds to 1.
    """

    variances: Floats
    base: float


def unit_variances(masses: Pair) -> Pair:
    """Return the variances of equally noisy rows and columns."""
    return np.ones_like(masses[0]), np.ones_like(masses[1])


def noise_family(family: str) -> str:
    """Return the family of the noise scales of a candidate: ``"equal"`` without any."""
    return family if family in ("weighted", "ridged") else "equal"


def measure_noise(
    engine: CompletionEngine, factors: Factors, leverages: Pair, variances: Pair
) -> tuple[EntityNoise, EntityNoise]:
    """Measure the noise, for the noise scales of new rows and columns."""
    found = []
    for axis in (0, 1):
        sums = residual_sums(engine, axis, *factors, leverages, variances=variances)
        base = float(sums[:, columns.NOISE].sum() / engine.mass)
        found.append(EntityNoise(variances[axis], base))
    return found[0], found[1]


def mean_variances(several: list[Pair]) -> Pair:
    """Compute the mean of several estimates of the variances."""
    rows, cols = (np.mean(parts, axis=0) for parts in zip(*several, strict=True))
    return rows, cols


def update_variances(
    engine: CompletionEngine, factors: Factors, leverages: Pair, variances: Pair, rounds: int = 1
) -> Pair:
    """Update the variances of rows and columns from the residuals of a fit."""
    s, u = variances
    for _ in range(rounds):
        for axis in (0, 1):
            sums = residual_sums(engine, axis, *factors, leverages, variances=(s, u))
            found = _shrink(sums[:, columns.NOISE], engine.masses[axis])
            s, u = (found, u) if axis == 0 else (s, found)
    return s, u


def estimate_variances(
    engine: CompletionEngine,
    axis: int,
    factors: Factors,
    ridge: Ridge,
    variances: Pair,
    base: float,
) -> Floats:
    """Estimate the variances of new rows (axis 0) or columns, given those of the other side."""
    leverages = [np.zeros_like(part) for part in variances]
    leverages[axis] = engine.leverage(axis, factors[axis], factors[1 - axis], ridge)
    sums = residual_sums(engine, axis, *factors, (leverages[0], leverages[1]), variances=variances)
    if not base > 0:
        return np.ones_like(variances[axis])
    found = (sums[:, columns.NOISE] / base + PRIOR) / (engine.masses[axis] + PRIOR)
    return np.asarray(np.clip(found, WIDEST**-2, WIDEST**2))


def _shrink(noise: Floats, mass: Floats) -> Floats:
    mean = noise.sum() / mass.sum()
    if not mean > 0:
        return np.ones_like(mass)
    found = (noise / mean + PRIOR) / (mass + PRIOR)
    found *= mass.sum() / np.sum(found * mass)  # BLAS would depend on its threads
    found[mass == 0] = 1.0  # without observations
    return np.asarray(np.clip(found, WIDEST**-2, WIDEST**2))


def make_weighting(family: str, engine: CompletionEngine, variances: Pair) -> Weighting:
    """Make the weighting of a family, for the cells of an engine."""
    masses = engine.masses
    if noise_family(family) == "equal":
        return count_weighting(masses)
    sigma, tau = (np.sqrt(part) for part in variances)
    ones = np.ones_like(sigma), np.ones_like(tau)
    if family == "ridged":
        return Weighting((masses[0] * variances[0], masses[1] * variances[1]), ones)
    p, q = 1 / sigma, 1 / tau
    # Σ_j v q_j of each row, and Σ_i v p_i of each column.
    sums = [
        residual_sums(engine, axis, *engine.no_factors(), scales=(p, q))[:, columns.WEIGHT]
        for axis in (0, 1)
    ]
    total = float(np.sum(p * sums[0]))
    scale = engine.mass / total  # makes the mean weight 1
    p, sums = p * scale, [sums[0], sums[1] * scale]
    relative = tuple(  # weights of the intercepts
        np.divide(own * part, mass, out=np.ones_like(mass), where=mass > 0)
        for own, part, mass in zip((p, q), sums, masses, strict=True)
    )
    # λ N_i σ_i with N_i = p_i Σ_j v q_j, in units where p σ = 1 up to the common scale.
    return Weighting((sums[0] * scale, sums[1]), (relative[0], relative[1]), (p, q))
