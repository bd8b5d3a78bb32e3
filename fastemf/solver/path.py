"""The tuned fit: intercept ridge, noise scales, family and ridge chosen by cells set aside.

1. The ridge λ₀ of the intercepts, by leave-one-out loss.
2. Some cells are set aside, once, or where there are few cells several times over.
3. For each family of noise scales a path of fits to the other cells, from a strong ridge to a
   weak one, each from the one before. It begins above the ridge at which noise alone would make
   a factor, and a factor joins when the ridge lets it.
4. Each fit is judged, after the ω-expectile of its leave-one-out residuals is added, on the
   cells set aside. The simplest within half a percent of the best wins.

The guide of all this is that neither training loss nor leave-one-out loss can choose the ridge:
both are too optimistic once factors fit noise.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import tally as tallies
from fastemf.solver.blocks import EVERYTHING, Part
from fastemf.solver.checkpoint import Checkpoint
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.following import follow, trials_to_follow
from fastemf.solver.holding import carried
from fastemf.solver.records import Ridge, total
from fastemf.solver.ridge import asymmetry
from fastemf.solver.sampling import MOST_FOLDS, CellSample, Marks
from fastemf.solver.search import Tuned
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors
from fastemf.solver.trial import Trial, shift_of, swept
from fastemf.solver.tuner import FIRST, INTERCEPT_SWEEPS, INTERCEPT_TOL, Tuner
from fastemf.solver.tuning import Baseline, Tuning
from fastemf.solver.weighting import Pair

__all__ = ["sees_all", "tune"]

SHARE = 0.1  # of the cells, set aside
FEWEST = 50  # of them
FEWEST_CELLS = 400  # below, too little is set aside to tell ridges apart
SAMPLED = 20_000_000  # observations of a sample of the cells, on which more than these are tuned
FEW = 1_000_000  # the same, of which the leave-one-out loss tells the ridge of the intercepts
JUDGED = 1_000_000  # observations that one fold is enough for
LOW_NOISE = 0.5  # of the intercepts' loss: below it the noise-following ridge is tried too


def tune(
    engine: CompletionEngine,
    settings: Settings,
    seed: int,
    marks: Marks,
    judge: CompletionEngine | None = None,
    earlier: Tuning | None = None,
    checkpoint: Checkpoint | None = None,
    near: Tuned | None = None,
) -> Tuned | Tuning:
    """Choose family, ridge and noise scales of a fit; or say why nothing can be tuned.

    The `marks` decide which cells are set aside, and all else that is random comes from the
    `seed`; `judge` has the cells to judge by, if the user gave them. An `earlier` tuning of such
    data, or of another level, narrows the paths; where the trials of another level are at hand,
    `near`, there are none. A `checkpoint` has what was done before.
    """
    if checkpoint is not None:
        done = checkpoint.tuned(engine, settings.k, marks)
        if done is not None:
            return done
    size = engine.observations.size if judge is None else judge.observations.size
    least = FEWEST_CELLS if judge is None else FEWEST
    if size < least:
        return Tuning(note=f"too few observations to tune by ({size}, of at least {least})")
    if _is_constant(engine):
        return Tuning(note="all observations are alike")
    everything, engine = engine, _sampled(engine, marks, SAMPLED)
    trials = _trials(engine, marks) if judge is None else [_given(engine, judge, marks)]
    if not all(trial.fitted.mass > 0 and trial.judge.mass > 0 for trial in trials):
        return Tuning(note="too few cells to set any aside")
    few = partial(_sampled, everything, marks, FEW)
    leads = None if near is None else near.leads
    if leads is not None:
        trials, leads = trials_to_follow(trials, leads, settings.intercepts)
    if 2 * len(trials) > engine.n_threads:  # which is then enough to do for all threads
        trials = [trial.on_threads(1) for trial in trials]
    if checkpoint is None:
        found = _search(Tuner(engine, trials, settings, seed, few, leads=leads), marks, earlier)
    else:
        known = checkpoint.search(trials, settings.k)
        before = 0 if known is None else len(known.tried)
        tuner = Tuner(engine, trials, settings, seed, few, known, checkpoint.keep_search, leads)
        with checkpoint.blamed_until(lambda: len(tuner.tried) > before):
            found = _search(tuner, marks, earlier)
    if engine is not everything:
        found = carried(found, engine, everything, settings)
    if checkpoint is not None:
        checkpoint.keep_tuned(found)
    return found


def sees_all(engine: CompletionEngine) -> bool:
    """Tell whether a tuning sees all cells, and not a sample of them."""
    return engine.observations.size <= SAMPLED


def _sampled(engine: CompletionEngine, marks: Marks, size: int) -> CompletionEngine:
    """Return the engine of a sample of about so many observations, if there are more."""
    share = size / engine.observations.size
    return engine if share >= 1 else engine.sampled(CellSample.share(marks, share))


def _search(tuner: Tuner, marks: Marks, earlier: Tuning | None) -> Tuned:
    """Try the candidates in their order, and choose."""
    tuner.try_simple()
    families = _families(tuner.engine, tuner.settings.k)
    if tuner.leads is not None:
        follow(tuner, tuner.leads, families)
    else:
        _try_paths(tuner, families, earlier)
    judged = sum(trial.judge.count for trial in tuner.trials)
    return tuner.tuned(_baselines(tuner.trials, tuner), judged, marks)


def _try_paths(tuner: Tuner, families: list[str], earlier: Tuning | None) -> None:
    """Try the path of each family, and the ridge that follows the noise where there is little."""
    around = None
    if earlier is not None and earlier.best is not None and earlier.noise > 0:
        around = min(earlier.best.reg / earlier.noise, FIRST)
        best, known = earlier.best.family, {step.family for step in earlier.steps}
        families = [best, *(family for family in families if family not in known)]
    for family in families:
        if around is None and tuner.has_many and family != families[0]:
            # Its path is much like the first one's, and each of its steps takes long.
            tuner.try_family(family, tuner.best_of(families[0]), narrow=1)
        else:
            tuner.try_family(family, around)
    if min(c.step.loss for c in tuner.tried) < LOW_NOISE * tuner.simple.step.loss:
        tuner.try_noise()


def _trials(engine: CompletionEngine, marks: Marks) -> list[Trial]:
    """Set cells aside, in several folds where there are few."""
    size = engine.observations.size
    share = max(SHARE, FEWEST / size)
    folds = int(np.clip(JUDGED // size, 1, MOST_FOLDS))
    span = round(share * engine.cells.span)
    parts = [CellSample(marks, Part(fold * span, span)) for fold in range(folds)]
    return [Trial(engine.view(part.rest()), engine.view(part)) for part in parts]


def _is_constant(engine: CompletionEngine) -> bool:
    """Tell whether the observations are alike to rounding, zeros included."""
    observations, level = engine.observations, engine.mu
    level = observations.expectile(engine.omega) if level is None else level
    return observations.rms(level) <= engine.rounding


def _given(engine: CompletionEngine, judge: CompletionEngine, marks: Marks) -> Trial:
    """Fit all cells, with marks for their random signs, and judge by those given."""
    return Trial(engine.view(CellSample(marks, EVERYTHING)), judge)


def _families(engine: CompletionEngine, k: int) -> list[str]:
    """List the families to try: both where the level lies in the data's longer tail.

    The second one is about the ridge on factors, and needs some.
    """
    in_tail = engine.omega > 0.5 if engine.observations.tail_is_right() else engine.omega < 0.5
    return ["weighted", "ridged"] if in_tail and k > 0 else ["weighted"]


def _baselines(trials: list[Trial], tuner: Tuner) -> tuple[Baseline, ...]:
    """Judge a constant, column levels, and row and column levels."""
    ridge = Ridge(0.0, tuner.intercept_ridge or asymmetry(tuner.engine.omega))

    def judged(trial: Trial) -> dict[str, NDArray[np.float64]]:
        fitted, judge = trial.fitted.with_intercepts(), trial.judge.with_intercepts()
        nothing = fitted.no_factors()
        models: dict[str, tuple[Factors, Pair | None]] = {"constant": (nothing, None)}
        cols = fitted.solve(1, nothing[1], nothing[0], ridge).factor
        leverage = fitted.leverage(1, cols, nothing[0], ridge)
        models["column"] = ((nothing[0], cols), (np.zeros(nothing[0].shape[0]), leverage))
        if not tuner.intercepts:
            both, _ = swept(
                fitted, (nothing[0], cols), ridge, tuner.settings, INTERCEPT_SWEEPS, INTERCEPT_TOL
            )
            models["row + column"] = (both, fitted.leverages(*both, ridge))
        sums = {}
        for name, (factors, leverages) in models.items():
            shift = shift_of(fitted, factors, leverages, rounds=4)
            sums[name] = total(judge.tally(0, *factors, shift=shift))
        return sums

    found = tuner.each(judged, trials)
    totals = {name: np.sum([sums[name] for sums in found], axis=0) for name in found[0]}
    losses = {name: sums[tallies.LOSS] / sums[tallies.MASS] for name, sums in totals.items()}
    if tuner.intercepts:
        losses["row + column"] = tuner.simple.step.loss
    return tuple(Baseline(name, float(loss)) for name, loss in losses.items())
