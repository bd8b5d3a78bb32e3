"""Growth of the rank along a path of ridges, and the noise norm at which it begins."""

from __future__ import annotations

import numpy as np

from fastemf.kernels import residual_sums as columns
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import sum_rows
from fastemf.solver.residual_sums import residual_sums, slopes
from fastemf.solver.start import Factors, top_svd
from fastemf.solver.weighting import Pair
from fastemf.tuning.trial import TrialFit

DEAD = 1e-6  # relative to the norm of the largest factor
INITIAL_SIZE = 0.5  # of a new factor, relative to its solution without the other factors


def noise_norm(engine: CompletionEngine, factors: Factors, rng: np.random.Generator) -> float:
    """Compute the ridge at which noise makes a factor: the norm of slopes with random signs."""
    matrix = slopes(engine, *factors, _scales(engine), signed=True)
    shape, dtype = engine.observations.shape, engine.observations.dtype
    return float(top_svd(*matrix, shape, 1, rng, dtype)[1][0])


def add_factors(fit: TrialFit, k: int, reg: float, rng: np.random.Generator) -> Factors:
    """Add factors up to rank k: the singular pairs of the slopes with values above the ridge."""
    engine, wanted = fit.engine, k - fit.rank
    if wanted <= 0:
        return fit.factors
    matrix = slopes(engine, *fit.factors, _scales(engine), signed=False)
    dtype = engine.observations.dtype
    U, d, V = top_svd(*matrix, engine.observations.shape, wanted, rng, dtype)
    new = d > reg
    if not new.any():
        return fit.factors
    # A single factor of M̃ = D^½ M E^½, where the loss has the mean curvature w̄ / mass, has the
    # size (d − λ) mass / w̄.
    sums = sum_rows(residual_sums(engine, 0, *fit.factors))
    curvature = sums[columns.CURVATURE] / sums[columns.MASS] / engine.mass
    root = INITIAL_SIZE * np.sqrt((d[new] - reg) / curvature)
    found = []
    for factor, pairs, ridge in zip(
        fit.factors, (U, V), engine.weighting.solved_ridge, strict=True
    ):
        rank = engine.n_factors(factor)
        added = (pairs[:, new] * root / np.sqrt(ridge)[:, None]).astype(dtype)
        found.append(np.hstack([factor[:, :rank], added, factor[:, rank:]]))
    return found[0], found[1]


def drop_dead_factors(engine: CompletionEngine, factors: Factors) -> Factors:
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
    """Return the scales that turn the slopes into those of a problem with a uniform ridge."""
    weighting = engine.weighting
    observed = weighting.observations or tuple(np.ones_like(part) for part in weighting.ridge)
    rows, cols = (
        own / np.sqrt(ridge) for own, ridge in zip(observed, weighting.solved_ridge, strict=True)
    )
    return rows, cols
