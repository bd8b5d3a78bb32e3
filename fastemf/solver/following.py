"""The tuning of a level that has been tuned nearby: it begins where that one ended.

Near levels have like noise and like factors. So each trial goes on from the fit that the near
level chose, without the cells that the trial has set aside, at the ridge that it chose, relative to
the noise. A weaker and a stronger ridge, and the other family, are tried in one trial or a few
first, and in all where they are better there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fastemf.kernels import tally as tallies
from fastemf.solver.growth import noise_norm
from fastemf.solver.noise import weighting_of
from fastemf.solver.records import Ridge, total
from fastemf.solver.search import Candidate, Lead, Leads
from fastemf.solver.trial import Fitted, Trial
from fastemf.solver.tuner import MOST_STEPS, RATIO, Tuner

__all__ = ["follow", "trials_to_follow"]

FEW_TRIALS = 3  # that say whether a candidate is worth trying in all
FEW_CELLS = 5000  # set aside, which say that too: fewer trials that have them are enough
SETTLING = 2  # sweeps by which the noise of another level turns into that of this one
Begin = Callable[[int], Fitted]  # what the fit of a trial goes on from


def trials_to_follow(
    trials: list[Trial], leads: Leads, intercepts: bool
) -> tuple[list[Trial], Leads | None]:
    """Keep as many trials as are needed, and what each begins with, if that is known of all.

    Half of them choose as well as all, but one alone is for many cells. Tables, which intercepts
    bring, are made from the cells that all of them set aside.
    """
    needed = trials if intercepts else trials[: max(2, -(-len(trials) // 2))]
    if len(leads.each) < len(needed):
        return trials, None
    return needed, leads._replace(each=leads.each[: len(needed)])


def follow(tuner: Tuner, leads: Leads, families: list[str]) -> None:
    """Try the family and ridge that were chosen nearby, others around them, and other families."""
    family = leads.family

    def led(place: int) -> Fitted:
        return _led(tuner.trials[place], leads.each[place], family)

    def settled(place: int) -> Fitted:
        # The noise is that of another level until residuals of this one have been seen.
        seen = tuner.stepped(led(place), reg, tuner.rng(place), SETTLING)
        return tuner.rescaled(seen, family, rounds=1)

    reg = leads.ratio * _norm(tuner, family, led)
    if not reg > 0:  # nothing is left for factors
        return
    here = _climbed(tuner, _attempt(tuner, family, reg, settled))
    for other in families:
        turned = partial(_turned, tuner, here, other)
        if other == family or not _norm(tuner, other, turned) > 0:
            continue
        reg = here.step.reg / tuner.noise[family] * tuner.noise[other]
        few = _promising(tuner, other, reg, turned, here)
        if few is not None:
            _climbed(tuner, _attempt(tuner, other, reg, turned, few))


def _led(trial: Trial, lead: Lead, family: str) -> Fitted:
    """Take the fit of a near level for one of this level that has not been measured yet."""
    engine = trial.fitted.view(weighting=weighting_of(family, trial.fitted, lead.variances))
    nothing = np.zeros(engine.shape[0]), np.zeros(engine.shape[1])
    return Fitted(engine, lead.factors, Ridge(0.0, 0.0), nothing, lead.variances, 0.0)


def _turned(tuner: Tuner, last: Candidate, family: str, place: int) -> Fitted:
    """Weigh by the noise that a fit leaves, as another family or as its own."""
    return tuner.rescaled(last.fits[place], family, rounds=1)


def _norm(tuner: Tuner, family: str, begin: Begin) -> float:
    """Find the ridge at which noise makes a factor beside the levels, by the weights of a fit."""
    if family not in tuner.noise:
        engine, levels = begin(0).engine, tuner.simple.fits[0].factors
        tuner.noise[family] = noise_norm(engine, levels, np.random.default_rng(0))
    return tuner.noise[family]


def _climbed(tuner: Tuner, here: Candidate) -> Candidate:
    """Go on to weaker ridges, or else to stronger ones, as long as that is better."""
    family, first = here.family, here.step.reg
    for factor in (RATIO, 1 / RATIO):
        for step in range(1, MOST_STEPS):
            reg, begin = first * factor**step, partial(_turned, tuner, here, family)
            few = _promising(tuner, family, reg, begin, here)
            if few is None:
                break
            found = _attempt(tuner, family, reg, begin, few)
            if not found.step.loss < here.step.loss:
                break
            here = found
        if here.step.reg != first:
            break
    return here


def _promising(
    tuner: Tuner, family: str, reg: float, begin: Begin, here: Candidate
) -> list[Fitted] | None:
    """Fit a few trials, and return them if they are better than those of the best so far."""
    known = tuner.coming
    if known is not None:  # a search that goes on tries what it had tried
        return [] if (known.family, known.step.reg) == (family, reg) else None
    few = _stepped(tuner, range(_few(tuner)), reg, begin)
    return few if _loss(tuner, few) < _loss(tuner, here.fits[: len(few)]) else None


def _few(tuner: Tuner) -> int:
    enough = -(-FEW_CELLS // max(1, tuner.trials[0].judge.count))
    return min(FEW_TRIALS, enough, len(tuner.trials))


def _stepped(tuner: Tuner, places: range, reg: float, begin: Begin) -> list[Fitted]:
    n_threads = tuner.engine.n_threads if len(places) == 1 else 0  # which one fit has to itself

    def stepped(place: int) -> Fitted:
        fit = begin(place)
        engine = fit.engine.on_threads(n_threads or fit.engine.n_threads)
        found = tuner.stepped(replace(fit, engine=engine), reg, tuner.rng(place))
        return replace(found, engine=fit.engine)

    return tuner.each(stepped, places)


def _attempt(
    tuner: Tuner, family: str, reg: float, begin: Begin, few: Sequence[Fitted] = ()
) -> Candidate:
    """Try a candidate in all trials, of which a `few` may have been fitted already."""
    rest = range(len(few), len(tuner.trials))
    return tuner.attempt(family, reg, lambda: [*few, *_stepped(tuner, rest, reg, begin)])


def _loss(tuner: Tuner, fits: list[Fitted]) -> float:
    """Judge fits of the first trials by the cells set aside."""
    sums = tuner.each(Trial.judged_fit, tuner.trials[: len(fits)], fits)
    return float(sum(total(part)[tallies.LOSS] for part in sums))
