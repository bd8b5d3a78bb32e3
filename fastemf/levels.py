"""`complete_levels`, which fits several expectile levels of one matrix that never cross."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastemf import completion
from fastemf.model.factorization import Factorization
from fastemf.model.levels import Levels
from fastemf.solver.checkpoint import check_begin
from fastemf.solver.holding import Following, Holding
from fastemf.solver.opening import Data, hold_apart, open_source
from fastemf.solver.records import SweepRecord
from fastemf.solver.settings import Settings
from fastemf.support.validation import check_levels
from fastemf.support.warn import ConvergenceWarning, PassedOnOnce, warn
from fastemf.support.whole_file import check_target

__all__ = ["complete_levels", "fit_near"]


def complete_levels(
    R: Any,
    omegas: Iterable[float],
    k: int,
    *,
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    weights: Any = None,
    censored: Any = None,
    shape: tuple[int, int] | None = None,
    reg: Any = "auto",
    reg_scaling: str = "count",
    intercepts: bool = False,
    init: Any = "spectral",
    tol: float = 1e-5,
    max_iter: int = 100,
    momentum: bool = True,
    anneal: bool = True,
    orthogonalize: bool = False,
    solver: str = "auto",
    validation: Any = None,
    patience: int | None = None,
    random_state: Any = 0,
    n_jobs: int | None = -1,
    client: Any = None,
    callback: Callable[[SweepRecord], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
) -> Levels:
    """Fit a low-rank matrix at each of several expectile levels; their predictions never cross.

    The level farthest from the data's tail (the lowest, where the tail is to the right) is
    fitted as by `complete`: it converges soonest. The others follow in their order, each from its
    neighbour's fit, to the same tolerance. That takes fewer sweeps than starting each anew; the
    objective ends about as low, but the fits are not bitwise identical. Tuned levels set the same
    cells aside; each begins where its neighbour's fits without those cells ended, tries only ridges
    near its neighbour's, relative to the noise, and without intercepts is judged by half of those
    cells. A cell's predictions are then sorted across the levels, which is never worse than leaving
    them as they are: see `Levels`.

    Parameters
    ----------
    R
        The observations, in any form that `complete` takes; read once for all levels.
    omegas
        Two or more different levels in (0, 1), in any order. A level is not a quantile:
        for "95 % of the values below", see `complete_quantiles`.
    k
        Rank of each level's fit; 0 as in `complete`.
    rows, cols, values, weights, censored, shape, client
        As in `complete`.
    reg
        Ridge, as in `complete`: ``"auto"`` tunes each level, and with ``"noise"`` the ridge of
        each follows its own residuals.
    reg_scaling, intercepts, tol, momentum, orthogonalize, solver, patience, random_state, n_jobs
        As in `complete`, at each level.
    init, anneal
        As in `complete`, for the level that is fitted first.
    max_iter
        The largest number of sweeps at each level.
    validation
        As in `complete`; the same cells are held out at all levels.
    progress, checkpoint_every
        As in `complete`.
    callback
        Called with each sweep's `SweepRecord`, level after level; a true return value ends the
        sweeps of that level.
    checkpoint
        File to keep the state of the fits in: one for each level, whose omega is added to the
        name given, such as ``state-0.1.npz`` for ``state.npz``. They stay when all is done.
    resume
        Go on from the files of `checkpoint`; the fits are bitwise identical to those of a run
        without interruption, and levels that were done are not fitted again. Data and settings
        must be the same as in `complete`, and so must the levels. With a greater `max_iter` each
        level goes on from where it was.

    Returns
    -------
    Levels

    Raises
    ------
    fastemf.CheckpointError, FileExistsError
        As in `complete`.

    Warns
    -----
    ConvergenceWarning
        Once, with the levels that did not reach `tol`, and once where rounding ended one.
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
    wanted = check_levels(omegas)
    settings = Settings(
        omega=wanted[0], k=k, reg=reg, reg_scaling=reg_scaling, intercepts=intercepts, init=init,
        tol=tol, max_iter=max_iter, momentum=momentum, anneal=anneal, orthogonalize=orthogonalize,
        solver=solver, validation=validation, patience=patience, random_state=random_state,
        n_jobs=n_jobs, callback=callback, progress=progress, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every, resume=resume, omegas=wanted,
    )  # fmt: skip
    each = {omega: _at_level(settings, omega) for omega in wanted}
    names = (rows, cols, values)
    fits: dict[float, Factorization] = {}
    with (
        open_source(R, weights, shape, names, client, n_jobs, censored) as source,
        PassedOnOnce(leave_out=ConvergenceWarning),
    ):
        rng = settings.generator()
        data = hold_apart(source, validation, rng, names, censored)
        fit: Factorization | None = None
        holding = Following()
        for omega in wanted if data.fitted.tail_is_right() else reversed(wanted):
            fit = fits[omega] = fit_near(fit, data, each[omega], rng, holding)
            # Whether this level was fitted now or came from its file must not show in the next,
            # which draws nothing but a start for rows without observations.
            rng = np.random.default_rng(0)
    _warn_of_limits([fits[omega] for omega in wanted], max_iter)
    return Levels(tuple(fits[omega] for omega in wanted))


def fit_near(
    neighbour: Factorization | None,
    data: Data,
    settings: Settings,
    rng: np.random.Generator,
    holding: Holding | None = None,
) -> Factorization:
    """Fit one level, from another level's fit where there is one."""
    if neighbour is not None:
        # Annealing is for rough starts: it would lead away from this one.
        settings = replace(settings, init=neighbour, anneal=False)
    return completion.fit(data, settings, rng, holding)


def _at_level(settings: Settings, omega: float) -> Settings:
    """Make the settings of one level, with a checkpoint of its own."""
    path = settings.checkpoint
    if path is not None:
        check_target(path, "a checkpoint")
        path = Path(path).with_name(f"{Path(path).stem}-{omega!r}{Path(path).suffix}")
        check_begin(path, settings.resume)
    return replace(settings, omega=omega, checkpoint=path)


def _warn_of_limits(fits: list[Factorization], max_iter: int) -> None:
    # A fit that a callback ended earlier has done as it was told.
    open_ended = [fit for fit in fits if not fit.converged and fit.n_iter >= max_iter]
    if open_ended:
        names = ", ".join(f"{fit.omega:g}" for fit in open_ended)
        warn(
            f"{len(open_ended)} of {len(fits)} levels did not converge within max_iter={max_iter} "
            f"sweeps ({names}); raise max_iter or tol",
            ConvergenceWarning,
        )
