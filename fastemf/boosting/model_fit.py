"""`fit_combination`: train starts and trees on out-of-fold columns.

Each cell is predicted by models that did not use it. Cold starts are trained and measured on cells
that are presented as if their row, their column or both were unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastemf.boosting.cell_features import BASELINES, CellFeatures
from fastemf.boosting.combination import Combination, Part, limit_and_sort
from fastemf.boosting.forest import ForestPredictor
from fastemf.boosting.normal_scores import NormalScores
from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.boosting.observed_cells import ObservedCells
from fastemf.boosting.start import LinearStart, fit_start
from fastemf.boosting.training import TrainingTable, boost
from fastemf.boosting.update_record import measure_levels, sample_hashes
from fastemf.features.schema import SideFeatures
from fastemf.models.bilinear import MeanFit
from fastemf.models.factorization import Factorization
from fastemf.sources.cell_sample import FOLDS, N_HASHES, hashes
from fastemf.support.arrays import Floats, Indices, Ints, Mask

KNOWN, NEW_ROW, NEW_COL, BOTH_NEW = range(4)
KINDS = ("known pairs", "new rows", "new columns", "new rows and columns")
MOST_TRAINED = 250_000  # observations that train trees
# Cells that train each kind of cold start: known cells complete those that are of this kind. New
# rows and columns with few observations, most of those in data, differ from those with many.
MASKED = {NEW_ROW: 8_000, NEW_COL: 8_000, BOTH_NEW: 4_000}
MOST_MASKED = 1.0  # proportion of the known cells
WITHOUT_FEATURES = 0.25  # proportion of them without side features
UNAVERAGED = 0.5  # part of the error of out-of-fold coverage that predictions share
SALT = 0x51ED270B  # added to the hash of a cell, for random numbers independent of its fold

Fits = tuple[tuple[Factorization, ...], ...]  # by level and fold; the last are of normal scores


class OutOfFold(NamedTuple):
    """Out-of-fold predictions of evaluated observations."""

    at: Ints  # positions among the sampled observations
    kinds: Ints
    predicted: Floats  # (observations, objectives)
    fitted: Floats  # likewise, by the starts and trees that were trained on all folds
    baselines: tuple[dict[str, Floats], ...]  # by objective

    def select(self, mask: Mask) -> OutOfFold:
        """Return the predictions of some of the observations."""
        baselines = tuple(
            {name: values[mask] for name, values in one.items()} for one in self.baselines
        )
        return OutOfFold(
            self.at[mask], self.kinds[mask], self.predicted[mask], self.fitted[mask], baselines
        )


def predict_columns(
    means: Sequence[MeanFit], normal: NormalScores, features: CellFeatures, i: Indices, j: Indices,
    given: SideFeatures,
) -> Floats:  # fmt: skip
    """Return the columns of cells; −1 is an unknown row or column."""
    fits = [mean.predict(i, j) for mean in means]
    fits[-1] = normal.to_values(fits[-1])
    return features.columns(fits, i, j, given)


def fit_combination(
    cells: ObservedCells, fits: Fits, normal: NormalScores, by_fold: list[CellFeatures],
    n_threads: int, kept: Combination | None = None,
) -> tuple[Combination, OutOfFold, OutOfFold]:  # fmt: skip
    """Train all parts, given features of cells without the observations of each fold.

    The out-of-fold predictions are of observations as they are, and of cold starts. The parts of
    `kept`, if given, are not trained anew.
    """
    sample = np.flatnonzero(_uniform(cells, 0) < MOST_TRAINED / cells.values.size)
    kinds = _kinds_without_fold(cells, by_fold)[sample]
    is_known = kinds == KNOWN
    known, unknown = sample[is_known], sample[~is_known]
    drawn = _draw_kinds(cells.select(known), np.bincount(kinds, minlength=len(KINDS)))
    masked = known[drawn != KNOWN]
    cold = np.concatenate([unknown, masked])
    cold_kinds = np.concatenate([kinds[~is_known], drawn[drawn != KNOWN]])
    is_hidden = np.zeros(cold.size, bool)
    is_hidden[unknown.size :] = _uniform(cells.select(masked), 2) < WITHOUT_FEATURES
    fitter = _Fitter(cells, fits, normal, by_fold, n_threads)
    known_kept, cold_kept = (None, None) if kept is None else (kept.known, kept.cold)
    cold_parts, of_cold = fitter.fit(cold, cold_kinds, is_hidden, cold_kept)
    known_parts, of_known = cold_parts, of_cold.select(of_cold.kinds == KNOWN)  # if none is known
    if known.size:
        is_hidden = np.zeros(known.size, bool)
        known_parts, of_known = fitter.fit(known, kinds[is_known], is_hidden, known_kept)
    is_natural = np.isin(of_cold.at, unknown)
    if of_known.at.size:  # in the proportions of the data
        folds = np.unique(cells.folds[of_known.at])
        is_natural &= np.isin(cells.folds[of_cold.at], folds)
    observed = join(of_known, of_cold.select(is_natural))
    if kept is not None:
        trained, levels, shifts = kept.trained, kept.levels, kept.shifts
    else:
        evaluated, objectives = cells.select(observed.at), by_fold[0].objectives
        levels = measure_levels(evaluated, observed.fitted, objectives)
        trained, shifts = sample_hashes(cells), None
    combination = Combination(
        known_parts, cold_parts, fitter.low, fitter.high, trained, levels, shifts
    )  # fmt: skip
    return combination, observed, of_cold


class _Fitter:
    """Fits the parts of all objectives to some of the cells."""

    def __init__(
        self, cells: ObservedCells, fits: Fits, normal: NormalScores, by_fold: list[CellFeatures],
        n_threads: int,
    ) -> None:  # fmt: skip
        self.cells, self.normal, self.by_fold, self.n_threads = cells, normal, by_fold, n_threads
        self.means = [[MeanFit([level[fold]]) for level in fits] for fold in range(FOLDS)]
        self.low, self.high = float(cells.values.min()), float(cells.values.max())

    def fit(
        self, at: Ints, kinds: Ints, is_hidden: Mask, kept: tuple[Part, ...] | None
    ) -> tuple[tuple[Part, ...], OutOfFold]:
        """Fit to the cells `at`, presented as of these kinds, some without side features."""
        cells, objectives = self.cells.select(at), self.by_fold[0].objectives
        i = np.where((kinds == NEW_ROW) | (kinds == BOTH_NEW), -1, cells.rows)
        j = np.where((kinds == NEW_COL) | (kinds == BOTH_NEW), -1, cells.cols)
        columns = self._columns(cells, i, j, is_hidden)
        first = len(self.means[0]) + 1
        categorical = [first + one for one in self.by_fold[0].categorical]
        table = TrainingTable(
            columns, cells.values, cells.weights, cells.folds, categorical, self.n_threads,
            cells.effective_sizes(),
        )  # fmt: skip
        some = np.arange(at.size) if kept is not None else np.flatnonzero(table.is_evaluated)
        if kept is None:
            parts, predicted = self._train(table, cells)
        else:
            parts, predicted = self._limit(kept), None
        cells, i, j = cells.select(some), i[some], j[some]
        starts = np.stack([part.start.predict(columns[some]) for part in parts], axis=-1)
        trees = ForestPredictor([part.forest for part in parts]).predict(columns[some])
        fitted = self._finish(starts + trees, cells.folds, i, j)
        if predicted is not None:
            predicted = self._finish(predicted[some], cells.folds, i, j)
        baselines = tuple(self._baselines(t, cells.folds, i, j) for t in range(len(objectives)))
        return parts, OutOfFold(
            at[some], kinds[some], fitted if predicted is None else predicted, fitted, baselines
        )  # fmt: skip

    def _train(self, table: TrainingTable, cells: ObservedCells) -> tuple[tuple[Part, ...], Floats]:
        """Train the parts, and predict the evaluated cells out of fold."""
        objectives, scale = self.by_fold[0].objectives, len(self.means[0])
        parts, predicted = [], np.empty((cells.values.size, len(objectives)))
        for t, objective in enumerate(objectives):
            start = self._start(t, table.columns, cells)
            forest, predicted[:, t] = boost(table, start.predict(table.columns), objective)
            if objective.kind == QUANTILE:
                start, predicted[:, t] = _calibrate(
                    start, predicted[:, t], cells, table.columns[:, scale], scale, objective
                )
            parts.append(Part(start, forest))
        return tuple(parts), predicted

    def _limit(self, kept: tuple[Part, ...]) -> tuple[Part, ...]:
        """Limit the starts of an earlier model to the range of these data."""
        return tuple(
            Part(part.start._replace(low=self.low, high=self.high), part.forest) for part in kept
        )

    def _columns(self, cells: ObservedCells, i: Indices, j: Indices, is_hidden: Mask) -> Floats:
        """Return the columns of cells by the fits without their fold."""
        out: Floats | None = None
        for fold, (means, features) in enumerate(zip(self.means, self.by_fold, strict=True)):
            part = np.flatnonzero(cells.folds == fold)
            side = (
                features.rows.at(cells.rows[part]), features.cols.at(cells.cols[part]),
                cells.features[part],
            )  # fmt: skip
            for one in side:
                one[is_hidden[part]] = np.nan
            found = predict_columns(
                means, self.normal, features, i[part], j[part], SideFeatures(*side)
            )
            out = np.empty((i.size, found.shape[1])) if out is None else out
            out[part] = found
        return np.empty((0, 0)) if out is None else out

    def _start(self, t: int, columns: Floats, cells: ObservedCells) -> LinearStart:
        """Fit the start of objective number t."""
        features, scale = self.by_fold[0], len(self.means[0])
        at = np.concatenate([np.arange(scale + 1), scale + 1 + features.own_places(t)])
        objective = features.objectives[t]
        return fit_start(columns, cells.values, objective, at, cells.weights)

    def _finish(self, predicted: Floats, folds: Ints, i: Indices, j: Indices) -> Floats:
        """Limit and sort predictions, as those of the model."""
        lowest = np.empty_like(predicted)
        for fold, features in enumerate(self.by_fold):
            part = folds == fold
            lowest[part] = features.lowest(i[part], j[part])
        return limit_and_sort(predicted, lowest, self.low, self.high)

    def _baselines(self, t: int, folds: Ints, i: Indices, j: Indices) -> dict[str, Floats]:
        """Compute the baselines of objective number t by the features without each cell's fold."""
        out = {name: np.empty(i.size) for name in BASELINES}
        for fold, features in enumerate(self.by_fold):
            part = folds == fold
            for name, values in features.baselines(t, i[part], j[part]).items():
                out[name][part] = values
        return out


