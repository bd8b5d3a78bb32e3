"""`Sparse`, measurement matrices with few entries each, and `Entries`, with one."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fastemf.kernels import measurements as kernels
from fastemf.kernels.threads import launch
from fastemf.operators.operator import CheckedOperator, check_columns
from fastemf.operators.runs import adjoint_runs, thread_runs
from fastemf.support.validation import check_dtype, check_indices, check_shape

__all__ = ["Entries", "Sparse"]


class Sparse(CheckedOperator):
    """Measurement matrices with few entries each.

    Parameters
    ----------
    matrix
        scipy sparse matrix or array of shape (p, m·n): row i is A_i, row by row.
        Repeated entries add up, as everywhere in scipy.
    shape
        (m, n).

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from fastemf.operators import Sparse
    >>> A = Sparse(sp.csr_array([[0.0, 2.0, 0.0, 1.0]]), (2, 2))  # 2·M[0, 1] + M[1, 1]
    >>> A.forward([[1.0], [2.0]], [[3.0], [5.0]]).tolist()
    [20.0]
    """

    def __init__(self, matrix: Any, shape: tuple[int, int]) -> None:
        if not sp.issparse(matrix):
            raise TypeError(f"matrix must be a scipy sparse matrix, got {type(matrix).__name__}")
        m, n = check_shape(shape, "shape")
        self.shape = (check_columns(matrix.shape, (m, n)), m, n)
        self.dtype = check_dtype(matrix.dtype, "A")
        rows = matrix.tocsr()
        self._set(rows.indptr, rows.indices, rows.data)
        if not np.isfinite(self._values).all():
            e = int(np.argmin(np.isfinite(self._values)))
            i = int(np.searchsorted(self._indptr, e, side="right")) - 1
            r, c = divmod(int(self._cells[e]), n)
            raise ValueError(
                f"A must be finite, got {self._values[e]} at ({r}, {c}) of measurement {i}"
            )

    def _set(self, indptr: NDArray[Any], cells: NDArray[Any], values: NDArray[Any]) -> None:
        self._indptr = np.require(indptr, np.int64, ["C", "W"])
        self._cells = np.require(cells, np.int64, ["C", "W"])
        self._values = np.require(values, self.dtype, ["C", "W"])
        self._listing = kernels.Listing(self._indptr, self._cells, self._values)

    def _forward(self, X: NDArray[Any], Y: NDArray[Any], n_threads: int) -> NDArray[Any]:
        out = np.empty(self.shape[0])
        blocks = thread_runs(out.size, n_threads)
        launch(kernels.sparse_forward, n_threads, blocks, kernels.Forward(self._listing, X, Y, out))
        return out

    def _adjoint_times(
        self, b: NDArray[np.float64], factor: NDArray[Any], side: int, n_threads: int
    ) -> NDArray[Any]:
        p, m, n = self.shape
        chunks = adjoint_runs(p)
        out = np.empty((chunks.size - 1, (m, n)[side], factor.shape[1]))
        blocks = thread_runs(chunks.size - 1, n_threads)
        task = kernels.Adjoint(self._listing, chunks, b, factor, side, m, n, out)
        launch(kernels.sparse_adjoint, n_threads, blocks, task)
        return np.asarray(out.sum(axis=0))

    def _design(
        self, factor: NDArray[Any], side: int, which: NDArray[np.int64], n_threads: int
    ) -> NDArray[Any]:
        _, m, n = self.shape
        out = np.empty((which.size, (m, n)[side] * factor.shape[1]), self.dtype)
        task = kernels.DesignRows(self._listing, which, factor, side, m, n, out)
        launch(kernels.sparse_design, n_threads, thread_runs(which.size, n_threads), task)
        return out


class Entries(Sparse):
    """Single entries of the matrix: completion as linear measurements.

    `fastemf.sense` of these is `fastemf.complete` with a plain ridge.

    Parameters
    ----------
    rows, cols
        Positions measured, one pair per measurement; pairs may repeat.
    shape
        (m, n).

    Examples
    --------
    >>> from fastemf.operators import Entries
    >>> Entries([0, 1], [1, 1], (2, 2)).forward([[1.0], [2.0]], [[3.0], [5.0]]).tolist()
    [5.0, 10.0]
    """

    def __init__(self, rows: ArrayLike, cols: ArrayLike, shape: tuple[int, int]) -> None:
        m, n = check_shape(shape, "shape")
        if m * n > np.iinfo(np.int64).max:  # cells are numbered row by row
            raise ValueError(f"shape must have fewer than 2**63 cells, got ({m}, {n})")
        self.rows = check_indices(rows, "rows", m)
        self.cols = check_indices(cols, "cols", n)
        if self.rows.ndim != 1 or self.rows.shape != self.cols.shape or not self.rows.size:
            raise ValueError(
                "rows and cols must be one-dimensional, of equal length and not empty, got "
                f"shapes {self.rows.shape} and {self.cols.shape}"
            )
        p = self.rows.size
        self.shape = (p, m, n)
        self.dtype = np.dtype(np.float64)
        self._set(np.arange(p + 1), self.rows * n + self.cols, np.ones(p))
