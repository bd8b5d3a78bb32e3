"""Linear maps A from m × n matrices to p measurements, b_i = <A_i, M>.

All answer the same few questions (`Operator`) about a matrix that is given by
its factors. `side` says which factor is asked about: 0 for X, whose rows are
those of the matrix, 1 for Y. `Gaussian` and `Rademacher` have the restricted
isometry property and store nothing at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from math import sqrt
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator

from fastemf.kernels import measurements as kernels
from fastemf.kernels.compilation import Unit
from fastemf.kernels.threads import count_threads, launch, single_threaded_blas
from fastemf.support.validation import check_dtype, check_indices, check_integer, check_shape

__all__ = [
    "Dense",
    "Entries",
    "Gaussian",
    "Linear",
    "Operator",
    "Rademacher",
    "RankOne",
    "Sparse",
]

BLOCKS_PER_THREAD = 8
ENTRIES_PER_LAUNCH = 2e8  # per thread, less than a second: how soon Ctrl-C is heard
ENTRIES_PER_THREAD = 1 << 17  # about a millisecond: less is not worth waking a thread for
ADJOINT_CHUNKS = 32  # fixed, so that the sum over them is the same for any number of threads
PROBES_PER_CALL = 64  # matrices of m × n that a LinearOperator is asked for at once


@runtime_checkable
class Operator(Protocol):
    """What `fastemf.sense` asks of a measurement operator.

    Anything with these attributes will do; that `forward`, `adjoint_times` and
    `design` belong together is checked once, on a random probe.

    Attributes
    ----------
    shape : (p, m, n)
        Measurements, rows and columns.
    dtype : numpy.dtype
        float32 or float64, the type of its entries.
    """

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def forward(self, X: NDArray[Any], Y: NDArray[Any], *, n_jobs: int = -1) -> NDArray[Any]:
        """The p measurements <A_i, X Yᵀ>."""

    def adjoint_times(
        self, b: NDArray[Any], factor: NDArray[Any], side: int = 0, *, n_jobs: int = -1
    ) -> NDArray[Any]:
        """S Y (side 0, factor Y) or Sᵀ X (side 1, factor X), where S = Σ b_i A_i."""

    def design(
        self, factor: NDArray[Any], side: int, rows: Any = None, *, n_jobs: int = -1
    ) -> NDArray[Any]:
        """Rows vec(A_i Y) (side 0, factor Y) or vec(A_iᵀ X) (side 1, factor X).

        Row i times the flattened factor of that side is measurement i. `rows` are
        the measurements wanted, in that order; all by default.
        """


class _Operator(ABC):
    """Checks and conveniences that all operators here share."""

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def forward(self, X: ArrayLike, Y: ArrayLike, *, n_jobs: int = -1) -> NDArray[Any]:
        """The p measurements <A_i, X Yᵀ>.

        Parameters
        ----------
        X, Y
            (m, r) and (n, r).
        n_jobs
            Threads; -1 for all. Same bits for any number of them.
        """
        X, Y = self._factor(X, "X", 0), self._factor(Y, "Y", 1)
        if X.shape[1] != Y.shape[1]:
            raise ValueError(f"X and Y must have equal ranks, got {X.shape[1]} and {Y.shape[1]}")
        return self._forward(X, Y, count_threads(n_jobs)).astype(self.dtype, copy=False)

    def adjoint_times(
        self, b: ArrayLike, factor: ArrayLike, side: int = 0, *, n_jobs: int = -1
    ) -> NDArray[Any]:
        """S Y (side 0, factor Y) or Sᵀ X (side 1, factor X), where S = Σ b_i A_i.

        Parameters
        ----------
        b
            (p,) coefficients.
        factor
            (n, r) for side 0, (m, r) for side 1.
        side
            Whose shape the result has: 0 (m, r), 1 (n, r).
        n_jobs
            Threads; -1 for all. Same bits for any number of them.
        """
        _check_side(side)
        b = np.require(b, np.float64, ["C", "W"])
        if b.shape != (self.shape[0],):
            raise ValueError(f"b must have shape ({self.shape[0]},), got {b.shape}")
        factor = self._factor(factor, "factor", 1 - side)
        done = self._adjoint_times(b, factor, side, count_threads(n_jobs))
        return done.astype(self.dtype, copy=False)

    def design(
        self, factor: ArrayLike, side: int, rows: Any = None, *, n_jobs: int = -1
    ) -> NDArray[Any]:
        """Rows vec(A_i Y) (side 0, factor Y) or vec(A_iᵀ X) (side 1, factor X).

        Row i times the flattened factor of that side is measurement i.

        Parameters
        ----------
        factor
            (n, r) for side 0, (m, r) for side 1.
        side
            The factor whose coefficients these are: 0 for X, 1 for Y.
        rows
            The measurements wanted, in that order; all by default.
        n_jobs
            Threads; -1 for all.

        Returns
        -------
        (len(rows), m·r or n·r) array
        """
        _check_side(side)
        factor = self._factor(factor, "factor", 1 - side)
        p = self.shape[0]
        which = np.arange(p) if rows is None else check_indices(rows, "rows", p)
        which = np.require(which, np.int64, ["C", "W"])
        return self._design(factor, side, which, count_threads(n_jobs))

    def to_dense(self, *, max_bytes: int = 1 << 30) -> NDArray[Any]:
        """Every A_i, as a (p, m, n) array; refused above `max_bytes` (1 GiB).

        Examples
        --------
        >>> from fastemf.operators import Entries
        >>> Entries([1], [0], (2, 2)).to_dense().tolist()
        [[[0.0, 0.0], [1.0, 0.0]]]
        """
        p, m, n = self.shape
        size = p * m * n * self.dtype.itemsize
        if size > check_integer(max_bytes, "max_bytes", minimum=0):
            raise ValueError(
                f"the dense {p} x {m} x {n} array takes {size:,} bytes, above "
                f"max_bytes={max_bytes:,}; use forward, adjoint_times or design, or raise max_bytes"
            )
        return self.design(np.eye(n), 0).reshape(p, m, n)

    def __repr__(self) -> str:
        p, m, n = self.shape
        return f"<{type(self).__name__}, {p} measurements of {m} x {n} matrices, {self.dtype}>"

    def _factor(self, factor: ArrayLike, name: str, side: int) -> NDArray[Any]:
        array = np.asarray(factor)
        check_dtype(array.dtype, name)
        size = self.shape[1 + side]
        if array.ndim != 2 or array.shape[0] != size:
            raise ValueError(f"{name} must have shape ({size}, rank), got {array.shape}")
        return np.require(array, self.dtype, ["C", "W"])

    @abstractmethod
    def _forward(self, X: NDArray[Any], Y: NDArray[Any], n_threads: int) -> NDArray[Any]:
        """`forward` of checked factors."""

    @abstractmethod
    def _adjoint_times(
        self, b: NDArray[np.float64], factor: NDArray[Any], side: int, n_threads: int
    ) -> NDArray[Any]:
        """`adjoint_times` of checked arguments."""

    @abstractmethod
    def _design(
        self, factor: NDArray[Any], side: int, which: NDArray[np.int64], n_threads: int
    ) -> NDArray[Any]:
        """`design` of checked arguments."""


class _Complete(_Operator):
    """Operators whose A_i have every entry, stored or drawn."""

    _source: kernels.Drawing

    def _forward(self, X: NDArray[Any], Y: NDArray[Any], n_threads: int) -> NDArray[Any]:
        out = np.empty(self.shape[0])
        Yt = np.ascontiguousarray(Y.T)
        task = kernels.Forward(self._source, X, Yt, out)
        self._launch(kernels.forward, self.shape[0], n_threads, task)
        return out

    def _adjoint_times(
        self, b: NDArray[np.float64], factor: NDArray[Any], side: int, n_threads: int
    ) -> NDArray[Any]:
        p, m, n = self.shape
        chunks = _chunks(p)
        out = np.empty((chunks.size - 1, (m, n)[side], factor.shape[1]))
        transposed = np.ascontiguousarray(factor.T)
        task = kernels.Adjoint(self._source, chunks, b, transposed, side, m, n, out)
        self._launch(kernels.adjoint, chunks.size - 1, n_threads, task)
        return np.asarray(out.sum(axis=0))

    def _design(
        self, factor: NDArray[Any], side: int, which: NDArray[np.int64], n_threads: int
    ) -> NDArray[Any]:
        _, m, n = self.shape
        out = np.empty((which.size, (m, n)[side] * factor.shape[1]), self.dtype)
        transposed = np.ascontiguousarray(factor.T)
        task = kernels.Design(self._source, which, transposed, side, m, n, out)
        self._launch(kernels.design, which.size, n_threads, task)
        return out

    def _launch(self, unit: Unit, size: int, n_threads: int, task: Any) -> None:
        # Without the JIT, words that wrap around are NumPy scalars, which would warn.
        with np.errstate(over="ignore"):
            entries = float(np.prod(self.shape, dtype=float))
            n_threads = min(n_threads, 1 + int(entries / ENTRIES_PER_THREAD))
            launches = int(np.ceil(entries / (ENTRIES_PER_LAUNCH * n_threads)))
            cuts = _even(size, launches)
            for first, last in pairwise(cuts):
                blocks = first + _even(last - first, BLOCKS_PER_THREAD * n_threads)
                launch(unit, n_threads, blocks, task)


class _Drawn(_Complete):
    """Operators whose entries are drawn whenever they are needed."""

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
        self._source = kernels.Drawing(kind, low, high, 1.0 / sqrt(p), np.empty((0, 0, 0)))


class Gaussian(_Drawn):
    """Independent N(0, 1/p) entries, drawn when needed and never stored.

    With that variance E ‖A(M)‖² = ‖M‖². Entry (r, c) of A_i is a pure function
    of (seed, i, r, c), by Philox4x32-10 and Box and Muller's transform: it does not
    depend on blocks, threads, processes, machines or the order of access
    (`fastemf.kernels.random_entries` has the details).

    Parameters
    ----------
    p
        Number of measurements.
    shape
        (m, n) of the matrices measured.
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


