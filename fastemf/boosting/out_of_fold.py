"""Reports of out-of-fold predictions: overall, of cold starts, and by group."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastemf.boosting.cell_features import CellFeatures
from fastemf.boosting.combination import Combination, GroupShifts, limit_and_sort
from fastemf.boosting.coverage_report import (
    CoverageReport,
    GroupCoverage,
    report_coverage,
    report_group,
)
from fastemf.boosting.model_fit import KINDS, OutOfFold
from fastemf.boosting.objective import Objective
from fastemf.boosting.observed_cells import ObservedCells
from fastemf.censoring.coverage import CensoredCells
from fastemf.features.schema import SideFeatures
from fastemf.support.arrays import Floats, Ints, Mask

FEWEST_IN_GROUP = 20  # cells of a group that is reported
MOST_GROUPS = 100  # that are reported, those with the most cells
FEWEST_CALIBRATED = 500  # cells of a group whose coverage is calibrated


def report_out_of_fold(
    cells: ObservedCells,
    t: int,
    objective: Objective,
    observed: OutOfFold,
    cold: OutOfFold,
    censored: CensoredCells | None,
    groups: dict[str, Mask],
) -> CoverageReport:
    """Report the coverage of quantile number t. `groups` are masks of the `observed` cells."""

    def report(found: OutOfFold) -> CoverageReport:
        limited = None if censored is None else censored.select(found.at)
        part = cells.select(found.at)
        return report_coverage(
            part, objective.level, found.predicted[:, t], found.baselines[t], limited
        )

    def report_some(found: OutOfFold, masks: dict[str, Mask]) -> tuple[GroupCoverage, ...]:
        return tuple(
            report_group(name, report(found.select(mask)))
            for name, mask in masks.items()
            if np.count_nonzero(mask) >= FEWEST_IN_GROUP
        )

    kinds = {name: cold.kinds == kind for kind, name in enumerate(KINDS)}
    known = report_some(observed, {KINDS[0]: observed.kinds == 0})
    return replace(
        report(observed),
        cold=known + report_some(cold, kinds),
        groups=report_some(observed, groups),
    )


class Groups(NamedTuple):
    """The group of each sampled observation."""

    column: int  # of the columns of cells
    names: tuple[str, ...]
    codes: Floats  # NaN without a group

    def masks(self, at: Ints, most: int = MOST_GROUPS) -> dict[str, Mask]:
        """Return masks of the largest groups among some observations."""
        codes = self.codes[at]
        counts = np.bincount(codes[~np.isnan(codes)].astype(np.int64))
        largest = np.sort(np.argsort(-counts, kind="stable")[:most]).tolist()
        return {self.names[code]: codes == code for code in largest}


def find_groups(cells: ObservedCells, features: CellFeatures, n_fits: int, name: str) -> Groups:
    """Find the groups of observations, given the name of a feature."""
    place, names = features.place(name)
    given = SideFeatures(observed=cells.features)
    none = [np.zeros(cells.values.size)] * n_fits
    codes = features.columns(none, cells.rows, cells.cols, given)[:, n_fits + 1 + place]
    return Groups(n_fits + 1 + place, names or (), codes)


def calibrate_groups(
    cells: ObservedCells, observed: OutOfFold, groups: Groups, combination: Combination,
    features: CellFeatures,
) -> tuple[Combination, OutOfFold]:  # fmt: skip
    """Shift each group with enough cells to its coverage.

    The out-of-fold predictions of each half of the cells are shifted by the other half.
    """
    is_first = cells.hashes[observed.at] % 2 == 0
    predicted = observed.predicted.copy()
    for half in (is_first, ~is_first):
        shifts = _fit_shifts(
            cells, observed.select(~half), groups, features.objectives, FEWEST_CALIBRATED // 2
        )
        predicted[half] += shifts.of_codes(groups.codes[observed.at[half]])
    lowest = features.lowest(cells.rows[observed.at], cells.cols[observed.at])
    predicted = limit_and_sort(predicted, lowest, combination.low, combination.high)
    shifts = _fit_shifts(cells, observed, groups, features.objectives, FEWEST_CALIBRATED)
    return replace(combination, shifts=shifts), observed._replace(predicted=predicted)


def _fit_shifts(
    cells: ObservedCells, found: OutOfFold, groups: Groups, objectives: tuple[Objective, ...],
    fewest: int,
) -> GroupShifts:  # fmt: skip
    """Compute the shift of each group with at least `fewest` cells."""
    by_code = np.zeros((len(groups.names), len(objectives)))
    for name, own in groups.masks(found.at, found.at.size // fewest).items():
        if np.count_nonzero(own) < fewest:
            continue
        part, code = cells.select(found.at[own]), groups.names.index(name)
        for t, one in enumerate(objectives):
            by_code[code, t] = one.centre(part.values - found.predicted[own, t], part.weights)
    return GroupShifts(groups.column, by_code)
