"""`Model`: what can be asked of every fitted model: of one level, of several, or of quantiles.

A model says how far apart two rows are and how it solves new ones; what is read, checked and
made of that is here, once.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.tables import ColumnNames
from fastemf.kernels.threads import count_threads
from fastemf.model.evaluation import Evaluation
from fastemf.model.folding import check_new
from fastemf.model.predictor import NEWCOMERS, Predictor
from fastemf.model.reading import CellValues, named_columns, read_cells, read_observations
from fastemf.model.similarity import Similar, nearest
from fastemf.model.summary import Summary, summarise_axis
from fastemf.observations.memory import Observations
from fastemf.support.validation import check_axis, check_choice, check_integer

__all__ = ["Model"]


class Model(Predictor):
    """A fitted model of one matrix: the questions that all kinds of models share."""

    _of_quantiles: ClassVar = False  # what it predicts are quantiles, and not expectiles

    # --- what a model says of itself -------------------------------------------------------

    @property
    @abstractmethod
    def value_name(self) -> str | None:
        """The column of the table that the values came from, if there was one."""

    @abstractmethod
    def _evaluated(self, cells: CellValues) -> Evaluation:
        """Judge the predictions of cells, -1 for items not in the model, beside simpler ones."""

    @abstractmethod
    def _distances(self, axis: int, item: int) -> NDArray[np.float64]:
        """Compute how far each item of an axis is from one, by its predictions."""

    @abstractmethod
    def _folded(self, observed: Observations, axis: int, n_threads: int) -> Self:
        """Solve the items of one axis of `observed`, given the other axis of the model."""

    @abstractmethod
    def _joined(self, new: Self, axis: int) -> Self:
        """Put the items of one axis that were folded in after those of the model."""

    # --- questions -------------------------------------------------------------------------

    def similar_rows(self, row: Any, n: int) -> Similar:
        """Find the n rows most like a row, by what the fit predicts for them.

        The distance of two rows is the root mean square difference of their predictions
        over all columns, intercepts included, in the data's unit; of several levels, over all of
        them, taken one by one; of quantiles, over the levels that they are made of. Factors are
        not compared: X G and Y G⁻ᵀ are the same model as X and Y, with other factors. No dense
        matrix is formed. The row itself is not listed, nor are rows without any observation; such
        a row resembles none. Of equal distances the smaller index comes first.

        Parameters
        ----------
        row
            A row: its index, or its label where the fit has labels.
        n
            How many; above the number of rows it is that number.

        Returns
        -------
        Similar
            ``others`` and ``distances``, nearest first; -1 and NaN where there are fewer
            than n. Of a labelled fit ``others`` are labels, as in `rank`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 5.0, 2.0], [3.0, 3.0, 3.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> near = fit.similar_rows(0, 2)
        >>> near.others.tolist(), near.distances.round(6).tolist()
        ([2, 1], [3.0, 12.0])
        """
        return self._similar(0, row, n)

    def similar_cols(self, col: Any, n: int) -> Similar:
        """Find the n columns most like a column: `similar_rows` of the transpose.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([3.0, 3.0, 3.0], [1.0, 5.0, 2.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.similar_cols(1, 1).distances.round(6).tolist()  # column 2: 15 against 6
        [9.0]
        """
        return self._similar(1, col, n)

    def _similar(self, axis: int, item: Any, n: int) -> Similar:
        items, index = self.axes[axis], self._single(axis, item)
        n = min(check_integer(n, "n", minimum=1), items.size)
        return nearest(items, self._distances(axis, index), index, n)

    def summary(
        self,
        R: Any,
        axis: int = 0,
        *,
        level: float | None = None,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        censored: Any = None,
        shape: Any = None,
    ) -> Summary:
        """Summarise how well the fit describes each row (axis 0) or column (axis 1) of `R`.

        This shows which rows a fit describes badly; on held-out data, which it predicts badly.
        `level` is which one, for a model of several; other parameters are as in `fold_in`. A
        censored value that the fit lies beyond leaves nothing: it does not contradict the fit.

        Returns
        -------
        Summary
            Arrays by row (column): ``observations``, ``mean``, ``rms``, ``loss``, ``w_eff`` (of
            quantiles ``coverage``), and ``weight`` where weights are given.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> print(fit.summary(np.array([[2.0, 4.0], [6.0, np.nan]]) + 1))
        2 rows, 0 without observations:
        row  observations  mean     rms  loss  w_eff
          1             1     7       1   0.5      0
          0             2     4  0.7071  0.25      0
        """
        check_axis(axis, ("rows", "columns"))
        of, predict = self._of_level(level)
        names = self._names(R, (rows, cols, values))
        observed = read_observations(self.axes, R, names, weights, shape, censored)
        return summarise_axis(
            self.axes[axis], predict, of, observed, axis, is_quantile=self._of_quantiles
        )

    def evaluate(
        self,
        R: Any,
        *,
        unknown: str = "error",
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        shape: Any = None,
    ) -> Evaluation:
        """Judge the predictions by observations, beside the predictions of simpler models.

        Those are a constant, a level for each column, levels for rows and columns, and each
        column's median, all of the data that the model was fitted to: it keeps a few numbers of
        them per row and column. Quantiles are compared with simpler quantiles, and with that
        median. On data that were held out this tells what the model is worth.

        Parameters
        ----------
        R
            Observations that the model has not seen, in any form `fastemf.complete` takes but a
            store.
        unknown
            What labels that the fit does not have are: ``"error"``; with ``"nan"`` their
            observations are left out, and counted; with ``"model"`` they are predicted as in
            `predict`, and by the simpler models in their ways.
        rows, cols, values, weights, shape
            As in `fold_in`.

        Returns
        -------
        Evaluation
            Scores of the fit and the simpler models, by level: loss, skill, effective level,
            coverage, pinball loss, relative error; of quantiles those of them that are about
            quantiles, and ``promises``.

        Examples
        --------
        >>> import fastemf, pandas as pd
        >>> log = pd.DataFrame(fastemf.datasets.make_latencies(random_state=0)._asdict())
        >>> names = {"rows": "client", "cols": "service", "values": "ms"}
        >>> fit = fastemf.complete(log[1000:], 0.5, 2, intercepts=True, reg="noise", **names)
        >>> found = fit.evaluate(log[:1000])
        >>> found.score("fit").loss < found.score("column").loss < found.score("constant").loss
        True
        """
        check_choice(unknown, "unknown", NEWCOMERS)
        names = self._names(R, (rows, cols, values))
        strict = unknown == "error"
        given = read_cells(self.axes, R, names, weights, shape, strict=strict)
        cells = given.known() if unknown == "nan" else given
        if cells.values.size == 0:
            raise ValueError("R must hold an observation of labels that the fit has, got none")
        left_out = given.values.size - cells.values.size
        return replace(self._evaluated(cells), left_out=left_out)

    # --- new rows and columns --------------------------------------------------------------

    def fold_in(
        self,
        R_new: Any,
        *,
        axis: int = 0,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        censored: Any = None,
        shape: Any = None,
        n_jobs: int = -1,
    ) -> Self:
        """Fit new rows (axis 0) or columns (axis 1), with the other side held fixed.

        Each new row is solved exactly, by the code and at the ridge of the fit;
        folding in the training rows gives back X (to the accuracy of the fit, where
        that was approached by conjugate gradients). Quantiles solve it in every fit that they
        are made of, and find its own quantiles as those of the others were found; what they
        promise was not measured for such rows, as their ``promises`` then say.

        Parameters
        ----------
        R_new
            Their observations, in any form `fastemf.complete` takes: an
            (any, n) matrix for axis 0, (m, any) for axis 1.
        axis
            0 for new rows, 1 for new columns.
        rows, cols, values, weights, censored, shape, n_jobs
            As in `fastemf.complete`; `rows`, `cols` and `values` are by default the columns
            that the fit's labels and values came from. A table and triplets are placed by
            those labels.

        Returns
        -------
        Factorization, Levels or Quantiles, as the model is
            A model of the new rows (columns), which go by number from 0 or by their labels, and
            the same other side.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> new = fit.fold_in(np.array([[30.0, np.nan]]))
        >>> new.predict(0, 1).round(6).tolist()
        40.0

        Quantiles of rows that came later:

        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R.tocsr()
        >>> quantiles = fastemf.complete_quantiles(R[:50], (0.5, 0.9), k=2)
        >>> new = quantiles.fold_in(R[50:])
        >>> new.shape, new.promises[0].measured
        ((10, 50), False)
        """
        names, told = (rows, cols, values), (weights, shape, censored)
        observed = self._new_observations(R_new, axis, names, told, n_jobs)
        return self._folded(observed, axis, count_threads(n_jobs))

    def extend(
        self,
        R_new: Any,
        *,
        axis: int = 0,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        censored: Any = None,
        shape: Any = None,
        n_jobs: int = -1,
    ) -> Self:
        """Add new rows (axis 0) or columns (axis 1) to the model, solved as by `fold_in`.

        The rows it has stay as they are and keep their places; the new ones follow. So does what
        the fit says of itself: ``history`` and ``tuning`` are those of the fit that was extended.

        Parameters
        ----------
        R_new, axis, rows, cols, values, weights, censored, shape, n_jobs
            As in `fold_in`. A label that the fit already has is an error: solving its row anew
            would forget what was fitted.

        Returns
        -------
        Factorization, Levels or Quantiles, as the model is

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> more = fit.extend(np.array([[30.0, np.nan]]))
        >>> more.shape, more.predict([1, 2], 1).round(6).tolist()
        ((3, 2), [8.0, 40.0])
        """
        names, told = (rows, cols, values), (weights, shape, censored)
        observed = self._new_observations(R_new, axis, names, told, n_jobs)
        check_new(self.axes[axis], axis, observed)
        return self._joined(self._folded(observed, axis, count_threads(n_jobs)), axis)

    def _new_observations(
        self, R_new: Any, axis: int, names: ColumnNames, told: tuple[Any, Any, Any], n_jobs: int
    ) -> Observations:
        check_axis(axis, ("new rows", "new columns"))
        names = self._names(R_new, names)
        return read_observations(self.axes, R_new, names, *told, new=axis, n_jobs=n_jobs)

    def _names(self, R: Any, names: ColumnNames) -> ColumnNames:
        return named_columns(self.axes, self.value_name, R, names)
