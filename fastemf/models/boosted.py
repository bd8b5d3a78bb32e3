"""`Boosted`, the base of models whose predictions are corrected by boosted trees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from fastemf.boosting.cell_features import CellFeatures
from fastemf.boosting.combination import Combination
from fastemf.boosting.model_fit import Fits, predict_columns
from fastemf.boosting.normal_scores import NormalScores
from fastemf.boosting.observed_cells import cells_in_memory
from fastemf.boosting.residuals import leave_one_out_residuals
from fastemf.boosting.update_record import UpdateRecord
from fastemf.features.reading import (
    NAMES,
    encode_given,
    encode_items,
    has_labels,
    read_item_features,
)
from fastemf.features.schema import NOT_GIVEN, FeatureTable, SideFeatures
from fastemf.inputs.labels import Labels
from fastemf.inputs.tables import as_read, is_frame, is_table
from fastemf.kernels.threads import count_threads
from fastemf.models.bilinear import Axes, MeanFit, residuals
from fastemf.models.boosted_update import update_boosted
from fastemf.models.factorization import Factorization
from fastemf.models.fold_in import impute_new, new_labels, ridge_of, weighted_engine
from fastemf.models.model import Model
from fastemf.models.reading import GivenFeatures, read_cells
from fastemf.models.similarity import mean_distances
from fastemf.sources.cell_sample import Marks, draw_marks
from fastemf.sources.memory import Observations
from fastemf.sources.suspicious_values import warn_of_new_values
from fastemf.support.arrays import Array, Floats, Indices, Ints
from fastemf.support.memory import check_memory
from fastemf.support.progress import track
from fastemf.support.terminal import escape_control
from fastemf.support.warn import ConvergenceWarning, UniqueWarnings

CELLS_PER_BLOCK = 1 << 14  # so that their columns stay in cache


@dataclass(frozen=True, eq=False, repr=False)
class Boosted(Model):
    """Cross-fitted models, and trees that combine their predictions with features.

    `Quantiles` and `BoostedLevels` describe the attributes.
    """

    _known_remedy: ClassVar = "call update (in a shell, fastemf update), which takes both"

    fits: Fits
    labels: tuple[Labels | None, Labels | None]
    marks: Marks
    normal: NormalScores
    features: CellFeatures
    combination: Combination
    updated: UpdateRecord | None

    @cached_property
    def axes(self) -> Axes:
        """Rows and columns of the first fit, with labels."""
        rows, cols = (
            replace(axis, labels=labels)
            for axis, labels in zip(self.fits[0][0].axes, self.labels, strict=True)
        )
        return rows, cols

    @property
    def k(self) -> int:
        """The rank of each fit."""
        return self.fits[0][0].k

    @property
    def value_name(self) -> str | None:
        """Name of the data column that held the values, if it had one."""
        return self.fits[0][0].value_name

    @property
    def censored(self) -> tuple[str, float] | None:
        """The censoring limit of the training data."""
        return self.fits[0][0].censored

    def _imputing_fit(self, omega: float | None = None) -> Factorization:
        return self.fits[0][0]

    @property
    def _fits(self) -> tuple[Factorization, ...]:
        return tuple(level[0] for level in self.fits[:-1])

    @property
    def _fitted(self) -> tuple[float, ...]:
        return tuple(one.level for one in self.features.objectives)

    def _describe(self, levels: str) -> str:
        m, n = self.shape
        shown = ", ".join(f"{level:g}" for level in self._fitted)
        fits = sum(map(len, self.fits))
        name = type(self).__name__
        features = [one for names in self.features.names for one in names]
        listed = f", features {', '.join(map(escape_control, features))}" if features else ""
        about = f"{levels}=({shown}), k={self.k}, {fits} fits{listed}"
        return f"{name} {m} x {n}, {about}, {self._dtype}"

    # --- prediction of cells ---------------------------------------------------------------

    @property
    def _ranks_unseen(self) -> bool:
        return True

    @cached_property
    def _means(self) -> list[MeanFit]:
        return [MeanFit(level) for level in self.fits]

    def _predict_cell(self, i: int, j: int) -> Any:
        fits = [mean.predict_cell(i, j) for mean in self._means]
        fits[-1] = float(self.normal.to_values(fits[-1]))  # type: ignore[arg-type]
        columns = self.features.cell_columns(fits, i, j)
        return self.combination.predict_cell(self.features, columns, i, j).astype(self._dtype)

    def _predict_cells(self, i: Indices, j: Indices, given: SideFeatures = NOT_GIVEN) -> Array:
        shape, i, j = i.shape, i.ravel(), j.ravel()
        out = np.empty((i.size, len(self._fitted)), self._dtype)
        for first in track(range(0, i.size, CELLS_PER_BLOCK), "cell"):
            part = slice(first, first + CELLS_PER_BLOCK)
            side = SideFeatures(*(None if one is None else one[part] for one in given))
            columns = predict_columns(
                self._means, self.normal, self.features, i[part], j[part], side
            )
            out[part] = self.combination.predict(self.features, columns, i[part], j[part])
        return out.reshape(*shape, len(self._fitted))

    def _predict_rows(self, i: Ints, given: SideFeatures = NOT_GIVEN) -> Array:
        n, count = self.shape[1], len(self._fitted)
        check_memory(
            i.size * n * count * self._dtype.itemsize,
            f"a block of {i.size} rows, {n} columns and {count} predictions per cell",
            "predict fewer rows at a time",
        )
        return self._predict_cells(*np.meshgrid(i, np.arange(n), indexing="ij"), given)

    def _read_features(
        self, features: Any, row_features: Any, col_features: Any, shape: tuple[int, ...],
        labels: tuple[Any, Any] = (None, None), *, by_label: bool = False,
    ) -> SideFeatures:  # fmt: skip
        own = self.features
        schemas = (own.rows.schema, own.cols.schema)
        items: list[Floats | None] = []
        for axis, given in enumerate((row_features, col_features)):
            known = self.labels[axis]
            if is_table(given) and not is_frame(given) and not hasattr(given, "to_frame"):
                given = as_read(given)  # a stream can be read only once
            if given is None:
                items.append(None)
            elif by_label or has_labels(given, known):
                at = self.shape[axis], axis, labels[axis], shape
                items.append(encode_items(schemas[axis], given, known, *at))
            else:
                items.append(encode_given(schemas[axis], given, shape, NAMES[axis]))
        observed = None if features is None else encode_given(own.observed, features, shape)
        return SideFeatures(items[0], items[1], observed)

    @property
    def _feature_schema(self) -> GivenFeatures:
        return GivenFeatures(self.features.observed)

    def _distances(self, axis: int, item: int) -> Floats:
        return mean_distances([mean.axes for mean in self._means[:-1]], axis, item)

    # --- new observations ------------------------------------------------------------------

    def update(
        self, R_new: Any, *, rows: str | None = None, cols: str | None = None,
        values: str | None = None, weights: Any = None, censored: Any = None, shape: Any = None,
        features: Any = None, n_jobs: int = -1, row_features: Any = None, col_features: Any = None,
    ) -> Self:  # fmt: skip
        """Update the model with new observations, without those of the earlier fit.

        The rows and columns of the observations may be known or new. Known ones are solved again
        with their old factors as a prior, which weighs as much as their old observations; new ones
        are folded in. Statistics of rows and columns are updated. Ridges, linear starts and trees
        are not: `updated` of the result reports the coverage of the new observations before the
        update, and which quantiles have moved. To retrain trees, or to forget old observations,
        refit with all data (``init=`` of `fastemf.complete_quantiles`).

        The weight of the prior is an approximation: the number of old observations of a row, times
        the mean over all columns of their squared factors. The order of the observations does not
        matter, but two updates are not exactly one update with both.

        Parameters
        ----------
        R_new
            New observations, in any form that `fastemf.complete` accepts except a store. Tables and
            triplets are matched by label, or else by index; unknown labels and larger indices are
            new rows or columns.
        rows, cols, values, weights, censored, shape, n_jobs
            As in `fold_in`. A new observation counts as much as an old one of the same weight.
        features
            As in `evaluate`; used for the coverage before the update only.
        row_features, col_features
            Side features of the new rows and columns, as in `fold_in`. Those of known ones stay.

        Returns
        -------
        Quantiles or BoostedLevels, like the model
            New rows and columns follow the known ones in the order of their labels. The coverage
            reports are those of the earlier model, and marked as not measured.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R.tocoo()
        >>> i, j = R.coords
        >>> first = (i < 55) & (R.data < 20)
        >>> old, new = ((i[some], j[some], R.data[some]) for some in (first, ~first))
        >>> quantiles = fastemf.complete_quantiles(old, (0.5, 0.9), k=2)
        >>> updated = quantiles.update(new)
        >>> updated.shape, updated.updated.new
        ((60, 50), (5, 0))
        """
        names = self._column_names(R_new, (rows, cols, values))
        given = read_cells(
            self.axes, R_new, names, weights, shape, strict=False,
            features=self._ask_features(features), censored=self._find_censored(R_new, censored),
        )  # fmt: skip
        items = (row_features, col_features)
        warn_of_new_values(given.values, self.combination.low, self.combination.high)
        with UniqueWarnings(leave_out=ConvergenceWarning):
            parts = update_boosted(self, given, items, count_threads(n_jobs))
        updated: Self = self._changed(**parts)
        return updated

    # --- new rows and columns --------------------------------------------------------------

    def _fold_in(
        self, observed: Observations, axis: int, n_threads: int, item_features: Any = None
    ) -> Any:
        observed = impute_new(self.fits[0][0], observed, axis, n_threads)
        unlabelled = replace(observed, row_labels=None, col_labels=None)
        scored = unlabelled.map_values(self.normal.to_scores)
        fits = []
        with UniqueWarnings(leave_out=ConvergenceWarning):
            for place, level in enumerate(self.fits):
                source = scored if place == len(self.fits) - 1 else unlabelled
                fits.append(tuple(fit._fold_in(source, axis, n_threads) for fit in level))
        left_out = np.stack([_new_residuals(fit, axis, unlabelled, n_threads) for fit in fits[0]])
        labels = new_labels(self.axes[axis], axis, observed)
        table = self._item_features(item_features, labels, observed.shape[axis], axis)
        features = self.features.fold_in(axis, cells_in_memory(observed), left_out, table)
        rng = np.random.default_rng(int(self.marks[axis].sum()))  # other marks for the next
        marks = draw_marks(unlabelled, rng)[axis]
        return self._with_axis(axis, tuple(fits), features, labels, marks)

    def _item_features(self, given: Any, labels: Labels | None, n: int, axis: int) -> FeatureTable:
        """Read the side features of new rows (axis 0) or columns; absent ones are missing."""
        schema = (self.features.rows, self.features.cols)[axis].schema
        if given is None:
            return FeatureTable(schema, schema.encode({}, n))
        found = read_item_features(given, labels, n, axis, schema)
        schema.check_known(found.schema.names, NAMES[axis])
        return FeatureTable(schema, found.recode(schema))

    def _append(self, new: Any, axis: int) -> Any:
        fits = tuple(
            tuple(fit._append(other, axis) for fit, other in zip(level, others, strict=True))
            for level, others in zip(self.fits, new.fits, strict=True)
        )
        ours, theirs = self.labels[axis], new.labels[axis]
        labels = None if ours is None or theirs is None else ours.joined(theirs)
        marks = np.concatenate([self.marks[axis], new.marks[axis]])
        features = self.features.extend(new.features, axis)
        return self._with_axis(axis, fits, features, labels, marks)

    def _with_axis(
        self, axis: int, fits: Fits, features: CellFeatures, labels: Labels | None, marks: Ints
    ) -> Any:
        """Return the model with one axis replaced."""
        both = (labels, self.labels[1]) if axis == 0 else (self.labels[0], labels)
        pair = (marks, self.marks[1]) if axis == 0 else (self.marks[0], marks)
        return self._changed(fits=fits, features=features, labels=both, marks=pair)

    def _changed(self, **parts: Any) -> Any:
        """Return the model with other parts, and its reports marked as not measured."""
        return replace(self, **parts)


def _new_residuals(fit: Factorization, axis: int, observed: Observations, n_threads: int) -> Floats:
    """Compute leave-one-out residuals of folded-in rows (axis 0) or columns, by row.

    The observations were not used to fit the other side.
    """
    engine = weighted_engine(fit, observed, n_threads)
    this, other = (
        side.extended_factor().astype(observed.dtype)
        for side in (fit.axes[axis], fit.axes[1 - axis])
    )
    leverage = engine.leverage(axis, this, other, ridge_of(fit))
    return leave_one_out_residuals(
        residuals(fit.axes, fit.mu, observed), fit.omega, cells_in_memory(observed),
        engine.weighting.observations, (leverage, None) if axis == 0 else (None, leverage),
    )  # fmt: skip
