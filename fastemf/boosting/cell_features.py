"""`CellFeatures`: the columns from which the boosted trees predict a cell.

They are, in this order:

- the prediction of each cross-fitted model, in the units of the data,
- the scale of the residuals of the cell,
- of its row, and then of its column: the history (statistics of their values, the scale of their
  residuals, and their shrunken quantiles) and the side features,
- side features of the observation.

The history of an unknown row is that of a row without observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastemf.boosting.objective import Objective
from fastemf.boosting.observed_cells import ObservedCells
from fastemf.boosting.residuals import log_scales, residual_scales
from fastemf.boosting.statistics import STATISTICS, group_statistics, shrunk_quantiles
from fastemf.features.schema import NOT_GIVEN, FeatureSchema, FeatureTable, SideFeatures
from fastemf.sources.cell_sample import FOLDS
from fastemf.support.arrays import Floats, Indices, Ints, Mask
from fastemf.support.terminal import escape_control

KAPPAS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # priors of shrunken quantiles, in observations
SCALE = len(STATISTICS)  # index of the scale in a history; the quantiles follow
# Baseline predictions; the sum of effects is that of row and column minus the constant.
BASELINES = ("constant", "column", "row + column", "larger of both")

Pair = tuple[Floats, Floats]


@dataclass(frozen=True, eq=False)
class CellFeatures:
    """Everything but the fits that the columns of a cell depend on.

    Parameters
    ----------
    objectives
        What the model predicts.
    history
        Histories of rows and of columns; the last line of each is for unknown ones.
    mean_scale
        Mean absolute residual of the location fits.
    centres
        The quantile of all values, for each objective.
    kappas
        Priors of the shrunken quantiles of rows and of columns, for each objective.
    rows, cols
        Side features of rows and of columns.
    observed
        Schema of the features of observations.
    proportion
        Proportion of the observations that the histories count.
    """

    objectives: tuple[Objective, ...]
    history: Pair
    mean_scale: float
    centres: Floats
    kappas: Floats
    rows: FeatureTable
    cols: FeatureTable
    observed: FeatureSchema
    proportion: float

    @cached_property
    def _blocks(self) -> Pair:
        """Histories and side features of rows and of columns."""
        rows, cols = (
            np.hstack([history, table.at(np.append(np.arange(len(history) - 1), -1))])
            for history, table in zip(self.history, (self.rows, self.cols), strict=True)
        )
        return rows, cols

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Names of the side features of rows, of columns, and of observations."""
        return self.rows.schema.names, self.cols.schema.names, self.observed.names

    @property
    def categorical(self) -> list[int]:
        """Indices of the side features that are categories, among the columns after the scale."""
        places = (self.place(name) for names in self.names for name in names)
        return [place for place, categories in places if categories is not None]

    def place(self, name: str) -> tuple[int, tuple[str, ...] | None]:
        """Return the index of a side feature among the columns after the scale.

        The second part is its categories; None for numbers.
        """
        place = 0
        schemas = (self.rows.schema, self.cols.schema, self.observed)
        before = (self.history[0].shape[1], self.history[1].shape[1], 0)
        for schema, skipped in zip(schemas, before, strict=True):
            if name in schema.names:
                at = schema.names.index(name)
                categories = schema.categories[at] if at in schema.categorical else None
                return place + skipped + at, categories
            place += skipped + len(schema.names)
        known = ", ".join(escape_control(one) for names in self.names for one in names)
        raise ValueError(f"groups must be a feature of the model ({known or 'none'}), got {name!r}")

    def subjects(self, n_fits: int, row: str, col: str, pair: str) -> list[str]:
        """Name what each column is about."""
        n_history = self.history[0].shape[1]
        of_rows, of_cols, observed = self.names
        rows, cols = [row] * n_history, [col] * n_history
        return [*[pair] * (n_fits + 1), *rows, *of_rows, *cols, *of_cols, *observed]

    def is_cold(self, i: Indices, j: Indices) -> Mask:
        """Mark the cells whose row or column is unknown or has no observations."""
        return np.asarray((self.history[0][i, 0] == 0) | (self.history[1][j, 0] == 0))

    def columns(
        self, fits: Sequence[Floats], i: Indices, j: Indices, given: SideFeatures = NOT_GIVEN
    ) -> Floats:
        """Return the columns of the cells (i, j), one row each; −1 is an unknown row or column.

        `given` side features replace those of the model.
        """
        row, col = self.history
        scale = self.mean_scale * np.exp(row[i, SCALE] + col[j, SCALE])
        blocks = [block[at] for block, at in zip(self._blocks, (i, j), strict=True)]
        for block, side in zip(blocks, given[:2], strict=True):
            if side is not None:
                np.copyto(block[:, row.shape[1] :], side, where=~np.isnan(side))
        observed = given.observed
        if observed is None:
            observed = np.full((i.size, len(self.observed.names)), np.nan)
        return np.asarray(np.column_stack([*fits, scale, *blocks, observed]), np.float64)

    def cell_columns(self, fits: list[float], i: int, j: int) -> Floats:
        """Return the columns of one cell of known indices, bitwise as `columns`."""
        row, col = self._blocks
        scale = self.mean_scale * np.exp(row[i, SCALE] + col[j, SCALE])
        return np.concatenate([[*fits, scale], row[i], col[j], self._no_observation])

    @cached_property
    def _no_observation(self) -> Floats:
        return np.full(len(self.observed.names), np.nan)

    @property
    def width(self) -> int:
        """Number of columns after the scale."""
        return sum(len(block.T) for block in self._blocks) + len(self.observed.names)

    def own_places(self, t: int) -> Ints:
        """Return the indices of the quantiles of row and column among the columns after the scale.

        They are those of objective number t.
        """
        place = SCALE + 1 + t
        return np.array([place, self._blocks[0].shape[1] + place])

    def lowest(self, i: Indices, j: Indices) -> Floats:
        """Return the smaller quantile of row and column, as an array (cells, objectives)."""
        row, col = (table[at, SCALE + 1 :] for table, at in zip(self.history, (i, j), strict=True))
        return np.minimum(row, col)

    def baselines(self, t: int, i: Indices, j: Indices) -> dict[str, Floats]:
        """Return baseline predictions of objective number t; −1 is an unknown row or column."""
        own = [table[at, SCALE + 1 + t] for table, at in zip(self.history, (i, j), strict=True)]
        constant = np.full(i.size, self.centres[t])
        both = own[0] + own[1] - constant
        found = (constant, own[1], both, np.maximum(own[1], both))
        return dict(zip(BASELINES, found, strict=True))

    def fold_in(
        self, axis: int, cells: ObservedCells, residuals: Floats, features: FeatureTable
    ) -> CellFeatures:
        """Replace the rows (axis 0) or columns by new ones with these observations.

        `residuals` are those of the location fits, by fold.
        """
        groups, others = (cells.rows, cells.cols) if axis == 0 else (cells.cols, cells.rows)
        size = cells.shape[axis]
        logs = np.zeros(size + 1)
        if self.mean_scale > 0:
            about = self.history[1 - axis][others, SCALE]
            sizes = np.abs(residuals).mean(axis=0)
            logs = log_scales(sizes, groups, about, size, self.mean_scale, cells.weights)
        history = _history(
            groups, cells.values, size, logs, self.objectives, self.centres, self.kappas[:, axis],
            cells.weights,
        )  # fmt: skip
        return self._replace_axis(axis, history, features)

    def extend(self, other: CellFeatures, axis: int) -> CellFeatures:
        """Append the rows (axis 0) or columns of another."""
        history = np.concatenate([self.history[axis][:-1], other.history[axis]])
        ours, theirs = ((one.rows, one.cols)[axis] for one in (self, other))
        values = np.concatenate([ours.values, theirs.values])
        return self._replace_axis(axis, history, FeatureTable(ours.schema, values))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, without cached objects, for a copy or a pickle."""
        names = {field.name for field in fields(self)}
        return {name: part for name, part in vars(self).items() if name in names}

    def _replace_axis(self, axis: int, history: Floats, features: FeatureTable) -> CellFeatures:
        if axis == 0:
            return replace(self, history=(history, self.history[1]), rows=features)
        return replace(self, history=(self.history[0], history), cols=features)


def fit_cell_features(
    cells: ObservedCells,
    residuals: Floats,
    objectives: tuple[Objective, ...],
    side: tuple[FeatureTable, FeatureTable, FeatureSchema],
    kappas: Floats | None = None,
) -> list[CellFeatures]:
    """Compute the features of cells without the observations of each fold.

    `residuals` are those of the location fits, by fold, and `kappas` those of an earlier model.
    """
    centres = np.array([one.centre(cells.values, cells.weights) for one in objectives])
    kappas = _choose_kappas(cells, objectives) if kappas is None else kappas
    found = []
    for fold in range(FOLDS):
        kept = cells.folds != fold
        part = cells.select(kept)
        scales = residual_scales(
            residuals[fold][kept], part.rows, part.cols, cells.shape, part.weights
        )
        sides = zip((part.rows, part.cols), cells.shape, (scales.rows, scales.cols), strict=True)
        row, col = (
            _history(
                groups, part.values, size, logs, objectives, centres, kappas[:, axis], part.weights
            )
            for axis, (groups, size, logs) in enumerate(sides)
        )
        found.append(
            CellFeatures(
                objectives, (row, col), scales.mean, centres, kappas, *side, cells.proportion
            )
        )
    return found


def mean_features(by_fold: Sequence[CellFeatures]) -> CellFeatures:
    """Average the histories over the folds that have them."""
    rows, cols = (_nanmean(np.stack([one.history[axis] for one in by_fold])) for axis in (0, 1))
    scale = float(np.mean([one.mean_scale for one in by_fold]))
    return replace(by_fold[0], history=(rows, cols), mean_scale=scale)


def _history(
    groups: Ints, values: Floats, size: int, logs: Floats, objectives: tuple[Objective, ...],
    centres: Floats, kappas: Floats, weights: Floats | None,
) -> Floats:  # fmt: skip
    """Return statistics, log scale and shrunken quantiles of each row or column."""
    own = [
        shrunk_quantiles(groups, values, size, one.level, kappa, centre, weights)
        for one, kappa, centre in zip(objectives, kappas, centres, strict=True)
    ]
    return np.column_stack([group_statistics(groups, values, size, weights), logs, *own])


def _choose_kappas(cells: ObservedCells, objectives: tuple[Objective, ...]) -> Floats:
    """Choose the priors of shrunken quantiles by their out-of-fold loss in the first fold."""
    out = cells.folds == 0
    kept, rest = cells.select(~out), cells.select(out)
    chosen = np.full((len(objectives), 2), KAPPAS[0])
    for t, one in enumerate(objectives):
        if not rest.values.size:
            continue
        centre = one.centre(kept.values, kept.weights)
        for axis in (0, 1):
            groups, others = (kept.rows, rest.rows) if axis == 0 else (kept.cols, rest.cols)
            losses = []
            for kappa in KAPPAS:
                own = shrunk_quantiles(
                    groups, kept.values, cells.shape[axis], one.level, kappa, centre, kept.weights
                )
                losses.append(one.loss(rest.values - own[others], rest.weights))
            chosen[t, axis] = KAPPAS[int(np.argmin(losses))]
    return chosen


def _nanmean(stacked: Floats) -> Floats:
    """Average over the first axis, ignoring NaN; NaN where nothing is left."""
    known = ~np.isnan(stacked)
    counts = known.sum(axis=0)
    total = np.where(known, stacked, 0.0).sum(axis=0)
    mean: Floats = np.divide(total, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    return mean
