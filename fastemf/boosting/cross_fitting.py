"""Cross-fitting: fits to all folds but one, at several levels, with one tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastemf import fitting
from fastemf.boosting.observed_cells import ObservedCells
from fastemf.boosting.residuals import leave_one_out_residuals
from fastemf.models.bilinear import MeanFit
from fastemf.models.factorization import Factorization
from fastemf.solver.alternation import alternate
from fastemf.solver.checkpoint import CheckpointFile, open_checkpoint
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.settings import Settings, checkpoint_for
from fastemf.solver.start import Factors, pad_rank, starting_factors
from fastemf.solver.weighting import Pair
from fastemf.sources.cell_sample import FOLDS, CellSample, Marks, fold_part
from fastemf.sources.gathering import gather_small
from fastemf.sources.source import Source
from fastemf.support.arrays import Floats
from fastemf.tuning.baselines import TrainingBaselines, fit_baselines
from fastemf.tuning.noise import (
    make_weighting,
    measure_noise,
    noise_family,
    unit_variances,
    update_variances,
)
from fastemf.tuning.record import Tuning
from fastemf.tuning.result_file import resume_or_tune
from fastemf.tuning.ridge_path import rescale_result
from fastemf.tuning.trial import TuningResult, run_sweeps

FIRST_LEVEL = 0.5  # which is tuned; other levels reuse its tuning
NEW_SWEEPS = 2  # after which the noise scales of new rows and columns are estimated
SEED = 0  # of everything random in a tuning but the folds


FoldFits = tuple[Factorization, ...]  # by fold, each fitted to the other folds


class _FoldFit(NamedTuple):
    """A fit without a fold, and the leverages of its observations."""

    fit: Factorization
    weights: Pair | None  # of the observations, by row and by column
    leverages: Pair | None


class CrossFit:
    """Fits of one source at several levels, each to all folds but one.

    Parameters
    ----------
    source, marks
        The observations, and the marks that determine the fold of each cell.
    settings
        Settings of the fits, at `FIRST_LEVEL`.
    name
        Name of the source in the names of checkpoints.
    digests
        Returns fingerprints of the data, for checkpoints.
    earlier
        Fits of an earlier model by level, in the order of the data. The fits start from them, and
        ``reg="auto"`` keeps their ridges.
    """

    def __init__(
        self,
        source: Source,
        marks: Marks,
        settings: Settings,
        name: str,
        digests: Callable[[], list[str]],
        earlier: Mapping[float, FoldFits] | None = None,
    ) -> None:
        self._earlier = {} if earlier is None else earlier
        self._source, self._marks, self._settings = gather_small(source), marks, settings
        self._name, self._digests = name, digests
        self._tuning: TuningResult | None = None  # of the first level
        self._starts: dict[float, Factors] = {}  # the latest solution at each level

    def location(self, cells: ObservedCells, values: Floats) -> tuple[FoldFits, Floats]:
        """Fit the first level, and compute the residuals of cells with these `values`.

        The residuals are by fold and observation: out of fold in the fold of the observation, and
        leave-one-out residuals (by leverages) in the others.
        """
        residuals = np.empty((FOLDS, values.size))
        fits = []
        for fold, found in enumerate(self._fit_folds(FIRST_LEVEL)):
            r = values - MeanFit([found.fit]).predict(cells.rows, cells.cols)
            apart = r
            if found.leverages is not None:
                apart = leave_one_out_residuals(
                    r, FIRST_LEVEL, cells, found.weights, found.leverages
                )
            residuals[fold] = np.where(cells.folds == fold, r, apart)
            fits.append(found.fit)
        return tuple(fits), residuals

    def level(self, omega: float) -> FoldFits:
        """Fit another level."""
        return tuple(found.fit for found in self._fit_folds(omega))

    def training(self, omega: float) -> TrainingBaselines:
        """Fit baselines of all observations at a level, for later evaluations."""
        engine = fitting.make_engine(self._source, replace(self._settings, omega=omega))
        ridge = fitting.intercept_ridge(self._tuning, engine)
        return fit_baselines(engine, ridge, self._settings.n_threads)

    @cached_property
    def _first_engine(self) -> CompletionEngine:
        return fitting.make_engine(self._source, self._settings)

    def _fit_folds(self, omega: float) -> Iterator[_FoldFit]:
        settings = replace(self._settings, omega=omega)
        is_first = omega == FIRST_LEVEL
        engine = self._first_engine if is_first else fitting.make_engine(self._source, settings)
        checkpoint = self._open_checkpoint(settings, 0)
        if settings.reg == "auto" and is_first and self._earlier:
            self._tuning = self._keep_tuning(engine)
        elif settings.reg == "auto" and is_first:  # the checkpoint of the first fold keeps it
            found = resume_or_tune(checkpoint, engine, settings, SEED, self._marks)
            self._tuning = found if isinstance(found, TuningResult) else None
        tuning = self._tuning
        if tuning is not None and not is_first:
            tuning = rescale_result(tuning, self._first_engine, engine, settings)
        if tuning is not None and tuning.family == "noise":
            tuning = None  # the ridge of each fit adapts to its noise
        for fold in range(FOLDS):
            own, kept = engine.replace(sample=self._rest(fold)), self._earlier.get(omega)
            if tuning is not None and kept is not None:
                ridge = Ridge(kept[fold].reg, kept[fold].intercept_reg)
                tuning = tuning._replace(ridge=ridge)
            if kept is not None:
                self._starts[omega] = start_from(kept[fold], own)
            if fold > 0:
                checkpoint = self._open_checkpoint(settings, fold)
            yield self._fit_fold(own, tuning, settings, checkpoint)

    def _rest(self, fold: int) -> CellSample:
        return CellSample(self._marks, fold_part(fold)).rest()

    def _keep_tuning(self, engine: CompletionEngine) -> TuningResult:
        """Return the tuning of the earlier fits, with the noise scales of new rows and columns."""
        fit = self._earlier[FIRST_LEVEL][0]
        ridge = Ridge(fit.reg, fit.intercept_reg)
        engine = engine.replace(sample=self._rest(0))
        start = start_from(fit, engine)
        variances = unit_variances(engine.masses)
        if fit.rows.noise is not None and fit.cols.noise is not None:
            variances = fit.rows.noise.variances, fit.cols.noise.variances
            weighted = engine.replace(weighting=make_weighting(fit.family, engine, variances))
            factors, _ = run_sweeps(weighted, start, ridge, self._settings, NEW_SWEEPS, 0.0)
            leverages = weighted.leverages(*factors, ridge)
            found = update_variances(weighted, factors, leverages, variances)
            for known, own, new in zip(
                variances, found, (fit.unseen_rows, fit.unseen_cols), strict=True
            ):
                known[new] = own[new]
        baselines = 0.0 if fit.training is None else fit.training.ridge
        return TuningResult(
            fit.family, ridge, variances, start, 0.0, 0.0, 0.0, (), baselines, self._marks, Tuning()
        )

    def _open_checkpoint(self, settings: Settings, fold: int) -> CheckpointFile | None:
        name = f"{self._name}-{settings.omega!r}-{fold}"
        own = replace(settings, checkpoint=checkpoint_for(settings, name))
        return open_checkpoint(own, lambda: [*self._digests(), name], SEED)

    def _fit_fold(
        self,
        engine: CompletionEngine,
        tuning: TuningResult | None,
        settings: Settings,
        checkpoint: CheckpointFile | None,
    ) -> _FoldFit:
        omega = settings.omega
        engine, schedule = fitting.weight_and_schedule(engine, settings, tuning)
        end = alternate(
            engine, lambda _: self._start(engine, tuning), schedule, settings,
            checkpoint=checkpoint,
        )  # fmt: skip
        self._starts[omega] = factors = end.X, end.Y
        adjustments, leverages = fitting.Adjustments(), None
        family = "equal" if tuning is None else noise_family(tuning.family)
        if omega == FIRST_LEVEL or family != "equal":
            leverages = engine.leverages(*factors, end.ridge)
            if tuning is not None and family != "equal":
                noise = measure_noise(engine, factors, leverages, tuning.variances)
                adjustments = fitting.Adjustments(noise=noise)
        fit = fitting.make_model(end, engine, settings, adjustments, family, history=())
        return _FoldFit(fit, engine.weighting.observations, leverages)

    def _start(self, engine: CompletionEngine, tuning: TuningResult | None) -> Factors:
        """Start from the latest fit of this level, or else of the first level."""
        settings = self._settings
        for level in (engine.omega, FIRST_LEVEL):
            if level in self._starts:
                return self._starts[level]
        if tuning is not None:
            return pad_rank(tuning.factors, engine.n_factors(tuning.factors[0]), settings.k)
        rng = np.random.default_rng(0)
        return starting_factors("spectral", engine, settings.k, rng, settings.n_threads)


def start_from(fit: Factorization, engine: CompletionEngine) -> Factors:
    """Start from an earlier fit of the same rows and columns, some of which are unseen."""
    return fitting.start_from_model(fit, engine, fit.k, np.random.default_rng(0))
