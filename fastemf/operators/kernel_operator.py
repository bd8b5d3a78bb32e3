"""Operators whose measurements are computed by kernels: dense, random and sparse ones."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from fastemf.kernels import measurements as kernels
from fastemf.kernels.compilation import Unit
from fastemf.kernels.threads import launch
from fastemf.operators.operator import CheckedOperator, check_columns
from fastemf.support.arrays import Array, Floats, Ints
from fastemf.support.validation import check_dtype, check_indices, check_integer, check_shape

BLOCKS_PER_THREAD = 8
ADJOINT_CHUNKS = 32  # fixed, so that the sum over them does not depend on the number of threads
ENTRIES_PER_LAUNCH = 2e8  # per thread, less than a second, so that Ctrl-C is handled soon
ENTRIES_PER_THREAD = 1 << 17  # about a millisecond; less does not justify a thread


def split_evenly(size: int, n_parts: int) -> Ints:
    """Return the boundaries of at most `n_parts` runs of about equal length."""
    return np.unique(np.linspace(0, size, min(size, n_parts) + 1).astype(np.int64))


class KernelOperator(CheckedOperator):
    """Operator with one kernel for each of its methods."""

    _source: kernels.DenseEntries | kernels.SparseEntries
    _units: tuple[Unit, Unit, Unit]  # forward, adjoint, design

    def _forward(self, X: Array, Y: Array, n_threads: int) -> Array:
        out = np.empty(self.shape[0])
        task = kernels.Forward(self._source, X, self._arrange(Y), out)
        self._launch(self._units[0], out.size, n_threads, task)
        return out

    def _adjoint_times(self, b: Floats, factor: Array, side: int, n_threads: int) -> Array:
        p, m, n = self.shape
        chunks = split_evenly(p, ADJOINT_CHUNKS)
        out = np.empty((chunks.size - 1, (m, n)[side], factor.shape[1]))
        factor = self._arrange(factor)
        task = kernels.Adjoint(self._source, chunks, b, factor, side, m, n, out)
        self._launch(self._units[1], chunks.size - 1, n_threads, task)
        return np.asarray(out.sum(axis=0))

    def _design(self, factor: Array, side: int, which: Ints, n_threads: int) -> Array:
        _, m, n = self.shape
        out = np.empty((which.size, (m, n)[side] * factor.shape[1]), self.dtype)
        task = kernels.DesignRows(self._source, which, self._arrange(factor), side, m, n, out)
        self._launch(self._units[2], which.size, n_threads, task)
        return out

    def _arrange(self, factor: Array) -> Array:
        """Return a factor in the layout of the kernels."""
        return factor

    def _launch(self, unit: Unit, size: int, n_threads: int, task: Any) -> None:
        launch(unit, n_threads, split_evenly(size, BLOCKS_PER_THREAD * n_threads), task)


class DenseOperator(KernelOperator):
    """Operator whose A_i have all entries, stored or generated."""

    _source: kernels.DenseEntries
    _units = (kernels.forward, kernels.adjoint, kernels.design)

    def _arrange(self, factor: Array) -> Array:
        return np.ascontiguousarray(factor.T)

    def _launch(self, unit: Unit, size: int, n_threads: int, task: Any) -> None:
        entries = float(np.prod(self.shape, dtype=float))
        n_threads = min(n_threads, 1 + int(entries / ENTRIES_PER_THREAD))
        n_launches = int(np.ceil(entries / (ENTRIES_PER_LAUNCH * n_threads)))
        done = np.zeros(size, np.bool_)
        task = task._replace(source=self._source._replace(done=done))
        # Without the JIT, NumPy scalars would warn where random words wrap around.
        with np.errstate(over="ignore"):
            for first, last in pairwise(split_evenly(size, n_launches)):
                blocks = first + split_evenly(last - first, BLOCKS_PER_THREAD * n_threads)
                launch(unit, n_threads, blocks, task)
                if not done[blocks[:-1]].all():
                    raise MemoryError("no memory for a row of the measurement matrices")


class Dense(DenseOperator):
    """Stored measurement matrices.

    Parameters
    ----------
    array
        (p, m, n). float32 stays float32, other types become float64. A contiguous array of the
        right type is not copied.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.operators import Dense
    >>> A = Dense([[[1.0, 2.0], [3.0, 4.0]]])
    >>> A.forward([[1.0], [0.0]], [[1.0], [10.0]]).tolist()  # 1·1 + 2·10
    [21.0]
    """

    def __init__(self, array: ArrayLike) -> None:
        stored = np.asarray(array)
        if stored.ndim != 3 or 0 in stored.shape:
            raise ValueError(
                f"A must be an array of shape (p, m, n), none of them 0, got {stored.shape}"
            )
        self.dtype = check_dtype(stored.dtype, "A")
        stored = np.ascontiguousarray(stored, self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            suspect = not np.isfinite(stored.sum())  # needs no memory; finite arrays may overflow
        for i, matrix in enumerate(stored if suspect else ()):
            if not np.isfinite(matrix).all():
                r, c = np.argwhere(~np.isfinite(matrix))[0]
                raise ValueError(
                    f"A must be finite, got {matrix[r, c]} at ({r}, {c}) of measurement {i}"
                )
        self.shape = stored.shape
        none = np.empty(0, np.bool_)
        self._source = kernels.DenseEntries(kernels.STORED, 0, 0, 1.0, stored, none)


class _Random(DenseOperator):
    """Operator with random entries, generated on demand."""

    def __init__(self, p: int, shape: tuple[int, int], seed: int, kind: int) -> None:
        m, n = check_shape(shape, "shape")
        p = check_integer(p, "p", minimum=1)
        for name, size in (("p", p), ("rows", m), ("columns", n)):
            if size >= 1 << 32:
                raise ValueError(f"{name} must be below 2**32, got {size}")
        self.seed = check_integer(seed, "seed", minimum=0)
        if self.seed >= 1 << 64:
            raise ValueError(f"seed must be below 2**64, got {seed}")
        self.shape = (p, m, n)
        self.dtype = np.dtype(np.float64)
        low, high = self.seed & 0xFFFFFFFF, self.seed >> 32
        self._source = kernels.DenseEntries(
            kind, low, high, 1.0 / sqrt(p), np.empty((0, 0, 0)), np.empty(0, np.bool_)
        )


class Gaussian(_Random):
    """Independent N(0, 1/p) entries, generated on demand and never stored.

    With this variance E ‖A(M)‖² = ‖M‖². Entry (r, c) of A_i is a pure function of (seed, i, r, c),
    by Philox4x32-10 and the Box–Muller transform. It does not depend on blocks, threads,
    processes, machines or the order of access; see `fastemf.kernels.random_entries`.

    Parameters
    ----------
    p
        Number of measurements.
    shape
        Shape (m, n) of the measured matrices.
    seed
        Integer from 0 to 2**64 − 1. Different seeds give independent operators.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.operators import Gaussian
    >>> A = Gaussian(500, (6, 4), seed=1)
    >>> b = A.forward(np.ones((6, 1)), np.ones((4, 1)))
    >>> bool(np.allclose(b, A.to_dense().sum(axis=(1, 2))))
    True
    >>> bool(0.8 < np.sum(b**2) / 24 < 1.2)  # a near-isometry: ‖ones‖² = 24
    True
    """

    def __init__(self, p: int, shape: tuple[int, int], seed: int = 0) -> None:
        super().__init__(p, shape, seed, kernels.GAUSSIAN)


class Rademacher(_Random):
    """Entries ±1/√p with equal probability, generated on demand and never stored.

    They are sub-Gaussian, so the restricted isometry property holds as for `Gaussian`. One random
    word gives 64 entries, so they are much cheaper.

    Parameters
    ----------
    p, shape, seed
        As for `Gaussian`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemf.operators import Rademacher
    >>> sorted(np.unique(Rademacher(4, (5, 5), seed=0).to_dense()).tolist())
    [-0.5, 0.5]
    """

    def __init__(self, p: int, shape: tuple[int, int], seed: int = 0) -> None:
        super().__init__(p, shape, seed, kernels.RADEMACHER)


class Sparse(KernelOperator):
    """Measurement matrices with few entries each.

    Parameters
    ----------
    matrix
        scipy sparse matrix or array of shape (p, m·n): row i is A_i, flattened row by row.
        Repeated entries are summed, as in scipy.
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

    _units = (kernels.sparse_forward, kernels.sparse_adjoint, kernels.sparse_design)

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

    def _set(self, indptr: Array, cells: Array, values: Array) -> None:
        self._indptr = np.require(indptr, np.int64, ["C", "W"])
        self._cells = np.require(cells, np.int64, ["C", "W"])
        self._values = np.require(values, self.dtype, ["C", "W"])
        self._source = kernels.SparseEntries(self._indptr, self._cells, self._values)


class Entries(Sparse):
    """Single entries of the matrix: completion as linear measurements.

    `fastemf.sense` with this operator is `fastemf.complete` with a plain ridge.

    Parameters
    ----------
    rows, cols
        Measured positions, one pair per measurement; pairs may repeat.
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
