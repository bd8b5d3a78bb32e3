"""`Model`, the base of all fitted models: the methods common to levels and quantiles.

A subclass predicts cells, solves for new rows, and scores its predictions.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fastemf.censoring.coverage import CensoredCells
from fastemf.features.reading import ITEMS, NAMES
from fastemf.inputs.tables import ColumnNames
from fastemf.kernels.threads import count_threads
from fastemf.models import reading
from fastemf.models.censored_cells import censored_cells
from fastemf.models.fold_in import check_new
from fastemf.models.predictor import UNKNOWN, check_known_cells, is_strict
from fastemf.models.search import SearchMethods
from fastemf.models.summary import Summary, summarize_axis
from fastemf.models.tabular import library_of
from fastemf.sources.memory import Observations
from fastemf.support.validation import check_axis, check_choice
from fastemf.support.warn import warn

if TYPE_CHECKING:
    from fastemf.models.evaluation import Evaluation
    from fastemf.models.factorization import Factorization


class Model(SearchMethods):
    """A fitted model of one matrix, with one expectile level, several levels, or quantiles."""

    # How to use more data of known rows and columns, which `extend` refuses.
    _known_remedy: ClassVar = "refit with fastemf update --all or complete(..., init=fit)"

    # --- what a subclass defines -----------------------------------------------------------

    @property
    @abstractmethod
    def value_name(self) -> str | None:
        """Name of the data column that held the values, if it had one."""

    @property
    @abstractmethod
    def censored(self) -> tuple[str, float] | None:
        """The censoring limit of the training data, if one applied to all values."""

    @abstractmethod
    def _imputing_fit(self, omega: float | None = None) -> Factorization:
        """Return the fit whose imputation applies, to one expectile level if one is given."""

    @abstractmethod
    def _evaluate_cells(self, cells: reading.CellValues) -> Evaluation:
        """Score the predictions of cells, and the baselines."""

    @abstractmethod
    def _fold_in(
        self, observed: Observations, axis: int, n_threads: int, item_features: Any = None
    ) -> Self:
        """Solve for the rows (axis 0) or columns of `observed`, given the other side.

        `item_features` are their side features, for models that have some.
        """

    @abstractmethod
    def _append(self, new: Self, axis: int) -> Self:
        """Append folded-in rows (axis 0) or columns to those of the model."""

    # --- scores ----------------------------------------------------------------------------

    def summary(
        self, R: Any, axis: int = 0, *, omega: float | None = None, tau: float | None = None,
        rows: str | None = None, cols: str | None = None, values: str | None = None,
        weights: Any = None, censored: Any = None, shape: Any = None, features: Any = None,
    ) -> Summary:  # fmt: skip
        """Summarize the residuals of each row (axis 0) or column (axis 1) of `R`.

        The summary shows which rows a model fits badly or, on held-out data, predicts badly.
        `omega` and `tau` are as in `rank`, `features` as in `evaluate`; other parameters are as in
        `fold_in`. Censored values are imputed; for a quantile, values and predictions are compared
        up to the limit, and coverage is that of the cells whose quantile lies within it.

        Returns
        -------
        Summary
            Arrays with one value per row (or column): ``observations``, ``mean``, ``rms``,
            ``loss``, ``effective_omega`` (for quantiles ``coverage``), and ``weight`` if there are
            weights.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> print(fit.summary(np.array([[2.0, 4.0], [6.0, np.nan]]) + 1))
        2 rows, 0 without observations:
        row  observations  mean     rms  loss  effective_omega
          1             1     7       1   0.5                0
          0             2     4  0.7071  0.25                0
        """
        check_axis(axis, ("rows", "columns"))
        selected, predict = self._select(omega, tau)
        asked = self._ask_features(features)
        observed = self._observe(R, (rows, cols, values), weights, shape, censored, asked)
        side = (observed.by_row, observed.by_col)[axis]
        places = (side.keys, side.indices) if axis == 0 else (side.indices, side.keys)
        codes = side.censored if side.censored.size else None
        cells = reading.CellValues(*places, side.values, None, codes=codes)
        summary = summarize_axis(
            self.axes[axis], predict, selected, observed, axis, is_quantile=self._of_quantiles,
            features=None if asked is None else asked.by_row(observed),
            censored=self._censored_cells(cells, selected),
        )  # fmt: skip
        return replace(summary, library=library_of(R))

    def evaluate(
        self, R: Any, *, unknown: str = "error", rows: str | None = None, cols: str | None = None,
        values: str | None = None, weights: Any = None, censored: Any = None, shape: Any = None,
        features: Any = None, row_features: Any = None, col_features: Any = None,
    ) -> Evaluation:  # fmt: skip
        """Score the predictions of observations, and compare them with baselines.

        The baselines are fitted to the training data: a constant, column intercepts, row and
        column intercepts, and column medians. The model stores a few numbers per row and column
        for them. Quantiles are compared with baseline quantiles and with column medians. Evaluate
        on held-out data.

        Parameters
        ----------
        R
            Held-out observations, in any form that `fastemf.complete` accepts except a store.
        unknown
            Treatment of unknown labels, or of indices beyond the last: ``"error"``; with
            ``"nan"`` their observations are left out and counted; with ``"model"`` they are
            predicted as in `predict`.
        rows, cols, values, weights, shape
            As in `fold_in`.
        censored
            Which values are censored, as in `fastemf.complete`; by default those at or beyond the
            censoring limit of the fit, if it has one, and with False none. Pinball losses compare
            min(value, limit) with min(prediction, limit) (for left-censored values the larger
            ones). Coverage is that of the cells whose quantile lies within the limit. Expectile
            losses use imputed values.
        features
            Side features of the observations, for a model that was fitted with some. Those of
            tables and files are their columns; for triplets and sparse matrices pass an array or a
            dict of arrays, as in `fastemf.complete_quantiles`. Absent ones are missing.
        row_features, col_features
            Side features of rows and of columns, as in `fastemf.complete_quantiles`: tables with
            one line per label. They imply ``unknown="model"`` for their side; those of known
            labels are replaced.

        Returns
        -------
        Evaluation
            Scores of the model and of the baselines at each level: loss, skill, effective
            omega, coverage, pinball loss and relative error. For quantiles: pinball loss, skill,
            coverage, relative error, and the reports in ``coverage``.

        Examples
        --------
        >>> import fastemf, pandas as pd
        >>> log = pd.DataFrame(fastemf.datasets.make_latencies(random_state=0)._asdict())
        >>> names = {"rows": "client", "cols": "service", "values": "ms"}
        >>> fit = fastemf.complete(log[1000:], 0.5, 2, intercepts=True, reg="noise", **names)
        >>> scores = fit.evaluate(log[:1000])
        >>> scores.score("fit").loss < scores.score("column").loss < scores.score("constant").loss
        True
        """
        check_choice(unknown, "unknown", UNKNOWN)
        names = self._column_names(R, (rows, cols, values))
        items = (row_features, col_features)
        given = reading.read_cells(
            self.axes, R, names, weights, shape, strict=is_strict(unknown, (features, *items)),
            features=self._ask_features(features), censored=self._find_censored(R, censored),
        )  # fmt: skip
        if unknown == "error":
            check_known_cells(self.axes, (given.rows, given.cols), given.labels, items)
        side = self._read_features(None, *items, given.rows.shape, given.labels, by_label=True)
        given = given._replace(items=side[:2])
        cells = given.select_known() if unknown == "nan" else given
        if cells.values.size == 0:
            raise ValueError("R must hold an observation with labels of the fit, got none")
        left_out = given.values.size - cells.values.size
        evaluation = self._evaluate_cells(cells)
        return replace(evaluation, left_out=left_out, library=library_of(R))

    # --- new rows and columns --------------------------------------------------------------

    def fold_in(
        self, R_new: Any, *, axis: int = 0, rows: str | None = None, cols: str | None = None,
        values: str | None = None, weights: Any = None, censored: Any = None, shape: Any = None,
        n_jobs: int = -1, row_features: Any = None, col_features: Any = None,
    ) -> Self:  # fmt: skip
        """Fit new rows (axis 0) or columns (axis 1), with the other side fixed.

        Each new row is solved exactly, at the ridge of the fit. Folding in the training rows
        returns X, up to the accuracy of the fit. `Quantiles` fold the rows into each of their
        fits and compute the rows' own quantiles; their coverage was not measured for such rows,
        and the reports in ``coverage`` are marked accordingly.

        Parameters
        ----------
        R_new
            Observations, in any form that `fastemf.complete` accepts: a matrix with n columns for
            axis 0, with m rows for axis 1.
        axis
            0 for new rows, 1 for new columns.
        rows, cols, values, weights, censored, shape, n_jobs
            As in `fastemf.complete`. The default `rows`, `cols` and `values` are the columns that
            the model was fitted from, and the default of `censored` is the censoring limit of the
            fit (False: all values are exact). Tables and triplets are matched by label.
        row_features, col_features
            Side features of the new rows (axis 0) or columns (axis 1), as in
            `fastemf.complete_quantiles`, for a model that was fitted with some. Absent ones are
            missing.

        Returns
        -------
        Factorization, Levels or Quantiles, like the model
            A model of the new rows (columns), with indices from 0 or their labels, and the same
            other side.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> new = fit.fold_in(np.array([[30.0, np.nan]]))
        >>> new.predict(0, 1).round(6).tolist()
        40.0

        Quantiles of new rows:

        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R.tocsr()
        >>> quantiles = fastemf.complete_quantiles(R[:50], (0.5, 0.9), k=2)
        >>> new = quantiles.fold_in(R[50:])
        >>> new.shape, new.coverage[0].measured
        ((10, 50), False)
        """
        item_features = self._select_features(axis, row_features, col_features)
        observed = self._observe_new(
            R_new, axis, (rows, cols, values), weights, shape, censored, n_jobs
        )
        return self._fold_in(observed, axis, count_threads(n_jobs), item_features)

    def extend(
        self, R_new: Any, *, axis: int = 0, rows: str | None = None, cols: str | None = None,
        values: str | None = None, weights: Any = None, censored: Any = None, shape: Any = None,
        n_jobs: int = -1, row_features: Any = None, col_features: Any = None,
    ) -> Self:  # fmt: skip
        """Append new rows (axis 0) or columns (axis 1), solved as by `fold_in`, to the model.

        Existing rows keep their indices and predictions. ``history`` and ``tuning`` stay those of
        the original fit.

        Parameters
        ----------
        R_new, axis, rows, cols, values, weights, censored, shape, n_jobs
            As in `fold_in`. A label that the model already has is an error, because solving for
            its row again would discard the fitted one.
        row_features, col_features
            As in `fold_in`.

        Returns
        -------
        Factorization, Levels or Quantiles, like the model

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> more = fit.extend(np.array([[30.0, np.nan]]))
        >>> more.shape, more.predict([1, 2], 1).round(6).tolist()
        ((3, 2), [8.0, 40.0])
        """
        item_features = self._select_features(axis, row_features, col_features)
        observed = self._observe_new(
            R_new, axis, (rows, cols, values), weights, shape, censored, n_jobs
        )
        check_new(self.axes[axis], axis, observed, self._known_remedy)
        new = self._fold_in(observed, axis, count_threads(n_jobs), item_features)
        return self._append(new, axis)

    # --- data ------------------------------------------------------------------------------

    def _column_names(self, R: Any, names: ColumnNames) -> ColumnNames:
        return reading.named_columns(self.axes, self.value_name, R, names)

    @property
    def _limits(self) -> tuple[float, float] | None:
        if self.censored is None:
            return None
        side, limit = self.censored
        return (-math.inf, limit) if side == "right" else (limit, math.inf)

    def _find_censored(self, R: Any, censored: Any) -> Any:
        """Return which values of data are censored: as given, or by the limit of the fit."""
        if censored is not None or isinstance(R, Observations):
            return None if censored is False else censored
        if self.censored is None and self._imputing_fit().imputation is not None:
            warn(
                "the model was fitted to values marked as censored or in intervals, but all values "
                "of these data are taken as exact: mark censored ones with censored= (in a shell, "
                "--censored-above, --censored-below or --censored), or pass censored=False"
            )
        return self.censored

    def _censored_cells(
        self, cells: reading.CellValues, omega: float | None = None
    ) -> CensoredCells | None:
        """Return the censored values of cells as they are scored; None if all are exact."""
        fit = self._imputing_fit(None if self._of_quantiles else omega)
        return censored_cells(cells, fit, is_quantile=self._of_quantiles)

    def _ask_features(self, given: Any) -> reading.GivenFeatures | None:
        """Return the side features of observations to read; None if the model has none."""
        asked = self._feature_schema
        if asked is None:
            self._read_features(given, None, None, ())  # refuses all but None
            return None
        return asked._replace(given=given)

    def _select_features(self, axis: int, row_features: Any, col_features: Any) -> Any:
        """Return the side features of the new rows (axis 0) or columns, unchecked."""
        given = (row_features, col_features)
        check_axis(axis, ("new rows", "new columns"))
        if given[1 - axis] is not None:
            raise ValueError(
                f"{NAMES[1 - axis]} must be None for axis={axis}, whose new {ITEMS[axis]}s have "
                f"{NAMES[axis]}"
            )
        if self._feature_schema is None:
            self._read_features(None, *given, ())  # refuses all but None
        return given[axis]

    def _observe(
        self, R: Any, names: ColumnNames, weights: Any, shape: Any, censored: Any = None,
        asked: reading.GivenFeatures | None = None,
    ) -> Observations:  # fmt: skip
        """Open data of the model's rows and columns; parameters are as in `fold_in`."""
        names, features = self._column_names(R, names), None
        censored = self._find_censored(R, censored)
        if asked is not None:
            is_read = asked.given is not None or isinstance(R, Observations)
            features = asked.given if is_read else asked.schema
        return reading.read_observations(
            self.axes, R, names, weights, shape, censored, features=features
        )

    def _observe_new(
        self, R: Any, axis: int, names: ColumnNames, weights: Any, shape: Any, censored: Any,
        n_jobs: int,
    ) -> Observations:  # fmt: skip
        """Open data of new rows (axis 0) or columns (axis 1)."""
        check_axis(axis, ("new rows", "new columns"))
        names, censored = self._column_names(R, names), self._find_censored(R, censored)
        return reading.read_observations(
            self.axes, R, names, weights, shape, censored, new=axis, n_jobs=n_jobs
        )
