"""The tuned fit: intercept ridge, noise scales, family and ridge chosen on validation cells.

1. The ridge λ₀ of the intercepts is chosen by leave-one-out loss.
2. Some cells become validation cells, in several folds where there are few cells.
3. Each family of noise scales has a path of fits to the training cells, from a strong ridge to a
   weak one, each starting from the one before. It begins above the noise norm, the ridge at which
   noise alone would make a factor; a factor joins when the ridge allows it.
4. Each fit is shifted by the ω-expectile of its leave-one-out residuals and evaluated on the
   validation cells. The simplest candidate within half a percent of the best wins.

Training loss and leave-one-out loss cannot choose the ridge of the factors: both are too
optimistic once factors fit noise.
"""

from __future__ import annotations

import numpy as np

from fastemf.kernels import residual_sums as columns
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge, sum_rows
from fastemf.solver.residual_sums import residual_sums
from fastemf.solver.ridge import asymmetry
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors
from fastemf.solver.weighting import Pair
from fastemf.sources.cell_sample import ALL_CELLS, MOST_FOLDS, CellSample, HashRange, Marks
from fastemf.sources.gathering import gather_sample
from fastemf.support.arrays import Floats
from fastemf.support.progress import count_steps, show_bars
from fastemf.tuning.noise import make_weighting
from fastemf.tuning.rank_growth import noise_norm
from fastemf.tuning.record import Baseline, Tuning
from fastemf.tuning.trial import (
    INTERCEPT_SWEEPS,
    INTERCEPT_TOL,
    Trial,
    TuningResult,
    find_shift,
    intercept_engine,
    run_sweeps,
)
from fastemf.tuning.tuner import FIRST, Tuner, find_intercept_ridge
from fastemf.tuning.warm_start import select_trials, try_warm_start

PROPORTION = 0.1  # of the cells that are validation cells
FEWEST = 50  # validation cells
FEWEST_CELLS = 400  # below, there are too few validation cells to compare ridges
SAMPLED = 20_000_000  # observations; larger data are tuned on a sample of this size
FEW = 1_000_000  # observations of the sample that chooses the ridge of the intercepts
SINGLE_FOLD = 1_000_000  # observations from which on one fold is enough
LOW_NOISE = 0.5  # of the intercepts' loss: below it the noise-adaptive ridge is tried too


def tune(
    engine: CompletionEngine,
    settings: Settings,
    seed: int,
    marks: Marks,
    *,
    validation: CompletionEngine | None = None,
    earlier: Tuning | None = None,
    neighbour: TuningResult | None = None,
) -> TuningResult | Tuning:
    """Choose family, ridge and noise scales of a fit.

    Parameters
    ----------
    engine, settings
        Engine of all cells, and settings of the fit.
    seed
        Seed of everything random but the validation cells.
    marks
        Random numbers of rows and columns, which determine the validation cells.
    validation
        Engine of the validation cells, if the user gave them.
    earlier
        Record of an earlier tuning of similar data, which narrows the paths.
    neighbour
        Result of a neighbouring level, which replaces the paths.

    Returns
    -------
    TuningResult or Tuning
        The latter, with its ``note``, where there is nothing to tune on.
    """
    size = engine.observations.size if validation is None else validation.observations.size
    least = FEWEST_CELLS if validation is None else FEWEST
    if size < least:
        return Tuning(note=f"too few observations to tune by ({size}, of at least {least})")
    if _is_constant(engine):
        return Tuning(note="all observations are equal")
    everything, engine = engine, _sample(engine, marks, SAMPLED)
    if validation is None:
        trials = _make_trials(engine, marks)
    else:
        # The marks give the cells their random signs.
        trials = [Trial(engine.replace(sample=CellSample(marks, ALL_CELLS)), validation)]
    if not all(trial.training.mass > 0 and trial.validation.mass > 0 for trial in trials):
        return Tuning(note="too few cells for validation cells")
    warm_start = None if neighbour is None else neighbour.warm_start
    if warm_start is not None:
        trials, warm_start = select_trials(trials, warm_start, settings.intercepts)
    if 2 * len(trials) > engine.n_threads:  # then trials in parallel occupy all threads
        trials = [trial.with_threads(1) for trial in trials]
    intercept_ridge = 0.0
    if settings.intercepts:
        intercept_ridge = find_intercept_ridge(_sample(everything, marks, FEW), settings)
    tuner = Tuner(engine, trials, settings, seed, intercept_ridge, warm_start)
    with show_bars(settings.progress), count_steps(None, "candidate", "tuning") as tuner.advance:
        tuner.try_simple()
        families = _list_families(engine, settings.k)
        if warm_start is not None:
            try_warm_start(tuner, warm_start, families)
        else:
            _try_paths(tuner, families, earlier)
    result = tuner.result(_evaluate_baselines(tuner), marks)
    return result if engine is everything else rescale_result(result, engine, everything, settings)


def sees_all(engine: CompletionEngine) -> bool:
    """Return whether a tuning uses all cells, and not a sample of them."""
    return engine.observations.size <= SAMPLED


def _sample(engine: CompletionEngine, marks: Marks, size: int) -> CompletionEngine:
    """Return the engine of a sample of about `size` observations, if there are more."""
    proportion = size / engine.observations.size
    if proportion >= 1:
        return engine
    sample = CellSample.of_proportion(marks, proportion)
    entries = gather_sample(engine.observations, sample, engine.n_threads)
    return engine.replace(observations=entries, cells=sample.part, recount=True)