class Rademacher(_Drawn):
    """Entries ±1/√p with equal chances, drawn when needed and never stored.

    Sub-Gaussian, so the restricted isometry property holds as for `Gaussian`; one
    random word gives 64 entries, so they are far cheaper.

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


class Dense(_Complete):
    """Measurement matrices that are stored.

    Parameters
    ----------
    array
        (p, m, n). float32 stays float32, all else becomes float64; kept without a
        copy where that is its type already and it is contiguous.

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
            suspect = not np.isfinite(stored.sum())  # takes no memory; a finite array may overflow
        for i, matrix in enumerate(stored if suspect else ()):
            if not np.isfinite(matrix).all():
                r, c = np.argwhere(~np.isfinite(matrix))[0]
                raise ValueError(
                    f"A must be finite, got {matrix[r, c]} at ({r}, {c}) of measurement {i}"
                )
        self.shape = stored.shape
        self._source = kernels.Drawing(kernels.STORED, 0, 0, 1.0, stored)


class Sparse(_Operator):
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
        self.shape = (_check_columns(matrix.shape, (m, n)), m, n)
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
        blocks = _even(out.size, BLOCKS_PER_THREAD * n_threads)
        launch(kernels.sparse_forward, n_threads, blocks, kernels.Forward(self._listing, X, Y, out))
        return out

    def _adjoint_times(
        self, b: NDArray[np.float64], factor: NDArray[Any], side: int, n_threads: int
    ) -> NDArray[Any]:
        p, m, n = self.shape
        chunks = _chunks(p)
        out = np.empty((chunks.size - 1, (m, n)[side], factor.shape[1]))
        blocks = _even(chunks.size - 1, BLOCKS_PER_THREAD * n_threads)
        task = kernels.Adjoint(self._listing, chunks, b, factor, side, m, n, out)
        launch(kernels.sparse_adjoint, n_threads, blocks, task)
        return np.asarray(out.sum(axis=0))

    def _design(
        self, factor: NDArray[Any], side: int, which: NDArray[np.int64], n_threads: int
    ) -> NDArray[Any]:
        _, m, n = self.shape
        out = np.empty((which.size, (m, n)[side] * factor.shape[1]), self.dtype)
        blocks = _even(which.size, BLOCKS_PER_THREAD * n_threads)
        task = kernels.Design(self._listing, which, factor, side, m, n, out)
        launch(kernels.sparse_design, n_threads, blocks, task)
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


