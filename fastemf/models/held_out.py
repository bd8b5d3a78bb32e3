"""`HeldOutReport` and `DriftReport`: performance on cells that were not fitted, and random folds.

Coverage of a quantile (of a level its effective omega) and loss are estimated with 95 % confidence
intervals. Observations of one cell are correlated, so the intervals treat cells as independent.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fastemf.boosting.coverage_report import NORMAL_95, report_coverage
from fastemf.boosting.objective import EXPECTILE, QUANTILE, Objective
from fastemf.boosting.observed_cells import ObservedCells, cells_in_memory
from fastemf.censoring.coverage import CensoredCells
from fastemf.features.schema import SideFeatures
from fastemf.features.times import format_seconds
from fastemf.models.reading import CellValues
from fastemf.models.tabular import Columns, Tabular
from fastemf.sources.memory import Observations
from fastemf.support.array_file import require
from fastemf.support.arrays import Array, Floats
from fastemf.support.display_names import expectile_name, quantile_name
from fastemf.support.records import unpack_record
from fastemf.support.terminal import escape_control
from fastemf.tuning.record import Tuning

if TYPE_CHECKING:
    from fastemf.models.model import Model

Interval = tuple[float, float]
Report = TypeVar("Report", bound="HeldOutReport")


@dataclass(frozen=True, slots=True)
class Figures:
    """Performance at one quantile or expectile level.

    Attributes
    ----------
    cells : int
        Effective number of cells.
    coverage : float
        Coverage of a quantile; effective omega of an expectile level. It should equal the level.
    interval : (float, float)
        Its 95 % confidence interval.
    loss : float
        Mean pinball loss, in the units of the data; mean expectile loss, in their squared units.
    loss_interval : (float, float)
        Its 95 % confidence interval.
    """

    cells: int
    coverage: float
    interval: Interval
    loss: float
    loss_interval: Interval


@dataclass(frozen=True, slots=True)
class HeldOutReport(Tabular):
    """Performance on given cells that were not fitted, beside that in random folds.

    ``print(report)`` shows a table, and states in words what differs beyond the intervals.

    Attributes
    ----------
    objective : {"quantile", "expectile"}
        What the model predicts.
    levels : tuple of float
        The quantiles or expectile levels.
    held_out : tuple of Figures
        Performance on the cells that were not fitted, by level. Empty if there are none.
    folds : tuple of Figures
        Performance in random folds (out of fold, or on the validation cells of a tuning), by level.
        Empty if it was not measured.
    observations : int
        Number of observations of the cells that were not fitted.
    """

    objective: str
    levels: tuple[float, ...]
    held_out: tuple[Figures, ...]
    folds: tuple[Figures, ...]
    observations: int

    @property
    def names(self) -> list[str]:
        """Names of the quantiles or levels."""
        name = quantile_name if self.objective == QUANTILE else expectile_name
        return list(map(name, self.levels))

    def columns(self) -> Columns:
        """Return the figures by column name."""
        first, kind = ("quantile", "coverage"), "pinball loss"
        if self.objective != QUANTILE:
            first, kind = ("level", "effective omega"), "loss"
        found: Columns = {first[0]: self.names if self.held_out else []}
        for where, parts in (("", self.held_out), (" in random folds", self.folds)):
            if not parts:
                continue
            found |= {
                f"{first[1]}{where}": [one.coverage for one in parts],
                f"lower{where}": [one.interval[0] for one in parts],
                f"upper{where}": [one.interval[1] for one in parts],
                f"{kind}{where}": [one.loss for one in parts],
            }
        return found

    @property
    def differs(self) -> bool:
        """Whether a coverage differs from that in random folds, or a loss is larger.

        The 95 % confidence intervals must not overlap. Without random folds, coverage is compared
        with its level.
        """
        return any(self._differences())

    def verdict(self) -> str:
        """State in words, one line per quantile or level, how the cells compare."""
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        lines = []
        for place, (name, own, differs) in enumerate(
            zip(self.names, self.held_out, self._differences(), strict=False)
        ):
            about, loss = "covers", "pinball loss"
            if self.objective != QUANTILE:
                about, loss = "has the effective omega", "loss"
            there, value = "", ""
            if self.folds:
                fold = self.folds[place]
                there, value = f", {fold.coverage:.4f} in random folds", f", {fold.loss:.4g} there"
            low, high = own.interval
            lines.append(
                f"{name} {about} {own.coverage:.4f} (95 % CI {low:.4f} to {high:.4f}) {self._where}"
                f"{there}; {loss} {own.loss:.4g}{value}" + (f": {self._finding}" if differs else "")
            )
        return lines or ["no row and column has both earlier and latest observations"]

    def _differences(self) -> list[bool]:
        found = []
        for place, own in enumerate(self.held_out):
            if not self.folds:
                level = self.levels[place]
                found.append(_are_apart(own.interval, (level, level)))
                continue
            other = self.folds[place]
            larger = own.loss_interval[0] > other.loss_interval[1]
            found.append(larger or _are_apart(own.interval, other.interval))
        return found

    @property
    def _where(self) -> str:
        return "of the validation cells"

    @property
    def _finding(self) -> str:
        return "they differ from random folds"

    def details(self) -> list[str]:
        """Describe the report in lines for a model."""
        return [self._title, *(f"    {line}" for line in self._notes)]

    @property
    def _title(self) -> str:
        return f"{self.observations:,} observations of validation cells"

    @property
    def _notes(self) -> list[str]:
        return self._lines()


@dataclass(frozen=True, slots=True)
class DriftReport(HeldOutReport):
    """Performance on the latest tenth of the time of a fit to the earlier part.

    The latest tenth are the latest observations, about 10 % of all; observations of equal time stay
    together. The figures in random folds are of the same fit to the earlier part.

    Attributes
    ----------
    objective, levels, held_out, folds, observations
        As in `HeldOutReport`. `held_out` is of the observations in the latest tenth whose row and
        column have earlier ones.
    left_out : int
        Number of the other observations in the latest tenth.
    proportion : float
        Proportion of the observations that are in the latest tenth.
    start : float
        Time from which on they are.
    time : str
        Name of the column of the time; empty if it was an array.
    is_date : bool
        Whether times are dates, in seconds since 1970.
    half_life : float
        The half-life of the weights, in the unit of the time; infinite without such weights.
    """

    left_out: int
    proportion: float
    start: float
    time: str
    is_date: bool
    half_life: float

    @property
    def _finding(self) -> str:
        return "the data drift"

    @property
    def _where(self) -> str:
        return f"of the latest {100 * self.proportion:.2g} %"

    @property
    def _title(self) -> str:
        name = escape_control(self.time or "time")
        left_out = f", {self.left_out:,} of new rows or columns left out" if self.left_out else ""
        return (
            f"{self.observations:,} latest observations ({name} from {self._format(self.start)} "
            f"on{left_out}), by a fit to the earlier ones"
        )

    @property
    def _notes(self) -> list[str]:
        return [*self._lines(), *self._weights()]

    def _weights(self) -> list[str]:
        if math.isinf(self.half_life):
            return []
        age = format_seconds(self.half_life) if self.is_date else f"{self.half_life:.4g}"
        return [f"weights are halved with every {age} of age"]

    def _format(self, time: float) -> str:
        return str(np.datetime64(round(time), "s")) if self.is_date else f"{time:.6g}"


def _are_apart(one: Interval, other: Interval) -> bool:
    return one[0] > other[1] or other[0] > one[1]


# --- measuring -----------------------------------------------------------------------------------


def measure(
    objective: Objective, cells: ObservedCells, predicted: Floats,
    censored: CensoredCells | None = None,
) -> Figures:  # fmt: skip
    """Measure predictions of cells, which are the same where the hashes are."""
    values = cells.values if censored is None else censored.values
    r, predicted = values - predicted, predicted.astype(np.float64)
    v = np.ones(r.size) if cells.weights is None else cells.weights
    if objective.kind == QUANTILE:
        report = report_coverage(cells, objective.level, predicted, {}, censored)
        if censored is not None:
            r = censored.residuals(predicted)
        loss, interval = _mean(objective.losses(r), v, cells.hashes)
        return Figures(report.cells, report.coverage, report.interval, loss, interval)
    loss, interval = _mean(objective.losses(r), v, cells.hashes)
    level, (low, high) = _mean((r < 0).astype(np.float64), v * np.abs(r), cells.hashes)
    around = max(low, 0.0), min(high, 1.0)
    return Figures(round(cells.effective_size), level, around, loss, interval)


def _mean(terms: Floats, weights: Floats, groups: Array) -> tuple[float, Interval]:
    """Return the weighted mean of terms, and its 95 % confidence interval for independent groups.

    It is NaN, with an interval of all numbers, if the weights are 0.
    """
    mass = float(np.sum(weights))
    if mass == 0:
        return math.nan, (-math.inf, math.inf)
    mean = float(np.sum(weights * terms)) / mass
    _, group = np.unique(groups, return_inverse=True)
    deviations = np.bincount(group, weights * (terms - mean))
    half = NORMAL_95 * math.sqrt(float(np.sum(deviations**2))) / mass
    return mean, (mean - half, mean + half)


def measure_model(model: Model, observed: Observations) -> tuple[Figures, ...]:
    """Measure the predictions of observations of the model's rows and columns, by level."""
    side, cells = observed.by_row, cells_in_memory(observed)
    schema = model._feature_schema
    features = None if schema is None else schema.by_row(observed)
    rows, cols = cells.rows, cells.cols
    predicted = model._predict_cells(rows, cols, SideFeatures(observed=features))
    found = []
    for place, level in enumerate(objectives_of(model)):
        codes = side.censored if side.censored.size else None
        given = CellValues(rows, cols, side.values, None, codes=codes)
        censored = model._censored_cells(given, None if model._of_quantiles else level.level)
        own = predicted if predicted.ndim == 1 else predicted[:, place]
        found.append(measure(level, cells, own, censored))
    return tuple(found)


