"""`ErrorSummary`: errors on held-out cells, collected over draws and levels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastemf import metrics
from fastemf.experiments.settings import LEVELS
from fastemf.loss import expectile
from fastemf.models.factorization import Factorization
from fastemf.support.arrays import Floats

ALL = "all"
COLUMNS = {"IQR": "iqr", "90 %": "q90", "skill": "skill"}
COLUMNS |= {"effective ω": "effective_omega", "coverage": "coverage"}
KEPT = 2001  # quantiles of the errors of a draw that are kept for plots


@dataclass
class ErrorSummary:
    """One row of numbers per draw, level and bin, and quantiles of the errors for plots."""

    edges: tuple[float, ...] = ()
    unit: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    _errors: dict[tuple[float, float, str], list[Floats]] = field(
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
        fitted: Floats,
        predicted: Floats,
        held_out: Floats,
        truth: Floats | None = None,
    ) -> None:
        """Add the errors of a fit.

        `fitted` are the training values and `held_out` the observed values of the predicted cells.
        Relative errors refer to `truth`, the noiseless values, if it is given.
        """
        truth = held_out if truth is None else truth
        errors = metrics.relative_errors(truth, predicted)
        common = {"rate": rate, "repeat": repeat, "omega": fit.omega}
        constant = expectile(fitted, fit.omega)
        whole = {
            "skill": metrics.expectile_skill(held_out, predicted, fit.omega, constant),
            "effective_omega": metrics.effective_omega(held_out - predicted),
            "coverage": metrics.coverage(held_out, predicted),
            "largest_prediction": float(np.max(np.abs(predicted))),
            "reg": fit.reg,
            "sweeps": fit.n_iter,
            "converged": int(fit.converged),
        }
        self._append(common, ALL, errors.values, {"excluded": errors.excluded, **whole})
        if self.edges:
            place = metrics.bin_of(truth, self.edges)
            for i, label in enumerate(self.bins):
                inside = errors.values[place[errors.defined] == i]
                excluded = int(np.count_nonzero((place == i) & ~errors.defined))
                self._append(common, label, inside, {"excluded": excluded})

    def _append(
        self, common: dict[str, Any], label: str, errors: Floats, rest: dict[str, Any]
    ) -> None:
        errors = np.sort(errors)
        summary = metrics.summarize(errors)
        numbers = {"median": summary.median, "iqr": summary.iqr, "q90": summary.q90}
        self.rows.append({**common, "bin": label, "cells": summary.cells, **numbers, **rest})
        if errors.size > KEPT:
            errors = errors[np.linspace(0, errors.size - 1, KEPT).round().astype(np.int64)]
        self._errors[common["rate"], common["omega"], label].append(errors)

    @property
    def rates(self) -> list[float]:
        """Sampling rates so far."""
        return sorted({row["rate"] for row in self.rows})

    def errors(self, rate: float, label: str = ALL) -> dict[float, Floats]:
        """Return quantiles of the relative errors of all draws, by level."""
        return {omega: np.concatenate(self._errors[rate, omega, label]) for omega in LEVELS}

    def values(self, measure: str, rate: float, omega: float, label: str = ALL) -> list[float]:
        """Return the values of a measure, one per draw."""
        return [
            row[measure]
            for row in self.rows
            if (row["rate"], row["omega"], row["bin"]) == (rate, omega, label)
        ]

    def mean(self, measure: str, rate: float, omega: float, label: str = ALL) -> float:
        """Return the mean of a measure over the draws."""
        return float(np.mean(self.values(measure, rate, omega, label)))

    def table(self, rate: float) -> list[dict[str, Any]]:
        """Return the means over the draws, one line per level."""
        lines = []
        for omega in LEVELS:
            line: dict[str, Any] = {"ω": f"{omega:g}"}
            line["median RE"] = self.mean("median", rate, omega)
            line["± sd"] = float(np.std(self.values("median", rate, omega)))
            line |= {name: self.mean(key, rate, omega) for name, key in COLUMNS.items()}
            line |= {label: self.mean("median", rate, omega, label) for label in self.bins}
            lines.append(line)
        return lines
