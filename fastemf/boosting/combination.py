"""`Combination`: predictions of cells from their columns, by linear starts and boosted trees."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastemf.boosting.cell_features import CellFeatures
from fastemf.boosting.forest import Forest, ForestPredictor
from fastemf.boosting.start import LinearStart
from fastemf.support.arrays import Floats, Indices, Ints


class Part(NamedTuple):
    """The prediction of an objective: a linear start, and trees that correct it."""

    start: LinearStart
    forest: Forest


class GroupShifts(NamedTuple):
    """Shifts of the predictions of groups, which are the categories of a side feature."""

    column: int
    by_code: Floats  # (categories, objectives)

    def of_codes(self, codes: Floats) -> Floats:
        """Return the shifts of cells in these groups; that of a missing group is 0."""
        found = np.vstack([self.by_code, np.zeros(self.by_code.shape[1])])
        return np.asarray(found[np.where(np.isnan(codes), -1, codes).astype(np.int64)])


@dataclass(frozen=True, eq=False)
class Combination:
    """The parts of each objective.

    Parameters
    ----------
    known
        For cells of known rows and columns.
    cold
        For cells whose row or column is unknown or has no observations.
    low, high
        Range of the data.
    trained
        Hashes of cells that the trees were trained on, a sample of them if there are many.
    levels
        Coverage of the quantiles (or effective omegas of the levels) by starts and trees in the
        training data, from out-of-fold columns.
    shifts
        Shifts of predictions by group, which calibrate them.
    """

    known: tuple[Part, ...]
    cold: tuple[Part, ...]
    low: float
    high: float
    trained: Ints
    levels: tuple[float, ...]
    shifts: GroupShifts | None = None

    def predict(self, features: CellFeatures, columns: Floats, i: Indices, j: Indices) -> Floats:
        """Predict the cells (i, j) with these columns, as an array (cells, objectives)."""
        out = np.empty((len(columns), len(self.known)))
        is_cold = features.is_cold(i, j)
        for parts, trees, chosen in (
            (self.known, self._known_trees, ~is_cold), (self.cold, self._cold_trees, is_cold)
        ):  # fmt: skip
            if not chosen.any():
                continue
            some = columns if chosen.all() else np.ascontiguousarray(columns[chosen])
            starts = np.stack([part.start.predict(some) for part in parts], axis=-1)
            out[chosen] = starts + trees.predict(some)
        if self.shifts is not None:
            out += self.shifts.of_codes(columns[:, self.shifts.column])
        return limit_and_sort(out, features.lowest(i, j), self.low, self.high)

    def predict_cell(self, features: CellFeatures, columns: Floats, i: int, j: int) -> Floats:
        """Predict one cell with these columns, bitwise as `predict`."""
        is_cold = features.history[0][i, 0] == 0 or features.history[1][j, 0] == 0
        parts, trees = self.known, self._known_trees
        if is_cold:
            parts, trees = self.cold, self._cold_trees
        out = trees.predict_cell(columns) + [part.start.predict_cell(columns) for part in parts]
        if self.shifts is not None:
            out += self.shifts.of_codes(columns[self.shifts.column])
        return limit_and_sort(out, features.lowest(i, j), self.low, self.high)  # type: ignore

    @cached_property
    def _known_trees(self) -> ForestPredictor:
        return ForestPredictor([part.forest for part in self.known])

    @cached_property
    def _cold_trees(self) -> ForestPredictor:
        return ForestPredictor([part.forest for part in self.cold])

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, without cached objects, for a copy or a pickle."""
        names = {field.name for field in fields(self)}
        return {name: part for name, part in vars(self).items() if name in names}


def limit_and_sort(predicted: Floats, lowest: Floats, low: float, high: float) -> Floats:
    """Return predictions within the range of the data that never cross.

    The minimum of the data says little about a cell whose prediction is lower still. It is
    predicted as `lowest`, the smaller quantile of its row and its column.
    """
    predicted = np.where(predicted < low, lowest, np.minimum(predicted, high))
    predicted.sort(axis=-1)
    return predicted
