"""A fit with other rows or columns than it was fitted to: new ones alone, or beside its own."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from fastemf.model.fit_engine import even_engine, ridge_of
from fastemf.model.folding import folded_axis, joined_axis
from fastemf.model.limits import has_limits, known_imputation, with_limits_replaced
from fastemf.model.prediction import without_tables
from fastemf.observations.memory import Observations
from fastemf.observations.source import Source
from fastemf.solver.axis import Axis
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.imputation import without_censored
from fastemf.solver.training import TrainingLevels, joined_levels, new_levels

if TYPE_CHECKING:
    from fastemf.model.factorization import Factorization

__all__ = ["folded_fit", "joined_fit", "with_new_limits"]

LIMIT_ROUNDS = 6  # in which new items and their censored values improve each other


def folded_fit(
    fit: Factorization, observed: Observations, axis: int, n_threads: int
) -> Factorization:
    """Return the fit with the items of `observed`, none of whose values is censored, on an axis."""
    folded = _solved_axis(fit, observed, axis, n_threads)
    training = _new_training(fit, observed, axis, n_threads)
    return replace(_with_axis(fit, folded, axis), training=training, history=(), converged=True)


def with_new_limits(
    fit: Factorization, observed: Observations, axis: int, n_threads: int
) -> Observations:
    """Replace censored values of new rows or columns, in turn with their solution."""
    if not has_limits(observed):
        return observed
    known_imputation(fit.imputation)
    given = observed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of items that are all censored
        of: Source | None = without_censored(given)
        for _ in range(LIMIT_ROUNDS):
            found = _with_axis(fit, _solved_axis(fit, observed, axis, n_threads, of), axis)
            of = None
            known = known_imputation(found.imputation)
            observed = with_limits_replaced(given, without_tables(found.axes), fit.mu, known)
    return observed


def joined_fit(fit: Factorization, new: Factorization, axis: int) -> Factorization:
    """Return the fit with the items of a folded one after its own."""
    training = None
    if fit.training is not None and new.training is not None:
        training = joined_levels(fit.training, new.training, axis)
    before = fit.axes[axis]
    grown = _with_axis(fit, joined_axis(before, new.axes[axis]), axis, before.size)
    return replace(grown, training=training)


def _solved_axis(
    fit: Factorization, observed: Observations, axis: int, n_threads: int, of: Source | None = None
) -> Axis:
    """Solve for the items of an axis; `of` are the same entries with other weights."""
    engine = even_engine(fit, observed, n_threads)
    if of is not None:
        engine = engine.on(of)
        engine = engine.recounted() if fit.reg_scaling == "count" else engine
    return folded_axis(fit.axes, axis, observed, engine, ridge_of(fit), fit.family)


def _new_training(
    fit: Factorization, observed: Observations, axis: int, n_threads: int
) -> TrainingLevels | None:
    """Find the levels of what is folded in, with which that can be compared."""
    if fit.training is None:
        return None
    mu = fit.training.constant
    even = CompletionEngine(observed, fit.omega, mu=mu, scale=fit.scale, n_threads=n_threads)
    return new_levels(fit.training, axis, even, n_threads)


def _with_axis(fit: Factorization, other: Axis, axis: int, known: int = 0) -> Factorization:
    """Return the fit with another axis, whose first `known` items it had before."""
    rows, cols = (other, fit.cols) if axis == 0 else (fit.rows, other)
    imputation = fit.imputation
    if imputation is not None:
        imputation = imputation.with_axis(axis, other.size, known)
    return replace(fit, rows=rows, cols=cols, coverage=None, imputation=imputation)
