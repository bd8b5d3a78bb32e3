"""The engine of a fit for other observations, at its level and scale, and its ridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastemf.observations.memory import Observations
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.noise import weighting_of
from fastemf.solver.records import Ridge
from fastemf.solver.weighting import plain

if TYPE_CHECKING:
    from fastemf.model.factorization import Factorization

__all__ = ["even_engine", "ridge_of", "weighed_engine"]


def even_engine(fit: Factorization, observed: Observations, n_threads: int) -> CompletionEngine:
    """Make an engine that weighs all observations alike."""
    return CompletionEngine(
        observed,
        fit.omega,
        mu=fit.mu if fit.rows.has_intercepts else None,
        scale=fit.scale,
        weighting=None if fit.reg_scaling == "count" else plain(observed.shape),
        n_threads=n_threads,
    )


def weighed_engine(fit: Factorization, observed: Observations, n_threads: int) -> CompletionEngine:
    """Make an engine with the weighting of the fit."""
    engine = even_engine(fit, observed, n_threads)
    if fit.rows.noise is None or fit.cols.noise is None:
        return engine
    variances = fit.rows.noise.variances, fit.cols.noise.variances
    return engine.view(weighting=weighting_of(fit.family, engine, variances))


def ridge_of(fit: Factorization) -> Ridge:
    """Return the ridge in force at the end of the fit, and that on the intercepts."""
    return Ridge(fit.reg, fit.intercept_reg)
