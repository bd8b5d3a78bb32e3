"""Update of a boosted model by new observations, without those of the earlier fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastemf.boosting.cell_features import CellFeatures
from fastemf.boosting.combination import Combination, Part
from fastemf.boosting.merged_history import merge_history
from fastemf.boosting.observed_cells import ObservedCells, cells_at
from fastemf.boosting.update_record import UpdateRecord, find_moved, measure_levels
from fastemf.inputs.labels import Labels
from fastemf.models.bilinear import MeanFit
from fastemf.models.entities import Entities
from fastemf.models.factorization import Factorization
from fastemf.models.grown_start import align_entities
from fastemf.models.prior_update import NewCells, update_factors
from fastemf.models.reading import CellValues
from fastemf.solver.engine import CompletionEngine
from fastemf.sources.cell_sample import FOLDS, Marks, draw_marks, hashes
from fastemf.support.arrays import Floats, Ints
from fastemf.tuning.baselines import TrainingBaselines, extend_baselines

if TYPE_CHECKING:
    from fastemf.models.boosted import Boosted

IN_FITS = 1 - 1 / FOLDS  # proportion of the fits, and of the histories, that an observation is in


class Grown(NamedTuple):
    """One side of a model with the new items of some observations, and their positions."""

    positions: Ints  # of the observations
    labels: Labels | None  # of all items
    new_labels: Labels | None
    earlier: Ints  # positions of all items in the earlier model; −1 for new ones

    @property
    def n_new(self) -> int:
        """Number of new items."""
        return int(np.count_nonzero(self.earlier < 0))


def update_boosted(
    model: Boosted, given: CellValues, item_features: tuple[Any, Any], n_threads: int
) -> dict[str, Any]:
    """Return the parts of a model that new observations change.

    Factors and histories change; ridges, starts and trees do not.
    """
    axes = zip(model.axes, given[:2], given.labels, ("row labels", "column labels"), strict=True)
    rows, cols = grown = tuple(_grow_axis(*one) for one in axes)
    censored = model._censored_cells(given)
    values = given.values.astype(np.float64) if censored is None else censored.values
    shape = rows.earlier.size, cols.earlier.size
    cells = NewCells(shape, rows.positions, cols.positions, values, given.weights)
    marks = _grow_marks(model, grown, cells)
    of_cells = hashes(marks[0][cells.rows], marks[1][cells.cols])
    observed = ObservedCells(
        shape, cells.rows, cells.cols, values, given.weights, of_cells, np.empty((values.size, 0))
    )  # fmt: skip
    features = _grow_features(model, grown, item_features)
    scored = cells._replace(values=model.normal.to_scores(values))
    masses = [history[:-1, 0] / features.proportion for history in features.history]
    fits = []
    for level in model.fits:
        of_level, updated = scored if level is model.fits[-1] else cells, []
        for fold, fit in enumerate(level):
            own = _grow_fit(fit, grown, cells, n_threads)
            kept = of_level.select(observed.folds != fold)
            updated.append(update_factors(own, kept, (masses[0], masses[1]), n_threads))
        fits.append(tuple(updated))
    is_weighted = fits[0][0].weighted or (given.weights is not None and (given.weights != 1).any())
    fits[0] = (replace(fits[0][0], weighted=bool(is_weighted)), *fits[0][1:])
    sizes = _out_of_fold_sizes(fits[0], observed)
    return {
        "fits": tuple(fits), "labels": (rows.labels, cols.labels), "marks": marks,
        "features": _merge(features, observed, sizes),
        "combination": _widen(model.combination, values),
        "updated": _record(model, given, values, grown),
    }  # fmt: skip


def _grow_axis(axis: Entities, known: Ints, given: Any, what: str) -> Grown:
    """Append the items that one side lacks, in the order of their labels or indices.

    `known` are the positions of observations, −1 for new items, and `given` their labels.
    """
    if axis.labels is None:
        positions = np.asarray(given, np.int64).ravel()
        size = max(axis.size, int(positions.max(initial=-1)) + 1)
        return Grown(positions, None, None, _append_new(axis.size, size))
    if (known >= 0).all():
        return Grown(known.astype(np.int64), axis.labels, None, np.arange(axis.size))
    listed, codes = Labels.encode(given, axis.name, what=what)
    at = axis.labels.positions(listed, what=what)
    new = Labels.of_distinct(np.sort(listed.values[at < 0]), axis.name, listed.is_utc)
    at = np.where(at < 0, axis.size + new.positions(listed, what=what), at)
    earlier = _append_new(axis.size, axis.size + len(new))
    return Grown(at[codes.ravel()], axis.labels.joined(new), new, earlier)


def _append_new(known: int, size: int) -> Ints:
    return np.append(np.arange(known), np.full(size - known, -1))


def _grow_marks(model: Boosted, grown: Sequence[Grown], cells: NewCells) -> Marks:
    """Draw marks of the new items; known ones keep theirs."""
    source = cells.observe(np.dtype(np.float64), cells.values, 1)
    source = replace(source, row_labels=grown[0].labels, col_labels=grown[1].labels)
    earlier = [
        np.append(own, np.full(side.n_new, -1))
        for own, side in zip(model.marks, grown, strict=True)
    ]  # fmt: skip
    seed = sum(int(own.sum()) for own in model.marks)  # another one for the next update
    return draw_marks(source, np.random.default_rng(seed), (earlier[0], earlier[1]))


def _grow_fit(
    fit: Factorization, grown: Sequence[Grown], cells: NewCells, n_threads: int
) -> Factorization:
    """Append new items without observations to a fit, but with their baselines."""
    rows, cols = (
        align_entities(axis, side.earlier) for axis, side in zip(fit.axes, grown, strict=True)
    )
    imputation, training = fit.imputation, fit.training
    for axis, side in enumerate(grown):
        if imputation is not None:
            imputation = imputation.resize_axis(axis, side.earlier.size, fit.shape[axis])
        if training is not None and side.n_new:
            training = _grow_baselines(fit, training, axis, cells, n_threads)
    return replace(fit, rows=rows, cols=cols, imputation=imputation, training=training)


def _grow_baselines(
    fit: Factorization, before: TrainingBaselines, axis: int, cells: NewCells, n_threads: int
) -> TrainingBaselines:
    """Append the baselines of new items, given those of the items that have some."""
    known = len(before.rows), len(before.cols)
    usable = cells.select((cells.cols, cells.rows)[axis] < known[1 - axis])
    m, n = cells.shape
    usable = usable._replace(shape=(m, known[1]) if axis == 0 else (known[0], n))
    if not usable.values.size:
        nothing = replace(before, rows=np.zeros(m), cols=np.tile([0, 0, before.median], (n, 1)))
        found = nothing
    else:
        observed = usable.observe(fit.X.dtype, usable.values, n_threads)
        engine = CompletionEngine(
            observed, fit.omega, mu=before.constant, scale=fit.scale, n_threads=n_threads
        )
        found = extend_baselines(before, axis, engine, n_threads)
    if axis == 0:
        return replace(before, rows=np.append(before.rows, found.rows[known[0] :]))
    return replace(before, cols=np.concatenate([before.cols, found.cols[known[1] :]]))


def _grow_features(
    model: Boosted, grown: Sequence[Grown], item_features: tuple[Any, Any]
) -> CellFeatures:
    """Append new items without observations to the histories and side features."""
    features = model.features
    for axis, (side, given) in enumerate(zip(grown, item_features, strict=True)):
        if not side.n_new:
            continue
        table = model._item_features(given, side.new_labels, side.n_new, axis)
        history = np.repeat(features.history[axis][-1:], side.n_new + 1, axis=0)
        pair = (history, history)  # only that of the axis is used
        features = features.extend(replace(features, history=pair, rows=table, cols=table), axis)
    return features


def _merge(features: CellFeatures, observed: ObservedCells, sizes: Floats) -> CellFeatures:
    """Merge the histories with the new observations, which are not in all of the fits."""
    weights = np.full(sizes.size, IN_FITS * features.proportion)
    if observed.weights is not None:
        weights *= observed.weights
    rows, cols = (merge_history(features, axis, observed, sizes, weights) for axis in (0, 1))
    return replace(features, history=(rows, cols))


def _out_of_fold_sizes(fits: Sequence[Factorization], observed: ObservedCells) -> Floats:
    """Compute the absolute residual of each observation in the fit that has not seen it."""
    sizes = np.empty(observed.values.size)
    for fold, fit in enumerate(fits):
        out = np.flatnonzero(observed.folds == fold)
        predicted = MeanFit([fit]).predict(observed.rows[out], observed.cols[out])
        sizes[out] = np.abs(observed.values[out] - predicted)
    return sizes


def _widen(combination: Combination, values: Floats) -> Combination:
    """Widen the range of the predictions to that of the new values."""
    low = min(combination.low, float(values.min()))
    high = max(combination.high, float(values.max()))
    known, cold = (
        tuple(Part(part.start._replace(low=low, high=high), part.forest) for part in parts)
        for parts in (combination.known, combination.cold)
    )
    return replace(combination, known=known, cold=cold, low=low, high=high)


def _record(
    model: Boosted, given: CellValues, values: Floats, grown: Sequence[Grown]
) -> UpdateRecord:
    """Measure the coverage of the new observations of known items before the update."""
    known, objectives = given._replace(values=values).select_known(), model.features.objectives
    levels: tuple[float, ...] = ()
    before, moved = levels, levels
    if known.values.size:
        predicted = model._predict_cells(known.rows, known.cols, known.side).astype(np.float64)
        cells = cells_at(model.shape, *known[:4])
        levels, before = (
            measure_levels(cells, predicted, objectives), tuple(one.level for one in objectives)
        )  # fmt: skip
        moved = find_moved(levels, before, objectives, cells.effective_size)
    touched = [np.unique(side.positions) for side in grown]
    updated = [
        int(np.count_nonzero(side.earlier[at] >= 0))
        for side, at in zip(grown, touched, strict=True)
    ]  # fmt: skip
    return UpdateRecord(
        False, values.size, (updated[0], updated[1]), (grown[0].n_new, grown[1].n_new), True, True,
        levels, before, moved=moved,
    )  # fmt: skip
