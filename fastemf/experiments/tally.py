"""Quality of the predictions of held-out cells, collected over draws and levels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.experiments.settings import LEVELS
from fastemf.loss import expectile
from fastemf.metrics import (
    bin_of,
    coverage,
    effective_omega,
    expectile_skill,
    relative_errors,
    summarise,
)
from fastemf.model.factorization import Factorization

__all__ = ["ALL", "Tally"]

ALL = "all"
KEPT = 2001  # quantiles of each draw's errors, which stand for them in pictures


@dataclass
class Tally:
    """One row of numbers per draw, level and bin, and enough of the errors to draw them."""

    edges: tuple[float, ...] = ()
    unit: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    _errors: dict[tuple[float, float, str], list[NDArray[np.float64]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def bins(self) -> list[str]:
        """Labels of the bins, low to high."""
        return [
            f"{low:g} to {high:g} {self.unit}"
            for low, high in zip(self.edges[:-1], self.edges[1:], strict=True)
        ]

    def add(
        self,
        rate: float,
        repeat: int,
        fit: Factorization,
        fitted: NDArray[np.float64],
        predicted: NDArray[np.float64],
        held_out: NDArray[np.float64],
        truth: NDArray[np.float64] | None = None,
    ) -> None:
        """Judge a fit.

        `fitted` are the values it was fitted to, `held_out` the observed values of the cells
        predicted, and `truth`, where it is known, the values without noise, against which
        relative errors are taken.
        """
        truth = held_out if truth is None else truth
        errors = relative_errors(truth, predicted)
        common = {"rate": rate, "repeat": repeat, "omega": fit.omega}
        whole = {
            "skill": expectile_skill(held_out, predicted, fit.omega, expectile(fitted, fit.omega)),
            "w_eff": effective_omega(held_out - predicted),
            "coverage": coverage(held_out, predicted),
            "largest_prediction": float(np.max(np.abs(predicted))),
            "reg": fit.reg,
            "sweeps": fit.n_iter,
            "converged": int(fit.converged),
        }
        self._note(common, ALL, errors.values, {"excluded": errors.excluded, **whole})
        if self.edges:
            place = bin_of(truth, self.edges)
            for i, label in enumerate(self.bins):
                inside = errors.values[place[errors.defined] == i]
                excluded = int(np.count_nonzero((place == i) & ~errors.defined))
                self._note(common, label, inside, {"excluded": excluded})

    def _note(
        self,
        common: dict[str, Any],
        label: str,
        errors: NDArray[np.float64],
        rest: dict[str, Any],
    ) -> None:
        errors = np.sort(errors)
        summary = summarise(errors)
        numbers = {"median": summary.median, "iqr": summary.iqr, "q90": summary.q90}
        self.rows.append({**common, "bin": label, "cells": summary.cells, **numbers, **rest})
        if errors.size > KEPT:
            errors = errors[np.linspace(0, errors.size - 1, KEPT).round().astype(np.int64)]
        self._errors[common["rate"], common["omega"], label].append(errors)

    @property
    def rates(self) -> list[float]:
        """Sampling rates so far."""
        return sorted({row["rate"] for row in self.rows})

    def errors(self, rate: float, label: str = ALL) -> dict[float, NDArray[np.float64]]:
        """Return the relative errors of all draws, by level, thinned to their quantiles."""
        return {omega: np.concatenate(self._errors[rate, omega, label]) for omega in LEVELS}

    def values(self, measure: str, rate: float, omega: float, label: str = ALL) -> list[float]:
        """Return a measure in each draw."""
        return [
            row[measure]
            for row in self.rows
            if (row["rate"], row["omega"], row["bin"]) == (rate, omega, label)
        ]

    def mean(self, measure: str, rate: float, omega: float, label: str = ALL) -> float:
        """Return a measure's mean over the draws."""
        return float(np.mean(self.values(measure, rate, omega, label)))

    def table(self, rate: float) -> list[dict[str, Any]]:
        """Return the means over the draws, one line per level."""
        lines = []
        for omega in LEVELS:
            spread = float(np.std(self.values("median", rate, omega)))
            lines.append(
                {
                    "ω": f"{omega:g}",
                    "median RE": self.mean("median", rate, omega),
                    "± sd": spread,
                    "IQR": self.mean("iqr", rate, omega),
                    "90 %": self.mean("q90", rate, omega),
                    "skill": self.mean("skill", rate, omega),
                    "w_eff": self.mean("w_eff", rate, omega),
                    "share below": self.mean("coverage", rate, omega),
                    **{label: self.mean("median", rate, omega, label) for label in self.bins},
                }
            )
        return lines