def objectives_of(model: Model) -> list[Objective]:
    """Return what a model predicts."""
    kind = QUANTILE if model._of_quantiles else EXPECTILE
    return [Objective(kind, level) for level in model._fitted]


def report_held_out(
    model: Model, held_out: Observations, folds: tuple[Figures, ...]
) -> HeldOutReport:
    """Report the performance of a model on cells that it was not fitted to."""
    objectives = objectives_of(model)
    levels = tuple(one.level for one in objectives)
    figures = measure_model(model, held_out)
    return HeldOutReport(objectives[0].kind, levels, figures, folds, held_out.size)


def figures_of_tuning(tuning: Tuning | None) -> tuple[Figures, ...]:
    """Return the performance on the validation cells of a tuning; empty without one."""
    if tuning is None or tuning.best is None:
        return ()
    level, half = tuning.effective_omega, NORMAL_95 * tuning.best.standard_error
    interval = tuning.loss - half, tuning.loss + half
    return (Figures(tuning.cells, level, (level, level), tuning.loss, interval),)


# --- in files ------------------------------------------------------------------------------------


def pack_reports(**reports: HeldOutReport | None) -> dict[str, Any]:
    """Return header fields of a model file for those reports that there are."""
    return {name: asdict(one) for name, one in reports.items() if one is not None}


def unpack_report(kind: type[Report], header: dict[str, Any], name: str) -> Report | None:
    """Check one of these fields, and return the report; None if there is none."""
    if name not in header:
        return None
    report = unpack_record(kind, header[name], name)
    counts = {len(report.levels)}
    right = len(report.held_out) in counts | {0} and len(report.folds) in counts | {0}
    require(right, f"{name} must have figures for each level")
    return report
