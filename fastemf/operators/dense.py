"""`Dense`: measurement matrices that are stored."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastemf.kernels import measurements as kernels
from fastemf.operators.full import FullOperator
from fastemf.support.validation import check_dtype

__all__ = ["Dense"]


class Dense(FullOperator):
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
        self._source = kernels.Drawing(kernels.STORED, 0, 0, 1.0, stored, np.empty(0, np.bool_))
