"""`fit_boosted`, the fit of opened data that quantiles and boosted levels share.

The steps are: fit expectile models and a model of normal scores to all folds but one, compute the
features of rows and columns without each fold, and train the trees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastemf.boosting.cell_features import CellFeatures, fit_cell_features, mean_features
from fastemf.boosting.combination import Combination
from fastemf.boosting.coverage_report import FEWEST_BEYOND
from fastemf.boosting.cross_fitting import FIRST_LEVEL, CrossFit
from fastemf.boosting.earlier_model import EarlierModel, Side, align_model
from fastemf.boosting.model_fit import Fits, OutOfFold, fit_combination
from fastemf.boosting.normal_scores import NormalScores
from fastemf.boosting.objective import EXPECTILE, QUANTILE, Objective
from fastemf.boosting.observed_cells import ObservedCells, sample_cells
from fastemf.boosting.training import lightgbm
from fastemf.boosting.update_record import UpdateRecord, find_moved, find_unseen, measure_levels
from fastemf.censoring.coverage import CensoredCells
from fastemf.censoring.draws import impute_censored
from fastemf.censoring.imputation import codes_as_values
from fastemf.censoring.limits import BETWEEN
from fastemf.features.reading import read_item_features
from fastemf.features.schema import FeatureSchema, FeatureTable, check_feature_names
from fastemf.inputs.labels import Labels
from fastemf.inputs.tables import ColumnNames
from fastemf.models.factorization import Factorization
from fastemf.models.held_out import Figures, measure
from fastemf.solver.settings import Settings, Solver, as_solver
from fastemf.sources.cell_sample import FOLDS, Marks
from fastemf.sources.mapped import map_values
from fastemf.sources.open_source import Data
from fastemf.sources.source import Source
from fastemf.support.arrays import Floats
from fastemf.support.memory import check_memory
from fastemf.support.progress import show_bars
from fastemf.support.terminal import escape_control
from fastemf.support.warn import ConvergenceWarning, warn

UNEQUAL = 1.5  # ratio of pairs to the effective number of cells that an error explains

SideTables = tuple[FeatureTable, FeatureTable, FeatureSchema]


class BoostedFit(NamedTuple):
    """The parts of a boosted model, and out-of-fold predictions of its observations."""

    fits: Fits
    labels: tuple[Labels | None, Labels | None]
    normal: NormalScores
    features: CellFeatures
    combination: Combination
    cells: ObservedCells
    observed: OutOfFold
    cold: OutOfFold
    censored: CensoredCells | None
    marks: Marks
    update: UpdateRecord | None

    def measure(
        self, objectives: tuple[Objective, ...], observed: OutOfFold
    ) -> tuple[Figures, ...]:
        """Measure out-of-fold predictions."""
        cells = self.cells.select(observed.at)
        censored = None if self.censored is None else self.censored.select(observed.at)
        return tuple(
            measure(one, cells, observed.predicted[:, t], censored)
            for t, one in enumerate(objectives)
        )


class ItemTables(NamedTuple):
    """Side features of rows and of columns as given, or None."""

    rows: Any
    cols: Any
    groups: str | None = None  # name of a feature of categories

    def read(self, source: Source, names: ColumnNames) -> SideTables:
        """Read them in the order of a source; the third part is about its observations."""
        lightgbm()  # before anything that takes time
        labels = source.row_labels, source.col_labels
        tables = []
        for axis, given in enumerate((self.rows, self.cols)):
            size = source.shape[axis]
            if given is None:
                tables.append(FeatureTable.fit({}, size))
            else:
                tables.append(read_item_features(given, labels[axis], size, axis))
        rows, cols = tables
        observed = FeatureSchema.fit({}) if source.features is None else source.features.schema
        check_feature_names(observed.names, rows.schema.names, cols.schema.names, names)
        if self.groups is not None:
            _check_groups(self.groups, (rows.schema, cols.schema, observed))
        return rows, cols, observed


def fit_boosted(
    data: Data, settings: Settings, objectives: tuple[Objective, ...], levels: tuple[float, ...],
    side: SideTables, groups: tuple[str | None, bool] = (None, False),
) -> BoostedFit:  # fmt: skip
    """Fit opened data: the first level, further `levels`, and trees for all objectives.

    `groups` are the name of a feature, and whether predictions are shifted by group.
    """
    settings = settings.at_shape(data.fitted.shape)
    earlier, update = None, None
    if not isinstance(settings.init, str):
        earlier = align_model(settings.init, data.fitted, settings)
        data = replace(data, earlier_marks=earlier.marks)
    means, source, imputation = impute_censored(data, settings)
    cells = sample_cells(source, data.marks)
    _check_enough(cells, objectives)
    _check_memory(source.shape, settings, (len(levels) + 2) * FOLDS)
    normal = NormalScores.fit(cells.values, cells.weights)
    of_values = CrossFit(
        means, data.marks, settings, "values", lambda: data.digests,
        None if earlier is None else earlier.fits,
    )  # fmt: skip
    location, residuals = of_values.location(cells, cells.values)
    by_level = [of_values.level(omega) for omega in levels]
    evaluated = {FIRST_LEVEL} | {one.level for one in objectives if one.kind == EXPECTILE}
    training = {omega: of_values.training(omega) for omega in sorted(evaluated)}
    of_scores = CrossFit(
        map_values(means, normal.to_scores), data.marks, settings, "scores", lambda: data.digests,
        None if earlier is None else {FIRST_LEVEL: earlier.of_scores},
    )  # fmt: skip
    first = replace(
        location[0], value_name=data.value_name, imputation=imputation, censored=data.censored,
        weighted=data.is_weighted,
    )  # fmt: skip
    of_levels = tuple(
        (replace(level[0], training=training.get(level[0].omega)), *level[1:])
        for level in ((first, *location[1:]), *by_level)
    )
    fits = (*of_levels, of_scores.level(FIRST_LEVEL))
    _warn_of_limits(fits, settings.max_iter)
    _warn_of_gaps(first)
    with show_bars(settings.progress):
        steps = _LastSteps(fits, normal, residuals, objectives, settings.n_threads)
        combined = None
        if earlier is not None:
            combined, update = steps.keep(cells, side, earlier, groups)
        if combined is None:
            combined = steps.train(cells, side)
    return BoostedFit(
        fits, (source.row_labels, source.col_labels), normal, combined.features,
        combined.combination, combined.cells, combined.observed, combined.cold,
        _censored_cells(data, cells), data.marks, update,
    )  # fmt: skip


class _Combined(NamedTuple):
    """The features and the combination of a fit, with its out-of-fold predictions."""

    cells: ObservedCells
    features: CellFeatures
    combination: Combination
    observed: OutOfFold
    cold: OutOfFold


class _LastSteps(NamedTuple):
    """The steps after the fits: features of cells, starts and trees."""

    fits: Fits
    normal: NormalScores
    residuals: Floats
    objectives: tuple[Objective, ...]
    n_threads: int

    def train(
        self, cells: ObservedCells, side: Side, kappas: Floats | None = None,
        kept: Combination | None = None,
    ) -> _Combined:  # fmt: skip
        """Train starts and trees, or evaluate those that are `kept`."""
        by_fold = fit_cell_features(cells, self.residuals, self.objectives, side, kappas)
        found = fit_combination(cells, self.fits, self.normal, by_fold, self.n_threads, kept)
        return _Combined(cells, mean_features(by_fold), *found)

    def keep(
        self, cells: ObservedCells, side: Side, earlier: EarlierModel,
        groups: tuple[str | None, bool],
    ) -> tuple[_Combined | None, UpdateRecord]:  # fmt: skip
        """Keep the starts and trees of an earlier model, unless their coverage has moved."""
        record = UpdateRecord(
            True, earlier.size, *earlier.counts, earlier.keeps_ridges, trees_kept=False
        )  # fmt: skip
        own, combination = earlier.features, earlier.combination
        same = own.objectives == self.objectives and earlier.groups == groups
        if not same or not earlier.has_schemas(side):
            return None, record
        features = FeatureTable(side[2], cells.features).recode(own.observed)
        cells = replace(cells, features=features)
        kept = self.train(cells, earlier.recode(side), own.kappas, combination)
        cells = cells.select(kept.observed.at)
        levels = measure_levels(cells, kept.observed.fitted, self.objectives)
        before = combination.levels
        moved, unseen = find_moved(levels, before, self.objectives), levels[:0]
        is_unseen = find_unseen(cells, combination.trained)
        if is_unseen.any():
            nominal = tuple(one.level for one in self.objectives)
            some = cells.select(is_unseen)
            unseen = measure_levels(some, kept.observed.fitted[is_unseen], self.objectives)
            moved += find_moved(unseen, nominal, self.objectives, some.effective_size)
        record = replace(
            record, trees_kept=not moved, coverage=levels, before=before, unseen=unseen,
            moved=tuple(sorted({*moved})),
        )  # fmt: skip
        return None if moved else kept, record


def _check_groups(name: str, schemas: tuple[FeatureSchema, ...]) -> None:
    known = [one for schema in schemas for one in schema.names]
    if name not in known:
        listed = ", ".join(map(escape_control, known)) or "none"
        raise ValueError(f"groups must be a feature of the model ({listed}), got {name!r}")
    if not any(name in schema.texts for schema in schemas):
        raise ValueError(f"groups must be a feature of categories, got {name!r} of numbers")


def check_boosted_solver(solver: str | Solver) -> Solver:
    """Refuse settings of the solver that cross-fitted models do not support."""
    solver = as_solver(solver)
    if solver.orthogonalize or solver.reg_scaling != "count":
        raise ValueError(
            "solver must have orthogonalize=False and reg_scaling='count' for boosted models, got "
            f"{solver}"
        )
    return solver


def _check_enough(cells: ObservedCells, objectives: tuple[Objective, ...]) -> None:
    """Refuse quantiles with too few cells beyond them."""
    for one in objectives:
        beyond = cells.effective_size * min(one.level, 1 - one.level)
        if one.kind == QUANTILE and beyond < FEWEST_BEYOND:
            least = FEWEST_BEYOND / cells.effective_size
            possible = (
                f"quantiles from {least:.4g} to {1 - least:.4g} are possible"
                if least < 0.5
                else "there are too few cells for any quantile"
            )
            pairs, more = np.unique(cells.hashes).size, ""
            if pairs > UNEQUAL * cells.effective_size:
                more = (
                    f". The {pairs} pairs count as {cells.effective_size:.0f} because some have "
                    "many more observations than others; weights of one per pair and number of "
                    "observations make them count alike"
                )
            raise ValueError(
                f"taus must have at least {FEWEST_BEYOND} cells on the rarer side of each quantile,"
                f" got {one.level!r} with {beyond:.1f} of {cells.effective_size:.0f} cells; "
                f"{possible}{more}"
            )


def _check_memory(shape: tuple[int, int], settings: Settings, fits: int) -> None:
    width = settings.k + settings.intercepts + 1
    check_memory(
        2 * fits * sum(shape) * width * 8,
        f"{fits} fits of rank {settings.k} to {shape[0]} rows and {shape[1]} columns",
        "lower k, or number rows and columns from 0 without gaps",
    )


def _censored_cells(data: Data, cells: ObservedCells) -> CensoredCells | None:
    """Return the recorded values and censoring directions of the cells, if data are censored."""
    if not data.is_censored:
        return None
    recorded, codes = (
        sample_cells(source, data.marks).values
        for source in (data.fitted, codes_as_values(data.fitted, data.limit))
    )
    drawn = codes == BETWEEN  # values in intervals count as drawn
    recorded, codes = np.where(drawn, cells.values, recorded), np.where(drawn, 0, codes)
    return CensoredCells(recorded, codes.astype(np.int8), cells.values, data.limit)


def _warn_of_limits(fits: Fits, max_iter: int) -> None:
    every = [fit for level in fits for fit in level]
    limited = sum(not fit.converged for fit in every)
    if limited:
        warn(
            f"{limited} of {len(every)} fits did not converge within max_iter={max_iter} sweeps; "
            "raise max_iter or tol",
            ConvergenceWarning,
        )


def _warn_of_gaps(fit: Factorization) -> None:
    if fit.unseen_rows.size or fit.unseen_cols.size:
        warn(
            f"{fit.unseen_rows.size} rows and {fit.unseen_cols.size} columns have no observations; "
            "their predictions are those of unknown rows and columns"
        )
