"""`complete`, which fits a low-rank matrix of ω-expectiles to partly observed entries."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fastemf.fit_plan import planned
from fastemf.model.factorization import Factorization
from fastemf.observations.source import Source
from fastemf.solver.axis import Axis
from fastemf.solver.checkpoint import checkpoint_of
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.fitting import alternate
from fastemf.solver.holding import Holding
from fastemf.solver.imputation import Censoring
from fastemf.solver.opening import Data, hold_apart, open_source
from fastemf.solver.records import SweepRecord
from fastemf.solver.settings import Settings
from fastemf.solver.training import training_levels
from fastemf.solver.weighting import plain
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_rank
from fastemf.support.warn import warn

__all__ = ["complete", "fit"]

FACTOR_COPIES = 3  # those at hand, those of the sweep before, and those being solved for


def complete(
    R: Any,
    omega: float,
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
) -> Factorization:
    """Fit a low-rank matrix to the observed entries of `R` under the expectile loss.

    Minimises ``Σ v |ω − 1(r < 0)| r² + λ (Σ n_i ‖x_i‖² + Σ n_j ‖y_j‖²)`` over
    ``M̂ = X Yᵀ``, where r = observed − fitted, by alternating solves for the rows of each factor.

    Parameters
    ----------
    R
        The observations: a scipy sparse matrix or array of any format (every
        stored entry is observed, zeros included; what is not stored is missing),
        a dense array (NaN is missing), a masked array, a tuple
        ``(rows, cols, values)``, a table (pandas, polars, pyarrow, or anything with
        ``__arrow_c_stream__``), the path of a file (.csv, .tsv, these with .gz or .zst,
        .jsonl, .parquet, .mtx, .npz of scipy), or a `fastemf.store.Store` or the path of one,
        which is read block by block; the result is bitwise identical to that of the same data
        in memory. Repeated (row, column) pairs are kept as separate observations. float32 data
        are computed in float32, all else in float64.
    omega
        Expectile level in (0, 1). Below 0.5: the typical value, which a long right tail
        moves less than the mean; 0.5: least squares; above: the tail. A level is not a
        quantile: omega = 0.95 is not the 95th percentile.
    k
        Rank, from 1 to min(rows, columns); or 0 with `intercepts`, which are then all there is.
        There is no default, as the right rank depends on the data; the shell has 5, of which a
        tuned fit uses what helps.
    rows, cols, values
        Names of a table's columns: labels of the row and of the column (integers, strings,
        dates, categories), and the value. The fit then speaks in labels. A pandas table
        without them is a matrix: index × columns, NaN for missing. Labels of a CSV file are
        strings unless all of the column are written as integers are (``007`` is not).
    weights
        Positive weight of each observation, in the form of `R`: an array aligned
        with the triplets or with ``R.data`` (CSR, CSC, COO), a sparse matrix with
        the same stored entries, an array of a dense R's shape, or the name of a table's
        column. Weight two is the observation twice.
    censored
        Which values are not what would have been measured, but limits it was beyond, as a call
        that gave up after 20 s took longer. ``("right", 20.0)`` says it of every value at or
        above 20.0, ``("left", limit)`` likewise of those at or below. Else one mark for each
        observation, ``"right"``, ``"left"`` or empty, where true means ``"right"``: an array
        aligned with the triplets or with ``R.data``, the name of a table's column, or a matrix of
        R's shape, dense or sparse. Such values are replaced, on the way, by what the fit and the
        residuals of all others let expect beyond them; see Notes. A store or a cluster takes a
        limit only.
    shape
        (rows, columns) for triplets; the default is the largest index + 1.
    reg
        Ridge λ. ``"auto"`` tunes it, on cells that are set aside and fitted again at the end:
        the ridge, how much noisy rows and columns count and, with `intercepts`, the ridge of
        these and a constant that makes new cells have the level asked for; ``fit.tuning`` says
        what was tried and how it compares with simpler predictions. ``"noise"`` follows the
        size of the residuals in one fit, as ``"auto"`` does where there are fewer than 400
        observations: noisy data are shrunk, noiseless ones recovered exactly. More than 2·10⁷
        observations are tuned on a sample of that many, drawn by cell, and λ is then taken over
        relative to the noise; the fit sees all. A number sets λ.
        0 is the paper's problem: rows with fewer than k observations are then interpolated.
    reg_scaling
        ``"count"``: a row's ridge is λ times its number of observations (summed
        weights); ``"plain"``: λ.
    intercepts
        Add ``mu + a_i + c_j``, fitted jointly under the same loss. For data whose
        rows and columns differ in level, this predicts far better. The default is the paper's
        model, a product of factors; what is there to predict, `complete_quantiles`, the pair
        regressors and the shell, has them on.
    init
        ``"spectral"`` (SVD of the zero-filled matrix), ``"random"``, a pair (X, Y),
        or an earlier `Factorization`, whose matrix may be smaller: new rows and
        columns then start afresh. Where both have labels, rows and columns go by them. One of
        another level, with intercepts, starts as much higher or lower as that level of all values
        is. With ``reg="auto"`` it is where the fit of all cells starts, not those before; but those
        try only ridges within two steps of the earlier one's, relative to the noise.
    tol
        Stop when a sweep lowers the objective by less than this, relatively.
    max_iter
        The largest number of sweeps.
    momentum
        Extrapolate between sweeps; undone whenever it would raise the objective.
    anneal
        With ``reg=0``, start with a small ridge that falls to 0 in stages (24 sweeps);
        it recovers sparser noiseless data.
    orthogonalize
        Orthonormalise the factors within each sweep as in the paper's proofs; needs
        ``reg=0`` and no intercepts, and turns momentum and annealing off.
    solver
        How a row is solved given the other factor. ``"exact"``: its minimum, by
        Newton's method. ``"cg"``: a few steps of conjugate gradients towards it, which
        lower the objective too but cost k instead of k² per observation; needs a ridge.
        ``"auto"``: cg from k = 64 on where there is a ridge, else exact; large fits begin with
        sweeps in float32 in which a row takes one Newton step, before the others.
    validation
        Entries to hold out and judge the sweeps by: a share in (0, 1) of the cells
        observed, drawn at random (repeated observations of a cell together), or entries in
        any form `R` takes and of its shape, which count equally. They are not fitted: a row
        that occurs only there is unseen. Each record's ``validation_loss`` is their expectile
        loss, and the fit returned is that of the sweep where this was lowest.
    patience
        With `validation`, stop after this many sweeps without a lower validation loss; the
        default is 10.
    random_state
        Seed or numpy Generator for the held-out share, the cells that ``reg="auto"`` sets
        aside and the start. The same seed gives bitwise identical results, for any n_jobs.
    n_jobs
        Threads; -1 for all. On a cluster: of each worker, at most those Dask gave it.
    client
        A `distributed.Client` (the extra ``dask``), whose workers then do the fit; the result
        is bitwise identical to that of a fit in memory, whatever workers are lost on the way.
        Only a tuning asks for data to come here: up to 4,000,000 observations all of them (some
        100 MB), since it asks hundreds of times; of more than 20,000,000 a sample of that many.
        `R` is a store, or its path, or a list of Parquet or CSV files, in folders that all
        workers see, or a Dask DataFrame. Columns of files and frames hold labels, or positions
        where `shape` is given.
    callback
        Called with each sweep's `SweepRecord`; a true return value stops the fit.
    progress
        Show a progress bar on standard error.
    checkpoint
        File to keep the state of the fit in, written atomically. It stays when the fit is done.
        Of a tuning it has the candidates that were judged, and at its end what was chosen.
    checkpoint_every
        Sweeps between two writings of it; a tuning is written every few seconds, and at its end.
    resume
        Go on from `checkpoint`, to a result that is bitwise identical to that of a fit without
        interruption; where the file does not exist yet, begin. Data and settings must be those
        it was made with, but for `max_iter`, `n_jobs`, `callback` and `progress`.

    Returns
    -------
    Factorization

    Raises
    ------
    fastemf.CheckpointError
        A `ValueError`: the checkpoint is damaged, or of other data or settings.
    FileExistsError
        `checkpoint` exists and ``resume=False``.

    Warns
    -----
    ConvergenceWarning
        When `max_iter` sweeps neither reached `tol` nor exhausted `patience`, or when rounding
        made a sweep raise the objective, which was then undone and ended the fit.
    UserWarning
        For rows or columns without observations, and with ``reg=0`` for those with
        fewer than k; once each, with their number.

    Notes
    -----
    ``reg=0, momentum=False, anneal=False`` is Algorithm 1 of Zhu, Niu, Kong and Li,
    "Expectile Matrix Factorization for Skewed Data Analysis" (AAAI 2017), to the
    letter. Its theorems are about measurements with the restricted isometry
    property, which sampling single entries does not have: for completion, recovery
    is an experimental fact.

    Censored values are replaced as Buckley and James (1979) do: by the fit plus the mean residual
    beyond the limit under the Kaplan–Meier estimate of the residuals of cells with like fitted
    values, in units of the noise of rows and columns, a few times as the fit improves
    (``renewals`` of its history). This assumes that residuals beyond a limit are like those of
    other rows and columns, in that unit, and that what is censored does not depend on more than
    the limit. Of a row or column most of which is censored hardly more can be known than that it
    lies beyond; and what lies further out than all residuals that were observed remains unknown
    anywhere, so high levels stay too low.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> typical = fastemf.complete(R, omega=0.1, k=2)
    >>> tail = fastemf.complete(R, omega=0.9, k=2)
    >>> bool(typical.predict(3, 7) < tail.predict(3, 7))
    True

    A log with labels, from any library of tables:

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
        omega=omega, k=k, reg=reg, reg_scaling=reg_scaling, intercepts=intercepts, init=init,
        tol=tol, max_iter=max_iter, momentum=momentum, anneal=anneal, orthogonalize=orthogonalize,
        solver=solver, validation=validation, patience=patience, random_state=random_state,
        n_jobs=n_jobs, callback=callback, progress=progress, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every, resume=resume,
    )  # fmt: skip
    names = (rows, cols, values)
    with open_source(R, weights, shape, names, client, n_jobs, censored) as source:
        rng = settings.generator()
        return fit(hold_apart(source, validation, rng, names, censored), settings, rng)


