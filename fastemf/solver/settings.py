"""Settings of a fit: checked once on creation, then passed on unchanged.

`Solver`, `Checkpoint` and `Validation` are public. `Settings` holds all parameters of a fit except
its data, and is the only place that resolves dependencies between them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fastemf.kernels.threads import count_threads
from fastemf.solver.records import SweepRecord
from fastemf.solver.ridge import AnnealedRidge, FixedRidge, RidgeSchedule
from fastemf.support.validation import (
    check_choice,
    check_flag,
    check_integer,
    check_level,
    check_model_rank,
    check_number,
    check_rank,
    check_reg,
    check_rng,
)

# From this rank on, conjugate gradients with this many steps per row reach an objective sooner
# than exact solves: in 0.6 of the time at k = 64, about equal at k = 32 (bench/README.md).
CG_RANK = 64
CG_STEPS = 3

DEFAULT_RANK = 5
METHODS = ("auto", "exact", "cg")
PATIENCE = 10  # sweeps; a restart of the momentum costs a few


def _store(instance: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is created."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def _check_flags(instance: Any, *names: str) -> None:
    _store(instance, **{name: check_flag(getattr(instance, name), name) for name in names})


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Expert settings of the alternating solver, for the parameter ``solver``.

    Parameters
    ----------
    method
        How the rows of a factor are solved given the other factor. ``"exact"``: to the minimum,
        by Newton's method. ``"cg"``: a few steps of conjugate gradients, which also decrease the
        objective but cost k instead of k² per observation; requires a ridge. ``"auto"``: ``"cg"``
        for k ≥ 64 with a ridge, otherwise ``"exact"``, with warm-up sweeps in float32 in large
        fits.
    momentum
        Extrapolate the factors between sweeps. An extrapolation that increases the objective is
        undone.
    anneal
        With ``reg=0``, start with a small ridge and decrease it to 0 in stages over 24 sweeps.
        This recovers noiseless matrices from fewer observations.
    orthogonalize
        Orthonormalize the factors within each sweep, as in the proofs of the paper. Requires
        ``reg=0`` and no intercepts, and turns `momentum` and `anneal` off.
    reg_scaling
        ``"count"``: the ridge of a row is λ times its number of observations (or the sum of its
        weights). ``"plain"``: the ridge of every row is λ.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> plain = fastemf.Solver(momentum=False, reg_scaling="plain")
    >>> fastemf.complete(R, 0.1, 2, reg=0.1, solver=plain).reg_scaling
    'plain'
    """

    method: str = "auto"
    momentum: bool = True
    anneal: bool = True
    orthogonalize: bool = False
    reg_scaling: str = "count"

    def __post_init__(self) -> None:
        check_choice(self.method, "method", METHODS)
        check_choice(self.reg_scaling, "reg_scaling", ("count", "plain"))
        _check_flags(self, "momentum", "anneal", "orthogonalize")
        if self.orthogonalize:
            _store(self, momentum=False, anneal=False)


@dataclass(frozen=True)
class Checkpoint:
    """File that holds the state of a fit, for the parameter ``checkpoint``.

    Parameters
    ----------
    path
        The file. It is replaced atomically and kept when the fit is done.
    every
        Number of sweeps between two writes.
    resume
        Continue from the file if it exists. The result is bitwise identical to that of a fit
        without interruption. Data and settings must be those of the interrupted fit, except for
        `max_iter`, `n_jobs`, `callback` and `progress`. With False an existing file is an error.

    Examples
    --------
    >>> import fastemf, os, tempfile
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> path = os.path.join(tempfile.mkdtemp(), "state.npz")
    >>> state = fastemf.Checkpoint(path, every=5, resume=True)
    >>> fit = fastemf.complete(R, 0.1, 2, reg=0.1, checkpoint=state)
    >>> again = fastemf.complete(R, 0.1, 2, reg=0.1, checkpoint=state)  # reads the result
    >>> bool((again.X == fit.X).all())
    True
    """

    path: str | os.PathLike[str]
    _: KW_ONLY
    every: int = 10
    resume: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise TypeError(f"path must be a path, got {self.path!r}")
        if not Path(self.path).name:
            raise ValueError(f"path must name a file, got {os.fspath(self.path)!r}")
        _store(self, every=check_integer(self.every, "every", minimum=1))
        _check_flags(self, "resume")


@dataclass(frozen=True, eq=False)
class Validation:
    """Validation cells and early stopping, for the parameter ``validation``.

    Parameters
    ----------
    data
        Proportion of the observed cells, in (0, 1), to draw at random (repeated observations of a
        cell together), or entries in any form that `R` takes and of the same shape. They are not
        fitted.
    patience
        Stop after this many sweeps without a lower validation loss.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> early = fastemf.Validation(0.2, patience=3)
    >>> fit = fastemf.complete(R, 0.1, 5, reg=1e-4, validation=early)
    >>> losses = [record.validation_loss for record in fit.history]
    >>> len(losses) - 1 - losses.index(min(losses)) <= 3
    True
    """

    data: Any
    _: KW_ONLY
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        if self.data is None:
            raise ValueError("data must be a proportion in (0, 1) or entries, got None")
        _store(self, patience=check_integer(self.patience, "patience", minimum=1))


def as_solver(solver: Any) -> Solver:
    """Return the value of the parameter ``solver``, an instance or a method name, as a Solver."""
    if isinstance(solver, Solver):
        return solver
    if not isinstance(solver, str) or solver not in METHODS:
        names = ", ".join(map(repr, METHODS))
        raise ValueError(f"solver must be one of {names} or a fastemf.Solver, got {solver!r}")
    return Solver(method=solver)


