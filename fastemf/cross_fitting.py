"""Fits of every fold's complement at several levels, tuned once: what quantiles are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.model.factorization import Factorization
from fastemf.model.prediction import predict_cells
from fastemf.observations.source import Source
from fastemf.solver.axis import Axis, AxisNoise
from fastemf.solver.checkpoint import Checkpoint, check_begin, checkpoint_of
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.fitting import alternate
from fastemf.solver.gathering import at_hand
from fastemf.solver.holding import Holding
from fastemf.solver.noise import kept_noise, noise_family, weighting_of
from fastemf.solver.path import tune
from fastemf.solver.ridge import FixedRidge, RidgeSchedule, asymmetry, noise_ridge
from fastemf.solver.sampling import FOLDS, CellSample, Marks, fold_part
from fastemf.solver.search import Tuned
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors, starting_factors, widened
from fastemf.solver.training import TrainingLevels, training_levels
from fastemf.solver.weighting import Pair
from fastemf.stacking.items import Located
from fastemf.stacking.left_out import left_out_of
from fastemf.stacking.sampled import Sampled

__all__ = ["FIRST_LEVEL", "CrossFit"]

FIRST_LEVEL = 0.5  # which is tuned; others hold what it found
SEED = 0  # of all in a tuning that is random but the folds


class _FoldFit(NamedTuple):
    """A fit without a fold, and the leverages of what it was fitted to."""

    fit: Factorization
    weights: Pair | None  # of rows and columns, that observations have
    leverages: Pair | None


class CrossFit:
    """Fits of one source at several levels, each to all folds but one.

    Parameters
    ----------
    source, marks
        The observations, and what says in which fold a cell is.
    settings
        Those of the fits, at `FIRST_LEVEL`.
    name
        What the source is called in the names of checkpoints.
    digests
        Fingerprints of the data, for these.
    """

    def __init__(
        self,
        source: Source,
        marks: Marks,
        settings: Settings,
        name: str,
        digests: Callable[[], list[str]],
    ) -> None:
        # Small data go through so many fits that they had better be at hand.
        self._source, self._marks, self._settings = at_hand(source), marks, settings
        self._name, self._digests = name, digests
        self._holding = Holding()
        self._starts: dict[float, Factors] = {}  # the latest solution at each level
        self._unseen = [
            np.flatnonzero(side.mass == 0) for side in (source.by_row, source.by_col)
        ]  # fmt: skip

    def location(self, cells: Sampled, values: NDArray[np.float64]) -> tuple[list[Any], Located]:
        """Fit the first level, and find what it leaves of cells; `values` are theirs."""
        residuals = np.empty((FOLDS, values.size))
        fits = []
        for fold, found in enumerate(self._fitted(FIRST_LEVEL)):
            r = values - predict_cells(found.fit.axes, found.fit.mu, cells.rows, cells.cols)
            fitted = cells.folds != fold
            apart = r
            if found.leverages is not None:
                apart = left_out_of(r, FIRST_LEVEL, cells, found.weights, found.leverages)
            residuals[fold] = np.where(fitted, apart, r)
            fits.append(found.fit)
        return fits, Located(values, residuals)

    def level(self, omega: float, cells: Sampled) -> tuple[list[Any], NDArray[np.float64]]:
        """Fit another level, and predict each cell by the fit without its fold."""
        predicted = np.empty(cells.values.size)
        fits = []
        for fold, found in enumerate(self._fitted(omega)):
            out = cells.folds == fold
            axes, mu = found.fit.axes, found.fit.mu
            predicted[out] = predict_cells(axes, mu, cells.rows[out], cells.cols[out])
            fits.append(found.fit)
        return fits, predicted

    def training(self) -> TrainingLevels:
        """Find the levels of all observations, which what is predicted can be compared with."""
        found = self._holding.found
        ridge = found.intercept_ridge if isinstance(found, Tuned) else 0.0
        return training_levels(
            self._engine(FIRST_LEVEL), ridge or asymmetry(FIRST_LEVEL), self._settings.n_threads
        )

    def _engine(self, omega: float) -> CompletionEngine:
        settings = self._settings
        mu = self._source.expectile(omega) if settings.intercepts else None
        return CompletionEngine(
            self._source, omega, mu=mu, n_threads=settings.n_threads, steps=settings.steps
        )

    def _fitted(self, omega: float) -> Iterator[_FoldFit]:
        settings, engine = replace(self._settings, omega=omega), self._engine(omega)
        first = self._checkpoint(settings, 0)  # which keeps the tuning too
        found = None
        if settings.reg == "auto":
            found = self._holding.tuned(
                engine, settings,
                lambda _: tune(engine, settings, SEED, self._marks, checkpoint=first),
            )  # fmt: skip
        tuned = found if isinstance(found, Tuned) and found.family != "noise" else None
        for fold in range(FOLDS):
            view = engine.view(CellSample(self._marks, fold_part(fold)).rest())
            if tuned is not None:
                view = view.view(weighting=weighting_of(tuned.family, view, tuned.variances))
            kept = self._checkpoint(settings, fold) if fold else first
            yield self._fit_of(view, tuned, settings, kept)

    def _checkpoint(self, settings: Settings, fold: int) -> Checkpoint | None:
        name = f"{self._name}-{settings.omega:g}-{fold}"
        own = replace(settings, checkpoint=_file_of(settings, name))
        return checkpoint_of(own, lambda: [*self._digests(), name], SEED)

    def _fit_of(
        self,
        view: CompletionEngine,
        tuned: Tuned | None,
        settings: Settings,
        kept: Checkpoint | None,
    ) -> _FoldFit:
        omega = settings.omega
        end = alternate(
            view, lambda _: self._start(view, omega, tuned), self._schedule(view, tuned), settings,
            kept,
        )  # fmt: skip
        self._starts[omega] = factors = end.X, end.Y
        noise: tuple[AxisNoise | None, AxisNoise | None] = (None, None)
        leverages = None
        family = "even" if tuned is None else noise_family(tuned.family)
        if omega == FIRST_LEVEL or family != "even":
            leverages = view.leverages(*factors, end.ridge)
            if tuned is not None and family != "even":
                noise = kept_noise(view, factors, leverages, tuned.variances)
        rows, cols = (
            replace(
                Axis.split(factor, settings.k, unseen=self._unseen[axis]), noise=noise[axis]
            )
            for axis, factor in enumerate(factors)
        )  # fmt: skip
        fit = Factorization(
            rows=rows, cols=cols, omega=omega, mu=view.mu or 0.0, reg=end.ridge.factors,
            reg_scaling="count", intercept_reg=end.ridge.intercepts if view.has_intercepts else 0.0,
            scale=view.spread, converged=end.converged, history=(), family=family,
        )  # fmt: skip
        return _FoldFit(fit, view.weighting.observations, leverages)

    def _schedule(self, view: CompletionEngine, tuned: Tuned | None) -> RidgeSchedule:
        settings = self._settings
        if tuned is not None:
            return FixedRidge(tuned.ridge)
        if isinstance(settings.reg, str):
            return noise_ridge(view, settings.k, settings.intercepts)
        return replace(settings, omega=view.omega).numbered_ridge(1.0)

    def _start(self, view: CompletionEngine, omega: float, tuned: Tuned | None) -> Factors:
        """Start from the fit at hand that is nearest: this level's, or else the first level's."""
        for level in (omega, FIRST_LEVEL):
            if level in self._starts:
                return self._starts[level]
        if tuned is not None:
            return widened(tuned.factors, view.n_factors(tuned.factors[0]), self._settings.k)
        rng = np.random.default_rng(0)
        return starting_factors("spectral", view, self._settings.k, rng, self._settings.n_threads)


def _file_of(settings: Settings, name: str) -> Path | None:
    """Return the file of one of several fits: the name given, with that of the fit added."""
    if settings.checkpoint is None:
        return None
    path = Path(settings.checkpoint)
    path = path.with_name(f"{path.stem}-{name}{path.suffix}")
    check_begin(path, settings.resume)
    return path