class RankOne(_Operator):
    """A_i = u_i v_iᵀ: measurements u_iᵀ M v_i.

    Parameters
    ----------
    U, V
        (p, m) and (p, n): u_i and v_i as rows.

    Examples
    --------
    >>> from fastemf.operators import RankOne
    >>> RankOne([[1.0, 1.0]], [[1.0, -1.0]]).to_dense().tolist()
    [[[1.0, -1.0], [1.0, -1.0]]]
    """

    def __init__(self, U: ArrayLike, V: ArrayLike) -> None:
        left, right = np.asarray(U), np.asarray(V)
        for name, side in (("U", left), ("V", right)):
            dtype = check_dtype(side.dtype, name)
            if side.ndim != 2 or 0 in side.shape:
                raise ValueError(f"{name} must be a matrix, not empty, got shape {side.shape}")
            if not np.isfinite(side).all():
                i, j = np.argwhere(~np.isfinite(side))[0]
                raise ValueError(f"{name} must be finite, got {side[i, j]} at ({i}, {j})")
        if left.shape[0] != right.shape[0]:
            raise ValueError(
                f"U and V must have a row per measurement, got {left.shape[0]} and {right.shape[0]}"
            )
        self.dtype = np.result_type(check_dtype(left.dtype, "U"), dtype)
        self.shape = (left.shape[0], left.shape[1], right.shape[1])
        self._sides = tuple(np.ascontiguousarray(side, self.dtype) for side in (left, right))

    def _forward(self, X: NDArray[Any], Y: NDArray[Any], n_threads: int) -> NDArray[Any]:
        U, V = self._sides
        with single_threaded_blas():
            return np.asarray(np.sum((U @ X) * (V @ Y), axis=1))

    def _adjoint_times(
        self, b: NDArray[np.float64], factor: NDArray[Any], side: int, n_threads: int
    ) -> NDArray[Any]:
        this, other = self._sides[side], self._sides[1 - side]
        with single_threaded_blas():
            return np.asarray(this.T @ (b[:, None] * (other @ factor)))

    def _design(
        self, factor: NDArray[Any], side: int, which: NDArray[np.int64], n_threads: int
    ) -> NDArray[Any]:
        this, other = self._sides[side][which], self._sides[1 - side][which]
        with single_threaded_blas():
            rows = this[:, :, None] * (other @ factor)[:, None, :]
        return np.ascontiguousarray(rows.reshape(which.size, -1))


