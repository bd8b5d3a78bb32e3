"""The settings of a fit, which are checked once and then passed on as they are.

How they depend on each other is known here and nowhere else: what `orthogonalize` turns off,
which solver is used, which schedule the ridge follows, and what two fits must have in common for
one to go on where the other was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
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
    check_reg,
    check_rng,
)

__all__ = ["Settings"]

# From this rank on conjugate gradients, with this many steps per row, reach an objective sooner
# than exact solves: at k = 64 in 0.6 of the time, while at 32 they hardly do (bench/README.md).
CG_RANK = 64
CG_STEPS = 3

PATIENCE = 10  # sweeps, of which a restart of the momentum costs a few


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """All that a fit is told besides its data, under the names of `fastemf.complete`.

    They are checked on creation, and so also by `dataclasses.replace`. What needs the data is
    checked where these are known: `init`, `validation`, and that `k` is not above the shape.

    `omegas` are levels that are fitted one after the other, of which this fit is one.
    """

    omega: float
    k: int
    reg: float | Literal["auto", "noise"] = "auto"
    reg_scaling: str = "count"
    intercepts: bool = False
    init: Any = "spectral"
    tol: float = 1e-5
    max_iter: int = 100
    momentum: bool = True
    anneal: bool = True
    orthogonalize: bool = False
    solver: str = "auto"
    validation: Any = None
    patience: int | None = None
    random_state: Any = 0
    n_jobs: int | None = -1
    callback: Callable[[SweepRecord], Any] | None = None
    progress: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 10
    resume: bool = False
    omegas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self._set("omega", check_level(self.omega))
        self._set("reg", check_reg(self.reg))
        check_choice(self.reg_scaling, "reg_scaling", ("count", "plain"))
        for flag in ("intercepts", "momentum", "anneal", "orthogonalize", "progress", "resume"):
            self._set(flag, check_flag(getattr(self, flag), flag))
        self._set("k", check_model_rank(self.k, intercepts=self.intercepts))
        self._set("tol", check_number(self.tol, "tol"))
        self._set("max_iter", check_integer(self.max_iter, "max_iter", minimum=1))
        check_choice(self.solver, "solver", ("auto", "exact", "cg"))
        if self.patience is not None and self.validation is not None:
            self._set("patience", check_integer(self.patience, "patience", minimum=1))
        check_rng(self.random_state)
        count_threads(self.n_jobs)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable, got {self.callback!r}")
        every = check_integer(self.checkpoint_every, "checkpoint_every", minimum=1)
        self._set("checkpoint_every", every)
        self._check_together()
        if self.orthogonalize:
            self._set("momentum", False)
            self._set("anneal", False)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # the checked value, before anyone has seen another

    def _check_together(self) -> None:
        if isinstance(self.reg, str) and self.reg_scaling == "plain":
            raise ValueError(
                f'reg="{self.reg}" is count-scaled; give reg a number to use reg_scaling="plain"'
            )
        if self.orthogonalize and self.reg != 0:
            raise ValueError(f"orthogonalize=True needs reg=0, got reg={self.reg!r}")
        if self.orthogonalize and self.intercepts:
            raise ValueError("orthogonalize=True needs intercepts=False, got intercepts=True")
        if self.solver == "cg" and self.reg == 0:
            raise ValueError(
                'solver="cg" needs a ridge, got reg=0: rows with few observations have no single '
                "minimum without one"
            )
        if self.patience is not None and self.validation is None:
            raise ValueError(
                f"patience needs validation, got patience={self.patience!r} without it"
            )
        if self.resume and self.checkpoint is None:
            raise ValueError("resume=True needs checkpoint, the file to go on from")

    @property
    def n_threads(self) -> int:
        """Threads meant by `n_jobs`."""
        return count_threads(self.n_jobs)

    @property
    def steps(self) -> int:
        """0 for exact solves, or how many steps of conjugate gradients a row gets."""
        by_rank = self.solver == "auto" and self.reg != 0 and self.k >= CG_RANK
        return CG_STEPS if self.solver == "cg" or by_rank else 0

    @property
    def sweeps_to_wait(self) -> int:
        """Sweeps without a lower validation loss after which the fit ends."""
        return PATIENCE if self.patience is None else self.patience

    @property
    def anneals(self) -> bool:
        """Whether the ridge falls to 0 in stages; without factors there is nothing to recover."""
        return self.reg == 0 and self.anneal and self.k > 0

    def generator(self) -> np.random.Generator:
        """Make the generator of a fit: a new one each time from a seed, else the one given."""
        return check_rng(self.random_state)

    def numbered_ridge(self, count: float) -> RidgeSchedule:
        """Make the schedule of a ridge that is a number; `count` is as in `AnnealedRidge`."""
        if self.anneals:
            return AnnealedRidge(self.omega, self.k, count)
        return FixedRidge.given(float(self.reg), self.omega)

    def fingerprint(self) -> dict[str, Any]:
        """Gather what fits must have in common for one to resume another: see `Checkpoint`."""
        same = (
            "omega", "k", "reg", "reg_scaling", "intercepts", "tol", "momentum", "anneal",
            "orthogonalize", "solver",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in same} | {
            "patience": self.sweeps_to_wait,
            "init": self.init if isinstance(self.init, str) else "given",
            "random_state": self.random_state if type(self.random_state) is int else None,
        }
        return found | ({"omegas": list(self.omegas)} if self.omegas else {})
