"""Settings of the experiments on completion."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from fastemf.completion import complete
from fastemf.models.factorization import Factorization
from fastemf.solver.settings import Solver
from fastemf.support.validation import check_integer, check_reg

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)  # the paper's


@dataclass(frozen=True)
class ExperimentSettings:
    """Settings that the experiments on completion have in common.

    Attributes
    ----------
    rank : int
        k.
    repeats : int
        Random draws of the observed cells.
    reg : float, "auto", "noise" or None
        The ridge; None means 0 if `literal`, else "noise".
    intercepts : bool
        Whether to fit intercepts.
    sweeps : int or None
        Maximum number of sweeps; None means 200 if `literal`, else the default of `complete`.
    literal : bool
        Algorithm 1 exactly as in the paper: no ridge (or a plain one, with `reg`), no momentum, no
        annealing, and a fixed number of sweeps.
    progress : bool
        Show a progress bar on standard error.
    """

    rank: int = 10
    repeats: int = 10
    reg: Any = None
    intercepts: bool = False
    sweeps: int | None = None
    literal: bool = False
    progress: bool = False

    def __post_init__(self) -> None:
        check_integer(self.rank, "rank", minimum=1)
        check_integer(self.repeats, "repeats", minimum=1)
        if self.sweeps is not None:
            check_integer(self.sweeps, "sweeps", minimum=1)
        if self.reg is not None:
            check_reg(self.reg)
        if self.literal and (self.intercepts or isinstance(self.reg, str)):
            raise ValueError(
                "literal=True requires intercepts=False and a numeric reg, as in the paper, got "
                f"intercepts={self.intercepts} and reg={self.reg!r}"
            )

    @property
    def options(self) -> dict[str, Any]:
        """Keywords for `complete`."""
        options: dict[str, Any] = {"reg": "noise", "intercepts": self.intercepts}
        if self.literal:
            solver = Solver(momentum=False, anneal=False, reg_scaling="plain")
            options = {"reg": 0.0, "solver": solver, "tol": 0.0, "max_iter": 200}
        if self.reg is not None:
            options["reg"] = self.reg
        if self.sweeps is not None:
            options["max_iter"] = self.sweeps
        return options

    @property
    def description(self) -> str:
        """All settings in one line, for the report."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        kind = "Algorithm 1 as in the paper" if self.literal else "algorithm of fastemf"
        return f"{kind}: k={self.rank}, {options}"

    def fit(self, train: Any, omega: float) -> Factorization:
        """Fit without warnings about few observations or sweeps."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return complete(train, omega, self.rank, **self.options)
