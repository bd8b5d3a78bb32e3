"""`RankOne`: measurements u_iᵀ M v_i."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf.kernels.threads import single_threaded_blas
from fastemf.operators.operator import CheckedOperator
from fastemf.support.validation import check_dtype

__all__ = ["RankOne"]


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
