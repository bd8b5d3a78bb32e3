"""The tuning of a level next to one that has been tuned: it starts where that one ended.

Neighbouring levels have similar noise and similar factors. So each trial continues from the fit
that the neighbour chose, which has not seen the trial's validation cells, at the same ridge
relative to the noise norm. Weaker and stronger ridges, and the other family, are tried in a few
trials first, and in all trials where they are better there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fastemf.kernels import residual_sums as columns
from fastemf.solver.records import Ridge, sum_rows
from fastemf.tuning.noise import make_weighting
from fastemf.tuning.rank_growth import noise_norm
from fastemf.tuning.trial import Candidate, Trial, TrialFit, WarmStart
from fastemf.tuning.tuner import MOST_STEPS, RATIO, Tuner, rescale_noise

FEW_TRIALS = 3  # in which a candidate is tried before it is tried in all
FEW_CELLS = 5000  # validation cells: with so many, fewer trials are enough
SETTLING = 2  # sweeps after which the noise scales are those of the new level
Begin = Callable[[int], TrialFit]  # the fit from which a trial continues


def select_trials(
    trials: list[Trial], warm_start: WarmStart, intercepts: bool
) -> tuple[list[Trial], WarmStart | None]:
    """Select the trials that are needed, with their starts if all of them have one.

    Half of the trials choose as well as all, but a single trial is for many cells. With
    intercepts all are needed, because correction tables are fitted to all validation cells.
    """
    needed = trials if intercepts else trials[: max(2, -(-len(trials) // 2))]
    if len(warm_start.trials) < len(needed):
        return trials, None
    return needed, warm_start._replace(trials=warm_start.trials[: len(needed)])


def try_warm_start(tuner: Tuner, warm_start: WarmStart, families: list[str]) -> None:
    """Try the neighbour's family and ridge, ridges around it, and the other families."""
    family = warm_start.family

    def begin(place: int) -> TrialFit:
        # The fit of the neighbouring level as one of this level, not yet measured.
        training, start = tuner.trials[place].training, warm_start.trials[place]
        weighting = make_weighting(family, training, start.variances)
        engine = training.replace(weighting=weighting)
        zeros = np.zeros(engine.shape[0]), np.zeros(engine.shape[1])
        return TrialFit(engine, start.factors, Ridge(0.0, 0.0), zeros, start.variances, 0.0)

    def settle(place: int) -> TrialFit:
        # Until the residuals of this level are known, the noise is that of the neighbour.
        fit = tuner.step(begin(place), reg, tuner.rng(place), SETTLING)
        return rescale_noise(fit, family)

    reg = warm_start.ratio * _find_norm(tuner, family, begin)
    if not reg > 0:  # the residuals leave nothing for factors
        return
    here = _search(tuner, _try(tuner, family, reg, settle, []))
    for other in families:
        switch = partial(_rescale, here, other)
        if other == family or not _find_norm(tuner, other, switch) > 0:
            continue
        reg = here.step.reg / tuner.noise[family] * tuner.noise[other]
        few = _try_few(tuner, reg, switch, here)
        if few is not None:
            _search(tuner, _try(tuner, other, reg, switch, few))


def _rescale(last: Candidate, family: str, place: int) -> TrialFit:
    return rescale_noise(last.fits[place], family)


def _find_norm(tuner: Tuner, family: str, begin: Begin) -> float:
    """Find the noise norm beside the intercepts, with the weights of a fit."""
    if family not in tuner.noise:
        engine, intercepts = begin(0).engine, tuner.simple.fits[0].factors
        tuner.noise[family] = noise_norm(engine, intercepts, np.random.default_rng(0))
    return tuner.noise[family]


def _search(tuner: Tuner, here: Candidate) -> Candidate:
    """Move to weaker ridges, or else to stronger ones, as long as the loss falls."""
    family, first = here.family, here.step.reg
    for factor in (RATIO, 1 / RATIO):
        for step in range(1, MOST_STEPS):
            reg, begin = first * factor**step, partial(_rescale, here, family)
            few = _try_few(tuner, reg, begin, here)
            if few is None:
                break
            found = _try(tuner, family, reg, begin, few)
            if not found.step.loss < here.step.loss:
                break
            here = found
        if here.step.reg != first:
            break
    return here


def _try(tuner: Tuner, family: str, reg: float, begin: Begin, few: list[TrialFit]) -> Candidate:
    """Try a candidate in all trials; the first ones may have been fitted already."""
    rest = range(len(few), len(tuner.trials))
    return tuner.add(family, reg, [*few, *_step(tuner, rest, reg, begin)])


def _try_few(tuner: Tuner, reg: float, begin: Begin, here: Candidate) -> list[TrialFit] | None:
    """Fit a few trials, and return the fits if they are better than those of the best so far."""
    enough = -(-FEW_CELLS // max(1, tuner.trials[0].validation.count))
    places = range(min(FEW_TRIALS, enough, len(tuner.trials)))
    few = _step(tuner, places, reg, begin)
    return few if _loss(tuner, few) < _loss(tuner, here.fits[: len(few)]) else None


def _step(tuner: Tuner, places: range, reg: float, begin: Begin) -> list[TrialFit]:
    n_threads = tuner.engine.n_threads if len(places) == 1 else 0  # a single fit uses them all

    def step(place: int) -> TrialFit:
        fit = begin(place)
        engine = fit.engine.replace(n_threads=n_threads or fit.engine.n_threads)
        found = tuner.step(replace(fit, engine=engine), reg, tuner.rng(place))
        return replace(found, engine=fit.engine)

    return tuner.each(step, places)


def _loss(tuner: Tuner, fits: list[TrialFit]) -> float:
    """Sum the validation losses of fits of the first trials."""
    sums = tuner.each(Trial.evaluate, tuner.trials[: len(fits)], fits)
    return float(sum(sum_rows(part)[columns.LOSS] for part in sums))
