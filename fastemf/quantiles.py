"""`complete_quantiles`, which answers "how bad does it get": p50, p95, p99 of every cell."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.cross_fitting import FIRST_LEVEL, CrossFit
from fastemf.model.factorization import Factorization
from fastemf.model.quantiles import Quantiles
from fastemf.observations.transformed import transformed
from fastemf.solver.draws import drawn_beyond
from fastemf.solver.imputation import codes_of
from fastemf.solver.opening import Data, hold_apart, open_source
from fastemf.solver.records import SweepRecord
from fastemf.solver.sampling import FOLDS
from fastemf.solver.settings import Settings
from fastemf.stacking.items import items_out_of_fold
from fastemf.stacking.limits import Limits
from fastemf.stacking.normal_scores import NormalScores
from fastemf.stacking.promise import FEWEST_BEYOND, Promise, Simple, promised
from fastemf.stacking.sampled import Sampled, sampled
from fastemf.stacking.shrunk_quantile import quantile
from fastemf.stacking.stack import Stack, Stacked, stacked
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_quantiles, check_rank
from fastemf.support.warn import ConvergenceWarning, PassedOnOnce, warn

__all__ = ["complete_quantiles"]

LEVELS = (0.1, 0.9)  # beside the first, whatever the quantiles
OUTER = 0.02  # of the levels 0.02 and 0.98, for quantiles beyond 0.1 and 0.9
FIRST_OUTER = 0.1
MANY = 20_000  # observations


def complete_quantiles(
    R: Any,
    taus: Any,
    k: int,
    *,
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    weights: Any = None,
    censored: Any = None,
    shape: tuple[int, int] | None = None,
    reg: Any = "auto",
    intercepts: bool = True,
    tol: float = 1e-4,
    max_iter: int = 100,
    momentum: bool = True,
    solver: str = "auto",
    random_state: Any = 0,
    n_jobs: int | None = -1,
    client: Any = None,
    callback: Callable[[SweepRecord], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
) -> Quantiles:
    """Fit quantiles of every cell: what a value usually is, and how bad it gets.

    p95 of a cell is what 95 % of the values of cells like it are at or below. It is built from
    expectile fits, which are its ingredients and not the answer:

    1. The cells are divided into five folds, repeated and mirrored ones together, and expectile
       fits at a few levels, of the values and of their normal scores, are made without each
       fold; they are tuned once.
    2. Each cell is predicted by the fits that have not seen it, alone and with quantiles of what
       the location leaves in its row and column, shrunk where these have few cells.
    3. A regression under the pinball loss, with coefficients that are not negative, makes the
       quantile of these columns, and a small table corrects it where its size calls for it.
    4. Predictions take the mean of the five folds' fits, are kept in the range of the data, and
       never cross.

    What the quantiles promise (`Quantiles.promises`) was measured on cells that had no part in
    them: the share at or below, with its confidence interval, overall, by size of the prediction,
    and in rows with many cells, and the pinball loss beside those of simpler predictions. It holds
    for cells like those observed, drawn at random from them, and on average.

    Parameters
    ----------
    R
        The observations, in any form that `complete` takes.
    taus
        The shares wanted at or below, in (0, 1): ``(0.5, 0.95, 0.99)`` for p50, p95 and p99. At
        least 20 cells must lie beyond each.
    k
        Rank of each fit; 0 as in `complete`.
    rows, cols, values, weights, censored, shape, client
        As in `complete`. Weight two is the observation twice. Each censored value is replaced
        once, by one that is drawn from the residuals beyond its limit. That extrapolates, and
        quantiles that lie beyond a limit are mostly too near to it: read them as "at least the
        limit". What is promised is about the cells whose quantile lies short of it, which their
        values tell without any assumption, and `Promise.checked` is the share of these.
    reg
        Ridge of the fits, as in `complete`; ``"auto"`` tunes one level and the normal scores.
    intercepts
        As in `complete`, but the default is to have them: quantiles are there to predict.
    tol
        As in `complete`, for each fit; means of five fits need no finer one.
    max_iter, momentum, solver, n_jobs, progress
        As in `complete`, for each fit.
    random_state
        Seed or numpy Generator, for the folds and the start.
    callback
        Called with each sweep's `SweepRecord`, fit after fit; a true return value ends the
        sweeps of that fit.
    checkpoint
        File to keep the state of the fits in: one for each, whose name is added to the one given,
        such as ``state-values-0.9-3.npz`` for ``state.npz``, the level 0.9 and the fold 3. Those
        of the first fits of values and of scores keep the tuning too. They stay when all is done.
    checkpoint_every
        Sweeps between two writings of one.
    resume
        Go on from the files of `checkpoint`, to bitwise identical quantiles; what was tuned, and
        fits that were done, are not made again.

    Returns
    -------
    Quantiles

    Raises
    ------
    ValueError
        Also where fewer than 20 cells lie beyond a quantile; the message says which are possible.
    fastemf.CheckpointError, FileExistsError
        As in `complete`.

    Warns
    -----
    ConvergenceWarning
        Once, with the number of fits that did not reach `tol`.
    UserWarning
        For rows or columns without observations.

    Notes
    -----
    The statistics beyond the fits are of at most a million observations, by a hash of their
    cells. A model holds some 25 pairs of factors: 5 folds × (the levels + the normal scores).

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
    >>> quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), k=2)
    >>> usual, bad = quantiles.predict(3, 7)
    >>> bool(usual <= bad)
    True
    >>> promise = quantiles.promises[1]
    >>> promise.interval[0] <= promise.coverage <= promise.interval[1]
    True
    """
    wanted = check_quantiles(taus)
    settings = Settings(
        omega=FIRST_LEVEL, k=k, reg=reg, intercepts=intercepts, tol=tol, max_iter=max_iter,
        momentum=momentum, solver=solver, random_state=random_state, n_jobs=n_jobs,
        callback=callback, progress=progress, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every, resume=resume,
    )  # fmt: skip
    names = (rows, cols, values)
    with (
        open_source(R, weights, shape, names, client, n_jobs, censored) as given,
        PassedOnOnce(leave_out=ConvergenceWarning),
    ):
        check_rank(settings.k, given.shape, minimum=0)
        data = hold_apart(given, None, settings.generator(), names, censored)
        source, imputation = drawn_beyond(data, settings)
        cells = sampled(source, data.marks)
        limits = _limits(data, cells)
        _check_enough(cells, wanted)
        levels = _levels(wanted)
        _check_memory(source.shape, settings, (len(levels) + 2) * FOLDS)
        normal = NormalScores.of(cells.values, cells.weights)
        scores = CrossFit(
            transformed(source, normal.of_values), data.marks, settings, "scores",
            lambda: data.digests,
        )  # fmt: skip
        of_values = CrossFit(source, data.marks, settings, "values", lambda: data.digests)
        score_fits, score_left = scores.location(cells, normal.of_values(cells.values))
        location_fits, left = of_values.location(cells, cells.values)
        level_fits, predicted = [], []
        for omega in levels:
            fits, column = of_values.level(omega, cells)
            level_fits.append(tuple(fits))
            predicted.append(column)
        training = of_values.training()
        labels = source.row_labels, source.col_labels
    items, columns = items_out_of_fold(cells, wanted, left, score_left, normal)
    parts, promises = [], []
    for tau, own in zip(wanted, columns, strict=True):
        together = np.stack([*own, *predicted])
        found = stacked(together, cells.values, tau, cells.weights)
        parts.append(found)
        promises.append(_promise(cells, tau, together, found, limits))
    location_fits[0] = replace(
        location_fits[0], value_name=data.value_name, training=training,
        imputation=imputation,
    )  # fmt: skip
    every = (tuple(location_fits), *level_fits, tuple(score_fits))
    _warn_of_limits(every, max_iter)
    _warn_of_gaps(every[0][0])
    return Quantiles(
        fits=every,
        labels=labels,
        normal=normal,
        items=items,
        stack=Stack(
            wanted, tuple(parts), float(cells.values.min()), float(cells.values.max())
        ),
        promises=tuple(promises),
    )  # fmt: skip


def _levels(taus: tuple[float, ...]) -> list[float]:
    """List the levels to fit beside the first: further out where quantiles are."""
    high = [1 - OUTER] if max(taus) > 1 - FIRST_OUTER else []
    low = [OUTER] if min(taus) < FIRST_OUTER else []
    return [*low, *LEVELS, *high]


def _check_enough(cells: Sampled, taus: tuple[float, ...]) -> None:
    """Refuse quantiles beyond which there are too few cells to say anything."""
    for tau in taus:
        beyond = cells.independent * min(tau, 1 - tau)
        if beyond < FEWEST_BEYOND:
            share = FEWEST_BEYOND / cells.independent
            possible = (
                f"from {share:.4g} to {1 - share:.4g} would be possible"
                if share < 0.5
                else "none would be possible"
            )
            raise ValueError(
                f"taus must leave at least {FEWEST_BEYOND} cells on the rarer side of each, and "
                f"{tau!r} leaves {beyond:.1f} of {cells.independent:.0f}; {possible}"
            )


def _check_memory(shape: tuple[int, int], settings: Settings, fits: int) -> None:
    width = settings.k + settings.intercepts + 1
    check_memory(
        2 * fits * sum(shape) * width * 8,
        f"{fits} fits of rank {settings.k} to {shape[0]} rows and {shape[1]} columns",
        "lower k, or number rows and columns from 0 without gaps",
    )


def _limits(data: Data, cells: Sampled) -> Limits | None:
    """Return what was recorded of the cells, where some of it is censored."""
    if not data.is_censored:
        return None
    given, codes = (
        sampled(source, data.marks).values
        for source in (data.fitted, codes_of(data.fitted, data.cap))
    )
    return Limits(given, codes.astype(np.int8), cells.values)


def _promise(
    cells: Sampled, tau: float, columns: NDArray[np.float64], found: Stacked, limits: Limits | None
) -> Promise:
    """Measure a quantile on each fold, with a regression on the others.

    A dozen coefficients cannot flatter themselves on many cells: these are then held, and only
    intercept and table are those of the others.
    """
    held = found.regression if cells.values.size > MANY else None
    predicted = np.empty(cells.values.size)
    low, high = float(cells.values.min()), float(cells.values.max())
    constant = np.empty(cells.values.size)
    for fold in range(FOLDS):
        out = cells.folds == fold
        rest = cells.where(~out)
        part = stacked(columns[:, ~out], rest.values, tau, rest.weights, held)
        predicted[out] = np.clip(part.at(columns[:, out]), low, high)
        constant[out] = quantile(rest.values, tau, rest.weights)
    _, column, row_column = columns[:3]
    return promised(cells, tau, predicted, Simple(constant, column, row_column), limits)


def _warn_of_limits(fits: tuple[tuple[Factorization, ...], ...], max_iter: int) -> None:
    every = [fit for level in fits for fit in level]
    limited = sum(not fit.converged for fit in every)
    if limited:
        warn(
            f"{limited} of {len(every)} fits did not converge within max_iter={max_iter} sweeps; "
            "raise max_iter or tol",
            ConvergenceWarning,
        )


def _warn_of_gaps(fit: Factorization) -> None:
    if fit.unseen_rows.size or fit.unseen_cols.size:
        warn(
            f"{fit.unseen_rows.size} rows and {fit.unseen_cols.size} columns have no observations; "
            "their quantiles are those of unknown ones"
        )