def _calibrate(
    start: LinearStart, predicted: Floats, cells: ObservedCells, scales: Floats, place: int,
    objective: Objective,
) -> tuple[LinearStart, Floats]:  # fmt: skip
    """Shift a start and the out-of-fold predictions, by a multiple of each cell's scale.

    This removes half of the excess or shortfall of the out-of-fold coverage, which is that of
    single fits. Predictions are means of five fits, whose smaller noise removes about the rest.
    """
    used = np.flatnonzero(~np.isnan(predicted) & (scales > 0))
    if not used.size or place not in start.indices:
        return start, predicted
    weights = None if cells.weights is None else cells.weights[used]
    relative = (cells.values[used] - predicted[used]) / scales[used]
    shift = UNAVERAGED * objective.centre(relative, weights)
    coefficients = start.coefficients + shift * (start.indices == place)
    return start._replace(coefficients=coefficients), predicted + shift * scales


def _uniform(cells: ObservedCells, number: int) -> Floats:
    """Return a random number in [0, 1) for each cell, from its hash."""
    return np.asarray(hashes(cells.hashes, np.int64(SALT * (2 * number + 1) % N_HASHES)) / N_HASHES)


def _kinds_without_fold(cells: ObservedCells, by_fold: list[CellFeatures]) -> Ints:
    """Return whether the row and the column of each cell have observations in other folds."""
    kinds = np.empty(cells.values.size, np.int64)
    for fold, features in enumerate(by_fold):
        part = cells.folds == fold
        row, col = (
            history[at[part], 0] == 0
            for history, at in zip(features.history, (cells.rows, cells.cols), strict=True)
        )
        kinds[part] = NEW_ROW * row + NEW_COL * col
    return kinds


def _draw_kinds(cells: ObservedCells, counts: Ints) -> Ints:
    """Draw what each known cell is presented as, given how many cells are of each kind."""
    drawn, kinds = _uniform(cells, 1), np.full(cells.values.size, KNOWN)
    first = 0.0
    for kind, most in MASKED.items():
        wanted = min(most, MOST_MASKED * cells.values.size * most / sum(MASKED.values()))
        last = first + max(0.0, wanted - counts[kind]) / max(cells.values.size, 1)
        kinds[(first <= drawn) & (drawn < last)] = kind
        first = last
    return kinds


def join(one: OutOfFold, other: OutOfFold) -> OutOfFold:
    """Return the predictions of both."""
    baselines = tuple(
        {name: np.concatenate([ours[name], theirs[name]]) for name in ours}
        for ours, theirs in zip(one.baselines, other.baselines, strict=True)
    )
    at, kinds = (np.concatenate(pair) for pair in zip(one[:2], other[:2], strict=True))
    predicted, fitted = (np.concatenate(pair) for pair in zip(one[2:4], other[2:4], strict=True))
    return OutOfFold(at, kinds, predicted, fitted, baselines)
