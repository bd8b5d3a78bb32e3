"""A low-rank model: factors, intercepts, what rows and columns are called, and what it predicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import Labels, check_known
from fastemf.inputs.tables import is_table, select_columns
from fastemf.kernels.entries import Cells, predict_cells
from fastemf.kernels.threads import count_threads, launch
from fastemf.operators.conversion import as_operator
from fastemf.solver.records import SweepRecord
from fastemf.support.validation import check_choice, check_clip, check_indices, check_integer

__all__ = ["LowRankModel"]

PAIRS_PER_BLOCK = 1 << 14  # a fraction of a millisecond


@dataclass(frozen=True, eq=False, repr=False)
class LowRankModel:
    """What a fit consists of, and its predictions; the attributes are `Factorization`'s."""

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
    row_labels: Labels | None = None
    col_labels: Labels | None = None

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
        labels = ""
        if self.row_labels is not None and self.col_labels is not None:
            names = (self.row_labels.name, self.col_labels.name)
            labels = ", labels" if None in names else ", labels {} x {}".format(*names)
        return (
            f"<Factorization {m} x {n}, k={self.k}, omega={self.omega:g}{intercepts}{labels}, "
            f"reg={self.reg:.3g}, {self.X.dtype}, {end}>"
        )

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
        """Fitted values of the cells (rows[i], cols[i]), in the data's unit.

        Parameters
        ----------
        rows, cols
            Integer indices from 0, or labels where the fit has them, broadcast against each
            other. Of a labelled fit also one table, with the columns it was fitted from.
        unseen
            What a cell in a never-observed row or column gets: ``"model"`` the
            model's value (mu plus the other side's intercept, or 0 without
            intercepts), ``"nan"`` NaN.
        unknown
            What labels that the fit does not have are: ``"error"``, or ``"nan"`` for NaN.
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
            rows, cols = self._columns_of(rows)
        i, j = self._positions(0, rows), self._positions(1, cols)
        if unknown == "error":
            check_known((i, rows, "rows"), (j, cols, "cols"))
        try:
            if i.shape != j.shape:  # views of the same memory, not to be written to
                i, j = (index.copy() for index in np.broadcast_arrays(i, j))
        except ValueError:
            raise ValueError(
                f"rows and cols must have shapes that broadcast, got {i.shape} and {j.shape}"
            ) from None
        absent = (i < 0) | (j < 0)
        if absent.any():
            i, j = np.maximum(i, 0), np.maximum(j, 0)
        out = self._cells(i, j)
        out[absent] = np.nan
        if unseen == "nan":
            out[np.isin(i, self.unseen_rows) | np.isin(j, self.unseen_cols)] = np.nan
        return np.asarray(np.clip(out, *bounds, out=out))

    def _cells(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
        """Fitted values at indices of one shape."""
        shape = i.shape
        i, j = (np.require(index.ravel(), np.int64, "W") for index in (i, j))
        out = np.empty(i.size, self.X.dtype)
        blocks = np.append(np.arange(0, i.size, PAIRS_PER_BLOCK), i.size)
        a, c = self._offsets()
        cells = Cells(i, j, self.X, self.Y, a, c, out)
        launch(predict_cells, count_threads(-1), blocks, cells)
        return out.reshape(shape)

    def predict_block(self, rows: Any, *, clip: Any = None) -> NDArray[Any]:
        """Fitted values of whole rows (indices, or labels), as a (len(rows), n) array.

        `clip` as in `predict`.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> R = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0], [3.0, np.nan, 9.0]])
        >>> fit = fastemf.complete(R, omega=0.5, k=1, reg=0)
        >>> fit.predict_block([0]).round(6).tolist()
        [[1.0, 2.0, 3.0]]
        """
        bounds = check_clip(clip, self.X.dtype)
        i = np.atleast_1d(self._row_index(rows))
        if i.ndim != 1:
            raise ValueError(f"rows must be one-dimensional, got shape {i.shape}")
        return self._block(i, bounds)

    def _block(self, i: NDArray[np.int64], bounds: tuple[Any, Any]) -> NDArray[Any]:
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
        bounds = check_clip(clip, self.X.dtype)
        m, n = self.shape
        size = m * n * self.X.itemsize
        if size > check_integer(max_bytes, "max_bytes", minimum=0):
            raise ValueError(
                f"the dense {m} x {n} matrix takes {size:,} bytes, above max_bytes={max_bytes:,}; "
                "use predict or predict_block, or raise max_bytes"
            )
        return self._block(np.arange(m), bounds)

    def _offsets(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """What rows and columns add to the product: mu + a and c, or two empty arrays."""
        if self.row_intercepts is None or self.col_intercepts is None:
            return np.empty(0, self.X.dtype), np.empty(0, self.X.dtype)
        shifted = self.row_intercepts + self.X.dtype.type(self.mu)
        return shifted, np.require(self.col_intercepts, requirements="W")

    # --- what rows and columns are called --------------------------------------------------

    def _row_index(self, rows: Any) -> NDArray[np.int64]:
        """Indices of rows, given as such or, where the fit has labels, by label."""
        i = self._positions(0, rows)
        check_known((i, rows, "rows"))
        return i

    def _col_index(self, cols: Any) -> NDArray[np.int64]:
        """Indices of columns, given as such or, where the fit has labels, by label."""
        j = self._positions(1, cols)
        check_known((j, cols, "cols"))
        return j

    def _positions(self, axis: int, given: Any) -> NDArray[np.int64]:
        """Indices of one side, -1 for an unknown label."""
        labels = (self.row_labels, self.col_labels)[axis]
        what = ("rows", "cols")[axis]
        if labels is None:
            return check_indices(given, what, self.shape[axis])
        return labels.positions(given, what=what)

    def _columns_of(self, table: Any) -> list[Any]:
        """The two label columns of a table."""
        if self.row_labels is None or self.col_labels is None:
            raise TypeError("the fit has no labels to look a table up by: pass rows and cols")
        names = (self.row_labels.name, self.col_labels.name)
        if None in names:
            raise ValueError("the labels of the fit have no column names: pass rows and cols")
        return select_columns(table, names)
