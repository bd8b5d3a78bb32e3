"""`Linear` and `RankOne`: measurements computed by SciPy and by matrix products."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from fastemf.kernels.threads import single_threaded_blas
from fastemf.operators.operator import CheckedOperator, check_adjoint, check_columns
from fastemf.support.arrays import Array, Floats, Ints
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_dtype, check_shape

PROBES_PER_CALL = 64  # m × n matrices computed by one call of a LinearOperator


class Linear(CheckedOperator):
    """Any `scipy.sparse.linalg.LinearOperator` of shape (p, m·n): slower, but equally correct.

    The consistency of `matvec` and `rmatvec` is checked once, on random factors.

    Parameters
    ----------
    operator
        It takes matrices flattened row by row.
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
        self.shape = (check_columns(operator.shape, (m, n)), m, n)
        check_memory(
            2 * 8 * m * n, f"a LinearOperator of {m} x {n} matrices", "use another operator"
        )
        self.dtype = check_dtype(np.dtype(operator.dtype or np.float64), "A")
        self._operator = operator
        check_adjoint(self)

    def _forward(self, X: Array, Y: Array, n_threads: int) -> Array:
        with single_threaded_blas():
            matrix = X @ Y.T
        return np.asarray(self._operator.matvec(matrix.ravel()))

    def _adjoint_times(self, b: Floats, factor: Array, side: int, n_threads: int) -> Array:
        _, m, n = self.shape
        S = np.asarray(self._operator.rmatvec(b)).reshape(m, n)
        with single_threaded_blas():
            return np.asarray((S if side == 0 else S.T) @ factor)

    def _design(self, factor: Array, side: int, which: Ints, n_threads: int) -> Array:
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


class RankOne(CheckedOperator):
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

    def _forward(self, X: Array, Y: Array, n_threads: int) -> Array:
        U, V = self._sides
        with single_threaded_blas():
            return np.asarray(np.sum((U @ X) * (V @ Y), axis=1))

    def _adjoint_times(self, b: Floats, factor: Array, side: int, n_threads: int) -> Array:
        this, other = self._sides[side], self._sides[1 - side]
        with single_threaded_blas():
            return np.asarray(this.T @ (b[:, None] * (other @ factor)))

    def _design(self, factor: Array, side: int, which: Ints, n_threads: int) -> Array:
        this, other = self._sides[side][which], self._sides[1 - side][which]
        with single_threaded_blas():
            rows = this[:, :, None] * (other @ factor)[:, None, :]
        return np.ascontiguousarray(rows.reshape(which.size, -1))
