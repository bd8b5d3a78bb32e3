"""Noise scales: how much larger the residuals of one row or column are than those of another.

With G = (w(r̃) r̃)² / mean, the variances of rows s and of columns u solve

    s_i = (Σ_j G_ij / u_j + 3) / (n_i + 3),     u_j = (Σ_i G_ij / s_i + 3) / (n_j + 3)

each with a count-weighted mean of one; three observations' worth of the mean shrinks those that
have few. σ = √s and τ = √u enter a fit in one of two ways:

- ``"weighted"``: observations have weights 1 / (σ_i τ_j), and the ridge follows them;
- ``"ridged"``: all observations count alike, and the ridge of a noisy row is larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import tally as tallies
from fastemf.solver.axis import AxisNoise
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.weighting import Pair, Weighting, count_scaled

__all__ = [
    "even",
    "kept_noise",
    "mean_of",
    "noise_family",
    "own_variances",
    "renewed",
    "weighting_of",
]

PRIOR = 3.0  # observations' worth of the mean
WIDEST = 30.0  # scales are kept within this factor of one


def even(masses: Pair) -> Pair:
    """Return the variances where all rows and columns are alike."""
    return np.ones_like(masses[0]), np.ones_like(masses[1])


def noise_family(family: str) -> str:
    """Return the family that a candidate is weighted by."""
    return family if family in ("weighted", "ridged") else "even"


def kept_noise(
    engine: CompletionEngine,
    factors: tuple[NDArray[Any], NDArray[Any]],
    leverages: Pair,
    variances: Pair,
) -> tuple[AxisNoise, AxisNoise]:
    """Gather what new rows or columns need to find their own noise scales."""
    found = []
    for axis in (0, 1):
        sums = engine.tally(axis, *factors, leverages, variances=variances)
        level = float(sums[:, tallies.NOISE].sum() / engine.mass)
        found.append(AxisNoise(variances[axis], level))
    return found[0], found[1]


def mean_of(several: list[Pair]) -> Pair:
    """Compute the mean of variances that were found in several ways."""
    rows, cols = (np.mean(parts, axis=0) for parts in zip(*several, strict=True))
    return rows, cols


def renewed(
    engine: CompletionEngine,
    factors: tuple[NDArray[Any], NDArray[Any]],
    leverages: Pair,
    variances: Pair,
    rounds: int = 1,
) -> Pair:
    """Update the variances of rows and columns by the residuals of a fit."""
    s, u = variances
    for _ in range(rounds):
        for axis in (0, 1):
            sums = engine.tally(axis, *factors, leverages, variances=(s, u))
            found = _shrunk(sums[:, tallies.NOISE], engine.masses[axis])
            s, u = (found, u) if axis == 0 else (s, found)
    return s, u


def own_variances(
    engine: CompletionEngine,
    axis: int,
    factors: tuple[NDArray[Any], NDArray[Any]],
    ridge: Ridge,
    variances: Pair,
    level: float,
) -> NDArray[np.float64]:
    """Find the variances of new rows (axis 0) or columns, given those of the other side."""
    leverages = [np.zeros_like(part) for part in variances]
    leverages[axis] = engine.leverage(axis, factors[axis], factors[1 - axis], ridge)
    sums = engine.tally(axis, *factors, (leverages[0], leverages[1]), variances=variances)
    if not level > 0:
        return np.ones_like(variances[axis])
    found = (sums[:, tallies.NOISE] / level + PRIOR) / (engine.masses[axis] + PRIOR)
    return np.asarray(np.clip(found, WIDEST**-2, WIDEST**2))


def _shrunk(noise: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    mean = noise.sum() / mass.sum()
    if not mean > 0:
        return np.ones_like(mass)
    found = (noise / mean + PRIOR) / (mass + PRIOR)
    found *= mass.sum() / np.sum(found * mass)  # BLAS would depend on its threads
    found[mass == 0] = 1.0  # nothing is known of these
    return np.asarray(np.clip(found, WIDEST**-2, WIDEST**2))


def weighting_of(family: str, engine: CompletionEngine, variances: Pair) -> Weighting:
    """Make the weighting of a family, for the cells that an engine fits."""
    masses = engine.masses
    if noise_family(family) == "even":
        return count_scaled(masses)
    sigma, tau = (np.sqrt(part) for part in variances)
    ones = np.ones_like(sigma), np.ones_like(tau)
    if family == "ridged":
        return Weighting((masses[0] * variances[0], masses[1] * variances[1]), ones)
    p, q = 1 / sigma, 1 / tau
    # Σ_j v q_j of each row, and Σ_i v p_i of each column.
    sums = _weight_sums(engine, (p, q))
    total = float(np.sum(p * sums[0]))
    scale = engine.mass / total  # so that the mean weight is one
    p, sums = p * scale, (sums[0], sums[1] * scale)
    shares = tuple(
        np.divide(own * part, mass, out=np.ones_like(mass), where=mass > 0)
        for own, part, mass in zip((p, q), sums, masses, strict=True)
    )
    # λ N_i σ_i with N_i = p_i Σ_j v q_j, in units where p σ = 1 up to the common scale.
    return Weighting((sums[0] * scale, sums[1]), (shares[0], shares[1]), (p, q))


def _weight_sums(engine: CompletionEngine, weights: Pair) -> Pair:
    """Sum the weights of the other side over each row and each column."""
    nothing = engine.no_factors()
    rows, cols = (
        engine.tally(axis, *nothing, scales=weights)[:, tallies.WEIGHT] for axis in (0, 1)
    )
    return rows, cols
