"""The result of a fit: what can be asked of it, how well it fits, new rows, and a file."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs import table_files
from fastemf.inputs.labels import Labels
from fastemf.inputs.tables import is_frame, is_table
from fastemf.kernels.threads import count_threads
from fastemf.loss import expectile_loss
from fastemf.metrics import effective_omega
from fastemf.model import file as model_file
from fastemf.model.low_rank_model import LowRankModel
from fastemf.model.ranking import Ranking, rank_rows
from fastemf.model.similarity import Similar, nearest
from fastemf.model.summary import Summary, summarise_groups
from fastemf.observations.memory import Observations, observe
from fastemf.observations.source import Side
from fastemf.solver.half_sweep import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.support.validation import (
    check_axis,
    check_choice,
    check_clip,
    check_indices,
    check_integer,
)
from fastemf.support.warn import warn

__all__ = ["Factorization"]

Names = tuple[str | None, str | None, str | None]  # of a table's columns: rows, cols, values


@dataclass(frozen=True, eq=False, repr=False)
class Factorization(LowRankModel):
    """A fitted ω-expectile factorization ``M̂ = X Yᵀ`` (``+ mu + a 1ᵀ + 1 cᵀ`` with intercepts).

    Attributes
    ----------
    X : (m, k) array
        Row factors.
    Y : (n, k) array
        Column factors.
    omega : float
        The expectile level fitted.
    mu : float
        The data's ω-expectile with intercepts, else 0; plus the shift of a fit that
        `fastemf.level_for_coverage` returned. In the data's unit.
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
    history : tuple of SweepRecord
        One record per sweep. The factors are those of the last accepted one or, with
        validation, of the first with the lowest ``validation_loss``.
    unseen_rows, unseen_cols : int64 arrays
        Rows and columns without any observation; their factors are zero.
    row_labels, col_labels : Labels, or None
        What rows and columns are called, in index order, where the data were a table. Every
        row and column given to the fit is then read as a label, integers too.
    """

    # --- questions -------------------------------------------------------------------------

    def rank(self, row: Any, n: int, *, order: str, seen: Any = None, clip: Any = None) -> Ranking:
        """The n best columns of a row, of several rows, or of all.

        Values are those of `predict`, to the bit, and a row's ranking does not depend on
        the rows it is asked with. Of equal values the smaller index comes first. Columns
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
            How many columns.
        order
            ``"smallest"`` if small values are good (latency), ``"largest"`` if large ones
            are (spend). There is no default: the wrong one lists the worst.
        seen
            Data whose observed entries are left out, in any form `fastemf.complete`
            takes: the training data, for new columns only. Of a table with the columns that
            the fit's labels came from, every line counts; labels that the fit does not have are
            passed over. Read as a whole in each call, so ask for many rows at once.
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
        n = check_integer(n, "n", minimum=1)
        check_choice(order, "order", ("smallest", "largest"))
        bounds = check_clip(clip, self.X.dtype)
        every_col = np.arange(self.shape[1])
        rows = np.arange(self.shape[0]) if row is None else self._row_index(row)
        if rows.ndim > 1:
            raise ValueError(
                f"row must be one row, a one-dimensional array or None, got {rows.shape}"
            )
        ranking = rank_rows(
            lambda block: self._cells(*np.meshgrid(block, every_col, indexing="ij")),
            np.atleast_1d(rows),
            self.shape,
            n,
            largest=order == "largest",
            seen=self._seen(seen),
            no_rows=self.unseen_rows if self.row_intercepts is None else self.unseen_rows[:0],
            no_cols=self.unseen_cols,
        )
        cols, values = _called(self.col_labels, ranking.cols), np.clip(ranking.values, *bounds)
        return Ranking(cols, values) if rows.ndim else Ranking(cols[0], values[0])

    def similar_rows(self, row: Any, n: int) -> Similar:
        """The n rows most like a row, by what the fit says of them.

        The distance of two rows is the root mean square difference of their predictions
        over all columns, intercepts included, in the data's unit. Factors are not
        compared: X G and Y G⁻ᵀ are the same model as X and Y, with other factors. No
        dense matrix is formed. The row itself is not listed, nor are rows without any
        observation; such a row resembles none. Of equal distances the smaller index comes first.

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
        return self._similar(0, self._row_index(row), n)

    def similar_cols(self, col: Any, n: int) -> Similar:
        """The n columns most like a column: `similar_rows` of the transpose.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([3.0, 3.0, 3.0], [1.0, 5.0, 2.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.similar_cols(1, 1).distances.round(6).tolist()  # column 2: 15 against 6
        [9.0]
        """
        return self._similar(1, self._col_index(col), n)

    def _similar(self, axis: int, index: NDArray[np.int64], n: int) -> Similar:
        n = check_integer(n, "n", minimum=1)
        if index.ndim:
            name = ("row", "col")[axis]
            raise ValueError(f"{name} must be a single one, got shape {index.shape}")
        this, other = self._extended(axis), (self.X, self.Y)[1 - axis]
        if self.row_intercepts is not None:
            # What the other side's intercepts add is the same for both.
            other = np.column_stack([other, np.ones_like(other[:, 0])])
        unseen = (self.unseen_rows, self.unseen_cols)[axis]
        others, distances = nearest(this, other, int(index), n, unseen)
        return Similar(_called((self.row_labels, self.col_labels)[axis], others), distances)

    def _seen(self, seen: Any) -> Side | None:
        if seen is None:
            return None
        if _is_mask(seen):
            raise TypeError(
                "seen must be the data and not a mask of them, as every cell of a dense boolean "
                "array counts as observed; got dtype bool; pass R, or scipy.sparse.csr_array(mask)"
            )
        try:
            seen = self._from_file(seen)
            if self._has_label_columns(seen):
                rows, cols = self._columns_of(seen)
                seen = (rows, cols, np.ones(len(rows)))
            if self.row_labels is not None and isinstance(seen, tuple) and len(seen) == 3:
                # What the fit does not have is not listed anyway.
                i, j = self._positions(0, seen[0]), self._positions(1, seen[1])
                known = (i >= 0) & (j >= 0)
                found = i[known], j[known], np.ones(np.count_nonzero(known))
                return observe(found, shape=self.shape).by_row if known.any() else None
            return self._observe(seen, None, None, (None, None, None)).by_row
        except (IndexError, TypeError, ValueError) as error:
            raise type(error)(f"seen is read as R of complete(), and {error}") from None

    def _from_file(self, seen: Any) -> Any:
        """The label columns of a file with a table, for a fit with labels; else what was given."""
        sides = (self.row_labels, self.col_labels)
        if not table_files.is_source(seen) or None in sides:
            return seen
        names = [labels.name for labels in sides if labels is not None]
        texts = [labels.name for labels in sides if labels is not None and labels.kind == "str"]
        return table_files.read_file(seen, names, [], texts).content

    def _has_label_columns(self, table: Any) -> bool:
        """Whether a table has lines of labels; one of pandas may be a matrix."""
        if self.row_labels is None or self.col_labels is None or not is_table(table):
            return False
        return not is_frame(table) or (
            self.row_labels.name in table.columns and self.col_labels.name in table.columns
        )

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
        """F on any data of the matrix's shape: expectile loss plus the fit's ridge terms.

        On the data fitted this is the objective of the factors' record in ``history``. All
        parameters are as in `fastemf.complete`; `rows` and `cols` are by default the
        columns that the fit's labels came from. A table and triplets are placed by those
        labels, a matrix without labels is in the fit's order.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0], [3.0, 4.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.objective(R + 1) - 0.5 * 4 < 1e-12
        True
        """
        observed = self._observe(R, weights, shape, (rows, cols, values))
        engine = self._engine(observed, n_threads=1)
        ridge = Ridge(self.reg, self.intercept_reg)
        loss = expectile_loss(self._residuals(observed), self.omega, _weights_or_none(observed))
        return loss + engine.penalty(self._extended(0), self._extended(1), ridge)

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
        """Level at which the fit really lies in `R`: Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|).

        Equal to ``omega`` for the constant that is the data's ω-expectile; on
        held-out data a measure of calibration. NaN where every residual is 0. Parameters
        are as in `objective`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[0.0, 0.0, 1.0], [0.0, 9.0, 1.0]])
        >>> fit = fastemf.complete(np.ones((2, 3)), omega=0.1, k=1, reg=0)
        >>> round(fit.effective_omega(R), 3)  # three zeros below 1, eight units above
        0.273
        """
        observed = self._observe(R, weights, shape, (rows, cols, values))
        return effective_omega(self._residuals(observed), _weights_or_none(observed))

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
        """How well the fit describes each row (axis 0) or column (axis 1) of `R`.

        Shows which rows a fit describes badly; on held-out data, which it predicts badly.
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
        observed = self._observe(R, weights, shape, (rows, cols, values))
        if axis == 0:
            found = summarise_groups(observed.by_row, self._cells, self.omega, axis)
        else:
            found = summarise_groups(
                observed.by_col, lambda j, i: self._cells(i, j), self.omega, axis
            )
        labels = (self.row_labels, self.col_labels)[axis]
        return found if labels is None else replace(found, ids=labels.values)

    def _residuals(self, observed: Observations) -> NDArray[np.float64]:
        side = observed.by_row
        predicted = self._cells(side.keys, side.indices)
        return side.values.astype(np.float64) - predicted.astype(np.float64)

    def _observe(self, R: Any, weights: Any, shape: Any, names: Names) -> Observations:
        if shape is None and isinstance(R, tuple) and self.row_labels is None:
            shape = self.shape
        sides = (self.row_labels, self.col_labels)
        observed = self._placed(R, weights, shape, names, sides, count_threads(-1))
        if observed.shape != self.shape:
            raise ValueError(f"R must have the fit's shape {self.shape}, got {observed.shape}")
        return observed

    def _placed(
        self,
        R: Any,
        weights: Any,
        shape: Any,
        names: Names,
        sides: tuple[Labels | None, Labels | None],
        n_threads: int,
    ) -> Observations:
        """Observations placed by the labels of the fit, where it has them."""
        rows, cols, values = names
        if self.row_labels is None or self.col_labels is None:
            if names != (None, None, None):
                raise ValueError(f"the fit has no labels to place a table by, got columns {names}")
            return observe(R, weights=weights, shape=shape, n_threads=n_threads)
        if values is not None:
            rows = self.row_labels.name if rows is None else rows
            cols = self.col_labels.name if cols is None else cols
        observed = observe(
            R, weights=weights, shape=shape, rows=rows, cols=cols, values=values, labels=sides,
            n_threads=n_threads,
        )  # fmt: skip
        for ours, theirs in zip(sides, (observed.row_labels, observed.col_labels), strict=True):
            if ours is None or theirs is None or ours is theirs:
                continue
            if not np.array_equal(ours.values, theirs.values):
                raise ValueError("the observations have other labels than the fit")
        return observed

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
        """Fit rows (axis 0) or columns (axis 1) that were not there, the other side held fixed.

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
            Of the new rows (columns), numbered from 0 or by their labels, and the same
            other side.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> new = fit.fold_in(np.array([[30.0, np.nan]]))
        >>> new.predict(0, 1).round(6).tolist()
        40.0
        """
        check_axis(axis, ("new rows", "new columns"))
        fixed = self.shape[1 - axis]
        is_triplets = isinstance(R_new, tuple) and len(R_new) == 3
        if shape is None and is_triplets and self.row_labels is None:
            largest = np.max(check_indices(R_new[axis], ("rows", "cols")[axis], None), initial=0)
            shape = (int(largest) + 1, fixed) if axis == 0 else (fixed, int(largest) + 1)
        sides = (None, self.col_labels) if axis == 0 else (self.row_labels, None)
        n_threads = count_threads(n_jobs)
        observed = self._placed(R_new, weights, shape, (rows, cols, values), sides, n_threads)
        if observed.shape[1 - axis] != fixed:
            what = ("columns", "rows")[axis]
            raise ValueError(
                f"R_new must have the fit's {fixed} {what} for axis={axis}, "
                f"got shape {observed.shape}"
            )
        other = self._extended(1 - axis).astype(observed.dtype, copy=False)
        start = np.zeros((observed.shape[axis], other.shape[1]), observed.dtype)
        engine = self._engine(observed, n_threads=n_threads)
        ridge = Ridge(self.reg, self.intercept_reg)
        solved = engine.solve(axis, start, other, ridge).factor.astype(self.X.dtype, copy=False)
        factor = np.ascontiguousarray(solved[:, : self.k])
        intercepts = None if self.row_intercepts is None else solved[:, self.k].copy()
        labels = self._new_labels(axis, observed)
        news: dict[str, Any]
        if axis == 0:
            unseen = np.flatnonzero(observed.by_row.mass == 0)
            news = {"X": factor, "row_intercepts": intercepts, "unseen_rows": unseen}
            news["row_labels"] = labels
        else:
            unseen = np.flatnonzero(observed.by_col.mass == 0)
            news = {"Y": factor, "col_intercepts": intercepts, "unseen_cols": unseen}
            news["col_labels"] = labels
        if unseen.size:
            what = ("rows", "columns")[axis]
            warn(f"{unseen.size} of the {factor.shape[0]} new {what} have no observations")
        return replace(self, history=(), converged=True, **news)

    def _new_labels(self, axis: int, observed: Observations) -> Labels | None:
        """Of what was folded in: its own, or its numbers where it came without."""
        before = (self.row_labels, self.col_labels)[axis]
        if before is None:
            return None
        found = (observed.row_labels, observed.col_labels)[axis]
        if found is None:
            found = Labels(np.arange(observed.shape[axis]))
        return found.renamed(before.name) if found.name is None else found

    def _extended(self, axis: int) -> NDArray[Any]:
        """Factors of one side with their intercepts as last column."""
        factor = (self.X, self.Y)[axis]
        intercepts = (self.row_intercepts, self.col_intercepts)[axis]
        return factor if intercepts is None else np.column_stack([factor, intercepts])

    def _engine(self, observed: Observations, n_threads: int) -> CompletionEngine:
        return CompletionEngine(
            observed,
            self.omega,
            mu=None if self.row_intercepts is None else self.mu,
            scale=self.scale,
            count_scaled=self.reg_scaling == "count",
            n_threads=n_threads,
        )

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
        model_file.write(path, self._content())

    def _content(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _weights_or_none(observed: Observations) -> NDArray[Any] | None:
    weights = observed.by_row.weights
    return weights if weights.size else None


def _is_mask(R: Any) -> bool:
    """Whether a dense matrix is of booleans."""
    if is_frame(R):
        return all(getattr(dtype, "kind", "") == "b" for dtype in R.dtypes)
    return isinstance(R, np.ndarray) and not np.ma.isMaskedArray(R) and R.dtype.kind == "b"


def _called(labels: Labels | None, places: NDArray[np.int64]) -> NDArray[Any]:
    """The labels at these places, None or NaT for -1; the places where there are no labels."""
    if labels is None:
        return places
    found = labels.take(places)
    if found.dtype.kind != "M":
        found = found.astype(object)  # integers have no missing value
    found[places < 0] = None
    return found