class Linear(_Operator):
    """Any `scipy.sparse.linalg.LinearOperator` of shape (p, m·n): slower, but as correct.

    That its `matvec` and `rmatvec` belong together is checked once, on random vectors.

    Parameters
    ----------
    operator
        It is given matrices flattened row by row.
    shape
        (m, n).

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> from fastemf.operators import Linear
    >>> A = Linear(aslinearoperator(np.ones((1, 4))), (2, 2))
    >>> A.forward(np.ones((2, 1)), np.ones((2, 1))).tolist()
    [4.0]
    """

    def __init__(self, operator: LinearOperator, shape: tuple[int, int]) -> None:
        if not isinstance(operator, LinearOperator):
            raise TypeError(
                f"operator must be a scipy LinearOperator, got {type(operator).__name__}"
            )
        m, n = check_shape(shape, "shape")
        self.shape = (_check_columns(operator.shape, (m, n)), m, n)
        self.dtype = check_dtype(np.dtype(operator.dtype or np.float64), "A")
        self._operator = operator
        check_adjoint(self)

    def _forward(self, X: NDArray[Any], Y: NDArray[Any], n_threads: int) -> NDArray[Any]:
        with single_threaded_blas():
            matrix = X @ Y.T
        return np.asarray(self._operator.matvec(matrix.ravel()))

    def _adjoint_times(
        self, b: NDArray[np.float64], factor: NDArray[Any], side: int, n_threads: int
    ) -> NDArray[Any]:
        _, m, n = self.shape
        S = np.asarray(self._operator.rmatvec(b)).reshape(m, n)
        with single_threaded_blas():
            return np.asarray((S if side == 0 else S.T) @ factor)

    def _design(
        self, factor: NDArray[Any], side: int, which: NDArray[np.int64], n_threads: int
    ) -> NDArray[Any]:
        p, m, n = self.shape
        out = np.empty((which.size, (m, n)[side] * factor.shape[1]), self.dtype)
        for first in range(0, which.size, PROBES_PER_CALL):
            some = which[first : first + PROBES_PER_CALL]
            units = np.zeros((p, some.size))
            units[some, np.arange(some.size)] = 1
            A = np.asarray(self._operator.rmatmat(units)).T.reshape(some.size, m, n)
            with single_threaded_blas():
                rows = (A if side == 0 else A.transpose(0, 2, 1)) @ factor
            out[first : first + some.size] = rows.reshape(some.size, -1)
        return out


