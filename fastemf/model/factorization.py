"""`Factorization`, the result of a fit: predictions, questions, new rows, and its file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import Labels
from fastemf.inputs.tables import is_table
from fastemf.kernels.threads import count_threads
from fastemf.loss import expectile_loss
from fastemf.metrics import effective_omega
from fastemf.model import file as model_file
from fastemf.model.explanation import Explanation, explain_cell
from fastemf.model.folding import folded_axis
from fastemf.model.loo import LeaveOneOut, leave_one_out
from fastemf.model.prediction import as_product, predict_pairs, predict_rows, residuals
from fastemf.model.ranking import Ranking, rank_rows
from fastemf.model.reading import label_columns, read_observations, read_seen
from fastemf.model.similarity import Similar, nearest
from fastemf.model.summary import Summary, summarise_axis
from fastemf.observations.memory import Observations
from fastemf.operators.conversion import as_operator
from fastemf.solver.axis import Axis
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.level_table import LevelTable
from fastemf.solver.noise import weighting_of
from fastemf.solver.records import Ridge, SweepRecord
from fastemf.solver.tuning import Tuning
from fastemf.solver.weighting import plain
from fastemf.support.validation import check_axis, check_choice, check_clip, check_integer

__all__ = ["Factorization"]


@dataclass(frozen=True, eq=False, repr=False)
class Factorization:
    """A fitted ω-expectile factorization ``M̂ = X Yᵀ`` (``+ mu + a 1ᵀ + 1 cᵀ`` with intercepts).

    Attributes
    ----------
    rows, cols : Axis
        The two sides: each has a ``factor`` and, or None, ``intercepts`` and ``labels``, and
        ``unseen``, the items without observations. The attributes below name the same arrays.
    X : (m, k) array
        Row factors.
    Y : (n, k) array
        Column factors.
    omega : float
        The expectile level fitted.
    mu : float
        The data's ω-expectile with intercepts, else 0, in the data's unit.
    shift : float
        What every prediction adds to ``mu``: a tuned fit's correction of its level for new
        cells, or that of a fit that `fastemf.level_for_coverage` returned.
    table : LevelTable, or None
        What predictions add for the levels of their row and column, in a tuned fit with
        intercepts that this makes better.
    row_intercepts, col_intercepts : (m,) and (n,) arrays, or None
        a and c, in the data's unit.
    reg : float
        The ridge λ in force at the end.
    reg_scaling : {"count", "plain"}
        Whether a row's ridge is λ times its number of observations, or λ.
    intercept_reg : float
        The ridge λ₀ on the intercepts.
    scale : float
        Root mean square of the data fitted, around mu.
    converged : bool
        Whether the fit ended by itself within the sweeps allowed: the tolerance was
        reached or, with validation, patience was out.
    family : str
        How observations and ridge are weighted: ``"even"``, ``"weighted"`` or ``"ridged"`` (see
        `fastemf.Tuning`); the noise scales are those of `rows` and `cols`.
    tuning : Tuning, or None
        What ``reg="auto"`` tried, and what the predictions are worth.
    history : tuple of SweepRecord
        One record per sweep. The factors are those of the last accepted one or, with
        validation, of the first with the lowest ``validation_loss``.
    unseen_rows, unseen_cols : int64 arrays
        Rows and columns without any observation; their factors are zero.
    row_labels, col_labels : Labels, or None
        What rows and columns are called, in index order, where the data were a table. Every
        row and column given to the fit is then read as a label, integers too.
    """

    rows: Axis
    cols: Axis
    omega: float
    mu: float
    reg: float
    reg_scaling: str
    intercept_reg: float
    scale: float
    converged: bool
    history: tuple[SweepRecord, ...]
    shift: float = 0.0
    family: str = "even"
    tuning: Tuning | None = None

    # --- its parts -------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Rows and columns, to be indexed by axis."""
        return self.rows, self.cols

    @property
    def X(self) -> NDArray[Any]:  # noqa: N802
        """Row factors."""
        return self.rows.factor

    @property
    def Y(self) -> NDArray[Any]:  # noqa: N802
        """Column factors."""
        return self.cols.factor

    @property
    def row_intercepts(self) -> NDArray[Any] | None:
        """Intercepts of the rows, in the data's unit; None without intercepts."""
        return self.rows.intercepts

    @property
    def col_intercepts(self) -> NDArray[Any] | None:
        """Intercepts of the columns, in the data's unit; None without intercepts."""
        return self.cols.intercepts

    @property
    def unseen_rows(self) -> NDArray[np.int64]:
        """Rows without any observation."""
        return self.rows.unseen

    @property
    def unseen_cols(self) -> NDArray[np.int64]:
        """Columns without any observation."""
        return self.cols.unseen

    @property
    def row_labels(self) -> Labels | None:
        """What the rows are called."""
        return self.rows.labels

    @property
    def col_labels(self) -> Labels | None:
        """What the columns are called."""
        return self.cols.labels

    @property
    def constant(self) -> float:
        """What every prediction begins with: ``mu + shift``."""
        return self.mu + self.shift

    @property
    def table(self) -> LevelTable | None:
        """What predictions add for the levels of row and column; None where that does not help."""
        return None if self.rows.levels is None else self.rows.levels.table

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.rows.size, self.cols.size

    @property
    def k(self) -> int:
        """The rank."""
        return self.rows.k

    @property
    def n_iter(self) -> int:
        """Sweeps done, rejected ones included."""
        return len(self.history)

    def __repr__(self) -> str:
        m, n = self.shape
        end = "converged" if self.converged else "not converged"
        end = f"{end} in {self.n_iter} sweeps" if self.history else "folded in"
        intercepts = ", intercepts" if self.rows.has_intercepts else ""
        labels = ""
        if self.rows.labels is not None:
            names = (self.rows.name, self.cols.name)
            labels = ", labels" if None in names else ", labels {} x {}".format(*names)
        return (
            f"<Factorization {m} x {n}, k={self.k}, omega={self.omega:g}{intercepts}{labels}, "
            f"reg={self.reg:.3g}, {self.X.dtype}, {end}>"
        )

    def __str__(self) -> str:
        return repr(self) if self.tuning is None else f"{self!r}\n{self.tuning.verdict()}"

    # --- predictions -----------------------------------------------------------------------

    def predict(
        self,
        rows: Any,
        cols: Any = None,
        *,
        unseen: str = "model",
        unknown: str = "error",
        clip: Any = None,
    ) -> NDArray[Any]:
        """Predict the cells (rows[i], cols[i]), in the data's unit.

        Parameters
        ----------
        rows, cols
            Integer indices from 0, or labels where the fit has them, broadcast against each
            other. A labelled fit also takes one table, with the columns it was fitted from.
        unseen
            What a cell in a never-observed row or column gets: ``"model"`` the
            model's value (mu plus the other side's intercept, or 0 without
            intercepts), ``"nan"`` NaN.
        unknown
            What labels that the fit does not have are: ``"error"``, or ``"nan"`` for NaN.
        clip
            ``(low, high)``: values beyond are set to the bound, None leaves a side open. Use
            ``clip=(0, None)`` for quantities that cannot be negative, as predictions can.
            NaN stays NaN.

        Returns
        -------
        array of the broadcast shape

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.predict([0, 2], [2, 1]).round(6).tolist()
        [3.0, 6.0]
        >>> fit.predict([0, 2], [2, 1], clip=(None, 5)).round(6).tolist()
        [3.0, 5.0]
        >>> import pandas as pd
        >>> table = pd.DataFrame(R, index=["eu", "us", "asia"], columns=["buy", "find", "pay"])
        >>> fit = fastemf.complete(table, omega=0.5, k=1, reg=0)
        >>> fit.predict(["eu", "mars"], "pay", unknown="nan").round(6).tolist()
        [3.0, nan]
        """
        check_choice(unseen, "unseen", ("model", "nan"))
        check_choice(unknown, "unknown", ("error", "nan"))
        bounds = check_clip(clip, self.X.dtype)
        if cols is None:
            if not is_table(rows):
                raise TypeError(f"cols must be given unless rows is a table, got {type(rows)}")
            rows, cols = label_columns(self.axes, rows)
        out = predict_pairs(self.axes, self.constant, rows, cols, unseen=unseen, unknown=unknown)
        return np.asarray(np.clip(out, *bounds, out=out))

    def explain(self, row: Any, col: Any) -> Explanation:
        """Take the prediction of one cell apart: its parts, in the data's unit, and their sum.

        Parameters
        ----------
        row, col
            A row and a column: indices, or labels where the fit has them.

        Returns
        -------
        Explanation
            ``mu``, ``shift``, ``row``, ``column``, ``factors`` and ``table``, and their sum
            ``value``, which is what `predict` gives, to rounding.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.add.outer([0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 7.0, 7.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, intercepts=True)
        >>> parts = fit.explain(0, 3)
        >>> parts.row < 0 < parts.column
        True
        >>> bool(abs(parts.value - fit.predict(0, 3)) < 1e-9)
        True
        """
        at = [
            axis.known_positions(given, what)
            for axis, given, what in zip(self.axes, (row, col), ("rows", "cols"), strict=True)
        ]
        for index, name in zip(at, ("row", "col"), strict=True):
            if index.ndim:
                raise ValueError(f"{name} must be a single one, got shape {index.shape}")
        return explain_cell(self.axes, self.mu, self.shift, int(at[0]), int(at[1]))

    def predict_block(self, rows: Any, *, clip: Any = None) -> NDArray[Any]:
        """Predict whole rows (indices, or labels), as a (len(rows), n) array.

        `clip` is as in `predict`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.predict_block([0]).round(6).tolist()
        [[1.0, 2.0, 3.0]]
        """
        bounds = check_clip(clip, self.X.dtype)
        i = np.atleast_1d(self.rows.known_positions(rows, "rows"))
        if i.ndim != 1:
            raise ValueError(f"rows must be one-dimensional, got shape {i.shape}")
        block = predict_rows(self.axes, self.constant, i)
        return np.asarray(np.clip(block, *bounds, out=block))

    def to_dense(self, *, max_bytes: int = 1 << 30, clip: Any = None) -> NDArray[Any]:
        """Predict every cell, as an (m, n) array; one above `max_bytes` (1 GiB) is refused.

        `clip` is as in `predict`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> fit.to_dense().round(6).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
        """
        bounds = check_clip(clip, self.X.dtype)
        m, n = self.shape
        size = m * n * self.X.itemsize
        if size > check_integer(max_bytes, "max_bytes", minimum=0):
            raise ValueError(
                f"the dense {m} x {n} matrix takes {size:,} bytes, above max_bytes={max_bytes:,}; "
                "use predict or predict_block, or raise max_bytes"
            )
        dense = predict_rows(self.axes, self.constant, np.arange(m))
        return np.asarray(np.clip(dense, *bounds, out=dense))

    def measure(self, A: Any, *, shape: tuple[int, int] | None = None) -> NDArray[Any]:
        """Compute the fitted measurements <A_i, M̂>, `A` in any form `fastemf.sense` takes.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> total = fastemf.operators.Dense(np.ones((1, 2, 2)))
        >>> fit.measure(total).round(6).tolist()
        [21.0]
        """
        operator = as_operator(A, shape)
        if tuple(operator.shape[1:]) != self.shape:
            raise ValueError(
                f"A must measure matrices of the fit's shape {self.shape}, "
                f"got {tuple(operator.shape[1:])}"
            )
        return operator.forward(*as_product(self.axes, self.constant))

    # --- questions -------------------------------------------------------------------------

    def rank(self, row: Any, n: int, *, order: str, seen: Any = None, clip: Any = None) -> Ranking:
        """Find the n best columns of a row, of several rows, or of all.

        Values are bitwise identical to those of `predict`, and a row's ranking does not depend
        on the rows it is asked with. Of equal values the smaller index comes first. Columns
        without any observation are never listed: nothing is known of them but the
        fallback that `predict` gives. A row without any is ranked by the columns'
        intercepts; where the fit has none it gets no columns.

        To rank by risk, rank by a fit of a high level: the safest service is the one with
        the smallest high expectile, not the one with the smallest typical value.

        Parameters
        ----------
        row
            A row, a one-dimensional array of rows (indices, or labels where the fit has
            them), or None for all rows. Rows are predicted a block at a time: memory is
            bounded whatever their number.
        n
            How many columns; above the number of columns it is that number.
        order
            ``"smallest"`` if small values are good (latency), ``"largest"`` if large ones
            are (spend). There is no default: the wrong one lists the worst.
        seen
            Data whose observed entries are left out, in any form `fastemf.complete`
            takes: pass the training data to get new columns only. Of a table with the columns
            that the fit's labels came from, every line counts; labels that the fit does not have
            are ignored. It is read as a whole in each call, so ask for many rows at once.
        clip
            As in `predict`. It bounds the values listed, not their order: among columns
            at a bound the model's own values decide.

        Returns
        -------
        Ranking
            ``cols`` and ``values``, best first, of shape (n,) for one row and (rows, n) for
            several; -1 and NaN where there are fewer than n columns to list. Of a labelled
            fit ``cols`` are labels, None (NaT for dates) in place of -1.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.rank(1, 2, order="smallest").cols.tolist()
        [0, 1]
        >>> best = fit.rank(None, 1, order="largest", seen=R)  # what was not measured
        >>> best.cols.tolist()
        [[2], [-1], [1]]
        >>> best.values.round(6).tolist()
        [[3.0], [nan], [6.0]]
        """
        n = min(check_integer(n, "n", minimum=1), self.cols.size)
        check_choice(order, "order", ("smallest", "largest"))
        bounds = check_clip(clip, self.X.dtype)
        rows = np.arange(self.rows.size)
        if row is not None:
            rows = self.rows.known_positions(row, "rows")
        if rows.ndim > 1:
            raise ValueError(
                f"row must be one row, a one-dimensional array or None, got {rows.shape}"
            )
        left_out = read_seen(self.axes, seen)
        largest = order == "largest"
        cols, values = rank_rows(
            self.axes, self.constant, np.atleast_1d(rows), n, largest=largest, seen=left_out
        )
        values = np.clip(values, *bounds)
        return Ranking(cols, values) if rows.ndim else Ranking(cols[0], values[0])

    def similar_rows(self, row: Any, n: int) -> Similar:
        """Find the n rows most like a row, by what the fit predicts for them.

        The distance of two rows is the root mean square difference of their predictions
        over all columns, intercepts included, in the data's unit. Factors are not
        compared: X G and Y G⁻ᵀ are the same model as X and Y, with other factors. No
        dense matrix is formed. The row itself is not listed, nor are rows without any
        observation; such a row resembles none. Of equal distances the smaller index comes first.

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
        index = self.axes[axis].known_positions(item, ("rows", "cols")[axis])
        n = min(check_integer(n, "n", minimum=1), self.axes[axis].size)
        if index.ndim:
            name = ("row", "col")[axis]
            raise ValueError(f"{name} must be a single one, got shape {index.shape}")
        return nearest(self.axes, axis, int(index), n)

    # --- how well it fits ------------------------------------------------------------------

    def objective(
        self,
        R: Any,
        *,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        shape: Any = None,
    ) -> float:
        """Compute F on data of the matrix's shape: expectile loss plus the fit's ridge terms.

        On the data fitted this is the objective of the factors' record in ``history``: shift and
        table, which come after the fit, have no part in it. All
        parameters are as in `fastemf.complete`; `rows` and `cols` are by default the
        columns that the fit's labels came from. A table and triplets are placed by those
        labels; a matrix without labels is in the fit's order.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0], [3.0, 4.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.objective(R + 1) - 0.5 * 4 < 1e-12
        True
        """
        observed = read_observations(self.axes, R, (rows, cols, values), weights, shape)
        engine = self._weighed(observed, n_threads=1)
        penalty = engine.penalty(self.rows.extended(), self.cols.extended(), self._ridge)
        r = residuals(self._bilinear, self.mu, observed)
        v, noise = _weights_or_none(observed), engine.weighting.observations
        if noise is not None:
            scales = noise[0][observed.by_row.keys] * noise[1][observed.by_row.indices]
            v = scales if v is None else v * scales
        return expectile_loss(r, self.omega, v) + penalty

    def effective_omega(
        self,
        R: Any,
        *,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        shape: Any = None,
    ) -> float:
        """Compute the level at which the fit really lies in `R`: Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|).

        For the constant that is the data's ω-expectile it equals ``omega``; on held-out data it
        measures calibration. It is NaN where every residual is 0. Parameters are as in
        `objective`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[0.0, 0.0, 1.0], [0.0, 9.0, 1.0]])
        >>> fit = fastemf.complete(np.ones((2, 3)), omega=0.1, k=1, reg=0)
        >>> round(fit.effective_omega(R), 3)  # three zeros below 1, eight units above
        0.273
        """
        observed = read_observations(self.axes, R, (rows, cols, values), weights, shape)
        r = residuals(self.axes, self.constant, observed)
        return effective_omega(r, _weights_or_none(observed))

    def summary(
        self,
        R: Any,
        axis: int = 0,
        *,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        shape: Any = None,
    ) -> Summary:
        """Summarise how well the fit describes each row (axis 0) or column (axis 1) of `R`.

        This shows which rows a fit describes badly; on held-out data, which it predicts badly.
        Other parameters are as in `objective`.

        Returns
        -------
        Summary
            Arrays by row (column): ``observations``, ``mean``, ``rms``, ``loss``, ``w_eff``, and
            ``weight`` where weights are given.

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
        observed = read_observations(self.axes, R, (rows, cols, values), weights, shape)
        return summarise_axis(self.axes, self.constant, self.omega, observed, axis)

    def loo(
        self,
        R: Any,
        *,
        residuals: bool = False,
        rows: str | None = None,
        cols: str | None = None,
        values: str | None = None,
        weights: Any = None,
        shape: Any = None,
    ) -> LeaveOneOut:
        """Compute what the fit leaves of each observation it was fitted to, had it not seen it.

        Without an observation, at the same ridge and signs, its residual r from the row's solve
        would be r / (1 − h), where h is its leverage in the row; and likewise in its column. The
        product of the two is taken, which needs no refitting. Shift and table stay as they
        are. Where factors fit noise it is too optimistic, as both sides together leave less than
        either alone: it compares fits of a like rank, and ``tuning`` says what new cells are like.

        Parameters
        ----------
        R
            The data fitted, in memory.
        residuals
            Whether to return them too.
        rows, cols, values, weights, shape
            As in `objective`. Of weight above one, one unit is left out at a time.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]) + np.eye(3)
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0.01)
        >>> bool(fit.loo(R).loss > 0.5 * np.mean((R - fit.to_dense()) ** 2))
        True
        """
        observed = read_observations(self.axes, R, (rows, cols, values), weights, shape)
        engine = self._weighed(observed.astype(np.dtype(np.float64)), count_threads(-1))
        found = leave_one_out(self.axes, self.mu, self.shift, engine, self._ridge)
        return found if residuals else found._replace(residuals=None)

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
        shape: Any = None,
        n_jobs: int = -1,
    ) -> Factorization:
        """Fit new rows (axis 0) or columns (axis 1), with the other side held fixed.

        Each new row is solved exactly, by the code and at the ridge of the fit;
        folding in the training rows gives back X (to the accuracy of the fit, where
        that was approached by conjugate gradients).

        Parameters
        ----------
        R_new
            Their observations, in any form `fastemf.complete` takes: an
            (any, n) matrix for axis 0, (m, any) for axis 1.
        axis
            0 for new rows, 1 for new columns.
        rows, cols, values, weights, shape, n_jobs
            As in `fastemf.complete`; `rows` and `cols` are by default the columns that the
            fit's labels came from.

        Returns
        -------
        Factorization
            A fit of the new rows (columns), which go by number from 0 or by their labels, and
            the same other side.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> new = fit.fold_in(np.array([[30.0, np.nan]]))
        >>> new.predict(0, 1).round(6).tolist()
        40.0
        """
        check_axis(axis, ("new rows", "new columns"))
        names = (rows, cols, values)
        observed = read_observations(
            self.axes, R_new, names, weights, shape, new=axis, n_jobs=n_jobs
        )
        engine = self._engine(observed, n_threads=count_threads(n_jobs))
        folded = folded_axis(self.axes, axis, observed, engine, self._ridge, self.family)
        new_rows, new_cols = (folded, self.cols) if axis == 0 else (self.rows, folded)
        return replace(self, rows=new_rows, cols=new_cols, history=(), converged=True)

    @property
    def _bilinear(self) -> tuple[Axis, Axis]:
        """The axes without the table."""
        return replace(self.rows, levels=None), replace(self.cols, levels=None)

    @property
    def _ridge(self) -> Ridge:
        return Ridge(self.reg, self.intercept_reg)

    def _engine(self, observed: Observations, n_threads: int) -> CompletionEngine:
        """Make an engine that weighs all observations alike."""
        return CompletionEngine(
            observed,
            self.omega,
            mu=self.mu if self.rows.has_intercepts else None,
            scale=self.scale,
            weighting=None if self.reg_scaling == "count" else plain(observed.shape),
            n_threads=n_threads,
        )

    def _weighed(self, observed: Observations, n_threads: int) -> CompletionEngine:
        """Make an engine with the weighting of the fit."""
        engine = self._engine(observed, n_threads)
        if self.rows.noise is None or self.cols.noise is None:
            return engine
        variances = self.rows.noise.variances, self.cols.noise.variances
        return engine.view(weighting=weighting_of(self.family, engine, variances))

    # --- the model file --------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to one ``.npz`` file, atomically; read it with `fastemf.load`.

        Examples
        --------
        >>> import numpy as np, fastemf, tempfile, os
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
        >>> fit.save(path)
        >>> np.array_equal(fastemf.load(path).X, fit.X)
        True
        """
        model_file.write(path, self)


def _weights_or_none(observed: Observations) -> NDArray[Any] | None:
    weights = observed.by_row.weights
    return weights if weights.size else None