def _try_paths(tuner: Tuner, families: list[str], earlier: Tuning | None) -> None:
    """Try the path of each family and, where there is little noise, the noise-adaptive ridge."""
    around = None
    if earlier is not None and earlier.best is not None and earlier.noise > 0:
        around = min(earlier.best.reg / earlier.noise, FIRST)
        best, known = earlier.best.family, {step.family for step in earlier.steps}
        families = [best, *(family for family in families if family not in known)]
    for family in families:
        if around is None and tuner.has_many and family != families[0]:
            # Its path is similar to the first one's, and each of its steps takes long.
            tuner.try_path(family, tuner.best_ratio(families[0]), narrow=1)
        else:
            tuner.try_path(family, around)
    if min(c.step.loss for c in tuner.tried) < LOW_NOISE * tuner.simple.step.loss:
        tuner.try_noise_ridge()


def _make_trials(engine: CompletionEngine, marks: Marks) -> list[Trial]:
    """Divide the cells into training and validation cells, in several folds where few."""
    size = engine.observations.size
    proportion = max(PROPORTION, FEWEST / size)
    folds = int(np.clip(SINGLE_FOLD // size, 1, MOST_FOLDS))
    span = round(proportion * engine.cells.span)
    parts = [CellSample(marks, HashRange(fold * span, span)) for fold in range(folds)]
    return [Trial(engine.replace(sample=one.rest()), engine.replace(sample=one)) for one in parts]


def _is_constant(engine: CompletionEngine) -> bool:
    """Return whether the observations are equal up to rounding, zeros included."""
    observations, mu = engine.observations, engine.mu
    mu = observations.expectile(engine.omega) if mu is None else mu
    return observations.rms(mu) <= engine.rounding


def _list_families(engine: CompletionEngine, k: int) -> list[str]:
    """List the families to try: both where the level lies in the data's longer tail.

    The second one concerns the ridge on the factors, and needs some.
    """
    in_tail = engine.omega > 0.5 if engine.observations.tail_is_right() else engine.omega < 0.5
    return ["weighted", "ridged"] if in_tail and k > 0 else ["weighted"]


def _evaluate_baselines(tuner: Tuner) -> tuple[Baseline, ...]:
    """Evaluate a constant, column intercepts, and row and column intercepts."""
    ridge = Ridge(0.0, tuner.intercept_ridge or asymmetry(tuner.engine.omega))
    settings = tuner.settings

    def evaluate(trial: Trial) -> dict[str, Floats]:
        training, validation = intercept_engine(trial.training), intercept_engine(trial.validation)
        zero = training.no_factors()
        models: dict[str, tuple[Factors, Pair | None]] = {"constant": (zero, None)}
        cols = training.solve(1, zero[1], zero[0], ridge).factor
        leverage = training.leverage(1, cols, zero[0], ridge)
        models["column"] = ((zero[0], cols), (np.zeros(zero[0].shape[0]), leverage))
        if not settings.intercepts:
            both, _ = run_sweeps(
                training, (zero[0], cols), ridge, settings, INTERCEPT_SWEEPS, INTERCEPT_TOL
            )
            models["row + column"] = (both, training.leverages(*both, ridge))
        sums = {}
        for name, (factors, leverages) in models.items():
            shift = find_shift(training, factors, leverages, rounds=4)
            sums[name] = sum_rows(residual_sums(validation, 0, *factors, shift=shift))
        return sums

    found = tuner.each(evaluate, tuner.trials)
    totals = {name: np.sum([sums[name] for sums in found], axis=0) for name in found[0]}
    losses = {name: sums[columns.LOSS] / sums[columns.MASS] for name, sums in totals.items()}
    if settings.intercepts:
        losses["row + column"] = tuner.simple.step.loss
    return tuple(Baseline(name, float(loss)) for name, loss in losses.items())


def rescale_result(
    result: TuningResult, tuned: CompletionEngine, engine: CompletionEngine, settings: Settings
) -> TuningResult:
    """Rescale the ridge of a result from the `tuned` engine to one of more cells or another level.

    λ keeps its ratio to the noise norm, λ₀ its ratio to 4 ω (1 − ω).
    """
    factors, before = result.ridge
    intercepts = before * asymmetry(engine.omega) / asymmetry(tuned.omega)
    norm = _find_norm(tuned, result, before, settings)
    if norm > 0:
        factors *= _find_norm(engine, result, intercepts, settings) / norm
    return result._replace(ridge=Ridge(factors, intercepts))


def _find_norm(
    engine: CompletionEngine, result: TuningResult, intercepts: float, settings: Settings
) -> float:
    """Find the noise norm beside intercepts with ridge `intercepts`."""
    # The marks give the cells their random signs.
    engine = engine.replace(sample=CellSample(result.marks, ALL_CELLS))
    engine = engine.replace(weighting=make_weighting(result.family, engine, result.variances))
    factors, _ = run_sweeps(
        engine, engine.no_factors(), Ridge(0.0, intercepts), settings, INTERCEPT_SWEEPS,
        INTERCEPT_TOL,
    )  # fmt: skip
    return noise_norm(engine, factors, np.random.default_rng(0))