def as_operator(A: Any, shape: Any = None) -> Operator:
    """An operator from whatever a user calls one; `shape` (m, n) for matrices of p rows."""
    if isinstance(A, _Operator):
        operator: Operator = A
    elif sp.issparse(A) or isinstance(A, LinearOperator):
        if shape is None:
            raise ValueError(
                f"shape must be given as (m, n) for a {type(A).__name__}: its columns are the "
                f"m * n entries of the matrix, row by row, got None for {A.shape[1]} columns"
            )
        return Sparse(A, shape) if sp.issparse(A) else Linear(A, shape)
    elif isinstance(A, Operator):
        operator = A
        check_adjoint(operator)
    elif isinstance(A, (np.ndarray, list)):
        operator = Dense(A)
    else:
        raise TypeError(
            "A must be an operator of fastemf.operators, an array (p, m, n), a scipy sparse matrix "
            f"or a LinearOperator (p, m * n), got {type(A).__name__}"
        )
    if shape is not None and check_shape(shape, "shape") != tuple(operator.shape[1:]):
        raise ValueError(f"shape must be A's {tuple(operator.shape[1:])}, got {shape}")
    return operator


def check_adjoint(A: Operator) -> None:
    """Raise where an operator's methods do not belong together, on one random probe."""
    p, m, n = A.shape
    check_dtype(np.dtype(A.dtype), "A")
    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((size, 2)).astype(A.dtype) for size in (m, n))
    b = rng.standard_normal(p)
    try:
        measured = np.asarray(A.forward(X, Y), np.float64)
        back = [np.asarray(A.adjoint_times(b, (Y, X)[side], side), np.float64) for side in (0, 1)]
    except NotImplementedError:
        raise TypeError(
            "A must have both directions: a LinearOperator needs rmatvec beside matvec"
        ) from None
    some = np.unique(rng.integers(0, p, 3))
    rows = [np.asarray(A.design((Y, X)[side], side, some), np.float64) for side in (0, 1)]
    if not all(np.isfinite(part).all() for part in (measured, *back, *rows)):
        raise ValueError("A must be finite, got NaN or infinity from a random probe")
    tolerance = 1e3 * float(np.finfo(A.dtype).eps)
    expected = float(b @ measured)
    size = float(np.linalg.norm(b) * np.linalg.norm(measured))
    for side, factor in ((0, X), (1, Y)):
        found = float(np.sum(back[side] * factor))
        if not abs(found - expected) <= tolerance * size:
            raise ValueError(
                "A's forward and adjoint must agree: for random b and M, <b, A(M)> is "
                f"{expected:.6g} by the forward map and {found:.6g} by the adjoint"
            )
        gap = np.max(np.abs(rows[side] @ factor.ravel() - measured[some]))
        if not gap <= tolerance * np.linalg.norm(measured):
            raise ValueError(
                f"A's design(factor, {side}) times a factor must be forward's measurements, got a "
                f"difference of {gap:.3g}"
            )


def _check_side(side: Any) -> None:
    if isinstance(side, bool) or not isinstance(side, (int, np.integer)) or side not in (0, 1):
        raise ValueError(f"side must be 0 (for X) or 1 (for Y), got {side!r}")


def _check_columns(found: tuple[int, ...], shape: tuple[int, int]) -> int:
    """The measurements of a (p, m·n) matrix."""
    m, n = shape
    if len(found) != 2 or found[1] != m * n:
        raise ValueError(
            f"A must have m * n = {m * n} columns for matrices of shape {shape}, got shape {found}"
        )
    if found[0] == 0:
        raise ValueError(f"A must have at least one measurement, got shape {found}")
    return int(found[0])


def _even(size: int, n_parts: int) -> NDArray[np.int64]:
    """Boundaries of at most `n_parts` runs of about equal length."""
    return np.unique(np.linspace(0, size, min(size, n_parts) + 1).astype(np.int64))


def _chunks(p: int) -> NDArray[np.int64]:
    return _even(p, ADJOINT_CHUNKS)
