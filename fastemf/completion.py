"""`complete`: fit a low-rank matrix of ω-expectiles to the observed entries of a matrix."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from fastemf.drift import Fitted, fit_over_time
from fastemf.features.times import check_half_life
from fastemf.fitting import fit_data
from fastemf.models.factorization import Factorization
from fastemf.models.held_out import figures_of_tuning
from fastemf.solver.records import SweepRecord
from fastemf.solver.settings import (
    Checkpoint,
    Settings,
    Solver,
    as_checkpoint,
    as_rank,
    as_solver,
    as_validation,
)
from fastemf.sources.open_source import Data, hold_apart, open_source


def complete(
    R: Any,
    omega: float,
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
) -> Factorization:
    """Fit a low-rank matrix of ω-expectiles to the observed entries of a matrix.

    Minimizes ``Σ v |ω − 1(r < 0)| r² + λ (Σ n_i ‖x_i‖² + Σ n_j ‖y_j‖²)`` over ``M̂ = X Yᵀ``, where
    r is an observed value minus its fitted value, v its weight, and n_i, n_j are the numbers of
    observations of row i and column j. The factors X and Y are solved in turn, row by row.

    Parameters
    ----------
    R
        The observations, in one of these forms:

        - a scipy sparse matrix or array; every stored entry is observed, explicit zeros included;
        - a dense array; NaN marks a missing value, as does the mask of a masked array;
        - a tuple ``(rows, cols, values)`` of equally long arrays; values in intervals are a pair
          ``(lower, upper)`` of arrays;
        - a table of pandas, polars, pyarrow or any other library with the Arrow interface, see
          `rows`, `cols` and `values`;
        - a path, a glob, a list of paths or a folder of tables (``.csv``, ``.tsv`` and ``.jsonl``,
          also with ``.gz`` or ``.zst``; ``.parquet``), a table of a DuckDB file
          (``"calls.duckdb::log"``), or the result of `fastemf.sql`;
        - the path of a matrix (``.mtx``, ``.npz`` of scipy);
        - a `fastemf.store.Store` or its path, which is read block by block. The result is bitwise
          identical to that of the same data in memory.

        Repeated (row, column) pairs are separate observations. float32 data are fitted in
        float32, everything else in float64.
    omega
        Expectile level in (0, 1). 0.5 is least squares, a lower level fits typical values of
        right-skewed data, a higher level their tail. A level is not a quantile: omega = 0.95 is
        not the 95th percentile (see `complete_quantiles`).
    k
        Rank, from 1 to min(rows, columns), or 0 for a model of intercepts only. ``"auto"`` is 5,
        or min(rows, columns) if that is smaller; a tuned fit drops factors that do not help.
    rows, cols, values
        Columns of a table: row labels, column labels (integers, strings, dates, categories) and
        values. The methods of the fit then take labels. ``values=("lower", "upper")`` names the
        two ends of intervals that contain the values, such as the buckets of `histograms`. A
        missing end is infinite, and equal ends are an exact value. Intervals are fitted in float64,
        and neither stores nor clusters hold them. A pandas table without them is a matrix
        with labels, in which NaN is missing. Labels in a CSV file are integers if the whole column
        is written as integers (``007`` is not), otherwise strings.
    weights
        Positive weight of each observation: an array aligned with the triplets or with ``R.data``
        (CSR, CSC, COO), a sparse matrix with the same stored entries, an array of the shape of a
        dense R, or the name of a column of the table. A weight of 2 is equivalent to repeating the
        observation.
    time
        Time of each observation: the name of a column of the table (numbers or dates), or an array
        aligned with the triplets or with ``R.data`` (CSR, CSC, COO), or of the shape of a matrix;
        not with a store or a cluster. ``fit.drift`` then reports effective omega and loss in the
        latest tenth of the observations, of a second fit to the earlier ones, beside those in
        random folds.
    half_life
        Half-life of the weights of the observations: a number in the unit of `time` or, for dates,
        a `datetime.timedelta` or a duration such as ``"7d"``, ``"12h"``, ``"30min"``, ``"45s"`` or
        ``"2w"``. Weights are multiplied by ``2 ** (-age / half_life)``; the latest observation
        has the age 0. ``"auto"`` chooses the half-life on the latest tenth, or none, by five
        fits with a noise-adaptive ridge (or with the ridge given), and up to ten more if the
        data drift.
    censored
        Which values are censoring limits, for example because a call was aborted after 20 s.
        ``("right", 20.0)``: every value at or above 20.0 is a lower bound. ``("left", limit)``:
        every value at or below the limit is an upper bound. Alternatively one mark per
        observation, ``"right"`` (or True), ``"left"`` or empty (or False): an array aligned with
        the triplets or with ``R.data``, the name of a column of the table, or a dense or sparse
        matrix of the shape of R. A store or a cluster only takes a limit. Censored values are
        imputed during the fit, see Notes. Intervals need no marks: an infinite end is a limit.
    shape
        (rows, columns) for triplets. Defaults to the largest indices plus 1.
    reg
        Ridge λ. ``"auto"`` tunes the ridge and the weighting of noisy rows and columns on
        validation cells, which are included again in the final fit; with `intercepts` it also
        tunes their ridge and a constant that corrects the level of predictions for new cells.
        ``fit.tuning`` records the candidates and the loss of simple baselines. Above 2·10⁷
        observations it tunes on a random sample of 2·10⁷. ``"noise"`` is a noise-adaptive ridge
        in a single fit, which ``"auto"`` also uses for fewer than 400 observations. A number sets
        λ. 0 is the problem of the paper; it interpolates rows with fewer than k observations.
    intercepts
        Add ``mu + a_i + c_j`` to the model, fitted jointly under the same loss. This predicts much
        better where the means of rows and columns differ. The default is the model of the paper.
    init
        Start of the factors: ``"spectral"`` (SVD of the zero-filled matrix), ``"random"``, a pair
        (X, Y), or an earlier `Factorization`, possibly of fewer rows and columns or of another
        level. Rows and columns are matched by label where both have labels. With ``reg="auto"``,
        an earlier fit restricts the search to ridges within two steps of its own.
    tol
        Stop when the relative decrease of the objective in a sweep is below this value.
    max_iter
        Maximum number of sweeps.
    solver
        ``"auto"``, ``"exact"``, ``"cg"`` or a `Solver` with expert settings.
    validation
        Validation cells: a proportion of the observed cells in (0, 1), drawn at random, or entries
        in any form that `R` takes and of the same shape. They are not fitted. The fit ends after
        10 sweeps without a lower validation loss and returns the sweep with the lowest one
        (``validation_loss`` in ``fit.history``). `Validation` sets another patience.
    random_state
        Seed or numpy Generator for the validation cells and the start. The same seed gives bitwise
        identical results for any `n_jobs`.
    n_jobs
        Number of threads; -1 for all. On a cluster, the number per worker.
    client
        A `distributed.Client` (extra ``dask``) whose workers do the fit. `R` is then a store or its
        path, which all workers can read. The result is bitwise identical to that of a fit in
        memory, even if workers are lost. For tuning, the client loads all observations into its
        memory if there are at most 4·10⁶ (about 100 MB), and the tuning sample if there are more
        than 2·10⁷.
    store_path
        Folder, readable by all workers, in which to build the store if `R` is something else: a
        Dask DataFrame or any other source of `fastemf.store.build`.
    callback
        Function that is called with the `SweepRecord` of each sweep. A true return value stops the
        fit.
    progress
        Show a progress bar on standard error.
    checkpoint
        File that holds the state of the fit, or a `Checkpoint`, which can also resume a fit.

    Returns
    -------
    Factorization

    Raises
    ------
    fastemf.CheckpointError
        If the checkpoint is damaged, or of other data or settings. It is a `ValueError`.
    FileExistsError
        If the file of `checkpoint` exists and is not to be resumed.

    Warns
    -----
    ConvergenceWarning
        If the fit did not converge in `max_iter` sweeps, or if it ended because of rounding (a
        sweep that increases the objective is undone and ends the fit).
    UserWarning
        For rows or columns without observations and, with ``reg=0``, for those with fewer than k.

    Notes
    -----
    ``reg=0`` with ``Solver(momentum=False, anneal=False)`` is Algorithm 1 of Zhu, Niu, Kong and
    Li, "Expectile Matrix Factorization for Skewed Data Analysis" (AAAI 2017). Its theorems hold
    for measurements with the restricted isometry property, which a sample of entries does not
    have; for completion, recovery is an empirical result.

    Censored values are imputed as in Buckley and James (1979): by the fitted value plus the
    conditional expectation of the residual given the limit, under the Kaplan–Meier estimate of
    the residuals of cells with similar fitted values, in units of the noise of rows and columns.
    Values in intervals are replaced by the conditional mean within the interval, under Turnbull's
    estimate of these distributions, which are by groups of similar fitted values.
    Imputed values are updated a few times as the fit improves (``renewals``). This assumes
    that scaled residuals beyond a limit are distributed as those of other rows and columns, and
    that censoring depends on nothing but the limit. A row or column that is mostly censored is
    only bounded from one side. The distribution beyond the largest observed residual is unknown,
    so fits at high levels are biased towards the limit.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> typical = fastemf.complete(R, omega=0.1, k=2)
    >>> tail = fastemf.complete(R, omega=0.9, k=2)
    >>> bool(typical.predict(3, 7) < tail.predict(3, 7))
    True

    A table with labels:

    >>> import pyarrow as pa
    >>> log = pa.table({
    ...     "client": ["eu-7", "eu-7", "us-1"],
    ...     "service": ["search", "checkout", "search"],
    ...     "ms": [10.0, 20.0, 30.0],
    ... })
    >>> fit = fastemf.complete(log, 0.5, 1, reg=0, rows="client", cols="service", values="ms")
    >>> fit.predict(["us-1"], ["checkout"]).round(3).tolist()
    [60.0]
    """
    settings = Settings(
        omega=omega, **as_rank(k), reg=reg, intercepts=intercepts, init=init, tol=tol,
        max_iter=max_iter, solver=as_solver(solver), validation=as_validation(validation),
        random_state=random_state, n_jobs=n_jobs, callback=callback, progress=progress,
        checkpoint=as_checkpoint(checkpoint),
    )  # fmt: skip
    check_half_life(half_life, time)
    names = (rows, cols, values)
    reading = {"store_path": store_path, "progress": progress, "time": time}
    rng = settings.generator()

    def fit(data: Data, own: Settings) -> Fitted:
        model = fit_data(data, own, rng if own is settings else own.generator()).model
        return Fitted(model, figures_of_tuning(model.tuning))

    with open_source(R, weights, shape, names, client, n_jobs, censored, **reading) as source:
        data = hold_apart(source, settings.validation_data, rng, names, censored)
        model: Factorization = fit_over_time(fit, data, settings, half_life).model
        return model
