"""`complete_levels`: fit several expectile levels whose predictions never cross."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import numpy as np

from fastemf.boosting.cross_fitting import FIRST_LEVEL
from fastemf.boosting.fit import (
    BoostedFit,
    ItemTables,
    SideTables,
    check_boosted_solver,
    fit_boosted,
)
from fastemf.boosting.model_fit import OutOfFold
from fastemf.boosting.objective import EXPECTILE, Objective
from fastemf.boosting.out_of_fold import split_kinds
from fastemf.drift import Fitted, fit_over_time
from fastemf.features.times import check_half_life
from fastemf.fitting import FitResult, fit_data
from fastemf.metrics import effective_omega
from fastemf.models.boosted_levels import BoostedLevels, LevelGroup, LevelReport
from fastemf.models.factorization import Factorization
from fastemf.models.held_out import figures_of_tuning
from fastemf.models.levels import Levels
from fastemf.solver.checkpoint import check_checkpoint_path
from fastemf.solver.records import SweepRecord
from fastemf.solver.settings import (
    Checkpoint,
    Settings,
    Solver,
    as_checkpoint,
    as_rank,
    as_solver,
    as_validation,
    checkpoint_for,
)
from fastemf.sources.open_source import Data, hold_apart, open_source
from fastemf.support.validation import check_levels
from fastemf.support.warn import ConvergenceWarning, UniqueWarnings, warn


def complete_levels(
    R: Any,
    omegas: Iterable[float],
    k: int | Literal["auto"],
    *,
    rows: str | None = None,
    cols: str | None = None,
    values: str | tuple[str, str] | None = None,
    weights: Any = None,
    time: Any = None,
    half_life: float | str | timedelta | None = None,
    censored: Any = None,
    shape: tuple[int, int] | None = None,
    reg: Any = "auto",
    intercepts: bool = False,
    boost: bool = False,
    features: Any = None,
    row_features: Any = None,
    col_features: Any = None,
    init: Any = "spectral",
    tol: float = 1e-5,
    max_iter: int = 100,
    solver: str | Solver = "auto",
    validation: Any = None,
    random_state: Any = 0,
    n_jobs: int | None = -1,
    client: Any = None,
    store_path: Any = None,
    callback: Callable[[SweepRecord], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
) -> Levels | BoostedLevels:
    """Fit a low-rank matrix at several expectile levels, with predictions that never cross.

    The first fit is at the level farthest from the tail of the data (the lowest level for
    right-skewed data), because it converges fastest. Each further level starts from the fit of its
    neighbour, which takes fewer sweeps than a new start. The objective ends about as low as in
    separate fits, but the fits are not bitwise identical to them.

    With ``reg="auto"`` all levels are tuned on the same validation cells (with
    ``intercepts=False``, levels after the first use half of them). Each level tries only ridges
    close to that of its neighbour, in units of the noise. The predictions for a cell are sorted
    across the levels, which never increases the total loss (see `Levels`).

    Parameters
    ----------
    R
        The observations, in any form that `complete` takes. They are read once.
    omegas
        Two or more different levels in (0, 1), in any order. A level is not a quantile (see
        `complete_quantiles`).
    k
        Rank of the fit at each level, as in `complete`.
    rows, cols, values, weights, time, half_life, censored, shape, client, store_path
        Describe the data, as in `complete`. All levels have one half-life; ``"auto"`` compares fits
        at the level closest to 0.5.
    reg, intercepts, tol, max_iter, validation, random_state, n_jobs, progress
        Apply to the fit at each level, as in `complete`.
    boost
        Whether boosted trees combine the predictions of cross-fitted models at these levels, as in
        `complete_quantiles`, but for the expectile loss. This is usually sharper, takes longer and
        needs LightGBM. `validation` must then be None.
    features, row_features, col_features
        Side features, as in `complete_quantiles`; they need ``boost=True``.
    init
        Start of the first fit, as in `complete`; with ``boost=True``, an earlier model, as in
        `complete_quantiles`.
    solver
        As in `complete`. ``anneal`` of a `Solver` only applies to the first fit.
    callback
        Function that is called with the `SweepRecord` of each sweep, level by level. A true return
        value ends the sweeps of the level.
    checkpoint
        As in `complete`. There is one file per level, ``state-0.1.npz`` for ``state.npz`` and the
        level 0.1. Resuming skips levels that are done; the levels must be the same.

    Returns
    -------
    Levels, or BoostedLevels with ``boost=True``

    Raises
    ------
    fastemf.CheckpointError, FileExistsError
        As in `complete`.

    Warns
    -----
    ConvergenceWarning
        Once, with the levels that did not reach `tol`, and once if rounding ended a fit.
    UserWarning
        As in `complete`, once for all levels.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> levels = fastemf.complete_levels(R, (0.1, 0.5, 0.9), k=2)
    >>> levels.predict([3, 4, 5, 6], 7).shape  # a column per level
    (4, 3)
    >>> bool((levels.spread([3, 4], 7) >= 0).all())
    True
    """
    levels = check_levels(omegas)
    side = ItemTables(row_features, col_features)
    if not boost and any(one is not None for one in (features, *side)):
        raise ValueError("features, row_features and col_features need boost=True")
    if boost and validation is not None:
        raise ValueError("validation must be None for boost=True")
    is_default = isinstance(init, str) and init == "spectral"
    if boost and not is_default and not isinstance(init, BoostedLevels):
        raise TypeError(f'init must be "spectral" or BoostedLevels for boost=True, got {init!r}')
    check_half_life(half_life, time)
    settings = Settings(
        omega=min(levels, key=lambda omega: abs(omega - FIRST_LEVEL)), **as_rank(k), reg=reg,
        intercepts=intercepts, init=init, tol=tol, max_iter=max_iter, solver=as_solver(solver),
        validation=as_validation(validation), random_state=random_state, n_jobs=n_jobs,
        callback=callback, progress=progress, checkpoint=as_checkpoint(checkpoint), omegas=levels,
    )  # fmt: skip
    if boost:
        solver = check_boosted_solver(settings.solver)
        settings = replace(settings, omega=FIRST_LEVEL, omegas=(), solver=solver)
    else:
        for omega in levels:
            _level_settings(settings, omega)  # refuses a checkpoint that exists
    names = (rows, cols, values)
    reading = {"store_path": store_path, "progress": progress, "time": time, "features": features}
    rng = settings.generator()
    with (
        open_source(R, weights, shape, names, client, n_jobs, censored, **reading) as source,
        UniqueWarnings(leave_out=ConvergenceWarning),
    ):
        side_tables = side.read(source, names) if boost else None

        def fit(data: Data, own: Settings) -> Fitted:
            if side_tables is not None:
                return _fit_boosted_levels(data, own, levels, side_tables)
            return _fit_levels(data, own, rng if own is settings else own.generator())

        data = hold_apart(source, settings.validation_data, rng, names, censored)
        model: Levels | BoostedLevels = fit_over_time(fit, data, settings, half_life).model
    if isinstance(model, Levels):
        _warn_not_converged(model.fits, max_iter)
    return model


def _fit_levels(data: Data, settings: Settings, rng: np.random.Generator) -> Fitted:
    """Fit the levels of the settings, each from its neighbour."""
    fits: dict[float, Factorization] = {}
    neighbour: FitResult | None = None
    levels = settings.omegas
    for omega in levels if data.fitted.tail_is_right() else reversed(levels):
        own, tuning = _level_settings(settings, omega), None
        if neighbour is not None:  # a good start, which annealing would leave
            solver = replace(own.solver, anneal=False)
            own, tuning = replace(own, init=neighbour.model, solver=solver), neighbour.tuning
        neighbour = fit_data(data, own, rng, neighbour=tuning)
        fits[omega] = neighbour.model
        # The next level must not depend on whether this one was fitted or read from its
        # checkpoint; it only draws starts for rows without observations.
        rng = np.random.default_rng(0)
    ordered = tuple(fits[omega] for omega in levels)
    folds = tuple(one for fit in ordered for one in figures_of_tuning(fit.tuning))
    return Fitted(Levels(ordered), folds if len(folds) == len(ordered) else ())


def _fit_boosted_levels(
    data: Data, settings: Settings, levels: tuple[float, ...], side: SideTables
) -> Fitted:
    """Fit levels with boosted trees."""
    init = settings.init
    objectives = tuple(Objective(EXPECTILE, omega) for omega in levels)
    others = tuple(omega for omega in levels if omega != settings.omega)
    fit = fit_boosted(data, settings, objectives, others, side)
    if fit.update is not None and fit.update.trees_kept:  # the trees have seen most of the data
        reports = tuple(replace(report, measured=False) for report in init.reports)
    else:
        reports = tuple(_report_level(fit, t, one) for t, one in enumerate(objectives))
    model = BoostedLevels(
        fit.fits, fit.labels, fit.marks, fit.normal, fit.features, fit.combination, fit.update,
        reports,
    )  # fmt: skip
    return Fitted(model, fit.measure(objectives, fit.observed))


def _report_level(fit: BoostedFit, t: int, objective: Objective) -> LevelReport:
    """Report level number t, from out-of-fold predictions."""
    every = fit.cells.select(fit.observed.at)
    constant = objective.centre(every.values, every.weights)

    def measure(found: OutOfFold) -> tuple[float, float, float]:
        cells = fit.cells.select(found.at)
        residuals = cells.values - found.predicted[:, t]
        loss = objective.loss(residuals, cells.weights)
        of_constant = objective.loss(cells.values - constant, cells.weights)
        return effective_omega(residuals, cells.weights), loss, of_constant

    cold = tuple(
        LevelGroup(name, found.at.size, *measure(found))
        for name, found in split_kinds(fit.observed, fit.cold).items()
    )
    return LevelReport(objective.level, *measure(fit.observed), cold)


def _level_settings(settings: Settings, omega: float) -> Settings:
    """Return the settings of one level, with its own checkpoint."""
    checkpoint = checkpoint_for(settings, repr(omega))
    if checkpoint is not None:
        check_checkpoint_path(checkpoint.path, checkpoint.resume)
    return replace(settings, omega=omega, checkpoint=checkpoint)


def _warn_not_converged(fits: tuple[Factorization, ...], max_iter: int) -> None:
    # A fit with fewer sweeps was ended by a callback.
    limited = [fit for fit in fits if not fit.converged and fit.n_iter >= max_iter]
    if limited:
        levels = ", ".join(f"{fit.omega:g}" for fit in limited)
        warn(
            f"{len(limited)} of {len(fits)} levels did not converge within max_iter={max_iter} "
            f"sweeps ({levels}); raise max_iter or tol",
            ConvergenceWarning,
        )
