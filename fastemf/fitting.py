"""`fit_data`, the fit of opened data that every completion task uses.

The steps are: make the engine, tune the ridge, choose a start, alternate, and make the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastemf.censoring.buckley_james import BuckleyJames
from fastemf.inputs.labels import Labels
from fastemf.kernels.residual_sums import LOSS, MASS
from fastemf.models.entities import Entities
from fastemf.models.factorization import Factorization
from fastemf.models.grown_start import grow_factors
from fastemf.solver.alternation import Outcome, alternate
from fastemf.solver.checkpoint import open_checkpoint
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge, sum_rows
from fastemf.solver.residual_sums import residual_sums
from fastemf.solver.ridge import FixedRidge, NoiseRidge, RidgeSchedule, asymmetry, noise_ridge
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors, extend_factors, pad_rank, starting_factors
from fastemf.solver.warm_up import trial_engine, warm_up_engine
from fastemf.solver.weighting import equal_weighting
from fastemf.sources.open_source import Data
from fastemf.sources.source import Source
from fastemf.support.memory import check_memory
from fastemf.support.warn import warn
from fastemf.tuning.baselines import fit_baselines
from fastemf.tuning.corrections import Corrections, EntityEffects
from fastemf.tuning.noise import EntityNoise, make_weighting, measure_noise, noise_family
from fastemf.tuning.result_file import resume_or_tune
from fastemf.tuning.ridge_path import sees_all
from fastemf.tuning.trial import (
    INTERCEPT_SWEEPS,
    INTERCEPT_TOL,
    TuningResult,
    find_shift,
    intercept_engine,
    run_sweeps,
)

FACTOR_COPIES = 3  # the current factors, those of the sweep before, and those being solved
COMPARABLE = 0.1  # of the validation loss: a lower leave-one-out loss means noiseless data

Start = Callable[[CompletionEngine], Factors]


class FitResult(NamedTuple):
    """A fitted model, and the result of its tuning, if there was one."""

    model: Factorization
    tuning: TuningResult | None


class Adjustments(NamedTuple):
    """What a tuned fit adds to its factors."""

    shift: float = 0.0
    noise: tuple[EntityNoise | None, EntityNoise | None] = (None, None)
    effects: tuple[EntityEffects | None, EntityEffects | None] = (None, None)


def fit_data(
    data: Data,
    settings: Settings,
    rng: np.random.Generator,
    *,
    neighbour: TuningResult | None = None,
    keep_baselines: bool = True,
) -> FitResult:
    """Fit opened data.

    Parameters
    ----------
    data
        The observations, opened.
    settings
        Settings of the fit.
    rng
        Generator of the start.
    neighbour
        Tuning of a neighbouring level, from which that of this level starts.
    keep_baselines
        Whether the model keeps baselines of its data for later evaluations.
    """
    observations = data.fitted
    settings = settings.at_shape(observations.shape)
    _check_fit(observations, settings)
    engine = make_engine(observations, settings)
    gathered = engine.replace(observations=data.gathered)
    validation = _make_validation(data, engine)
    checkpoint = open_checkpoint(settings, lambda: data.digests, data.seed)
    censoring, update, imputation = None, None, None
    if data.is_censored:
        censoring, recorded = BuckleyJames(engine, data.limit, data.marks), gathered
        solution = censoring.initial_solution(settings)
        engine, gathered = censoring.impute(solution), censoring.impute_engine(recorded, solution)
        if validation is not None:
            validation = censoring.impute_engine(validation, solution)

    tuned = None
    if settings.reg == "auto":
        earlier = settings.init.tuning if isinstance(settings.init, Factorization) else None
        tuned = resume_or_tune(
            checkpoint, trial_engine(gathered, settings), settings, data.seed, data.marks,
            validation=validation, earlier=earlier, neighbour=neighbour,
        )  # fmt: skip
    result = tuned if isinstance(tuned, TuningResult) else None
    weighted, schedule = weight_and_schedule(engine, settings, result, gathered)
    warm_up = None
    # There are no warm-up sweeps with validation cells or imputed values, which would have to be
    # converted too.
    if validation is None and censoring is None and not isinstance(schedule, NoiseRidge):
        warm_up = warm_up_engine(weighted, settings)
    if censoring is not None:
        update = partial(censoring.update, weighted)
    end = alternate(
        weighted, _choose_start(engine, weighted, settings, rng, result), schedule, settings,
        checkpoint=checkpoint, validation=validation, renew=update, warm_up=warm_up,
    )  # fmt: skip

    if censoring is not None:
        solution = end.values_from or solution
        engine, gathered = censoring.impute(solution), censoring.impute_engine(recorded, solution)
        imputation = censoring.imputation(solution)
    adjustments = Adjustments()
    if result is not None:
        final = weighted.replace(observations=gathered.observations)
        adjustments = _find_adjustments(final, end, result, settings)
        effects = adjustments.effects[0]
        tables = 0 if effects is None else len(effects.corrections.each)
        tuned = replace(result.tuning, tables=tables)
    training = None
    if keep_baselines:
        training = fit_baselines(engine, intercept_ridge(result, engine), settings.n_threads)
    model = make_model(
        end, engine, settings, adjustments, "equal" if result is None else result.family,
        labels=(observations.row_labels, observations.col_labels), history=end.history,
        tuning=tuned, training=training,
        value_name=data.value_name, imputation=imputation, censored=data.censored,
        weighted=data.is_weighted,
    )  # fmt: skip
    return FitResult(model, result)


def make_engine(source: Source, settings: Settings) -> CompletionEngine:
    """Make the engine of all observations of a source."""
    return CompletionEngine(
        source,
        settings.omega,
        mu=source.expectile(settings.omega) if settings.intercepts else None,
        weighting=None if settings.solver.reg_scaling == "count" else equal_weighting(source.shape),
        n_threads=settings.n_threads,
        steps=settings.steps,
    )


def _make_validation(data: Data, engine: CompletionEngine) -> CompletionEngine | None:
    """Make the engine of the validation entries, in the units of the engine."""
    if data.held_out is None:
        return None
    return CompletionEngine(
        data.held_out, engine.omega, mu=engine.mu, scale=engine.spread, n_threads=engine.n_threads
    )


def intercept_ridge(result: TuningResult | None, engine: CompletionEngine) -> float:
    """Return λ₀ of baselines: as tuned, or the weight of one observation."""
    return (0.0 if result is None else result.intercept_ridge) or asymmetry(engine.omega)


def weight_and_schedule(
    engine: CompletionEngine,
    settings: Settings,
    result: TuningResult | None,
    gathered: CompletionEngine | None = None,
) -> tuple[CompletionEngine, RidgeSchedule]:
    """Apply a tuning, or the settings without one: the weighted engine, and the ridge's schedule.

    `gathered` is the same engine with its entries in this process if they are few.
    """
    if not isinstance(settings.reg, str):
        m, n = engine.shape
        counted = settings.solver.reg_scaling == "count"
        count = 1.0 if counted else engine.observations.mass / float(m * n) ** 0.5
        return engine, settings.numbered_ridge(count)
    if result is None or result.family == "noise":
        return engine, noise_ridge(engine, settings.k, settings.intercepts)
    weighting = make_weighting(result.family, gathered or engine, result.variances)
    return engine.replace(weighting=weighting), FixedRidge(result.ridge)


def _choose_start(
    engine: CompletionEngine,
    weighted: CompletionEngine,
    settings: Settings,
    rng: np.random.Generator,
    result: TuningResult | None,
) -> Start:
    """Choose between the start of the settings and the factors of a tuning."""
    init, k = settings.init, settings.k
    if not isinstance(init, Factorization):
        anew = result is None or init != "spectral"
        # The factors of a sample may be fewer than those of all cells.
        if anew or result is None or not sees_all(engine):
            return lambda own: starting_factors(init, own, k, rng, settings.n_threads)
        return lambda _: pad_rank(result.factors, engine.n_factors(result.factors[0]), k)

    def start(_: CompletionEngine) -> Factors:
        theirs = start_from_model(init, engine, k, rng)
        if result is None:
            return theirs
        # An earlier model may lack factors, which would stay zero, or be of another level.
        ours = pad_rank(result.factors, engine.n_factors(result.factors[0]), k)

        def objective(factors: Factors) -> float:
            loss = weighted.evaluate(*factors).loss(weighted.omega)
            return loss + weighted.penalty(*factors, result.ridge)

        return min((theirs, ours), key=objective)

    return start


def start_from_model(
    model: Factorization, engine: CompletionEngine, k: int, rng: np.random.Generator
) -> Factors:
    """Start from an earlier model, with its intercepts around the mu of the engine."""
    offset = None
    if engine.mu is not None:
        # Row effects of a level are about as far from its centre as from that of another.
        moves = model.rows.has_intercepts and model.omega != engine.omega
        offset = 0.0 if moves else model.mu - engine.mu
    observed = engine.observations
    X, Y, a, c = grow_factors(
        model.axes, engine.shape, k, rng, offset=offset,
        labels=(observed.row_labels, observed.col_labels),
    )  # fmt: skip
    return extend_factors(engine, (X, Y), (a, c))


def _find_adjustments(
    engine: CompletionEngine, end: Outcome, result: TuningResult, settings: Settings
) -> Adjustments:
    """Find the shift of a tuned fit, its noise scales, and the effects its tables need."""
    factors = end.X, end.Y
    leverages = engine.leverages(*factors, end.ridge)
    adjustments = Adjustments()
    if engine.has_intercepts:
        shift = find_shift(engine, factors, leverages, result.shift)
        adjustments = Adjustments(shift)
        sums = sum_rows(residual_sums(engine, 0, *factors, leverages, shift))
        # The validation residuals of noiseless data only measure how far the trials converged.
        if sums[LOSS] / sums[MASS] > COMPARABLE * result.tuning.steps[result.tuning.chosen].loss:
            adjustments = Adjustments(shift + result.correction)
            if result.tables:
                tables = Corrections(result.tables, result.intercept_ridge)
                effects = _fit_effects(engine, tables, settings)
                adjustments = adjustments._replace(effects=effects)
    if noise_family(result.family) != "equal" or adjustments.effects[0] is not None:
        noise = measure_noise(engine, factors, leverages, result.variances)
        adjustments = adjustments._replace(noise=noise)
    return adjustments


def _fit_effects(
    engine: CompletionEngine, tables: Corrections, settings: Settings
) -> tuple[EntityEffects, EntityEffects]:
    """Fit the effect of each row and each column: intercepts without factors."""
    unweighted, ridge = intercept_engine(engine), Ridge(0.0, tables.ridge)
    factors, _ = run_sweeps(
        unweighted, unweighted.no_factors(), ridge, settings, INTERCEPT_SWEEPS, INTERCEPT_TOL
    )
    rows, cols = (EntityEffects(factor[:, 0].astype(np.float64), tables) for factor in factors)
    return rows, cols


def make_model(
    end: Outcome,
    engine: CompletionEngine,
    settings: Settings,
    adjustments: Adjustments,
    family: str = "equal",
    *,
    labels: tuple[Labels | None, Labels | None] = (None, None),
    **more: Any,
) -> Factorization:
    """Make the model of a fit that has ended; `more` are further fields of it."""
    source = engine.observations
    unseen = [np.flatnonzero(side.mass == 0) for side in (source.by_row, source.by_col)]
    rows, cols = (
        replace(
            Entities.from_extended(factor, settings.k, labels[axis], unseen[axis]),
            noise=adjustments.noise[axis],
            effects=adjustments.effects[axis],
        )
        for axis, factor in enumerate((end.X, end.Y))
    )
    return Factorization(
        rows=rows,
        cols=cols,
        omega=settings.omega,
        mu=0.0 if engine.mu is None else engine.mu,
        reg=end.ridge.factors,
        reg_scaling=settings.solver.reg_scaling,
        intercept_reg=end.ridge.intercepts if settings.intercepts else 0.0,
        scale=engine.spread,
        converged=end.converged,
        shift=adjustments.shift,
        family=noise_family(family),
        **more,
    )


def _check_fit(observations: Source, settings: Settings) -> None:
    """Check rank and memory, and warn of rows and columns with few observations."""
    k, (m, n) = settings.k, observations.shape
    width = k + settings.intercepts
    check_memory(
        FACTOR_COPIES * (m + n) * width * observations.dtype.itemsize,
        f"a fit of rank {k} to {m} rows and {n} columns",
        "lower k, or number rows and columns from 0 without gaps",
    )
    sides = (observations.by_row, observations.by_col)
    counts = [np.diff(side.indptr) for side in sides]
    empty = [int(np.count_nonzero(count == 0)) for count in counts]
    if any(empty):
        warn(
            f"{empty[0]} rows and {empty[1]} columns have no observations; their factors are "
            "zero (see unseen_rows and unseen_cols of the result)"
        )
    short = [int(np.count_nonzero((count > 0) & (count < k))) for count in counts]
    if settings.reg == 0 and any(short):
        warn(
            f"{short[0]} rows and {short[1]} columns have fewer than k={k} observations; with "
            "reg=0 they are interpolated exactly (minimum norm) and predict poorly: use "
            'reg="auto" or a smaller k'
        )
