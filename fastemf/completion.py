"""`complete`: a low-rank ω-expectile fit of a partly observed matrix, in one call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.threads import count_threads
from fastemf.model.factorization import Factorization
from fastemf.observations.hold_out import hold_out
from fastemf.observations.memory import Source
from fastemf.solver.axis import Axis
from fastemf.solver.checkpoint import Checkpoint
from fastemf.solver.fitting import alternate
from fastemf.solver.half_sweep import CompletionEngine
from fastemf.solver.opening import source_of
from fastemf.solver.records import SweepRecord
from fastemf.solver.ridge import AnnealedRidge, FixedRidge, NoiseRidge, RidgeSchedule
from fastemf.solver.start import EarlierModel, starting_factors
from fastemf.support.validation import (
    check_choice,
    check_flag,
    check_integer,
    check_level,
    check_number,
    check_rank,
    check_reg,
    check_rng,
)
from fastemf.support.warn import warn

__all__ = ["complete"]

# What multiplies the residuals' size in reg="auto": the best by held-out loss over
# synthetic and real data, without and with intercepts.
NOISE_FACTOR = 0.06
NOISE_FACTOR_INTERCEPTS = 0.1

# From this rank on conjugate gradients reach an objective sooner, with that many steps a row:
# at k = 64 in 0.6 of the time, at 32 they hardly do (bench/README.md).
CG_RANK = 64
CG_STEPS = 3

PATIENCE = 10  # sweeps: a restart of the momentum costs a few


def complete(
    R: Any,
    omega: float,
    k: int,
    *,
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    weights: Any = None,
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
        ``__arrow_c_stream__``), the path of a file (.csv, .tsv, .parquet, .mtx, .npz of
        scipy), or a `fastemf.store.Store` or the path of one, which is read block by block
        and gives the bits that the same data in memory give. Repeated (row, column) pairs
        are kept as separate observations. float32 data are computed in float32, all else
        in float64.
    omega
        Expectile level in (0, 1). Below 0.5: the typical value, which a long right tail
        moves less than the mean; 0.5: least squares; above: the tail. A level is not a
        quantile: omega = 0.95 is not the 95th percentile.
    k
        Rank, from 1 to min(rows, columns).
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
    shape
        (rows, columns) for triplets; the default is the largest index + 1.
    reg
        Ridge λ. ``"auto"`` follows the size of the residuals: noisy data are shrunk,
        noiseless ones still recovered exactly. A number sets λ. 0 is the paper's
        problem: rows with fewer than k observations are then interpolated.
    reg_scaling
        ``"count"``: a row's ridge is λ times its number of observations (summed
        weights); ``"plain"``: λ.
    intercepts
        Add ``mu + a_i + c_j``, fitted jointly under the same loss. For data whose
        rows and columns differ in level, this predicts far better.
    init
        ``"spectral"`` (SVD of the zero-filled matrix), ``"random"``, a pair (X, Y),
        or an earlier `Factorization`, whose matrix may be smaller: new rows and
        columns then start afresh. Where both have labels, rows and columns go by them.
    tol
        Stop when a sweep lowers the objective by less than this, relatively.
    max_iter
        Most sweeps to do.
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
        ``"auto"``: cg from k = 64 on where there is a ridge, else exact.
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
        Seed or numpy Generator for the held-out share and the start. Same seed, same bits,
        for any n_jobs.
    n_jobs
        Threads; -1 for all. On a cluster: of each worker, at most those Dask gave it.
    client
        A `distributed.Client` (the extra ``dask``), whose workers then do the fit; the bits
        are those of a fit in memory, whatever workers are lost on the way. `R` is a store, or
        its path, or a list of Parquet or CSV files, in folders that all workers see, or a Dask
        DataFrame. Columns of files and frames hold labels, or positions where `shape` is given.
    callback
        Called with each sweep's `SweepRecord`; a true return value stops the fit.
    progress
        Show a progress bar on standard error.
    checkpoint
        File to keep the state of the fit in, written atomically. It stays when the fit is done.
    checkpoint_every
        Sweeps between two writings of it.
    resume
        Go on from `checkpoint`, to the same bits as if there had been no interruption; where
        the file does not exist yet, begin. Data and settings must be those it was made with,
        but for `max_iter`, `n_jobs`, `callback` and `progress`.

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
        When `max_iter` sweeps neither reached `tol` nor exhausted `patience`.
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
    omega = check_level(omega)
    reg = check_reg(reg)
    check_choice(reg_scaling, "reg_scaling", ("count", "plain"))
    if reg == "auto" and reg_scaling == "plain":
        raise ValueError('reg="auto" is count-scaled; give reg a number to use reg_scaling="plain"')
    intercepts = check_flag(intercepts, "intercepts")
    momentum = check_flag(momentum, "momentum")
    anneal = check_flag(anneal, "anneal")
    orthogonalize = check_flag(orthogonalize, "orthogonalize")
    if orthogonalize:
        if reg != 0 or intercepts:
            raise ValueError(
                "orthogonalize=True needs reg=0 and intercepts=False, "
                f"got reg={reg!r} and intercepts={intercepts}"
            )
        momentum = anneal = False
    tol = check_number(tol, "tol")
    max_iter = check_integer(max_iter, "max_iter", minimum=1)
    check_choice(solver, "solver", ("auto", "exact", "cg"))
    if solver == "cg" and reg == 0:
        raise ValueError(
            'solver="cg" needs a ridge, got reg=0: rows with few observations have no single '
            "minimum without one"
        )
    patience = _check_patience(patience, validation)
    rng = check_rng(random_state)
    n_threads = count_threads(n_jobs)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {callback!r}")
    check_flag(progress, "progress")
    checkpoint_every = check_integer(checkpoint_every, "checkpoint_every", minimum=1)
    if check_flag(resume, "resume") and checkpoint is None:
        raise ValueError("resume=True needs checkpoint, the file to go on from")

    with source_of(R, weights, shape, (rows, cols, values), client, n_jobs) as observations:
        held_out = None
        if validation is not None:
            observations, held_out = hold_out(observations, validation, rng, (rows, cols, values))
        k = check_rank(k, observations.shape)
        _warn_of_gaps(observations, k, interpolates=reg == 0)

        level = observations.expectile(omega) if intercepts else None
        engine = CompletionEngine(
            observations,
            omega,
            level=level,
            count_scaled=reg_scaling == "count",
            n_threads=n_threads,
            steps=CG_STEPS
            if solver == "cg" or (solver == "auto" and reg != 0 and k >= CG_RANK)
            else 0,
        )

        def start() -> tuple[NDArray[Any], NDArray[Any]]:
            first = EarlierModel(init.axes, init.mu) if isinstance(init, Factorization) else init
            return starting_factors(first, engine, observations, k, level, rng, n_threads)

        kept = None
        if checkpoint is not None:
            settings = {
                "omega": omega, "k": k, "reg": reg, "reg_scaling": reg_scaling,
                "intercepts": intercepts, "tol": tol, "momentum": momentum, "anneal": anneal,
                "orthogonalize": orthogonalize, "solver": solver, "patience": patience,
                "init": init if isinstance(init, str) else "given",
                "random_state": random_state if type(random_state) is int else None,
            }  # fmt: skip
            digests = [part.digest() for part in (observations, held_out) if part is not None]
            kept = Checkpoint(checkpoint, checkpoint_every, resume, {"data": digests} | settings)

        schedule: RidgeSchedule
        if reg == "auto":
            schedule = _noise_ridge(engine, observations, k, intercepts)
        elif reg == 0 and anneal:
            m, n = observations.shape
            count = 1.0 if reg_scaling == "count" else observations.mass / float(m * n) ** 0.5
            schedule = AnnealedRidge(omega, k, count)
        else:
            schedule = FixedRidge(reg, omega)

        end = alternate(
            engine, start, schedule, tol=tol, max_iter=max_iter, momentum=momentum,
            orthogonalize=orthogonalize, callback=callback, progress=progress,
            held_out=None if held_out is None else CompletionEngine(
                held_out, omega, level=level, scale=engine.spread, count_scaled=True,
                n_threads=n_threads,
            ),
            patience=patience,
            checkpoint=kept,
        )  # fmt: skip
        return Factorization(
            rows=Axis.split(
                end.X, k, observations.row_labels, np.flatnonzero(observations.by_row.mass == 0)
            ),
            cols=Axis.split(
                end.Y, k, observations.col_labels, np.flatnonzero(observations.by_col.mass == 0)
            ),
            omega=omega,
            mu=0.0 if level is None else level,
            reg=end.ridge.factors,
            reg_scaling=reg_scaling,
            intercept_reg=end.ridge.intercepts if intercepts else 0.0,
            scale=engine.spread,
            converged=end.converged,
            history=end.history,
        )


def _check_patience(patience: Any, validation: Any) -> int:
    if patience is None:
        return PATIENCE
    if validation is None:
        raise ValueError(f"patience needs validation, got patience={patience!r} without it")
    return check_integer(patience, "patience", minimum=1)


def _noise_ridge(
    engine: CompletionEngine, observations: Source, k: int, intercepts: bool
) -> NoiseRidge:
    width = k + intercepts
    spent = sum(
        float(np.minimum(side.mass, width).sum())
        for side in (observations.by_row, observations.by_col)
    )
    return NoiseRidge(
        NOISE_FACTOR_INTERCEPTS if intercepts else NOISE_FACTOR,
        engine.omega,
        dof=spent - width**2,
        mass=engine.mass,
        spread=engine.spread,
        rounding=engine.rounding,
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
