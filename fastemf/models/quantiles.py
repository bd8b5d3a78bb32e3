"""`Quantiles`, the quantiles of every cell, and `Interval`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fastemf.inputs.labels import Labels
from fastemf.models.bilinear import Axes, MeanFit, residuals
from fastemf.models.evaluation import Evaluation, evaluate_quantiles
from fastemf.models.explanation import QuantileParts, explain_quantile
from fastemf.models.factorization import Factorization
from fastemf.models.fold_in import impute_new, new_labels, ridge_of, weighted_engine
from fastemf.models.model import Model
from fastemf.models.quantile_file import Fits, write_quantiles
from fastemf.models.reading import CellValues
from fastemf.models.similarity import mean_distances
from fastemf.quantile_model.coverage_report import CoverageReport
from fastemf.quantile_model.item_features import FEATURES, ItemFeatures
from fastemf.quantile_model.normal_scores import NormalScores
from fastemf.quantile_model.observed_cells import cells_in_memory
from fastemf.quantile_model.residuals import leave_one_out_residuals
from fastemf.quantile_model.stack import Stack
from fastemf.sources.memory import Observations
from fastemf.support.arrays import Array, Floats, Indices, Ints, Mask
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_choice, check_fitted_level, check_proportion
from fastemf.support.warn import ConvergenceWarning, UniqueWarnings

CELLS_PER_BLOCK = 1 << 15  # so that their features stay in cache


class Interval(NamedTuple):
    """Prediction intervals, in the units of the data; see `Quantiles.interval`.

    Attributes
    ----------
    lower : array
        The lower ends; minus infinity for ``side="below"``.
    upper : array
        The upper ends; infinity for ``side="above"``.
    """

    lower: Array
    upper: Array


@dataclass(frozen=True, eq=False, repr=False)
class Quantiles(Model):
    """Quantiles of every cell of a matrix, with their out-of-fold coverage.

    `fastemf.complete_quantiles` returns it. `predict` and `predict_block` have the quantiles as
    the last axis, along which values never decrease; `rank` takes one of them as `tau`: the safest
    service has the smallest 0.95 quantile. Predictions lie in the range of the data. Those of a
    row without observations, or of an unknown row with ``unknown="model"``, are based on the
    column and on all data.

    Attributes
    ----------
    fits : tuple of tuples of Factorization
        The cross-fitted models, without labels: one tuple per expectile level, ω = 0.5 first, and
        a last one for the normal scores at 0.5. A tuple has one fit per fold, to the other folds.
    labels : pair of Labels, or of None
        Labels of rows and columns.
    normal : NormalScores
        The map from values to normal scores.
    items : ItemFeatures
        Quantiles and scales of the residuals of rows and columns.
    stack : Stack
        The regressions that combine the features of a cell into quantiles.
    coverage : tuple of CoverageReport
        Out-of-fold coverage of each quantile.

    See Also
    --------
    fastemf.plot.levels : The quantiles of one row as bands.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
    >>> quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), k=2)
    >>> quantiles.predict([3, 4, 5], 7).shape, quantiles.predict_block([0, 5]).shape
    ((3, 2), (2, 50, 2))
    >>> safest = quantiles.rank(3, 5, order="smallest", tau=0.9)
    >>> bool((safest.values[1:] >= safest.values[:-1]).all())
    True
    """

    _of_quantiles: ClassVar = True

    fits: Fits
    labels: tuple[Labels | None, Labels | None]
    normal: NormalScores
    items: ItemFeatures
    stack: Stack
    coverage: tuple[CoverageReport, ...]

    @property
    def taus(self) -> tuple[float, ...]:
        """The quantiles, as numbers in (0, 1), in increasing order."""
        return self.stack.taus

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
    def columns(self) -> tuple[str, ...]:
        """Names of the features of the regressions."""
        return (*FEATURES, *(f"fit at {level[0].omega:g}" for level in self.fits[1:-1]))

    def __repr__(self) -> str:
        m, n = self.shape
        taus = ", ".join(f"{tau:g}" for tau in self.taus)
        fits = sum(map(len, self.fits))
        return f"<Quantiles {m} x {n}, taus=({taus}), k={self.k}, {fits} fits, {self._dtype}>"

    def __str__(self) -> str:
        return "\n".join([repr(self), *map(str, self.coverage)])

    # --- predictions -----------------------------------------------------------------------

    def interval(
        self, rows: Any, cols: Any = None, *, coverage: float = 0.9, side: str = "central",
        unseen: str = "model", unknown: str = "error",
    ) -> Interval:  # fmt: skip
        """Predict intervals with a given coverage for the cells (rows[i], cols[i]).

        Parameters
        ----------
        rows, cols, unseen, unknown
            As in `predict`.
        coverage
            Target proportion of values inside the interval, in (0, 1).
        side
            ``"central"``: between the quantiles (1 − coverage) / 2 and (1 + coverage) / 2;
            ``"below"``: below the quantile `coverage`; ``"above"``: above the quantile
            1 − coverage. These quantiles must be among those fitted.

        Returns
        -------
        Interval
            ``lower`` and ``upper``, of the broadcast shape.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> quantiles = fastemf.complete_quantiles(R, (0.1, 0.5, 0.9), k=2)
        >>> low, high = quantiles.interval(3, 7, coverage=0.8)
        >>> bool(low <= high)
        True
        >>> quantiles.interval(3, 7, coverage=0.9, side="below").lower.tolist()
        -inf
        """
        proportion = check_proportion(coverage, "coverage")
        check_choice(side, "side", ("central", "below", "above"))
        ends: dict[str, tuple[float | None, float | None]] = {
            "central": ((1 - proportion) / 2, (1 + proportion) / 2),
            "below": (None, proportion),
            "above": (1 - proportion, None),
        }
        hint = ""
        if side == "central" and proportion in self.taus:
            hint = f' (side="below" needs only {proportion!r})'
        name = f'tau for coverage={coverage!r} and side="{side}"{hint}'
        places = [None if tau is None else self._place(tau, name) for tau in ends[side]]
        predicted = self.predict(rows, cols, unseen=unseen, unknown=unknown)
        missing = np.isnan(predicted[..., 0])
        lower, upper = (
            np.where(missing, np.nan, predicted.dtype.type(infinite))
            if at is None
            else predicted[..., at]
            for at, infinite in zip(places, (-np.inf, np.inf), strict=True)
        )
        return Interval(np.asarray(lower), np.asarray(upper))

    def explain(self, row: Any, col: Any, *, tau: float) -> QuantileParts:
        """Decompose one quantile of one cell into its terms, in the units of the data.

        Parameters
        ----------
        row, col
            Indices, or labels if the model has them.
        tau
            One of the quantiles.

        Returns
        -------
        QuantileParts
            The terms ``parts`` (one per feature of the regression), ``intercept`` and ``table``
            (the correction table), and the prediction ``value``: their sum, clipped to the range
            of the data and sorted with the other quantiles.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), k=2)
        >>> parts = quantiles.explain(3, 7, tau=0.9)
        >>> bool(parts.value == quantiles.predict(3, 7)[1])
        True
        """
        t = self._place(tau, "tau")
        i, j = (np.array([self._position(axis, given)]) for axis, given in enumerate((row, col)))
        location, *fits, scores = (mean.predict(i, j) for mean in self._means)
        columns = self.items.features(i, j, location, scores, fits, self.normal)
        value = float(self._predict_cells(i, j)[0, t])
        return explain_quantile(self.taus[t], self.columns, columns[t], self.stack.parts[t], value)

    def _evaluate_cells(self, cells: CellValues) -> Evaluation:
        predicted = self._predict_cells(cells.rows, cells.cols)
        training = self.fits[0][0].training
        return evaluate_quantiles(cells, self.shape, predicted, self.items, training)

    def _distances(self, axis: int, item: int) -> Floats:
        return mean_distances([mean.axes for mean in self._means[:-1]], axis, item)

    # --- new rows and columns --------------------------------------------------------------

    def _fold_in(self, observed: Observations, axis: int, n_threads: int) -> Quantiles:
        observed = impute_new(self.fits[0][0], observed, axis, n_threads)
        unlabelled = replace(observed, row_labels=None, col_labels=None)
        scored = unlabelled.map_values(self.normal.to_scores)
        left_out, fits = {}, []
        with UniqueWarnings(leave_out=ConvergenceWarning):
            for place, level in enumerate(self.fits):
                last = place == len(self.fits) - 1
                source = scored if last else unlabelled
                fits.append(tuple(fit._fold_in(source, axis, n_threads) for fit in level))
                if place == 0 or last:
                    left_out[last] = np.stack(
                        [_new_residuals(fit, axis, source, n_threads) for fit in fits[-1]]
                    )
        items = self.items.fold_in(axis, cells_in_memory(observed), left_out[False], left_out[True])
        labels = new_labels(self.axes[axis], axis, observed)
        return self._with_axis(axis, tuple(fits), items, labels)

    def _append(self, new: Quantiles, axis: int) -> Quantiles:
        fits = tuple(
            tuple(fit._append(other, axis) for fit, other in zip(level, others, strict=True))
            for level, others in zip(self.fits, new.fits, strict=True)
        )
        ours, theirs = self.labels[axis], new.labels[axis]
        labels = None if ours is None or theirs is None else ours.joined(theirs)
        return self._with_axis(axis, fits, self.items.extend(new.items, axis), labels)

    def _with_axis(
        self, axis: int, fits: Fits, items: ItemFeatures, labels: Labels | None
    ) -> Quantiles:
        """Return quantiles with one axis replaced, and coverage reports marked as not measured."""
        coverage = tuple(replace(report, measured=False) for report in self.coverage)
        both = (labels, self.labels[1]) if axis == 0 else (self.labels[0], labels)
        return replace(self, fits=fits, items=items, labels=both, coverage=coverage)

    # --- the model file --------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, atomically; read it with `fastemf.load`.

        The file holds about 25 pairs of factors.

        Examples
        --------
        >>> import fastemf, tempfile, os
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> path = os.path.join(tempfile.mkdtemp(), "quantiles.npz")
        >>> fastemf.complete_quantiles(R, (0.5, 0.9), k=2).save(path)
        >>> fastemf.load(path).taus
        (0.5, 0.9)
        """
        write_quantiles(path, self)

    # --- prediction of cells ---------------------------------------------------------------

    @cached_property
    def _means(self) -> list[MeanFit]:
        return [MeanFit(level) for level in self.fits]

    @cached_property
    def _used(self) -> list[Mask]:
        return [part.regression.coefficients != 0 for part in self.stack.parts]

    def _predict_cell(self, i: int, j: int) -> Any:
        fits = [np.array([mean.predict_cell(i, j)]) for mean in self._means]
        return self._combine(np.array([i]), np.array([j]), fits)[0].astype(self._dtype)

    def _predict_cells(self, i: Indices, j: Indices) -> Array:
        shape, i, j = i.shape, i.ravel(), j.ravel()
        out = np.empty((i.size, len(self.taus)), self._dtype)
        for first in range(0, i.size, CELLS_PER_BLOCK):
            part = slice(first, first + CELLS_PER_BLOCK)
            fits = [mean.predict(i[part], j[part]) for mean in self._means]
            out[part] = self._combine(i[part], j[part], fits)
        return out.reshape(*shape, len(self.taus))

    def _combine(self, i: Indices, j: Indices, fits: list[Floats]) -> Floats:
        """Compute the quantiles of cells from the predictions of the mean fits."""
        location, *others, scores = fits
        columns = self.items.features(i, j, location, scores, others, self.normal, self._used)
        return self.stack.predict(columns)

    def _predict_rows(self, i: Ints) -> Array:
        n, count = self.shape[1], len(self.taus)
        check_memory(
            i.size * n * count * self._dtype.itemsize,
            f"a block of {i.size} rows, {n} columns and {count} quantiles",
            "predict fewer rows at a time",
        )
        return self._predict_cells(*np.meshgrid(i, np.arange(n), indexing="ij"))

    @property
    def _fitted(self) -> tuple[float, ...]:
        return self.taus

    def _place(self, tau: Any, name: str) -> int:
        return check_fitted_level(tau, self.taus, name, "quantiles")


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
