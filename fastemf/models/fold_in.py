"""New rows or columns of a fit: solved with the other side fixed, alone or appended to the fit.

The engines evaluate or extend a fit on other observations, at its level, scale and ridge.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fastemf.censoring.imputation import (
    has_censored,
    impute_observations,
    require_imputation,
    without_censored,
)
from fastemf.inputs.labels import Labels, listed
from fastemf.models.bilinear import Bilinear, without_corrections
from fastemf.models.entities import Entities
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.weighting import equal_weighting
from fastemf.sources.memory import Observations
from fastemf.sources.source import Source
from fastemf.support.arrays import Floats
from fastemf.support.warn import warn
from fastemf.tuning.baselines import extend_baselines, join_baselines
from fastemf.tuning.corrections import EntityEffects
from fastemf.tuning.noise import EntityNoise, estimate_variances, make_weighting

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization


NOISE_ROUNDS = 2  # alternations of solving and estimating noise scales
LIMIT_ROUNDS = 6  # alternations of solving and imputing censored values


def fold_in_fit(
    fit: Factorization, observed: Observations, axis: int, n_threads: int
) -> Factorization:
    """Return the fit with the rows (axis 0) or columns of `observed`, which is not censored."""
    engine = unweighted_engine(fit, observed, n_threads)
    folded = _with_axis(fit, solve_axis(fit, observed, axis, engine), axis)
    training = fit.training
    if training is not None:
        unweighted = CompletionEngine(
            observed, fit.omega, mu=training.constant, scale=fit.scale, n_threads=n_threads
        )
        training = extend_baselines(training, axis, unweighted, n_threads)
    return replace(folded, training=training, history=(), converged=True)


def append_fit(fit: Factorization, new: Factorization, axis: int) -> Factorization:
    """Return the fit with the rows (axis 0) or columns of a folded-in fit appended."""
    training = None
    if fit.training is not None and new.training is not None:
        training = join_baselines(fit.training, new.training, axis)
    before = fit.axes[axis]
    grown = _with_axis(fit, _append_axis(before, new.axes[axis]), axis, before.size)
    return replace(grown, training=training)


def impute_new(
    fit: Factorization, observed: Observations, axis: int, n_threads: int
) -> Observations:
    """Impute the censored values of new rows or columns, alternating with their solution."""
    if not has_censored(observed):
        return observed
    require_imputation(fit.imputation)
    given = observed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about rows that are all censored
        uncensored: Source | None = without_censored(given)
        for _ in range(LIMIT_ROUNDS):
            engine = unweighted_engine(fit, observed, n_threads)
            if uncensored is not None:
                engine = engine.replace(observations=uncensored)
                engine = engine.replace(recount=True) if fit.reg_scaling == "count" else engine
                uncensored = None
            folded = _with_axis(fit, solve_axis(fit, observed, axis, engine), axis)
            imputation = require_imputation(folded.imputation)
            plain = Bilinear(without_corrections(folded.axes), fit.mu)
            observed = impute_observations(given, imputation, plain.predict)
    return observed


def solve_axis(
    fit: Factorization,
    observed: Observations,
    axis: int,
    engine: CompletionEngine,
    variances: Floats | None = None,
) -> Entities:
    """Solve exactly for the rows (axis 0) or columns of `observed`, given the fit's other side.

    If the fit has noise scales, those of the new items are estimated from their residuals, unless
    their `variances` are given.
    """
    before, fixed, ridge = fit.axes[axis], fit.axes[1 - axis], ridge_of(fit)
    other = fixed.extended_factor().astype(observed.dtype, copy=False)
    solved = np.zeros((observed.shape[axis], other.shape[1]), observed.dtype)
    noise = None
    if before.noise is None or fixed.noise is None:
        solved = engine.solve(axis, solved, other, ridge).factor
    else:
        rounds = NOISE_ROUNDS if variances is None else 0
        own = np.ones(len(solved)) if variances is None else variances
        for last in range(rounds + 1):
            pair = (own, fixed.noise.variances) if axis == 0 else (fixed.noise.variances, own)
            weighted = engine.replace(weighting=make_weighting(fit.family, engine, pair))
            solved = weighted.solve(axis, solved, other, ridge).factor
            if last < rounds:
                factors = (solved, other) if axis == 0 else (other, solved)
                own = estimate_variances(weighted, axis, factors, ridge, pair, before.noise.base)
        noise = EntityNoise(own, before.noise.base)
    unseen = np.flatnonzero((observed.by_row, observed.by_col)[axis].mass == 0)
    if unseen.size:
        what = ("rows", "columns")[axis]
        warn(f"{unseen.size} of the {len(solved)} new {what} have no observations")
    factor = solved.astype(before.factor.dtype, copy=False)
    labels = new_labels(before, axis, observed)
    folded = Entities.from_extended(factor, before.k, labels, unseen)
    return replace(folded, noise=noise, effects=_new_effects(before, fixed, axis, engine))


def check_new(before: Entities, axis: int, observed: Observations, remedy: str) -> None:
    """Refuse labels that the fit already has, and data without labels for a labelled fit."""
    labels = (observed.row_labels, observed.col_labels)[axis]
    if before.labels is None:
        return
    what = ("rows", "columns")[axis]
    if labels is None:
        raise ValueError(f"R_new must have labels of its {what}, as the fit has, got a matrix")
    known = before.labels.positions(labels, what=f"labels of the new {what}") >= 0
    if known.any():
        raise ValueError(
            f"{np.count_nonzero(known)} of the new {what} are in the fit already "
            f"({listed(labels.values[known])}): extend adds new {what} only; to use more data of "
            f"known ones, {remedy}"
        )


def new_labels(before: Entities, axis: int, observed: Observations) -> Labels | None:
    """Return the labels of folded-in rows or columns; numbers if the data have none."""
    if before.labels is None:
        return None
    labels = (observed.row_labels, observed.col_labels)[axis]
    if labels is None:
        labels = Labels(np.arange(observed.shape[axis]))
    return labels.renamed(before.name) if labels.name is None else labels


def _new_effects(
    before: Entities, fixed: Entities, axis: int, engine: CompletionEngine
) -> EntityEffects | None:
    """Solve for the effects of new items that the correction tables are over, if there are any."""
    if before.effects is None or fixed.effects is None:
        return None
    other = fixed.effects.values[:, None].astype(engine.dtype)
    nothing = np.zeros((engine.shape[axis], 1), engine.dtype)
    ridge = Ridge(0.0, before.effects.corrections.ridge)
    effects = engine.solve(axis, nothing, other, ridge).factor
    return EntityEffects(effects[:, 0].astype(np.float64), before.effects.corrections)


def _append_axis(before: Entities, new: Entities) -> Entities:
    """Return an axis with the items of a folded-in one appended."""
    intercepts, noise, effects, labels = before.intercepts, before.noise, before.effects, None
    if intercepts is not None and new.intercepts is not None:
        intercepts = np.concatenate([intercepts, new.intercepts])
    if noise is not None and new.noise is not None:
        noise = replace(noise, variances=np.concatenate([noise.variances, new.noise.variances]))
    if effects is not None and new.effects is not None:
        effects = replace(effects, values=np.concatenate([effects.values, new.effects.values]))
    if before.labels is not None and new.labels is not None:
        labels = before.labels.joined(new.labels)
    factor = np.concatenate([before.factor, new.factor])
    unseen = np.concatenate([before.unseen, before.size + new.unseen])
    return Entities(factor, intercepts, labels, unseen, noise, effects)


def _with_axis(fit: Factorization, other: Entities, axis: int, known: int = 0) -> Factorization:
    """Return the fit with another axis, whose first `known` items are those of the fit."""
    rows, cols = (other, fit.cols) if axis == 0 else (fit.rows, other)
    imputation = fit.imputation
    if imputation is not None:
        imputation = imputation.resize_axis(axis, other.size, known)
    return replace(fit, rows=rows, cols=cols, imputation=imputation, drift=None)


def unweighted_engine(
    fit: Factorization, observed: Observations, n_threads: int
) -> CompletionEngine:
    """Return an engine without noise weights."""
    mu = fit.mu if fit.rows.has_intercepts else None
    weighting = None if fit.reg_scaling == "count" else equal_weighting(observed.shape)
    return CompletionEngine(
        observed, fit.omega, mu=mu, scale=fit.scale, weighting=weighting, n_threads=n_threads
    )


def weighted_engine(fit: Factorization, observed: Observations, n_threads: int) -> CompletionEngine:
    """Return an engine with the noise weights of the fit, if it has any."""
    engine = unweighted_engine(fit, observed, n_threads)
    if fit.rows.noise is None or fit.cols.noise is None:
        return engine
    variances = fit.rows.noise.variances, fit.cols.noise.variances
    return engine.replace(weighting=make_weighting(fit.family, engine, variances))


def ridge_of(fit: Factorization) -> Ridge:
    """Return the final ridges on factors and intercepts."""
    return Ridge(fit.reg, fit.intercept_reg)