def as_checkpoint(checkpoint: Any) -> Checkpoint | None:
    """Return the value of the parameter ``checkpoint``, an instance or a path, as a Checkpoint."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(f"checkpoint must be a path or a fastemf.Checkpoint, got {checkpoint!r}")
    return Checkpoint(checkpoint)


def as_validation(validation: Any) -> Validation | None:
    """Return the value of the parameter ``validation``, an instance or its data."""
    is_data = validation is not None and not isinstance(validation, Validation)
    return Validation(validation) if is_data else validation


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """Parameters of a fit other than its data, under the names of `fastemf.complete`.

    They are checked on creation, and so by `dataclasses.replace`. Checks that need the data (of
    `init`, of `validation`, of `k` against the shape) are made when the data are read.

    `omegas` lists the levels of a joint fit that this fit is part of.
    """

    omega: float
    k: int
    reg: float | Literal["auto", "noise"] = "auto"
    intercepts: bool = False
    init: Any = "spectral"
    tol: float = 1e-5
    max_iter: int = 100
    solver: Solver = Solver()
    validation: Validation | None = None
    random_state: Any = 0
    n_jobs: int | None = -1
    callback: Callable[[SweepRecord], Any] | None = None
    progress: bool = False
    checkpoint: Checkpoint | None = None
    omegas: tuple[float, ...] = ()
    fits_rank: bool = False  # whether a rank above the smaller dimension is lowered to it

    def __post_init__(self) -> None:
        _check_flags(self, "intercepts", "progress")
        _store(
            self,
            omega=check_level(self.omega),
            reg=check_reg(self.reg),
            k=check_model_rank(self.k, intercepts=self.intercepts),
            tol=check_number(self.tol, "tol"),
            max_iter=check_integer(self.max_iter, "max_iter", minimum=1),
        )
        check_rng(self.random_state)
        count_threads(self.n_jobs)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable, got {self.callback!r}")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if isinstance(self.reg, str) and self.solver.reg_scaling == "plain":
            raise ValueError(
                f'reg="{self.reg}" is count-scaled; give reg a number to use reg_scaling="plain"'
            )
        if self.solver.orthogonalize and self.reg != 0:
            raise ValueError(f"orthogonalize=True needs reg=0, got reg={self.reg!r}")
        if self.solver.orthogonalize and self.intercepts:
            raise ValueError("orthogonalize=True needs intercepts=False, got intercepts=True")
        if self.solver.method == "cg" and self.reg == 0:
            raise ValueError(
                'solver="cg" needs a ridge, got reg=0: without one the minimum of a row with few '
                "observations is not unique"
            )

    def at_shape(self, shape: tuple[int, int]) -> Settings:
        """Return the settings for a matrix, whose shape limits the rank."""
        if self.fits_rank:
            return replace(self, k=min(self.k, *shape), fits_rank=False)
        check_rank(self.k, shape, minimum=0)
        return self

    @property
    def n_threads(self) -> int:
        """Number of threads that `n_jobs` stands for."""
        return count_threads(self.n_jobs)

    @property
    def steps(self) -> int:
        """Number of steps of conjugate gradients per row; 0 for exact solves."""
        method = self.solver.method
        by_rank = method == "auto" and self.reg != 0 and self.k >= CG_RANK
        return CG_STEPS if method == "cg" or by_rank else 0

    @property
    def patience(self) -> int:
        """Number of sweeps without a lower validation loss after which the fit ends."""
        return PATIENCE if self.validation is None else self.validation.patience

    @property
    def validation_data(self) -> Any:
        """Validation entries, or the proportion of cells to draw; None without validation."""
        return None if self.validation is None else self.validation.data

    @property
    def anneals(self) -> bool:
        """Whether the ridge decreases to 0 in stages; without factors there is no need."""
        return self.reg == 0 and self.solver.anneal and self.k > 0

    def generator(self) -> np.random.Generator:
        """Return the generator of a fit: a new one from a seed, otherwise the one given."""
        return check_rng(self.random_state)

    def numbered_ridge(self, count: float) -> RidgeSchedule:
        """Return the schedule of a ridge that is a number; `count` is as in `AnnealedRidge`."""
        if self.anneals:
            return AnnealedRidge(self.omega, self.k, count)
        return FixedRidge.from_number(float(self.reg), self.omega)

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that a fit must share with a checkpoint to resume it."""
        names = ("omega", "k", "reg", "intercepts", "tol", "patience")
        common = {name: getattr(self, name) for name in names} | {
            "init": self.init if isinstance(self.init, str) else "given",
            "random_state": self.random_state if type(self.random_state) is int else None,
        }
        levels = {"omegas": list(self.omegas)} if self.omegas else {}
        return common | asdict(self.solver) | levels


def as_rank(k: Any) -> dict[str, Any]:
    """Return the settings of a rank as given; "auto" is the default rank."""
    is_auto = isinstance(k, str) and k == "auto"
    return {"k": DEFAULT_RANK, "fits_rank": True} if is_auto else {"k": k}


def checkpoint_for(settings: Settings, name: str) -> Checkpoint | None:
    """Return the checkpoint of one of several fits: ``state-NAME.npz`` for ``state.npz``."""
    if settings.checkpoint is None:
        return None
    path = Path(settings.checkpoint.path)
    return replace(settings.checkpoint, path=path.with_name(f"{path.stem}-{name}{path.suffix}"))