def fit(
    data: Data,
    settings: Settings,
    rng: np.random.Generator,
    holding: Holding | None = None,
    *,
    keeps_levels: bool = True,
) -> Factorization:
    """Fit data that have been opened: tune, find a start, alternate, and make the model.

    With `holding` the first fit it is given to tunes, and the others, at other levels, do not.
    One that is judged and dropped need not keep levels of its data to be compared with.
    """
    observations = data.fitted
    omega, k, intercepts = settings.omega, settings.k, settings.intercepts
    check_rank(k, observations.shape, minimum=0)
    check_memory(
        FACTOR_COPIES * sum(observations.shape) * (k + intercepts) * observations.dtype.itemsize,
        f"a fit of rank {k} to {observations.shape[0]} rows and {observations.shape[1]} columns",
        "lower k, or number rows and columns from 0 without gaps",
    )
    _warn_of_gaps(observations, k, interpolates=settings.reg == 0)
    mu = observations.expectile(omega) if intercepts else None
    engine = CompletionEngine(
        observations,
        omega,
        mu=mu,
        weighting=None if settings.reg_scaling == "count" else plain(observations.shape),
        n_threads=settings.n_threads,
        steps=settings.steps,
    )
    judge = None
    if data.held_out is not None:
        judge = CompletionEngine(
            data.held_out, omega, mu=mu, scale=engine.spread, n_threads=settings.n_threads
        )
    checkpoint = checkpoint_of(settings, lambda: data.digests, data.seed)
    near, censoring = engine.on(data.at_hand), None
    if data.is_censored:
        censoring = Censoring(engine, near, data.cap, data.marks)
        first = censoring.first(settings)
        engine, near = censoring.engine(first), censoring.near(first)
        judge = judge and censoring.judge(judge, first)
    plan = planned(data, engine, near, judge, settings, rng, holding or Holding(), checkpoint)
    renew = None if censoring is None else censoring.renewing(plan.engine)
    end = alternate(
        plan.engine, plan.start, plan.schedule, settings, checkpoint, judge, renew,
        plan.early,
    )  # fmt: skip
    imputation = None
    if censoring is not None:
        last = end.values_of or first
        engine, imputation = censoring.engine(last), censoring.imputation(last)
        plan = plan.with_values(engine, censoring.near(last))
    shift, noise, levels = plan.remains(end, settings)
    unseen = [np.flatnonzero(side.mass == 0) for side in (observations.by_row, observations.by_col)]
    labels = (observations.row_labels, observations.col_labels)
    rows, cols = (
        replace(
            Axis.split(factor, k, labels[axis], unseen[axis]),
            noise=noise[axis],
            levels=levels[axis],
        )
        for axis, factor in enumerate((end.X, end.Y))
    )
    training = None
    if keeps_levels:
        training = training_levels(engine, plan.intercept_ridge, settings.n_threads)
    return Factorization(
        rows=rows,
        cols=cols,
        omega=omega,
        mu=0.0 if mu is None else mu,
        reg=end.ridge.factors,
        reg_scaling=settings.reg_scaling,
        intercept_reg=end.ridge.intercepts if intercepts else 0.0,
        scale=engine.spread,
        converged=end.converged,
        history=end.history,
        shift=shift,
        family=plan.family,
        tuning=plan.tuning,
        training=training,
        value_name=data.value_name,
        imputation=imputation,
    )


def _warn_of_gaps(observations: Source, k: int, *, interpolates: bool) -> None:
    sides = (observations.by_row, observations.by_col)
    counts = [np.diff(side.indptr) for side in sides]
    empty = [int(np.count_nonzero(count == 0)) for count in counts]
    if any(empty):
        warn(
            f"{empty[0]} rows and {empty[1]} columns have no observations; their factors are "
            "zero (see unseen_rows and unseen_cols of the result)"
        )
    short = [int(np.count_nonzero((count > 0) & (count < k))) for count in counts]
    if interpolates and any(short):
        warn(
            f"{short[0]} rows and {short[1]} columns have fewer than k={k} observations; with "
            "reg=0 they are interpolated exactly (minimum norm) and predict poorly: use "
            'reg="auto" or a smaller k'
        )
