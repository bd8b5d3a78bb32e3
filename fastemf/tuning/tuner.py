"""The search of a tuning: how each candidate starts from the one before, and which is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastemf.kernels import residual_sums as columns
from fastemf.kernels.problem import MAX_NEWTON
from fastemf.kernels.threads import Result, map_threads
from fastemf.loss import expectile
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge, sum_rows
from fastemf.solver.residual_sums import residual_sums
from fastemf.solver.ridge import asymmetry, noise_ridge
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors
from fastemf.solver.weighting import Pair
from fastemf.sources.cell_sample import Marks
from fastemf.tuning.correction_fit import fit_corrections
from fastemf.tuning.corrections import Correction
from fastemf.tuning.noise import (
    make_weighting,
    mean_variances,
    noise_family,
    unit_variances,
    update_variances,
)
from fastemf.tuning.rank_growth import add_factors, drop_dead_factors, noise_norm
from fastemf.tuning.record import Baseline, Tuning
from fastemf.tuning.trial import (
    Candidate,
    Trial,
    TrialFit,
    TrialStart,
    TuningResult,
    WarmStart,
    find_shift,
    fit_intercepts,
    measure_fit,
    run_sweeps,
    summarize,
)
from fastemf.tuning.validation_cells import collect_validation_cells

MULTIPLES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # of λ₀ = asymmetry, the weight of one observation
NEAR_BEST = 1.01  # of the lowest leave-one-out loss: the weakest λ₀ within it is taken
CONSTANT = 1e12  # of the weight of one observation: intercepts are then zero up to rounding
FIRST, RATIO, MOST_STEPS = 1.2, 0.7, 24  # λ of the path: FIRST · RATIOⁿ · the noise norm
SWEEPS = 4  # of a step; half as many with a single trial, which has many cells
STEP_TOL = 1e-6
DOUBT = 0.5  # standard errors by which a stronger ridge may be worse
SIMPLER = 1.005  # of the best loss, which a simpler candidate may have
NOISE_ROUNDS = 3  # of noise scales that start anew
NARROW = 2  # steps on either side of the ridge of an earlier fit
CLEARLY = 1.03  # of the best loss: above it a single trial, with its many cells, ends the path
TELLING = 500  # validation cells of one trial that suffice to drop a candidate
MOVING = 10  # sweeps in which the noise-adaptive ridge leaves the ridge of the path
NOISE_RIDGE_SWEEPS = 60  # of a trial with the noise-adaptive ridge


def find_intercept_ridge(engine: CompletionEngine, settings: Settings) -> float:
    """Choose λ₀ by the leave-one-out loss of fits without factors."""
    losses: list[float] = []
    factors = engine.no_factors()
    for multiple in MULTIPLES:
        ridge = Ridge(0.0, multiple * asymmetry(engine.omega))
        fit = fit_intercepts(engine, factors, ridge, unit_variances(engine.masses), settings)
        factors = fit.factors
        sums = sum_rows(residual_sums(engine, 0, *factors, fit.leverages, fit.shift))
        losses.append(float(sums[columns.LOSS]))
        if len(losses) > 2 and losses[-1] > losses[-2] > losses[-3]:
            break
    near = next(i for i, loss in enumerate(losses) if loss <= NEAR_BEST * min(losses))
    return MULTIPLES[near] * asymmetry(engine.omega)


def rescale_noise(fit: TrialFit, family: str, rounds: int = 1) -> TrialFit:
    """Update the noise scales from the residuals of a fit, and weight by them."""
    variances = update_variances(fit.engine, fit.factors, fit.leverages, fit.variances, rounds)
    engine = fit.engine.replace(weighting=make_weighting(family, fit.engine, variances))
    return replace(fit, engine=engine, variances=variances)


@dataclass(eq=False)
class Tuner:
    """The search for the best candidate, with the candidates tried so far.

    Parameters
    ----------
    engine
        Engine of all cells.
    trials
        Training and validation cells, once or several times over.
    settings
        Settings of the fit.
    seed
        Seed of the random numbers; each candidate has its own.
    intercept_ridge
        The ridge λ₀ of the intercepts.
    warm_start
        The end of a neighbouring level's tuning.
    """

    engine: CompletionEngine
    trials: list[Trial]
    settings: Settings
    seed: int
    intercept_ridge: float
    warm_start: WarmStart | None = None
    tried: list[Candidate] = field(default_factory=list, init=False)
    # Counts the candidates in a progress bar.
    advance: Callable[..., Any] = field(default=lambda: None, init=False)
    # The noise norm where each family's path begins.
    noise: dict[str, float] = field(default_factory=dict, init=False)

    def rng(self, trial: int = 0) -> np.random.Generator:
        """Make the generator of the next candidate in a trial."""
        return np.random.default_rng([self.seed, len(self.tried), trial])

    def each(self, task: Callable[..., Result], *given: Sequence[Any]) -> list[Result]:
        """Run a task for every trial, with its own item of each sequence."""
        single = self.trials[0].training.n_threads == 1
        n_threads = self.engine.n_threads if single else 1
        return map_threads(lambda items: task(*items), zip(*given, strict=True), n_threads)

    @property
    def has_many(self) -> bool:
        """Whether there are so many cells that one trial is enough."""
        return len(self.trials) == 1

    @property
    def best(self) -> Candidate:
        """The candidate with the lowest loss so far."""
        return self.tried[int(np.argmin([one.step.loss for one in self.tried]))]

    @property
    def simple(self) -> Candidate:
        """The candidate of intercepts only, with equal weights."""
        return next(candidate for candidate in self.tried if candidate.family == "equal")

    def best_ratio(self, family: str) -> float | None:
        """Return the best ridge of a family relative to the noise norm; None without factors."""
        steps = [one.step for one in self.tried if one.family == family and one.step.rank > 0]
        if not steps or not self.noise.get(family, 0) > 0:
            return None
        return min(steps, key=lambda step: step.loss).reg / self.noise[family]

    # --- candidates ------------------------------------------------------------------------

    def add(self, family: str, reg: float, fits: list[TrialFit]) -> Candidate:
        """Evaluate the fits of a candidate on the validation cells, and record it."""
        sums = np.sum(self.each(Trial.evaluate, self.trials, fits), axis=0)
        rank = max(fit.rank for fit in fits)
        step = summarize(family, reg, rank, sum_rows(sums), self.trials[0].validation.unit)
        candidate = Candidate(step, sums[:, columns.LOSS] / self.engine.unit**2, fits)
        self.tried.append(candidate)
        self.advance()
        # Free the fits of candidates that can no longer be chosen.
        for other in self.tried:
            of_family = [one for one in self.tried if one.family == other.family]
            best = min(of_family, key=lambda one: one.step.loss)
            droppable = other.fits and other.step.rank > 0 and other is not candidate
            if droppable and not _is_close(other, best):
                other.fits = []
        return candidate

    def try_simple(self) -> None:
        """Try a constant, if the model has intercepts, and intercepts only."""
        ridge = Ridge(0.0, self.intercept_ridge)

        def fit_constant(trial: Trial) -> TrialFit:
            engine = trial.training
            factors, ones = engine.no_factors(), unit_variances(engine.masses)
            return TrialFit(engine, factors, ridge, ones, ones, find_shift(engine, factors, None))

        def fit_equal(trial: Trial, start: Factors) -> TrialFit:
            ones = unit_variances(trial.training.masses)
            return fit_intercepts(trial.training, start, ridge, ones, self.settings)

        if self.settings.intercepts:
            self.add("constant", math.inf, self.each(fit_constant, self.trials))
        starts = [trial.training.no_factors() for trial in self.trials]
        if self.warm_start is not None:
            starts = [start.intercepts for start in self.warm_start.trials]
        self.add("equal", math.inf, self.each(fit_equal, self.trials, starts))

    def try_path(self, family: str, around: float | None, narrow: int = NARROW) -> None:
        """Try the path of a family, from intercepts only to weaker and weaker ridges.

        It ends when no step has been better for a while. With `around`, relative to the noise
        norm, it begins `narrow` steps before that ridge, and ends as many after it unless the last
        step is the best.
        """
        last = self.simple
        rounds = NOISE_ROUNDS
        if family == "weighted" and self.settings.intercepts:
            last, rounds = self.add(family, math.inf, self._fit_reweighted(last, family)), 1
        losses = [last.step.loss]
        if self.settings.k == 0:
            return
        starts = self._rescale_all(last, family, rounds)
        noise = self.noise[family] = noise_norm(starts[0].engine, starts[0].factors, self.rng())
        if not noise > 0:  # the residuals leave nothing for factors
            return
        first, least = FIRST, 0.0
        if around is not None:
            first, least = min(FIRST, around / RATIO**narrow), 1.01 * around * RATIO**narrow
        for step in range(MOST_STEPS):
            reg = first * RATIO**step * noise
            starts = self._rescale_all(last, family) if step > 0 else starts
            last = self.add(family, reg, self._step_all(starts, reg))
            losses.append(last.step.loss)
            since = len(losses) - 1 - int(np.argmin(losses))
            if since >= 3 or (since == 2 and losses[-1] > 1.01 * min(losses)):
                break
            if since > 0 and self.has_many and losses[-1] > CLEARLY * min(losses):
                break
            if since > 0 and reg <= least * noise:
                break

    def _fit_reweighted(self, simple: Candidate, family: str) -> list[TrialFit]:
        """Fit intercepts only, weighted by the noise scales of their residuals."""
        ridge = Ridge(0.0, self.intercept_ridge)

        def fit(before: TrialFit) -> TrialFit:
            new = rescale_noise(before, family, rounds=3)
            return fit_intercepts(new.engine, new.factors, ridge, new.variances, self.settings)

        return self.each(fit, simple.fits)

    def _rescale_all(self, last: Candidate, family: str, rounds: int = 1) -> list[TrialFit]:
        return self.each(lambda fit: rescale_noise(fit, family, rounds), last.fits)

    def _step_all(self, starts: list[TrialFit], reg: float) -> list[TrialFit]:
        def step(trial: int, fit: TrialFit) -> TrialFit:
            return self.step(fit, reg, self.rng(trial))

        return self.each(step, range(len(self.trials)), starts)

    def step(
        self, fit: TrialFit, reg: float, rng: np.random.Generator, sweeps: int = 0
    ) -> TrialFit:
        """Continue from a fit at the next ridge, for `SWEEPS` or another number of sweeps."""
        ridge = Ridge(reg, self.intercept_ridge)
        factors = add_factors(fit, self.settings.k, reg, rng)
        sweeps = sweeps or SWEEPS
        sweeps = max(1, sweeps // 2) if self.has_many else sweeps
        factors, _ = run_sweeps(fit.engine, factors, ridge, self.settings, sweeps, STEP_TOL)
        factors = drop_dead_factors(fit.engine, factors)
        # The shift moves little from step to step, so one Newton step is enough.
        return measure_fit(fit.engine, factors, ridge, fit.variances, fit.shift, rounds=1)

    def try_noise_ridge(self) -> None:
        """Try the noise-adaptive ridge, from the best candidate so far.

        It takes many sweeps, and wins by far where there is next to no noise. Where the first
        trial has enough validation cells, a candidate that clearly loses there is not fitted in
        the others.
        """
        best = self.best
        fits: list[TrialFit] = []
        trial = self.trials[0]
        if not self.has_many and trial.validation.count >= TELLING:
            fits.append(self._fit_noise_ridge(0, trial, best.fits[0], self.engine.n_threads))
            loss, least = (
                float(sum_rows(trial.evaluate(fit))[columns.LOSS])
                for fit in (fits[0], best.fits[0])
            )
            if loss > CLEARLY * least:
                return
        rest = range(len(fits), len(self.trials))
        given = [(place, self.trials[place], best.fits[place]) for place in rest]
        fits += self.each(self._fit_noise_ridge, *zip(*given, strict=True))
        self.add("noise", float(np.mean([fit.ridge.factors for fit in fits])), fits)

    def _fit_noise_ridge(
        self, place: int, trial: Trial, fit: TrialFit, n_threads: int = 0
    ) -> TrialFit:
        # The ridge must not depend on rows that are solved in part.
        n_threads = n_threads or trial.training.n_threads
        engine = trial.training.replace(max_newton=MAX_NEWTON, n_threads=n_threads)
        settings = self.settings
        schedule = noise_ridge(engine, settings.k, settings.intercepts, MOVING)
        start = add_factors(replace(fit, engine=engine), settings.k, 0.0, self.rng(place))
        sweeps = min(NOISE_RIDGE_SWEEPS, settings.max_iter)
        factors, ridge = run_sweeps(engine, start, schedule, settings, sweeps, settings.tol)
        engine = engine.replace(n_threads=trial.training.n_threads)
        return measure_fit(engine, factors, ridge, unit_variances(engine.masses), fit.shift)

    # --- the choice ------------------------------------------------------------------------

    def choose(self) -> int:
        """Choose the simplest candidate whose loss is close to the lowest.

        A candidate without factors may be half a percent worse; one with a stronger ridge of the
        same family by half a standard error of the difference, over rows.
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
            if _is_close(self.tried[place], best):
                return place
        return lowest

    def result(self, baselines: tuple[Baseline, ...], marks: Marks) -> TuningResult:
        """Choose a candidate, and return it with the record of the search."""
        place = self.choose()
        best = self.tried[place]
        scales = [self._noise_scales(fit, best.family) for fit in best.fits]
        loss, effective_omega, plain = best.step.loss, best.step.effective_omega, 0.0
        correction = 0.0
        tables: tuple[Correction, ...] = ()
        if self.settings.intercepts:
            cells = collect_validation_cells(
                self.trials, best.fits, self.simple.fits, scales, marks
            )
            plain = expectile(cells.residuals, self.engine.omega, cells.weights)
            tables, correction, loss, effective_omega = fit_corrections(cells, self.engine.omega)
        tuning = Tuning(
            tuple(candidate.step for candidate in self.tried),
            place,
            baselines,
            sum(trial.validation.count for trial in self.trials),
            len(self.trials),
            noise=self.noise.get(best.family, 0.0),
            loss=loss,
            effective_omega=effective_omega,
        )
        return TuningResult(
            family=best.family,
            ridge=self._final_ridge(best),
            variances=mean_variances(scales),
            factors=best.fits[0].factors,
            shift=best.fits[0].shift,
            correction=correction,
            plain_correction=plain,
            tables=tables,
            intercept_ridge=self.intercept_ridge,
            marks=marks,
            tuning=tuning,
            warm_start=self._make_warm_start(best) if self.settings.omegas else None,
        )

    def _final_ridge(self, best: Candidate) -> Ridge:
        """Return the ridge of the fit to all cells; a strong one suppresses absent parts."""
        reg, intercepts = best.step.reg, best.fits[0].ridge.intercepts
        if reg == math.inf:
            reg = 2 * FIRST * max(self.noise.values(), default=0.0)
            reg = max(reg, self.engine.spread * asymmetry(self.engine.omega))
        if best.family == "constant":
            intercepts = CONSTANT * asymmetry(self.engine.omega)
        return Ridge(reg, intercepts)

    def _make_warm_start(self, best: Candidate) -> WarmStart | None:
        """Gather the start of the next level's tuning; None without factors on a path."""
        if best.step.rank == 0 or noise_family(best.family) == "equal":
            return None
        fits, simple = best.fits, self.simple.fits
        norm = noise_norm(fits[0].engine, simple[0].factors, np.random.default_rng(0))
        starts = tuple(
            TrialStart(fit.factors, fit.variances, intercepts.factors)
            for fit, intercepts in zip(fits, simple, strict=True)
        )
        return WarmStart(best.family, best.step.reg / norm, starts) if norm > 0 else None

    def _noise_scales(self, fit: TrialFit, family: str) -> Pair:
        """Return the variances of rows and columns, which correction tables need."""
        if noise_family(family) != "equal" or not self.settings.intercepts:
            return fit.variances
        return update_variances(fit.engine, fit.factors, fit.leverages, fit.variances, NOISE_ROUNDS)


def _is_close(one: Candidate, best: Candidate) -> bool:
    """Return whether a candidate is hardly worse than the best, given the uncertainty."""
    worse = one.losses - best.losses
    return bool(worse.sum() <= DOUBT * math.sqrt(float(np.sum(worse**2))))
