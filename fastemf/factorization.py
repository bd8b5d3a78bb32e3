"""The result of a fit: factors, predictions, evidence, and a file to keep it in."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf import model_file
from fastemf.entry_kernels import PREDICT_PAIRS
from fastemf.loss import expectile_loss
from fastemf.metrics import effective_omega
from fastemf.observations import Observations, observe
from fastemf.operators import as_operator
from fastemf.ranking import Ranking, rank_rows
from fastemf.records import Ridge, SweepRecord
from fastemf.similarity import Similar, nearest
from fastemf.summary import Summary, summarise_groups
from fastemf.sweep import CompletionEngine
from fastemf.threads import count_threads, launch
from fastemf.validation import check_axis, check_choice, check_clip, check_indices, check_integer
from fastemf.warn import warn

__all__ = ["Factorization", "load"]

PAIRS_PER_BLOCK = 1 << 14  # a fraction of a millisecond


@dataclass(frozen=True, eq=False, repr=False)
class Factorization:
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
        The data's ω-expectile with intercepts, else 0. In the data's unit.
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
        Whether the tolerance was reached within the sweeps allowed.
    history : tuple of SweepRecord
        One record per sweep.
    unseen_rows, unseen_cols : int64 arrays
        Rows and columns without any observation; their factors are zero.
    """

    X: NDArray[Any]
    Y: NDArray[Any]
    omega: float
    mu: float
    row_intercepts: NDArray[Any] | None
    col_intercepts: NDArray[Any] | None
    reg: float
    reg_scaling: str
    intercept_reg: float
    scale: float
    converged: bool
    history: tuple[SweepRecord, ...]
    unseen_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    unseen_cols: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.X.shape[0], self.Y.shape[0]

    @property
    def k(self) -> int:
        """The rank."""
        return int(self.X.shape[1])

    @property
    def n_iter(self) -> int:
        """Sweeps done, rejected ones included."""
        return len(self.history)

    def __repr__(self) -> str:
        m, n = self.shape
        end = "converged" if self.converged else "not converged"
        end = f"{end} in {self.n_iter} sweeps" if self.history else "folded in"
        intercepts = "" if self.row_intercepts is None else ", intercepts"
        return (
            f"<Factorization {m} x {n}, k={self.k}, omega={self.omega:g}{intercepts}, "
            f"reg={self.reg:.3g}, {self.X.dtype}, {end}>"
        )

    # --- predictions -----------------------------------------------------------------------

    def predict(
        self, rows: ArrayLike, cols: ArrayLike, *, unseen: str = "model", clip: Any = None
    ) -> NDArray[Any]:
        """Fitted values of the cells (rows[i], cols[i]), in the data's unit.

        Parameters
        ----------
        rows, cols
            Integer indices from 0, broadcast against each other.
        unseen
            What a cell in a never-observed row or column gets: ``"model"`` the
            model's value (mu plus the other side's intercept, or 0 without
            intercepts), ``"nan"`` NaN.
        clip
            ``(low, high)``: values beyond are set to the bound, None leaves a side open.
            ``clip=(0, None)`` for quantities that cannot be negative; the model can.
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
        """
        check_choice(unseen, "unseen", ("model", "nan"))
        bounds = check_clip(clip, self.X.dtype)
        m, n = self.shape
        i, j = check_indices(rows, "rows", m), check_indices(cols, "cols", n)
        try:
            if i.shape != j.shape:  # views of the same memory, not to be written to
                i, j = (index.copy() for index in np.broadcast_arrays(i, j))
        except ValueError:
            raise ValueError(
                f"rows and cols must have shapes that broadcast, got {i.shape} and {j.shape}"
            ) from None
        shape = i.shape
        i, j = (np.require(index.ravel(), requirements="W") for index in (i, j))
        out = np.empty(i.size, self.X.dtype)
        blocks = np.append(np.arange(0, i.size, PAIRS_PER_BLOCK), i.size)
        a, c = self._offsets()
        X, Y = (np.require(factor, requirements="W") for factor in (self.X, self.Y))
        launch(PREDICT_PAIRS, count_threads(-1), blocks, i, j, X, Y, a, c, out)
        if unseen == "nan":
            out[np.isin(i, self.unseen_rows) | np.isin(j, self.unseen_cols)] = np.nan
        return np.clip(out, *bounds, out=out).reshape(shape)

    def predict_block(self, rows: ArrayLike, *, clip: Any = None) -> NDArray[Any]:
        """Fitted values of whole rows, as a (len(rows), n) array; `clip` as in `predict`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.predict_block([0]).round(6).tolist()
        [[1.0, 2.0, 3.0]]
        """
        bounds = check_clip(clip, self.X.dtype)
        i = np.atleast_1d(check_indices(rows, "rows", self.shape[0]))
        if i.ndim != 1:
            raise ValueError(f"rows must be one-dimensional, got shape {i.shape}")
        block = self.X[i] @ self.Y.T
        if self.row_intercepts is not None:
            a, c = self._offsets()
            block += a[i, None] + c
        return np.asarray(np.clip(block, *bounds, out=block))

    def measure(self, A: Any, *, shape: tuple[int, int] | None = None) -> NDArray[Any]:
        """Fitted measurements <A_i, M̂> by an operator, in any form `fastemf.sense` takes.

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
        X, Y = self.X, self.Y
        if self.row_intercepts is not None:
            # M̂ = X Yᵀ + (μ + a) 1ᵀ + 1 cᵀ is a product too, of rank k + 2.
            a, c = self._offsets()
            X = np.column_stack([X, a, np.ones_like(a)])
            Y = np.column_stack([Y, np.ones_like(c), c])
        return operator.forward(X, Y)

    def to_dense(self, *, max_bytes: int = 1 << 30, clip: Any = None) -> NDArray[Any]:
        """Every fitted value, as an (m, n) array; refused above `max_bytes` (1 GiB).

        `clip` as in `predict`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> fit.to_dense().round(6).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
        """
        m, n = self.shape
        size = m * n * self.X.itemsize
        if size > check_integer(max_bytes, "max_bytes", minimum=0):
            raise ValueError(
                f"the dense {m} x {n} matrix takes {size:,} bytes, above max_bytes={max_bytes:,}; "
                "use predict or predict_block, or raise max_bytes"
            )
        return self.predict_block(np.arange(m), clip=clip)

    def _offsets(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """What rows and columns add to the product: mu + a and c, or two empty arrays."""
        if self.row_intercepts is None or self.col_intercepts is None:
            return np.empty(0, self.X.dtype), np.empty(0, self.X.dtype)
        shifted = self.row_intercepts + self.X.dtype.type(self.mu)
        return shifted, np.require(self.col_intercepts, requirements="W")

    # --- questions -------------------------------------------------------------------------

    def rank(
        self, row: ArrayLike | None, n: int, *, order: str, seen: Any = None, clip: Any = None
    ) -> Ranking:
        """The n best columns of a row, of several rows, or of all.

        Values are those of `predict`, to the bit, and a row's ranking does not depend on
        the rows it is asked with. Of equal values the smaller column comes first. Columns
        without any observation are never listed: nothing is known of them but the
        fallback that `predict` gives. A row without any is ranked by the columns'
        intercepts; where the fit has none it gets no columns.

        To rank by risk, rank by a fit of a high level: the safest service is the one with
        the smallest high expectile, not the one with the smallest typical value.

        Parameters
        ----------
        row
            A row, a one-dimensional array of rows, or None for all rows. Rows are
            predicted a block at a time: memory is bounded whatever their number.
        n
            How many columns.
        order
            ``"smallest"`` if small values are good (latency), ``"largest"`` if large ones
            are (spend). There is no default: the wrong one lists the worst.
        seen
            Data whose observed entries are left out, in any form `fastemf.complete`
            takes: the training data, for new columns only. Read as a whole in each call,
            so ask for many rows at once.
        clip
            As in `predict`. It bounds the values listed, not their order: among columns
            at a bound the model's own values decide.

        Returns
        -------
        Ranking
            ``cols`` and ``values``, best first, of shape (n,) for one row and (rows, n) for
            several; -1 and NaN where there are fewer than n columns to list.

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
        rows = np.arange(self.shape[0]) if row is None else check_indices(row, "row", self.shape[0])
        if rows.ndim > 1:
            raise ValueError(
                f"row must be one row, a one-dimensional array or None, got {rows.shape}"
            )
        ranking = rank_rows(
            lambda block: self.predict(block[:, None], every_col),
            np.atleast_1d(rows),
            self.shape,
            n,
            largest=order == "largest",
            seen=None if seen is None else self._seen(seen).by_row,
            no_rows=self.unseen_rows if self.row_intercepts is None else self.unseen_rows[:0],
            no_cols=self.unseen_cols,
        )
        cols, values = ranking.cols, np.clip(ranking.values, *bounds)
        return Ranking(cols, values) if rows.ndim else Ranking(cols[0], values[0])

    def similar_rows(self, row: int, n: int) -> Similar:
        """The n rows most like a row, by what the fit says of them.

        The distance of two rows is the root mean square difference of their predictions
        over all columns, intercepts included, in the data's unit. Factors are not
        compared: X G and Y G⁻ᵀ are the same model as X and Y, with other factors. No
        dense matrix is formed. The row itself is not listed, nor are rows without any
        observation; such a row resembles none. Of equal distances the smaller row comes first.

        Returns
        -------
        Similar
            ``others`` and ``distances``, nearest first; -1 and NaN where there are fewer
            than n.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 5.0, 2.0], [3.0, 3.0, 3.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> near = fit.similar_rows(0, 2)
        >>> near.others.tolist(), near.distances.round(6).tolist()
        ([2, 1], [3.0, 12.0])
        """
        return self._similar(0, row, n, "row")

    def similar_cols(self, col: int, n: int) -> Similar:
        """The n columns most like a column: `similar_rows` of the transpose.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([3.0, 3.0, 3.0], [1.0, 5.0, 2.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.similar_cols(1, 1).distances.round(6).tolist()  # column 2: 15 against 6
        [9.0]
        """
        return self._similar(1, col, n, "col")

    def _similar(self, axis: int, item: Any, n: int, name: str) -> Similar:
        n = check_integer(n, "n", minimum=1)
        index = check_indices(item, name, self.shape[axis])
        if index.ndim:
            raise ValueError(f"{name} must be a single one, got shape {index.shape}")
        this, other = self._extended(axis), (self.X, self.Y)[1 - axis]
        if self.row_intercepts is not None:
            # What the other side's intercepts add is the same for both.
            other = np.column_stack([other, np.ones_like(other[:, 0])])
        return nearest(this, other, int(index), n, (self.unseen_rows, self.unseen_cols)[axis])

    def _seen(self, seen: Any) -> Observations:
        if isinstance(seen, np.ndarray) and seen.dtype == bool and not np.ma.isMaskedArray(seen):
            raise TypeError(
                "seen must be the data and not a mask of them, as every cell of a dense boolean "
                "array counts as observed; got dtype bool; pass R, or scipy.sparse.csr_array(mask)"
            )
        try:
            return self._observe(seen, None, None)
        except (IndexError, TypeError, ValueError) as error:
            raise type(error)(f"seen is read as R of complete(), and {error}") from None

    # --- how well it fits ------------------------------------------------------------------

    def objective(self, R: Any, *, weights: Any = None, shape: Any = None) -> float:
        """F on any data of the matrix's shape: expectile loss plus the fit's ridge terms.

        On the training data this is the objective of the last accepted record. `R`,
        `weights` and `shape` are as in `fastemf.complete`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.outer([1.0, 2.0], [3.0, 4.0])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.objective(R + 1) - 0.5 * 4 < 1e-12
        True
        """
        observed = self._observe(R, weights, shape)
        engine = self._engine(observed, n_threads=1)
        ridge = Ridge(self.reg, self.intercept_reg)
        loss = expectile_loss(self._residuals(observed), self.omega, _weights_or_none(observed))
        return loss + engine.penalty(self._extended(0), self._extended(1), ridge)

    def effective_omega(self, R: Any, *, weights: Any = None, shape: Any = None) -> float:
        """Level at which the fit really lies in `R`: Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|).

        Equal to ``omega`` for the constant that is the data's ω-expectile; on
        held-out data a measure of calibration. NaN where every residual is 0.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[0.0, 0.0, 1.0], [0.0, 9.0, 1.0]])
        >>> fit = fastemf.complete(np.ones((2, 3)), omega=0.1, k=1, reg=0)
        >>> round(fit.effective_omega(R), 3)  # three zeros below 1, eight units above
        0.273
        """
        observed = self._observe(R, weights, shape)
        return effective_omega(self._residuals(observed), _weights_or_none(observed))

    def summary(self, R: Any, axis: int = 0, *, weights: Any = None, shape: Any = None) -> Summary:
        """How well the fit describes each row (axis 0) or column (axis 1) of `R`.

        Shows which rows a fit describes badly; on held-out data, which it predicts badly.
        `R`, `weights` and `shape` are as in `fastemf.complete`.

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
        observed = self._observe(R, weights, shape)
        if axis == 0:
            return summarise_groups(observed.by_row, self.predict, self.omega, axis)
        return summarise_groups(
            observed.by_col, lambda cols, rows: self.predict(rows, cols), self.omega, axis
        )

    def _residuals(self, observed: Observations) -> NDArray[np.float64]:
        side = observed.by_row
        predicted = self.predict(side.keys, side.indices)
        return side.values.astype(np.float64) - predicted.astype(np.float64)

    def _observe(self, R: Any, weights: Any, shape: Any) -> Observations:
        if shape is None and isinstance(R, tuple):
            shape = self.shape
        observed = observe(R, weights=weights, shape=shape)
        if observed.shape != self.shape:
            raise ValueError(f"R must have the fit's shape {self.shape}, got {observed.shape}")
        return observed

    # --- new rows and columns --------------------------------------------------------------

    def fold_in(
        self, R_new: Any, *, axis: int = 0, weights: Any = None, shape: Any = None, n_jobs: int = -1
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
        weights, shape, n_jobs
            As in `fastemf.complete`.

        Returns
        -------
        Factorization
            Of the new rows (columns), numbered from 0, by the same other side.

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
        if shape is None and isinstance(R_new, tuple) and len(R_new) == 3:
            largest = np.max(check_indices(R_new[axis], ("rows", "cols")[axis], None), initial=0)
            shape = (int(largest) + 1, fixed) if axis == 0 else (fixed, int(largest) + 1)
        observed = observe(R_new, weights=weights, shape=shape)
        if observed.shape[1 - axis] != fixed:
            what = ("columns", "rows")[axis]
            raise ValueError(
                f"R_new must have the fit's {fixed} {what} for axis={axis}, "
                f"got shape {observed.shape}"
            )
        other = self._extended(1 - axis).astype(observed.dtype, copy=False)
        start = np.zeros((observed.shape[axis], other.shape[1]), observed.dtype)
        engine = self._engine(observed, n_threads=count_threads(n_jobs))
        ridge = Ridge(self.reg, self.intercept_reg)
        solved = engine.solve(axis, start, other, ridge).factor.astype(self.X.dtype, copy=False)
        factor = np.ascontiguousarray(solved[:, : self.k])
        intercepts = None if self.row_intercepts is None else solved[:, self.k].copy()
        news: dict[str, Any]
        if axis == 0:
            unseen = np.flatnonzero(observed.by_row.mass == 0)
            news = {"X": factor, "row_intercepts": intercepts, "unseen_rows": unseen}
        else:
            unseen = np.flatnonzero(observed.by_col.mass == 0)
            news = {"Y": factor, "col_intercepts": intercepts, "unseen_cols": unseen}
        if unseen.size:
            what = ("rows", "columns")[axis]
            warn(f"{unseen.size} of the {factor.shape[0]} new {what} have no observations")
        return replace(self, history=(), converged=True, **news)

    def _extended(self, axis: int) -> NDArray[Any]:
        """Factors of one side with their intercepts as last column."""
        factor = (self.X, self.Y)[axis]
        intercepts = (self.row_intercepts, self.col_intercepts)[axis]
        return factor if intercepts is None else np.column_stack([factor, intercepts])

    def _engine(self, observed: Observations, n_threads: int) -> CompletionEngine:
        return CompletionEngine(
            observed,
            self.omega,
            level=None if self.row_intercepts is None else self.mu,
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
        model_file.write(path, {f.name: getattr(self, f.name) for f in fields(self)})


def load(path: str | os.PathLike[str]) -> Factorization:
    """Read a fit that `Factorization.save` wrote.

    Nothing is unpickled: a model file cannot run code. Keys, shapes, types and
    values are checked.

    Raises
    ------
    fastemf.ModelFileError
        A `ValueError`: the file is damaged, of another kind, or of a newer version.
    FileNotFoundError
        There is no such file.

    Examples
    --------
    >>> import numpy as np, fastemf, tempfile, os
    >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> fit.save(path)
    >>> fastemf.load(path).omega
    0.5
    """
    return Factorization(**model_file.read(path))


def _weights_or_none(observed: Observations) -> NDArray[Any] | None:
    weights = observed.by_row.weights
    return weights if weights.size else None
