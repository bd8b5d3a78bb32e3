"""`CoverageReport`: coverage and pinball loss of a predicted quantile, next to baselines."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastemf.boosting.observed_cells import ObservedCells
from fastemf.boosting.statistics import mean_pinball
from fastemf.censoring.coverage import CensoredCells
from fastemf.models.tabular import Columns, Tabular
from fastemf.support.arrays import Floats, Indices
from fastemf.support.display_names import quantile_name
from fastemf.support.terminal import escape_control

FEWEST_BEYOND = 20  # cells required on the rarer side of a quantile
DECILES = 10
FEWEST_VERIFIABLE = 20  # cells whose predicted quantile lies within the censoring limits
NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True)
class GroupCoverage:
    """Coverage and pinball loss of one predicted quantile in a group of cells.

    Attributes
    ----------
    name : str
        The group, for example ``"new rows"``.
    coverage : float
        Proportion of values at or below the quantile; NaN if it cannot be verified.
    interval : (float, float)
        Its 95 % confidence interval.
    cells : int
        Effective number of cells.
    pinball : float
        Mean pinball loss.
    baseline : float
        That of the best baseline.
    """

    name: str
    coverage: float
    interval: tuple[float, float]
    cells: int
    pinball: float
    baseline: float

    def __str__(self) -> str:
        (low, high), coverage = self.interval, "coverage cannot be checked"
        if self.cells:
            coverage = f"coverage {self.coverage:.4f} of {self.cells:,} cells "
            coverage += f"(95 % CI {low:.4f} to {high:.4f})"
        loss = f"pinball loss {_ratio(self.pinball, self.baseline)} relative to the best baseline"
        return f"{escape_control(self.name)}: {coverage}, {loss}"


@dataclass(frozen=True, slots=True)
class CoverageReport(Tabular):
    """Coverage and pinball loss of one predicted quantile.

    Reports of a fit (`Quantiles.coverage`) use out-of-fold predictions: neither the models nor the
    trees had seen the cell. Reports of an evaluation (`Evaluation.coverage`) use the given
    observations.

    Attributes
    ----------
    tau : float
        Expected coverage: the proportion of values that should lie at or below the quantile.
    coverage : float
        Observed proportion of values at or below the predicted quantile.
    interval : (float, float)
        95 % confidence interval of the coverage (Wilson).
    deciles : tuple of 10 floats
        Coverage by decile of the prediction, from the smallest predictions to the largest.
    dense_coverage : float
        Coverage in rows that have at least `dense_cells` cells.
    dense_cells : int
        Threshold for `dense_coverage`. Half of the observations are in rows above it.
    cells : int
        Effective number of cells, (Σw)² / Σw², where w is the total weight of a cell's
        observations. Repeated and mirrored observations belong to one cell.
    pinball : float
        Mean pinball loss, in the units of the data.
    baselines : dict of str to float
        Mean pinball loss of simpler predictions of the same cells: ``"constant"`` is one quantile
        of all values, ``"column"`` the shrunken quantile of the column, ``"row + column"`` a sum
        of row and column effects, and ``"larger of both"`` the larger of the last two.
    measured : bool
        False after `Quantiles.fold_in`, `extend` and `update`, and if a refit kept the trees: the
        figures then refer to the earlier data.
    verifiable : float
        Proportion of the cells that `coverage`, `interval`, `deciles`, `dense_coverage` and `cells`
        describe. It is below 1 if values are censored, because the coverage of a quantile beyond
        the censoring limit is unknown; coverages of no cells are NaN. Losses always include all
        cells, with values and predictions up to the limit: min(value, limit) is compared with
        min(prediction, limit).
    cold : tuple of GroupCoverage
        Out-of-fold coverage of known pairs, and of cells that were presented as if their row,
        their column or both were new.
    groups : tuple of GroupCoverage
        Coverage by group, for a model fitted with ``groups=``.
    """

    tau: float
    coverage: float
    interval: tuple[float, float]
    deciles: tuple[float, ...]
    dense_coverage: float
    dense_cells: int
    cells: int
    pinball: float
    baselines: dict[str, float]
    measured: bool = True
    verifiable: float = 1.0
    cold: tuple[GroupCoverage, ...] = ()
    groups: tuple[GroupCoverage, ...] = ()

    @property
    def censoring_note(self) -> str:
        """A remark about cells whose quantile exceeds the censoring limit; empty if none do."""
        if self.verifiable == 1:
            return ""
        return (
            f"beyond the censoring limit in {1 - self.verifiable:.1%} of the cells, where coverage "
            "cannot be checked and the quantile is probably too close to the limit"
        )

    def columns(self) -> Columns:
        """Return coverage and loss of all cells, and of each group of cells, by column name.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> report = fastemf.complete_quantiles(R, (0.5, 0.9), k=2).coverage[1]
        >>> report.columns()["cells of"]
        ['all', 'known pairs', 'new rows', 'new columns', 'new rows and columns']
        """
        all_cells = GroupCoverage(
            "all", self.coverage, self.interval, self.cells, self.pinball, self.best_baseline
        )
        groups = (all_cells, *self.cold, *self.groups)
        return {
            "cells of": [one.name for one in groups],
            "coverage": [one.coverage for one in groups],
            "lower": [one.interval[0] for one in groups],
            "upper": [one.interval[1] for one in groups],
            "cells": [one.cells for one in groups],
            "pinball": [one.pinball for one in groups],
            "best baseline": [one.baseline for one in groups],
        }

    @property
    def best_baseline(self) -> float:
        """The smallest pinball loss of a baseline."""
        return min(self.baselines.values())

    @property
    def relative(self) -> float:
        """The pinball loss relative to that of the best constant."""
        constant = self.baselines["constant"]
        return self.pinball / constant if constant > 0 else 0.0

    @property
    def _title(self) -> str:
        about = "" if self.measured else ", measured before the update"
        return f"coverage and pinball loss of {quantile_name(self.tau)}{about}"

    @property
    def _notes(self) -> list[str]:
        return [self.censoring_note] if self.censoring_note else []

    def __str__(self) -> str:
        low, high = self.interval
        constant, best = self.baselines["constant"], self.best_baseline
        parts = []
        if self.cells:
            parts.append(
                f"out-of-fold coverage {self.coverage:.4f} of {self.cells:,} cells "
                f"(95 % CI {low:.4f} to {high:.4f}), "
                f"{min(self.deciles):.3f} to {max(self.deciles):.3f} by decile"
            )
        if self.censoring_note:
            parts.append(self.censoring_note)
        parts.append(
            f"pinball loss {_ratio(self.pinball, constant)} relative to a constant, "
            f"{_ratio(self.pinball, best)} relative to the best baseline"
        )
        if not self.measured:
            parts.append("measured before the update")
        lines = [f"{quantile_name(self.tau)}: {'; '.join(parts)}"]
        return "\n".join([*lines, *(f"    {group}" for group in (*self.cold, *self.groups))])


def report_coverage(
    cells: ObservedCells,
    tau: float,
    predicted: Floats,
    baselines: dict[str, Floats],
    censored: CensoredCells | None = None,
) -> CoverageReport:
    """Measure the coverage and pinball loss of predicted quantiles.

    `censored` describes the censored values, if any.
    """
    values, weights = cells.values, cells.weights
    below = (values <= predicted).astype(np.float64)

    def loss_of(predicted: Floats) -> float:
        r = values - predicted if censored is None else censored.residuals(predicted)
        return mean_pinball(r, tau, weights)

    def coverage_of(at: Indices) -> float:
        if not at.size:
            return math.nan
        if censored is not None:
            return censored.coverage(predicted, weights, at)
        return float(np.average(below[at], weights=None if weights is None else weights[at]))

    seen = np.ones(values.size, bool) if censored is None else censored.is_checkable(predicted)
    if censored is not None and np.count_nonzero(seen) < FEWEST_VERIFIABLE:
        seen[:] = False
    known = cells if seen.all() else cells.select(seen)
    order = np.argsort(predicted, kind="stable")
    width = cells.shape[1] + 1
    counts = np.bincount(  # cells, each of which may have several observations
        np.unique(known.rows * width + known.cols) // width, minlength=cells.shape[0]
    )[cells.rows]
    dense = int(np.sort(counts[seen])[known.values.size // 2]) if seen.any() else 0
    coverage, count = coverage_of(np.flatnonzero(seen)), known.effective_size if seen.any() else 0.0
    efficiency = (
        1.0 if censored is None else censored.efficiency(predicted, weights, np.flatnonzero(seen))
    )
    return CoverageReport(
        tau=tau,
        coverage=coverage,
        interval=wilson_interval(coverage, efficiency * count) if seen.any() else (0.0, 1.0),
        deciles=tuple(coverage_of(part) for part in np.array_split(order[seen[order]], DECILES)),
        dense_coverage=coverage_of(np.flatnonzero(seen & (counts >= dense))),
        dense_cells=dense,
        cells=round(count),
        pinball=loss_of(predicted),
        baselines={name: loss_of(simple) for name, simple in baselines.items()},
        verifiable=float(np.average(seen, weights=weights)),
    )


def report_group(name: str, report: CoverageReport) -> GroupCoverage:
    """Return the figures of a report of some cells."""
    return GroupCoverage(
        name, report.coverage, report.interval, report.cells, report.pinball,
        report.best_baseline,
    )  # fmt: skip


def wilson_interval(proportion: float, count: float) -> tuple[float, float]:
    """Compute Wilson's 95 % confidence interval of a proportion of `count` cells."""
    z = NORMAL_95
    middle = (proportion + z**2 / (2 * count)) / (1 + z**2 / count)
    spread = np.sqrt(proportion * (1 - proportion) / count + z**2 / (4 * count**2))
    half = z / (1 + z**2 / count) * float(spread)
    # The interval of a proportion of 0 or 1 ends exactly there; rounding must not move it.
    return max(0.0, min(middle - half, proportion)), min(1.0, max(middle + half, proportion))


def _ratio(loss: float, reference: float) -> str:
    return f"{loss / reference:.3f}" if reference > 0 else "0"
