"""`EarlierModel`: the model from which a new fit starts, in the order of the new data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastemf.boosting.cell_features import CellFeatures
from fastemf.boosting.combination import Combination
from fastemf.boosting.cross_fitting import FoldFits
from fastemf.features.schema import FeatureSchema, FeatureTable
from fastemf.models.grown_start import align_entities, match_items
from fastemf.solver.settings import Settings
from fastemf.sources.cell_sample import FOLDS, Marks
from fastemf.sources.source import Source
from fastemf.support.arrays import Ints
from fastemf.support.warn import warn

if TYPE_CHECKING:
    from fastemf.models.boosted import Boosted

MOST_ABSENT = 0.1  # proportion of its rows, or columns, that data may lack without a warning

Side = tuple[FeatureTable, FeatureTable, FeatureSchema]


class EarlierModel(NamedTuple):
    """The parts of an earlier model that a new fit uses."""

    positions: tuple[Ints, Ints]  # of the rows and columns in the model; −1 for new ones
    marks: Marks  # −1 for new rows and columns
    fits: dict[float, FoldFits]  # of the values, by level
    of_scores: FoldFits
    features: CellFeatures
    combination: Combination
    groups: tuple[str | None, bool]  # their feature, and whether predictions are shifted by group
    size: int  # of the new data
    keeps_ridges: bool

    @property
    def counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Numbers of known and of new rows and columns."""
        rows, cols = (int(np.count_nonzero(at >= 0)) for at in self.positions)
        return (rows, cols), (self.positions[0].size - rows, self.positions[1].size - cols)

    def has_schemas(self, side: Side) -> bool:
        """Return whether side features have the names and kinds of those of the model."""
        own, (rows, cols, observed) = self.features, side
        return (
            _kinds(own.rows.schema) == _kinds(rows.schema)
            and _kinds(own.cols.schema) == _kinds(cols.schema)
            and _kinds(own.observed) == _kinds(observed)
        )

    def recode(self, side: Side) -> Side:
        """Encode side features by the schemas of the model; new categories are missing."""
        rows, cols = (
            FeatureTable(ours.schema, given.recode(ours.schema))
            for given, ours in zip(side[:2], (self.features.rows, self.features.cols), strict=True)
        )
        return rows, cols, self.features.observed


def align_model(model: Boosted, source: Source, settings: Settings) -> EarlierModel:
    """Match the rows and columns of an earlier model to those of the data."""
    if model.k != settings.k:
        raise ValueError(f"init has rank {model.k}, k is {settings.k}; they must be equal")
    has_intercepts = model.fits[0][0].rows.has_intercepts
    if has_intercepts != settings.intercepts:
        raise ValueError(f"init has intercepts={has_intercepts}, got {settings.intercepts}")
    if any(len(level) != FOLDS for level in model.fits):
        raise ValueError(f"init must have the fits of {FOLDS} folds, got {len(model.fits[0])}")
    labels, found = (source.row_labels, source.col_labels), []
    for axis, size in enumerate(source.shape):
        theirs, ours = match_items(model.axes, axis, labels[axis], source.shape)
        positions = np.full(size, -1)
        positions[ours] = theirs
        absent = model.shape[axis] - np.size(theirs)
        if absent > MOST_ABSENT * model.shape[axis]:
            warn(
                f"{absent} of {model.shape[axis]} {('rows', 'columns')[axis]} of init have no "
                "observations in R, and the new model does not know them: R should be all data, "
                "old and new (update takes only the new)"
            )
        found.append(positions)
    levels = []
    for level in model.fits:
        aligned = []
        for fit in level:
            rows, cols = (
                align_entities(axis, at) for axis, at in zip(fit.axes, found, strict=True)
            )
            aligned.append(replace(fit, rows=rows, cols=cols))
        levels.append(tuple(aligned))
    marks = [
        np.where(at < 0, -1, own[at]) for at, own in zip(found, model.marks, strict=True)
    ]  # fmt: skip
    return EarlierModel(
        (found[0], found[1]), (marks[0], marks[1]),
        {level[0].omega: level for level in levels[:-1]}, levels[-1], model.features,
        model.combination,
        (getattr(model, "groups", None), model.combination.shifts is not None), source.size,
        settings.reg == "auto",
    )  # fmt: skip


def _kinds(schema: FeatureSchema) -> dict[str, str]:
    return dict(zip(schema.names, schema.kinds, strict=True))
