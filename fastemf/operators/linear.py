"""`Linear`: any linear operator of scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from fastemf.kernels.threads import single_threaded_blas
from fastemf.operators.adjoint_check import check_adjoint
from fastemf.operators.operator import CheckedOperator, check_columns
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_dtype, check_shape

__all__ = ["Linear"]

PROBES_PER_CALL = 64  # matrices of m × n that a LinearOperator is asked for at once


class Linear(CheckedOperator):
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
        self.shape = (check_columns(operator.shape, (m, n)), m, n)
        check_memory(
            2 * 8 * m * n, f"a LinearOperator of {m} x {n} matrices", "use another operator"
        )
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
