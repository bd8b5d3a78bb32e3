"""The candidates of a tuned fit: how each is made from the one before, judged and chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from fastemf.kernels import tally as tallies
from fastemf.kernels.threads import Result, side_by_side
from fastemf.loss import expectile
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.growth import alive, joined, noise_norm
from fastemf.solver.judged import judged_cells
from fastemf.solver.noise import even, mean_of, noise_family, renewed, weighting_of
from fastemf.solver.records import Ridge, total
from fastemf.solver.ridge import asymmetry, noise_ridge
from fastemf.solver.sampling import Marks
from fastemf.solver.search import Candidate, Lead, Leads, Search, Tuned
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors
from fastemf.solver.table_fit import fitted_tables
from fastemf.solver.tables import Table
from fastemf.solver.trial import Fitted, Trial, shift_of, step_of, swept
from fastemf.solver.tuning import Baseline, Tuning
from fastemf.solver.weighting import Pair
from fastemf.support.array_file import DamagedFileError

__all__ = ["FIRST", "INTERCEPT_SWEEPS", "INTERCEPT_TOL", "Tuner"]

MULTIPLES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # of λ₀ = asymmetry, one observation's worth
NEAR_BEST = 1.01  # of the leave-one-out loss: the weakest λ₀ within it is taken
CONSTANT = 1e12  # of one observation's worth: intercepts are then zero to rounding
FIRST, RATIO, MOST_STEPS = 1.2, 0.7, 24  # λ of the path: FIRST · RATIOⁿ · the noise's norm
SWEEPS = 4  # of a step; half as many where there is so much that one trial is enough
INTERCEPT_SWEEPS, INTERCEPT_TOL = 10, 1e-4
STEP_TOL = 1e-6
DOUBT = 0.5  # standard errors by which a stronger ridge may be worse
SIMPLER = 1.005  # of the best loss, which a simpler candidate may have
NOISE_ROUNDS = 3  # of scales that start anew
NARROW = 2  # steps either side of the ridge of an earlier fit
CLEARLY = 1.03  # of the best loss, beyond which many cells leave no doubt that the path goes up
TELLING = 500  # cells set aside of one trial, by which a candidate can be dropped
MOVING = 10  # sweeps in which the noise-following ridge leaves the ridge of the path
FOLLOWING = 60  # sweeps of a trial at it: enough to tell whether it is the better one


class Tuner:
    """The search, and what all its steps have in common.

    Parameters
    ----------
    engine
        That of all cells.
    trials
        Cells to fit and cells to judge by, once or several times over.
    settings
        Those of the fit.
    seed
        Of the random numbers, of which each candidate has its own.
    few
        Makes that of as many cells as tell the ridge of the intercepts.
    earlier
        What a search like this one had found when it was interrupted.
    keep
        Is shown the search after every candidate.
    leads
        Where the trials of a near level ended.
    """

    def __init__(
        self,
        engine: CompletionEngine,
        trials: list[Trial],
        settings: Settings,
        seed: int,
        few: Callable[[], CompletionEngine],
        earlier: Search | None = None,
        keep: Callable[[Search], None] = lambda search: None,
        leads: Leads | None = None,
    ) -> None:
        self.engine = engine
        self.trials = trials
        self.settings = settings
        self.seed = seed
        self.intercepts = settings.intercepts
        self._keep = keep
        self.leads = leads
        self._known: list[Candidate] = []
        if earlier is not None:
            self._known = earlier.tried
            self._found = Search(earlier.intercept_ridge, dict(earlier.noise))
        else:
            self._found = Search(self._intercept_ridge(few()) if self.intercepts else 0.0)
            keep(self._found)
        self.intercept_ridge = self._found.intercept_ridge
        self.tried, self.noise = self._found.tried, self._found.noise

    def rng(self, trial: int = 0) -> np.random.Generator:
        """Make the random numbers of the next candidate, whoever has tried those before it."""
        return np.random.default_rng([self.seed, len(self.tried), trial])

    def each(self, task: Callable[..., Result], *given: Sequence[Any]) -> list[Result]:
        """Do a task for every trial, given its own item of each sequence."""
        alone = self.trials[0].fitted.n_threads == 1
        n_threads = self.engine.n_threads if alone else 1
        return side_by_side(lambda items: task(*items), zip(*given, strict=True), n_threads)

    @property
    def has_many(self) -> bool:
        """Whether there are so many cells that one trial is enough."""
        return len(self.trials) == 1

    @property
    def coming(self) -> Candidate | None:
        """The next candidate of an interrupted search, until all that it had tried are there."""
        place = len(self.tried)
        return self._known[place] if place < len(self._known) else None

    def best_of(self, family: str) -> float | None:
        """Return the best ridge of a family, in units of the noise's norm; None without factors."""
        tried = [one.step for one in self.tried if one.family == family and one.step.rank > 0]
        if not tried or not self.noise.get(family, 0) > 0:
            return None
        return min(tried, key=lambda step: step.loss).reg / self.noise[family]

    # --- intercepts ------------------------------------------------------------------------

    def _intercept_ridge(self, engine: CompletionEngine) -> float:
        """Find λ₀ by the leave-one-out loss of fits without factors."""
        losses: list[float] = []
        factors = engine.no_factors()
        for multiple in MULTIPLES:
            ridge = Ridge(0.0, multiple * asymmetry(engine.omega))
            fit = self._fitted(engine, factors, ridge, even(engine.masses))
            factors = fit.factors
            sums = total(engine.tally(0, *factors, fit.leverages, fit.shift))
            losses.append(float(sums[tallies.LOSS]))
            if len(losses) > 2 and losses[-1] > losses[-2] > losses[-3]:
                break
        near = next(i for i, loss in enumerate(losses) if loss <= NEAR_BEST * min(losses))
        return MULTIPLES[near] * asymmetry(engine.omega)

    def _fitted(
        self, engine: CompletionEngine, factors: Factors, ridge: Ridge, variances: Pair
    ) -> Fitted:
        """Fit intercepts alone."""
        factors, _ = swept(
            engine, factors, ridge, self.settings, INTERCEPT_SWEEPS, INTERCEPT_TOL
        )  # fmt: skip
        return self._measured(engine, factors, ridge, variances, 0.0, rounds=4)

    def _measured(
        self,
        engine: CompletionEngine,
        factors: Factors,
        ridge: Ridge,
        variances: Pair,
        shift: float,
        rounds: int | None = None,
    ) -> Fitted:
        """Find leverages and shift of a fit."""
        leverages = engine.leverages(*factors, ridge)
        if self.intercepts:
            given = {} if rounds is None else {"rounds": rounds}
            shift = shift_of(engine, factors, leverages, shift, **given)
        return Fitted(engine, factors, ridge, leverages, variances, shift)

    # --- candidates ------------------------------------------------------------------------

    def attempt(
        self, family: str, reg: float | None, fitted: Callable[[], list[Fitted]]
    ) -> Candidate:  # fmt: skip
        """Fit a candidate in every trial and judge it, unless that has been done.

        Without `reg` it is the mean of the ridges that the fits end at.
        """
        candidate = self.coming
        if candidate is not None:
            if candidate.family != family or reg not in (None, candidate.step.reg):
                raise DamagedFileError("damaged, its candidates must be those of this fit")
            self.tried.append(candidate)
            return candidate
        fits = fitted()
        reg = float(np.mean([fit.ridge.factors for fit in fits])) if reg is None else reg
        candidate = self._judged(family, reg, fits)
        self.tried.append(candidate)
        # The fits of what can no longer be chosen are not worth their memory.
        for other in self.tried:
            of_family = [one for one in self.tried if one.family == other.family]
            best = min(of_family, key=lambda one: one.step.loss)
            may_go = other.fits and other.step.rank > 0 and other is not candidate
            if may_go and not _rivals(other, best):
                other.fits = []
        self._keep(self._found)
        return candidate

    def _judged(self, family: str, reg: float, fits: list[Fitted]) -> Candidate:
        """Judge fits by the cells set aside."""
        sums = np.sum(self.each(Trial.judged_fit, self.trials, fits), axis=0)
        rank = max(fit.rank for fit in fits)
        step = step_of(family, reg, rank, total(sums), self.trials[0].judge.unit)
        return Candidate(step, sums[:, tallies.LOSS] / self.engine.unit**2, fits)

    def try_simple(self) -> None:
        """Try a constant, where there are intercepts, and intercepts alone."""
        if self.intercepts:
            self.attempt("constant", math.inf, lambda: self.each(self._constant, self.trials))
        starts = [trial.fitted.no_factors() for trial in self.trials]
        if self.leads is not None:
            starts = [lead.levels for lead in self.leads.each]
        self.attempt("even", math.inf, lambda: self.each(self._even, self.trials, starts))

    def _constant(self, trial: Trial) -> Fitted:
        engine = trial.fitted
        factors, alike = engine.no_factors(), even(engine.masses)
        ridge = Ridge(0.0, self.intercept_ridge)
        return Fitted(engine, factors, ridge, alike, alike, shift_of(engine, factors, None))

    def _even(self, trial: Trial, start: Factors) -> Fitted:
        ridge = Ridge(0.0, self.intercept_ridge)
        return self._fitted(trial.fitted, start, ridge, even(trial.fitted.masses))

    @property
    def simple(self) -> Candidate:
        """Intercepts alone, all observations alike."""
        return next(candidate for candidate in self.tried if candidate.family == "even")

    def try_family(self, family: str, around: float | None, narrow: int = NARROW) -> None:
        """Try the path of a family, from its intercepts on.

        It ends when nothing has been better for a while. With `around`, in units of the noise's
        norm, it begins `narrow` steps before that ridge, and ends as many after it unless the last
        is the best.
        """
        last = self.simple
        losses, rounds = [last.step.loss], NOISE_ROUNDS
        if family == "weighted" and self.intercepts:
            last = self.attempt(family, math.inf, partial(self._reweighted, last, family))
            losses, rounds = [last.step.loss], 1
        if self.settings.k == 0:
            return
        begin: Callable[[], list[Fitted]]
        begin = cache(partial(self._all_rescaled, last, family, rounds))
        if family not in self.noise:
            fit = begin()[0]
            self.noise[family] = noise_norm(fit.engine, fit.factors, self.rng())
        noise = self.noise[family]
        if not noise > 0:  # nothing is left for factors
            return
        first, least = FIRST, 0.0
        if around is not None:
            first, least = min(FIRST, around / RATIO**narrow), 1.01 * around * RATIO**narrow
        for step in range(MOST_STEPS):
            reg = first * RATIO**step * noise
            last = self.attempt(family, reg, partial(self._all_stepped, begin, reg))
            losses.append(last.step.loss)
            since = len(losses) - 1 - int(np.argmin(losses))
            if since >= 3 or (since == 2 and losses[-1] > 1.01 * min(losses)):
                break
            if since > 0 and self.has_many and losses[-1] > CLEARLY * min(losses):
                break
            if since > 0 and reg <= least * noise:
                break
            begin = partial(self._all_rescaled, last, family)

    def _reweighted(self, simple: Candidate, family: str) -> list[Fitted]:
        """Fit intercepts alone by the noise scales that they leave."""
        ridge = Ridge(0.0, self.intercept_ridge)

        def reweighted(before: Fitted) -> Fitted:
            fit = self.rescaled(before, family, rounds=3)
            return self._fitted(fit.engine, fit.factors, ridge, fit.variances)

        return self.each(reweighted, simple.fits)

    def _all_rescaled(self, last: Candidate, family: str, rounds: int = 1) -> list[Fitted]:
        return self.each(lambda fit: self.rescaled(fit, family, rounds), last.fits)

    def _all_stepped(self, begin: Callable[[], list[Fitted]], reg: float) -> list[Fitted]:
        def stepped(trial: int, fit: Fitted) -> Fitted:
            return self.stepped(fit, reg, self.rng(trial))

        return self.each(stepped, range(len(self.trials)), begin())

    def rescaled(self, fit: Fitted, family: str, rounds: int) -> Fitted:
        """Update the noise scales by the residuals of a fit, and weigh by them."""
        variances = renewed(fit.engine, fit.factors, fit.leverages, fit.variances, rounds)
        weighting = weighting_of(family, fit.engine, variances)
        engine = fit.engine.view(weighting=weighting)
        return Fitted(engine, fit.factors, fit.ridge, fit.leverages, variances, fit.shift)

    def stepped(
        self, fit: Fitted, reg: float, rng: np.random.Generator, most: int | None = None
    ) -> Fitted:
        """Go on from a fit at the next ridge, by `most` sweeps instead of as many as usual."""
        ridge = Ridge(reg, self.intercept_ridge)
        factors = joined(fit, self.settings.k, reg, rng)
        most = SWEEPS if most is None else most
        sweeps = max(1, most // 2) if self.has_many else most
        factors, _ = swept(fit.engine, factors, ridge, self.settings, sweeps, STEP_TOL)
        factors = alive(fit.engine, factors)
        # The shift moves little from step to step: one Newton step follows it.
        return self._measured(fit.engine, factors, ridge, fit.variances, fit.shift, rounds=1)

    def try_noise(self, family: str = "noise") -> None:
        """Try the noise-following ridge, from the best of the path.

        It takes many sweeps, and wins where there is next to no noise, by far. So where the first
        trial has cells enough to tell, the others are for fits that have not lost there.
        """
        best = self.tried[int(np.argmin([candidate.step.loss for candidate in self.tried]))]
        first: list[Fitted] = []
        trial = self.trials[0]
        if self.coming is None and not self.has_many and trial.judge.count >= TELLING:
            first.append(self._followed(0, trial, best.fits[0], self.engine.n_threads))
            loss, least = (
                float(total(trial.judged_fit(fit))[tallies.LOSS])
                for fit in (first[0], best.fits[0])
            )
            if loss > CLEARLY * least:
                return
        rest = range(len(first), len(self.trials))

        def followed() -> list[Fitted]:
            more = [(place, self.trials[place], best.fits[place]) for place in rest]
            return first + self.each(self._followed, *zip(*more, strict=True))

        self.attempt(family, None, followed)

    def _followed(self, place: int, trial: Trial, fit: Fitted, n_threads: int = 0) -> Fitted:
        """Go on from the fit of a trial at a ridge that follows the noise."""
        engine = trial.fitted.solving()  # the ridge is not to see rows half solved
        engine = engine.on_threads(n_threads or engine.n_threads)
        schedule = noise_ridge(engine, self.settings.k, self.intercepts, MOVING)
        begun = joined(replace(fit, engine=engine), self.settings.k, 0.0, self.rng(place))
        factors, ridge = swept(
            engine, begun, schedule, self.settings,
            min(FOLLOWING, self.settings.max_iter), self.settings.tol,
        )  # fmt: skip
        engine = engine.on_threads(trial.fitted.n_threads)
        return self._measured(engine, factors, ridge, even(engine.masses), fit.shift)

    # --- the choice ------------------------------------------------------------------------

    def chosen(self) -> int:
        """Choose the simplest candidate whose loss is nearly the best.

        Without factors that is half a percent above it; with a stronger ridge of the same family
        half a standard error of the difference, over rows, where a few of them decide.
        """
        losses = [candidate.step.loss for candidate in self.tried]
        lowest = int(np.argmin(losses))
        best = self.tried[lowest]
        for place, candidate in enumerate(self.tried):
            if candidate.step.rank == 0 and losses[place] <= SIMPLER * losses[lowest]:
                return place
        stronger = [
            (-candidate.step.reg, place)
            for place, candidate in enumerate(self.tried)
            if candidate.family == best.family
            and candidate.step.rank > 0
            and best.step.reg < candidate.step.reg
            and candidate.fits
        ]
        for _, place in sorted(stronger):
            if _rivals(self.tried[place], best):
                return place
        return lowest

    def _refitted(self, best: Candidate) -> Ridge:
        """Return the ridge for all cells; what a candidate lacks is kept out by a strong one."""
        reg, intercepts = best.step.reg, best.fits[0].ridge.intercepts
        if reg == math.inf:
            reg = 2 * FIRST * max(self.noise.values(), default=0.0)
            reg = max(reg, self.engine.spread * asymmetry(self.engine.omega))
        if best.family == "constant":
            intercepts = CONSTANT * asymmetry(self.engine.omega)
        return Ridge(reg, intercepts)

    def tuned(self, baselines: tuple[Baseline, ...], judged: int, marks: Marks) -> Tuned:
        """Choose, and say what was tried."""
        if len(self._known) > len(self.tried):
            raise DamagedFileError("damaged, its candidates must be those of this fit")
        place = self.chosen()
        best = self.tried[place]
        steps = tuple(candidate.step for candidate in self.tried)
        fit = best.fits[0]
        scales = [self._scales_of(one, best.family) for one in best.fits]
        loss, level, plain = best.step.loss, best.step.effective_omega, 0.0
        correction = 0.0
        tables: tuple[Table, ...] = ()
        if self.intercepts:
            cells = judged_cells(self.trials, best.fits, self.simple.fits, scales, marks)
            plain = expectile(cells.residuals, self.engine.omega, cells.weights)
            tables, correction, loss, level = fitted_tables(cells, self.engine.omega)
        return Tuned(
            family=best.family,
            ridge=self._refitted(best),
            variances=mean_of(scales),
            factors=fit.factors,
            shift=fit.shift,
            correction=correction,
            plain_correction=plain,
            tables=tables,
            intercept_ridge=self.intercept_ridge,
            marks=marks,
            tuning=Tuning(
                steps,
                place,
                baselines,
                judged,
                len(self.trials),
                noise=self.noise.get(best.family, 0.0),
                loss=loss,
                effective_omega=level,
            ),
            leads=self._leads(best) if self.settings.omegas else None,
        )

    def _leads(self, best: Candidate) -> Leads | None:
        """Gather what the next level can begin with: nothing without factors on a path."""
        if best.step.rank == 0 or noise_family(best.family) == "even":
            return None
        fits, simple = best.fits, self.simple.fits
        norm = noise_norm(fits[0].engine, simple[0].factors, np.random.default_rng(0))
        each = tuple(
            Lead(fit.factors, fit.variances, levels.factors)
            for fit, levels in zip(fits, simple, strict=True)
        )
        return Leads(best.family, best.step.reg / norm, each) if norm > 0 else None

    def _scales_of(self, fit: Fitted, family: str) -> Pair:
        """Return the variances of a fit's rows and columns; tables need them of any family."""
        if noise_family(family) != "even" or not self.intercepts:
            return fit.variances
        return renewed(fit.engine, fit.factors, fit.leverages, fit.variances, NOISE_ROUNDS)


def _rivals(one: Candidate, best: Candidate) -> bool:
    """Tell whether one is worse than the best by less than the doubt about the difference."""
    worse = one.losses - best.losses
    return bool(worse.sum() <= DOUBT * math.sqrt(float(np.sum(worse**2))))
