"""Settings of an experiment: how it fits, and how often."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from fastemf.completion import complete
from fastemf.model.factorization import Factorization
from fastemf.support.validation import check_integer, check_reg

__all__ = ["LEVELS", "ExperimentSettings"]

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)  # the paper's


@dataclass(frozen=True)
class ExperimentSettings:
    """ExperimentSettings that the experiments on completion have in common.

    Attributes
    ----------
    rank : int
        k.
    repeats : int
        Random draws of what is observed.
    reg : float, "auto", "noise" or None
        The ridge; None: 0 to the letter, else "noise".
    intercepts : bool
        Whether the model has them.
    sweeps : int or None
        Most sweeps of a fit; None: 200 to the letter, else the default of `complete`.
    literal : bool
        The paper's Algorithm 1: no ridge (or a plain one, with `reg`), no momentum, no
        annealed start, and exactly so many sweeps.
    progress : bool
        Show a bar on standard error.
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
                "literal is the paper's algorithm, which has neither intercepts nor a ridge that "
                f"follows the noise, got intercepts={self.intercepts} and reg={self.reg!r}"
            )

    @property
    def options(self) -> dict[str, Any]:
        """Keywords for `complete`."""
        options: dict[str, Any]
        if self.literal:
            options = {
                "reg": 0.0 if self.reg is None else self.reg,
                "reg_scaling": "plain",
                "momentum": False,
                "anneal": False,
                "tol": 0.0,
                "max_iter": 200,
            }
        else:
            options = {"reg": "noise" if self.reg is None else self.reg}
            options["intercepts"] = self.intercepts
        if self.sweeps is not None:
            options["max_iter"] = self.sweeps
        return options

    @property
    def description(self) -> str:
        """All settings in one line, for a report."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        kind = "the paper's Algorithm 1 to the letter" if self.literal else "fastemf's algorithm"
        return f"{kind}: k={self.rank}, {options}"

    def fit(self, train: Any, omega: float) -> Factorization:
        """Fit once; short rows and too few sweeps are recorded and give no warning."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return complete(train, omega, self.rank, **self.options)
