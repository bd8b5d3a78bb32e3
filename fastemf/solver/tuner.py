"""The candidates of a tuned fit: how each is made from the one before, judged and chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels import tally as tallies
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.noise import even, mean_of, renewed, weighting_of
from fastemf.solver.records import Ridge
from fastemf.solver.ridge import asymmetry, noise_ridge
from fastemf.solver.sampling import Marks
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors, top_svd
from fastemf.solver.trial import NEWTON_STEPS, Fitted, Trial, shift_of, step_of, swept
from fastemf.solver.tuning import Baseline, Tuning, TuningStep
from fastemf.solver.weighting import Pair

__all__ = ["FIRST", "INTERCEPT_SWEEPS", "INTERCEPT_TOL", "Tuned", "Tuner", "noise_norm"]

MULTIPLES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # of λ₀ = asymmetry, one observation's worth
NEAR_BEST = 1.01  # of the leave-one-out loss: the weakest λ₀ within it is taken
CONSTANT = 1e12  # of one observation's worth: intercepts are then zero to rounding
FIRST, RATIO, MOST_STEPS = 1.2, 0.7, 24  # λ of the path: FIRST · RATIOⁿ · the noise's norm
SWEEPS = 4  # of a step
INTERCEPT_SWEEPS, INTERCEPT_TOL = 10, 1e-4
STEP_TOL = 1e-6
DEAD = 1e-6  # of the largest factor's norm
SEED = 0.5  # of the size that a new factor would have if it were alone
DOUBT = 0.5  # standard errors by which a stronger ridge may be worse
SIMPLER = 1.005  # of the best loss, which a simpler candidate may have
NARROW = 2  # steps either side of the ridge of an earlier fit
MOVING = 10  # sweeps in which the noise-following ridge leaves the ridge of the path


class Tuned(NamedTuple):
    """What to fit to all cells, and where to start."""

    family: str
    ridge: Ridge
    variances: Pair
    factors: Factors
    shift: float  # that of the first trial
    correction: float  # of the shift that leave-one-out residuals give
    intercept_ridge: float  # λ₀, also where the fit has no use for intercepts
    marks: Marks  # which say what cells were set aside
    tuning: Tuning


@dataclass(eq=False)
class _Candidate:
    """A candidate in all trials."""

    family: str
    reg: float
    fits: list[Fitted]
    losses: NDArray[np.float64] = field(init=False)  # by row, in units whose squares are harmless
    step: TuningStep = field(init=False)

    def rivals(self, best: _Candidate) -> bool:
        """Tell whether it is worse than the best by less than the doubt about the difference."""
        worse = self.losses - best.losses
        return bool(worse.sum() <= DOUBT * math.sqrt(float(np.sum(worse**2))))


class Tuner:
    """The search, and what all its steps have in common."""

    def __init__(
        self,
        engine: CompletionEngine,
        trials: list[Trial],
        settings: Settings,
        rng: np.random.Generator,
    ) -> None:
        self.engine = engine
        self.trials = trials
        self.settings = settings
        self.rng = rng
        self.intercepts = settings.intercepts
        self.tried: list[_Candidate] = []
        self.noise: dict[str, float] = {}  # the norm at which each family's path began
        self.intercept_ridge = self._intercept_ridge() if self.intercepts else 0.0

    # --- intercepts ------------------------------------------------------------------------

    def _intercept_ridge(self) -> float:
        """Find λ₀ by the leave-one-out loss of fits without factors."""
        losses: list[float] = []
        factors = self.engine.no_factors()
        for multiple in MULTIPLES:
            ridge = Ridge(0.0, multiple * asymmetry(self.engine.omega))
            fit = self._fitted(self.engine, factors, ridge, even(self.engine.masses))
            factors = fit.factors
            sums = self.engine.tally(0, *factors, fit.leverages, fit.shift).sum(axis=0)
            losses.append(float(sums[tallies.LOSS]))
            if len(losses) > 2 and losses[-1] > losses[-2] > losses[-3]:
                break
        near = next(i for i, loss in enumerate(losses) if loss <= NEAR_BEST * min(losses))
        return MULTIPLES[near] * asymmetry(self.engine.omega)

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

    def _judge(self, family: str, reg: float, fits: list[Fitted]) -> TuningStep:
        candidate = _Candidate(family, reg, fits)
        sums = np.sum(
            [
                trial.judged(fit.factors, fit.shift)
                for trial, fit in zip(self.trials, fits, strict=True)
            ],
            axis=0,
        )
        rank = max(fit.rank for fit in fits)
        candidate.losses = sums[:, tallies.LOSS] / self.engine.unit**2
        candidate.step = step_of(family, reg, rank, sums.sum(axis=0), self.trials[0].judge.unit)
        self.tried.append(candidate)
        # The fits of what can no longer be chosen are not worth their memory.
        for other in self.tried:
            of_family = [one for one in self.tried if one.family == other.family]
            best = min(of_family, key=lambda one: one.step.loss)
            if other.step.rank > 0 and other is not candidate and not other.rivals(best):
                other.fits = []
        return candidate.step

    def try_simple(self) -> None:
        """Try a constant, where there are intercepts, and intercepts alone."""
        ridge = Ridge(0.0, self.intercept_ridge)
        if self.intercepts:
            fits = []
            for trial in self.trials:
                engine, factors = trial.fitted, trial.fitted.no_factors()
                shift = shift_of(engine, factors, None)
                alike = even(engine.masses)
                fits.append(Fitted(engine, factors, ridge, alike, alike, shift))
            self._judge("constant", math.inf, fits)
        fits = [
            self._fitted(
                trial.fitted, trial.fitted.no_factors(), ridge, even(trial.fitted.masses)
            )
            for trial in self.trials
        ]  # fmt: skip
        self._judge("even", math.inf, fits)

    def try_family(self, family: str, around: float | None) -> None:
        """Try the path of a family, from its intercepts on.

        It ends when nothing has been better for a while. With `around`, in units of the noise's
        norm, it begins two steps before that ridge, and ends two steps after it unless the last
        is the best.
        """
        ridge = Ridge(0.0, self.intercept_ridge)
        simple = next(candidate for candidate in self.tried if candidate.family == "even")
        losses = [simple.step.loss]
        fits = [self._rescaled(fit, family, rounds=3) for fit in simple.fits]
        if family == "weighted" and self.intercepts:
            fits = [self._fitted(fit.engine, fit.factors, ridge, fit.variances) for fit in fits]
            losses = [self._judge(family, math.inf, fits).loss]
            fits = [self._rescaled(fit, family) for fit in fits]
        if self.settings.k == 0:
            return
        noise = self.noise[family] = noise_norm(fits[0].engine, fits[0].factors, self.rng)
        if not noise > 0:  # nothing is left for factors
            return
        first, last = FIRST, 0.0
        if around is not None:
            first, last = min(FIRST, around / RATIO**NARROW), 1.01 * around * RATIO**NARROW
        for step in range(MOST_STEPS):
            reg = first * RATIO**step * noise
            fits = [self._stepped(fit, reg) for fit in fits]
            losses.append(self._judge(family, reg, fits).loss)
            since = len(losses) - 1 - int(np.argmin(losses))
            if since >= 3 or (since == 2 and losses[-1] > 1.01 * min(losses)):
                break
            if since > 0 and reg <= last * noise:
                break
            fits = [self._rescaled(fit, family) for fit in fits]

    def _rescaled(self, fit: Fitted, family: str, rounds: int = 1) -> Fitted:
        """Update the noise scales by the residuals of a fit, and weigh by them."""
        variances = renewed(fit.engine, fit.factors, fit.leverages, fit.variances, rounds)
        weighting = weighting_of(family, fit.engine, variances)
        engine = fit.engine.view(weighting=weighting)
        return Fitted(engine, fit.factors, fit.ridge, fit.leverages, variances, fit.shift)

    def _stepped(self, fit: Fitted, reg: float) -> Fitted:
        """Go on from a fit at the next ridge."""
        ridge = Ridge(reg, self.intercept_ridge)
        factors = self._joined(fit, reg)
        factors, _ = swept(fit.engine, factors, ridge, self.settings, SWEEPS, STEP_TOL)
        factors = _alive(fit.engine, factors)
        # The shift moves little from step to step: one Newton step follows it.
        return self._measured(fit.engine, factors, ridge, fit.variances, fit.shift, rounds=1)

    def _joined(self, fit: Fitted, reg: float) -> Factors:
        """Add the factors that the ridge allows: singular pairs of the slopes above it."""
        engine, wanted = fit.engine, self.settings.k - fit.rank
        if wanted <= 0:
            return fit.factors
        matrix = engine.slopes(*fit.factors, _scales(engine), signed=False)
        dtype = engine.observations.dtype
        U, d, V = top_svd(*matrix, engine.observations.shape, wanted, self.rng, dtype)
        new = d > reg
        if not new.any():
            return fit.factors
        # A factor alone in M̃ = D^½ M E^½, where the slopes are singular and the loss has the mean
        # curvature w̄ / mass, would have the size (d − λ) mass / w̄.
        sums = engine.tally(0, *fit.factors).sum(axis=0)
        curvature = sums[tallies.CURVATURE] / sums[tallies.MASS] / engine.mass
        root = SEED * np.sqrt((d[new] - reg) / curvature)
        joined = []
        for factor, pairs, ridge in zip(
            fit.factors, (U, V), engine.weighting.solved_ridge, strict=True
        ):
            k = engine.n_factors(factor)
            added = (pairs[:, new] * root / np.sqrt(ridge)[:, None]).astype(dtype)
            joined.append(np.hstack([factor[:, :k], added, factor[:, k:]]))
        return joined[0], joined[1]

    def try_noise(self, family: str = "noise") -> None:
        """Try the noise-following ridge, from the best of the path."""
        best = self.tried[int(np.argmin([candidate.step.loss for candidate in self.tried]))]
        fits = []
        for trial, fit in zip(self.trials, best.fits, strict=True):
            engine = trial.fitted
            schedule = noise_ridge(engine, self.settings.k, self.intercepts, MOVING)
            factors, ridge = swept(
                engine, self._joined(replace(fit, engine=engine), 0.0), schedule, self.settings,
                self.settings.max_iter, self.settings.tol,
            )  # fmt: skip
            fits.append(self._measured(engine, factors, ridge, even(engine.masses), fit.shift))
        self._judge(family, float(np.mean([fit.ridge.factors for fit in fits])), fits)

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
        for place, candidate in enumerate(self.tried[:lowest]):
            rival = candidate.family == best.family and candidate.step.rank > 0 and candidate.fits
            if rival and candidate.rivals(best):
                return place
        return lowest

    def _refitted(self, best: _Candidate) -> Ridge:
        """Return the ridge for all cells; what a candidate lacks is kept out by a strong one."""
        reg, intercepts = best.reg, best.fits[0].ridge.intercepts
        if reg == math.inf:
            reg = 2 * FIRST * max(self.noise.values(), default=0.0)
            reg = max(reg, self.engine.spread * asymmetry(self.engine.omega))
        if best.family == "constant":
            intercepts = CONSTANT * asymmetry(self.engine.omega)
        return Ridge(reg, intercepts)

    def correction(self, candidate: _Candidate) -> float:
        """Find the ω-expectile of what a candidate leaves of the cells set aside, over all folds.

        It is what leave-one-out residuals, which the shift is from, are too optimistic by.
        """
        correction = 0.0
        for _ in range(NEWTON_STEPS if self.intercepts else 0):
            sums = np.sum(
                [
                    trial.judged(fit.factors, fit.shift + correction).sum(axis=0)
                    for trial, fit in zip(self.trials, candidate.fits, strict=True)
                ],
                axis=0,
            )
            step = float(sums[tallies.SLOPE] / sums[tallies.CURVATURE])
            correction += step
            if abs(step) <= 1e-12 * self.engine.spread:
                break
        return correction

    def tuned(self, baselines: tuple[Baseline, ...], judged: int, marks: Marks) -> Tuned:
        """Choose, and say what was tried."""
        place = self.chosen()
        best = self.tried[place]
        steps = tuple(candidate.step for candidate in self.tried)
        fit = best.fits[0]
        return Tuned(
            family=best.family,
            ridge=self._refitted(best),
            variances=mean_of([fit.variances for fit in best.fits]),
            factors=fit.factors,
            shift=fit.shift,
            correction=self.correction(best),
            intercept_ridge=self.intercept_ridge,
            marks=marks,
            tuning=Tuning(
                steps,
                place,
                baselines,
                judged,
                len(self.trials),
                noise=self.noise.get(best.family, 0.0),
            ),
        )


def noise_norm(engine: CompletionEngine, factors: Factors, rng: np.random.Generator) -> float:
    """Find the ridge at which noise alone would make a factor: the norm of slopes with any sign."""
    matrix = engine.slopes(*factors, _scales(engine), signed=True)
    shape, dtype = engine.observations.shape, engine.observations.dtype
    return float(top_svd(*matrix, shape, 1, rng, dtype)[1][0])


def _scales(engine: CompletionEngine) -> Pair:
    """Return what makes the slopes those of a problem whose ridge is the same everywhere."""
    weighting = engine.weighting
    observed = weighting.observations or tuple(np.ones_like(part) for part in weighting.ridge)
    rows, cols = (
        own / np.sqrt(ridge) for own, ridge in zip(observed, weighting.solved_ridge, strict=True)
    )
    return rows, cols


def _alive(engine: CompletionEngine, factors: Factors) -> Factors:
    """Drop factors that the ridge has removed."""
    k = engine.n_factors(factors[0])
    if k == 0:
        return factors
    sizes = np.ones(k)
    for factor, ridge in zip(factors, engine.weighting.ridge, strict=True):
        part = factor[:, :k].astype(np.float64)
        sizes *= np.sqrt(np.einsum("ij,ij,i->j", part, part, ridge))
    kept = np.append(sizes > DEAD * sizes.max(), np.ones(factors[0].shape[1] - k, bool))
    return np.ascontiguousarray(factors[0][:, kept]), np.ascontiguousarray(factors[1][:, kept])
