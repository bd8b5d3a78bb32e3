"""Factors that join a fit as its ridge falls, and those that a ridge has removed."""

from __future__ import annotations

import numpy as np

from fastemf.kernels import tally as tallies
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import total
from fastemf.solver.start import Factors, top_svd
from fastemf.solver.trial import Fitted
from fastemf.solver.weighting import Pair

__all__ = ["alive", "joined", "noise_norm"]

DEAD = 1e-6  # of the largest factor's norm
SEED = 0.5  # of the size that a new factor would have if it were alone


def noise_norm(engine: CompletionEngine, factors: Factors, rng: np.random.Generator) -> float:
    """Find the ridge at which noise alone would make a factor: the norm of slopes with any sign."""
    matrix = engine.slopes(*factors, _scales(engine), signed=True)
    shape, dtype = engine.observations.shape, engine.observations.dtype
    return float(top_svd(*matrix, shape, 1, rng, dtype)[1][0])


def joined(fit: Fitted, k: int, reg: float, rng: np.random.Generator) -> Factors:
    """Add the factors, up to k, that the ridge allows: singular pairs of the slopes above it."""
    engine, wanted = fit.engine, k - fit.rank
    if wanted <= 0:
        return fit.factors
    matrix = engine.slopes(*fit.factors, _scales(engine), signed=False)
    dtype = engine.observations.dtype
    U, d, V = top_svd(*matrix, engine.observations.shape, wanted, rng, dtype)
    new = d > reg
    if not new.any():
        return fit.factors
    # A factor alone in M̃ = D^½ M E^½, where the slopes are singular and the loss has the mean
    # curvature w̄ / mass, would have the size (d − λ) mass / w̄.
    sums = total(engine.tally(0, *fit.factors))
    curvature = sums[tallies.CURVATURE] / sums[tallies.MASS] / engine.mass
    root = SEED * np.sqrt((d[new] - reg) / curvature)
    found = []
    for factor, pairs, ridge in zip(
        fit.factors, (U, V), engine.weighting.solved_ridge, strict=True
    ):
        rank = engine.n_factors(factor)
        added = (pairs[:, new] * root / np.sqrt(ridge)[:, None]).astype(dtype)
        found.append(np.hstack([factor[:, :rank], added, factor[:, rank:]]))
    return found[0], found[1]


def alive(engine: CompletionEngine, factors: Factors) -> Factors:
    """Drop factors that the ridge has removed."""
    k = engine.n_factors(factors[0])
    if k == 0:
        return factors
    sizes = np.ones(k)
    for factor, ridge in zip(factors, engine.weighting.ridge, strict=True):
        part = factor[:, :k].astype(np.float64)
        sizes *= np.sqrt(np.einsum("ij,ij,i->j", part, part, ridge))
    kept = np.append(sizes > DEAD * sizes.max(), np.ones(factors[0].shape[1] - k, bool))
    return np.ascontiguousarray(factors[0][:, kept]), np.ascontiguousarray(factors[1][:, kept])


def _scales(engine: CompletionEngine) -> Pair:
    """Return what makes the slopes those of a problem whose ridge is the same everywhere."""
    weighting = engine.weighting
    observed = weighting.observations or tuple(np.ones_like(part) for part in weighting.ridge)
    rows, cols = (
        own / np.sqrt(ridge) for own, ridge in zip(observed, weighting.solved_ridge, strict=True)
    )
    return rows, cols
