"""`complete_quantiles`: fit quantiles of every cell, such as p50, p95 and p99."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from fastemf.boosting.combination import Combination
from fastemf.boosting.coverage_report import CoverageReport
from fastemf.boosting.fit import BoostedFit, ItemTables, check_boosted_solver, fit_boosted
from fastemf.boosting.model_fit import OutOfFold
from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.boosting.out_of_fold import calibrate_groups, find_groups, report_out_of_fold
from fastemf.boosting.update_record import UpdateRecord
from fastemf.drift import Fitted, fit_over_time
from fastemf.features.times import check_half_life
from fastemf.models.held_out import report_held_out
from fastemf.models.quantiles import Quantiles
from fastemf.solver.records import SweepRecord
from fastemf.solver.settings import (
    Checkpoint,
    Settings,
    Solver,
    as_checkpoint,
    as_rank,
    as_validation,
)
from fastemf.sources.open_source import Data, hold_apart, open_source
from fastemf.support.validation import check_choice, check_quantiles
from fastemf.support.warn import ConvergenceWarning, UniqueWarnings

FIRST_LEVEL, *OTHER_LEVELS = (0.5, 0.1, 0.9)  # expectile levels of the fits


def complete_quantiles(
    R: Any,
    taus: Any,
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
    features: Any = None,
    row_features: Any = None,
    col_features: Any = None,
    groups: str | None = None,
    calibrate: str | None = None,
    reg: Any = "auto",
    intercepts: bool = True,
    init: Any = "spectral",
    tol: float = 1e-4,
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
) -> Quantiles:
    """Fit quantiles of every cell, such as the median and p95, that never cross.

    The quantiles are built from expectile fits in four steps:

    1. The cells are divided into five folds. Repeated observations of a cell stay together, as do
       the cells (i, j) and (j, i). For each fold, expectile models of the values at ω = 0.5, 0.1
       and 0.9, and one of their normal scores, are fitted to the other folds. All folds share one
       tuning.
    2. Each cell is described by the predictions of the fits that did not use it, the scale of their
       residuals, statistics of its row and of its column without its fold, and side features.
    3. For each quantile, a linear quantile regression with nonnegative coefficients is the start,
       and gradient-boosted trees correct it. Their number minimizes the out-of-fold loss. Cells
       whose row or column is unknown or has no observations have a start and trees of their own,
       trained on cells that are presented as such. Half of the excess or shortfall of the
       out-of-fold coverage is then removed by a shift, because step 4 removes about the rest.
    4. Predictions use the means of fits and statistics over the five folds. They are limited
       to the range of the data and sorted across the quantiles.

    `Quantiles.coverage` reports, from out-of-fold predictions, the coverage of each quantile with
    its confidence interval (overall, by decile of the prediction, in rows with many cells, and for
    new rows and columns), and its pinball loss next to baselines. The report holds on average, for
    cells that are exchangeable with those observed.

    Parameters
    ----------
    R
        The observations, in any form that `complete` takes.
    taus
        One or more quantiles in (0, 1): ``(0.5, 0.95, 0.99)`` for p50, p95 and p99. At least 20
        cells must be expected on the rarer side of each.
    k
        Rank of each fit, as in `complete`.
    rows, cols, values, weights, shape, client, store_path
        Describe the data, as in `complete`.
    time
        Time of each observation: the name of a column of the table (numbers or dates), or an array
        aligned with the triplets or with ``R.data`` (CSR, CSC, COO), or of the shape of a matrix;
        not with a store or a cluster. ``quantiles.drift`` then reports coverage and loss in the
        latest tenth of the observations, of a second fit to the earlier ones, beside those in
        random folds.
    half_life
        Half-life of the weights of the observations: a number in the unit of `time` or, for dates,
        a `datetime.timedelta` or a duration such as ``"7d"``, ``"12h"``, ``"30min"``, ``"45s"`` or
        ``"2w"``. Weights are multiplied by ``2 ** (-age / half_life)``; the latest observation
        has the age 0. ``"auto"`` chooses the half-life on the latest tenth, or none, by five
        fits of the normal scores, and up to ten more if the data drift.
    features
        Side features of the observations: for a table or a store, names of its columns; otherwise
        an (n, p) array, or a dict of arrays by name, in the order of the observations. Features,
        here and below, are numbers, booleans, dates, strings or categories; None, NaN and null are
        missing.
    row_features, col_features
        Side features of rows and of columns: with labels, a table (in memory, a file or SQL) or a
        dict of columns, one of which has the name and the content of the labels; without labels,
        an array with one row per row (or column) of the matrix, or a dict of arrays.
    censored
        As in `complete`. The expectile fits use imputed values, and the trees one draw for each
        censored value, from the residuals beyond its limit or within its interval. Beyond limits
        this extrapolates, and quantiles beyond a limit are usually too close to it: read them as
        "at least the limit". The coverage report only includes cells with quantiles within the
        limit; `CoverageReport.verifiable` is their proportion.
    groups
        Name of a categorical feature. The coverage report then has a line for each category with
        at least 20 cells; for the largest 100 if there are more.
    calibrate
        ``"groups"``: shift the predictions of each group with at least 500 out-of-fold cells, so
        that its out-of-fold coverage is that of the quantile.
    reg, max_iter, random_state, n_jobs, progress
        Apply to each fit, as in `complete`.
    intercepts
        As in `complete`, but True by default.
    init
        ``"spectral"``: a new fit. Otherwise an earlier model, of data that may have fewer rows and
        columns. Rows and columns are matched by label, or else by index. The fits start from those
        of the model, and ``reg="auto"`` keeps their ridges. The linear starts and the trees are
        kept if quantiles, side features and groups are the same, and if the coverage of the
        quantiles, with fits that have not seen the cells, has not moved: its confidence interval in
        cells that the trees have not seen must come within a fifth of min(τ, 1 − τ) of τ, and in
        all cells it must be as close to the range from τ to the coverage in the earlier data.
        Otherwise they are trained anew. `Quantiles.updated` states whether they were kept. If so,
        ``coverage`` is that of the earlier model, marked as not measured, because trees that have
        seen most of the data would look too good.
    tol
        As in `complete`, but larger by default, because predictions are means of five fits.
    solver
        As in `complete`. A `Solver` must have ``orthogonalize=False`` and
        ``reg_scaling="count"``.
    validation
        Validation cells, as in `complete`: a proportion, or entries. They are not fitted, and
        ``quantiles.validation`` reports coverage and loss on them beside the out-of-fold figures.
        They do not stop the sweeps or the trees, which are chosen by the folds, so the patience of
        a `Validation` has no effect. Side features of entries are columns of their table.
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
    Fitting needs LightGBM, the extra ``quantiles``; loaded models predict without it. Statistics of
    rows and columns use about a million observations at most, and trees about 250,000, sampled by a
    hash of their cells. A model holds 20 pairs of factors: 5 folds × (3 levels + normal scores).

    The coverage is an estimate without a finite-sample guarantee, because predictions average five
    fits. It tends to be slightly pessimistic: each out-of-fold prediction uses a single fit.

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

    A side feature of rows, which a prediction may replace:

    >>> ages = {"age": [20 + row % 50 for row in range(60)]}
    >>> quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), k=2, row_features=ages)
    >>> quantiles.predict(3, 7, row_features={"age": 33}).shape
    (2,)

    The data do not drift, as their times mean nothing:

    >>> time = list(range(R.nnz))
    >>> fastemf.complete_quantiles(R, (0.5, 0.9), k=2, time=time).drift.differs
    False

    A start from an earlier model:

    >>> again = fastemf.complete_quantiles(R, (0.5, 0.9), k=2, row_features=ages, init=quantiles)
    >>> again.updated.ridges_kept
    True
    """
    objectives = tuple(Objective(QUANTILE, tau) for tau in check_quantiles(taus))
    if not isinstance(init, Quantiles) and not (isinstance(init, str) and init == "spectral"):
        raise TypeError(f'init must be "spectral" or Quantiles, got {init!r}')
    settings = Settings(
        omega=FIRST_LEVEL, **as_rank(k), reg=reg, intercepts=intercepts, tol=tol,
        init=init, max_iter=max_iter, solver=check_boosted_solver(solver),
        random_state=random_state, n_jobs=n_jobs, callback=callback, progress=progress,
        checkpoint=as_checkpoint(checkpoint), validation=as_validation(validation),
    )  # fmt: skip
    check_half_life(half_life, time)
    if calibrate is not None:
        check_choice(calibrate, "calibrate", ("groups",))
        if groups is None:
            raise ValueError('groups must name a feature for calibrate="groups", got None')
    names = (rows, cols, values)
    side = ItemTables(row_features, col_features, groups)
    reading = {"store_path": store_path, "progress": progress, "features": features, "time": time}
    with (
        open_source(R, weights, shape, names, client, n_jobs, censored, **reading) as given,
        UniqueWarnings(leave_out=ConvergenceWarning),
    ):
        side_tables = side.read(given, names)

        def fit(data: Data, own: Settings) -> Fitted:
            found = fit_boosted(
                data, own, objectives, tuple(OTHER_LEVELS), side_tables,
                (groups, calibrate is not None),
            )  # fmt: skip
            return _make_quantiles(found, own.init, objectives, groups, calibrate)

        rng = settings.generator()
        data = hold_apart(given, settings.validation_data, rng, names, censored)
        model, folds = fit_over_time(fit, data, settings, half_life, by_scores=True)
    quantiles: Quantiles = model
    if data.held_out is not None:
        report = report_held_out(quantiles, data.held_out, folds)
        quantiles = replace(quantiles, validation=report)
    return quantiles


def _make_quantiles(
    fit: BoostedFit, init: Any, objectives: tuple[Objective, ...], groups: str | None,
    calibrate: str | None,
) -> Fitted:  # fmt: skip
    """Make the model of a fit, with the report of its coverage."""
    combination, observed = fit.combination, fit.observed
    coverage = _keep_reports(init, fit.update)
    if coverage is None:
        combination, observed, coverage = _report(fit, objectives, groups, calibrate)
    model = Quantiles(
        fit.fits, fit.labels, fit.marks, fit.normal, fit.features, combination, fit.update,
        coverage, groups,
    )  # fmt: skip
    return Fitted(model, fit.measure(objectives, observed))


def _report(
    fit: BoostedFit, objectives: tuple[Objective, ...], groups: str | None, calibrate: str | None
) -> tuple[Combination, OutOfFold, tuple[CoverageReport, ...]]:
    """Report the coverage of all quantiles, calibrated by group if required."""
    combination, observed, masks = fit.combination, fit.observed, {}
    if groups is not None:
        found = find_groups(fit.cells, fit.features, len(fit.fits), groups)
        masks = found.masks(observed.at)
        if calibrate is not None:
            combination, observed = calibrate_groups(
                fit.cells, observed, found, combination, fit.features
            )
    coverage = tuple(
        report_out_of_fold(fit.cells, t, one, observed, fit.cold, fit.censored, masks)
        for t, one in enumerate(objectives)
    )
    return combination, observed, coverage


def _keep_reports(init: Any, update: UpdateRecord | None) -> tuple[CoverageReport, ...] | None:
    """Return the reports of an earlier model whose trees are kept.

    The trees have seen most of the data, so that new reports would be too optimistic.
    """
    if update is None or not update.trees_kept:
        return None
    return tuple(replace(report, measured=False) for report in init.coverage)
