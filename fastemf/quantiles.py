"""`complete_quantiles`: fit quantiles of every cell, such as p50, p95 and p99."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fastemf.censoring.coverage import CensoredCoverage
from fastemf.censoring.draws import draw_censored
from fastemf.censoring.imputation import codes_as_values
from fastemf.models.factorization import Factorization
from fastemf.models.quantiles import Quantiles
from fastemf.quantile_model.coverage_report import (
    FEWEST_BEYOND,
    CoverageReport,
    baseline_quantiles,
    report_coverage,
)
from fastemf.quantile_model.cross_fitting import FIRST_LEVEL, CrossFit
from fastemf.quantile_model.item_features import fit_item_features
from fastemf.quantile_model.normal_scores import NormalScores
from fastemf.quantile_model.observed_cells import ObservedCells, sample_cells
from fastemf.quantile_model.shrunk_quantile import quantile
from fastemf.quantile_model.stack import QuantileRegression, Stack, fit_quantile_regression
from fastemf.solver.records import SweepRecord
from fastemf.solver.settings import Checkpoint, Settings, Solver, as_checkpoint, as_solver
from fastemf.sources.cell_sample import FOLDS
from fastemf.sources.mapped import map_values
from fastemf.sources.open_source import Data, hold_apart, open_source
from fastemf.support.arrays import Floats
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_quantiles, check_rank
from fastemf.support.warn import ConvergenceWarning, UniqueWarnings, warn

LEVELS = (0.1, 0.9)  # fitted in addition to the first level, for all quantiles
OUTER = 0.02  # levels 0.02 and 0.98 are added for quantiles below 0.1 and above 0.9
FIRST_OUTER = 0.1
MANY = 20_000  # observations from which coefficients are not fitted again for each fold


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
    solver: str | Solver = "auto",
    random_state: Any = 0,
    n_jobs: int | None = -1,
    client: Any = None,
    store_path: Any = None,
    callback: Callable[[SweepRecord], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
) -> Quantiles:
    """Fit quantiles of every cell, such as the median and p95, that never cross.

    The quantiles are built from expectile fits in four steps:

    1. The cells are divided into five folds. Repeated observations of a cell stay together, as do
       the cells (i, j) and (j, i). For each fold, expectile models of the values at a few levels,
       and one of their normal scores, are fitted to the other folds. All folds share one tuning.
    2. Each cell is predicted by the fits that did not use it. Further features are quantiles of
       the residuals in its row and column, shrunk where these have few cells.
    3. A quantile regression with nonnegative coefficients combines these features into the
       quantile, and a small correction table adjusts it by the size of the prediction.
    4. Predictions use the mean of the fits of the five folds. They are clipped to the range of the
       data and sorted across the quantiles.

    `Quantiles.coverage` reports, from out-of-fold predictions, the coverage of each quantile with
    its confidence interval (overall, by decile of the prediction, and in rows with many cells), and
    its pinball loss next to baselines. The report holds on average, for cells drawn at random from
    those observed.

    Parameters
    ----------
    R
        The observations, in any form that `complete` takes.
    taus
        One or more quantiles in (0, 1): ``(0.5, 0.95, 0.99)`` for p50, p95 and p99. At least 20
        cells must be expected on the rarer side of each.
    k
        Rank of each fit.
    rows, cols, values, weights, shape, client, store_path
        Describe the data, as in `complete`.
    censored
        As in `complete`. Each censored value is imputed once by a draw from the residuals beyond
        its limit. This extrapolates, and quantiles beyond a limit are usually too close to it: read
        them as "at least the limit". The coverage report only includes cells with quantiles within
        the limit; `CoverageReport.verifiable` is their proportion.
    reg, max_iter, random_state, n_jobs, progress
        Apply to each fit, as in `complete`.
    intercepts
        As in `complete`, but True by default.
    tol
        As in `complete`, but larger by default, because predictions are means of five fits.
    solver
        As in `complete`. A `Solver` must have ``orthogonalize=False`` and
        ``reg_scaling="count"``.
    callback
        Function that is called with the `SweepRecord` of each sweep, fit by fit. A true return
        value ends the sweeps of the fit.
    checkpoint
        As in `complete`. There is one file per fit, such as ``state-values-0.9-3.npz`` for
        ``state.npz``, the level 0.9 and fold 3. Resuming skips fits that are done.

    Returns
    -------
    Quantiles

    Raises
    ------
    ValueError
        If fewer than 20 cells are expected on the rarer side of a quantile; the message states
        which quantiles are possible.
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
    The regression uses at most a million observations, sampled by a hash of their cells. A model
    holds about 25 pairs of factors: 5 folds × (levels + normal scores).

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
    >>> quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), k=2)
    >>> median, p90 = quantiles.predict(3, 7)
    >>> bool(median <= p90)
    True
    >>> report = quantiles.coverage[1]
    >>> report.interval[0] <= report.coverage <= report.interval[1]
    True
    """
    wanted = check_quantiles(taus)
    settings = Settings(
        omega=FIRST_LEVEL, k=k, reg=reg, intercepts=intercepts, tol=tol, max_iter=max_iter,
        solver=_check_solver(solver), random_state=random_state, n_jobs=n_jobs,
        callback=callback, progress=progress, checkpoint=as_checkpoint(checkpoint),
    )  # fmt: skip
    names = (rows, cols, values)
    reading = {"store_path": store_path, "progress": progress}
    with (
        open_source(R, weights, shape, names, client, n_jobs, censored, **reading) as given,
        UniqueWarnings(leave_out=ConvergenceWarning),
    ):
        check_rank(settings.k, given.shape, minimum=0)
        data = hold_apart(given, None, settings.generator(), names, censored)
        source, imputation = draw_censored(data, settings)
        cells = sample_cells(source, data.marks)
        censored_cells = _censored_cells(data, cells)
        _check_enough(cells, wanted)
        levels = _levels(wanted)
        _check_memory(source.shape, settings, (len(levels) + 2) * FOLDS)
        normal = NormalScores.fit(cells.values, cells.weights)
        of_scores = CrossFit(
            map_values(source, normal.to_scores), data.marks, settings, "scores",
            lambda: data.digests,
        )  # fmt: skip
        of_values = CrossFit(source, data.marks, settings, "values", lambda: data.digests)
        score_fits, score_residuals = of_scores.location(cells, normal.to_scores(cells.values))
        location_fits, residuals = of_values.location(cells, cells.values)
        level_fits, predicted = [], []
        for omega in levels:
            fits, out_of_fold = of_values.level(omega, cells)
            level_fits.append(tuple(fits))
            predicted.append(out_of_fold)
        training = of_values.training()
        labels = source.row_labels, source.col_labels
    items, item_features = fit_item_features(cells, wanted, residuals, score_residuals, normal)
    regressions, reports = [], []
    for tau, own in zip(wanted, item_features, strict=True):
        features = np.stack([*own, *predicted])
        regression = fit_quantile_regression(features, cells.values, tau, cells.weights)
        regressions.append(regression)
        reports.append(_report_out_of_fold(cells, tau, features, regression, censored_cells))
    location_fits[0] = replace(
        location_fits[0], value_name=data.value_name, training=training, imputation=imputation
    )
    every = (tuple(location_fits), *level_fits, tuple(score_fits))
    _warn_of_limits(every, max_iter)
    _warn_of_gaps(every[0][0])
    low, high = float(cells.values.min()), float(cells.values.max())
    stack = Stack(wanted, tuple(regressions), low, high)
    return Quantiles(every, labels, normal, items, stack, tuple(reports))


def _check_solver(solver: str | Solver) -> Solver:
    solver = as_solver(solver)
    if solver.orthogonalize or solver.reg_scaling != "count":
        raise ValueError(
            "solver must have orthogonalize=False and reg_scaling='count' for quantiles, got "
            f"{solver}"
        )
    return solver


def _levels(taus: tuple[float, ...]) -> list[float]:
    """List the expectile levels to fit in addition to the first."""
    high = [1 - OUTER] if max(taus) > 1 - FIRST_OUTER else []
    low = [OUTER] if min(taus) < FIRST_OUTER else []
    return [*low, *LEVELS, *high]


def _check_enough(cells: ObservedCells, taus: tuple[float, ...]) -> None:
    """Refuse quantiles with too few cells beyond them."""
    for tau in taus:
        beyond = cells.effective_size * min(tau, 1 - tau)
        if beyond < FEWEST_BEYOND:
            least = FEWEST_BEYOND / cells.effective_size
            possible = (
                f"quantiles from {least:.4g} to {1 - least:.4g} are possible"
                if least < 0.5
                else "there are too few cells for any quantile"
            )
            raise ValueError(
                f"taus must have at least {FEWEST_BEYOND} cells on the rarer side of each quantile,"
                f" got {tau!r} with {beyond:.1f} of {cells.effective_size:.0f} cells; {possible}"
            )


def _check_memory(shape: tuple[int, int], settings: Settings, fits: int) -> None:
    width = settings.k + settings.intercepts + 1
    check_memory(
        2 * fits * sum(shape) * width * 8,
        f"{fits} fits of rank {settings.k} to {shape[0]} rows and {shape[1]} columns",
        "lower k, or number rows and columns from 0 without gaps",
    )


def _censored_cells(data: Data, cells: ObservedCells) -> CensoredCoverage | None:
    """Return the recorded values and censoring directions of the cells, if data are censored."""
    if not data.is_censored:
        return None
    recorded, codes = (
        sample_cells(source, data.marks).values
        for source in (data.fitted, codes_as_values(data.fitted, data.limit))
    )
    return CensoredCoverage(recorded, codes.astype(np.int8), cells.values)


def _report_out_of_fold(
    cells: ObservedCells,
    tau: float,
    features: Floats,
    regression: QuantileRegression,
    censored: CensoredCoverage | None,
) -> CoverageReport:
    """Report the coverage of each fold, with a regression fitted to the other folds.

    With many cells a dozen coefficients cannot overfit. They are then fixed, and only the intercept
    and the correction table are fitted without the fold.
    """
    fixed = regression.regression if cells.values.size > MANY else None
    predicted = np.empty(cells.values.size)
    low, high = float(cells.values.min()), float(cells.values.max())
    constant = np.empty(cells.values.size)
    for fold in range(FOLDS):
        out = cells.folds == fold
        rest = cells.select(~out)
        part = fit_quantile_regression(features[:, ~out], rest.values, tau, rest.weights, fixed)
        predicted[out] = np.clip(part.predict(features[:, out]), low, high)
        constant[out] = quantile(rest.values, tau, rest.weights)
    _, column, row_column = features[:3]
    baselines = baseline_quantiles(constant, column, row_column)
    return report_coverage(cells, tau, predicted, baselines, censored)


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
            "their quantiles are those of unknown rows and columns"
        )
