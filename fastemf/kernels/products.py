"""Products of the zero-filled matrix with a dense one, from which a spectral start is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import unit
from fastemf.kernels.vectors import lanes_of, make_weighted_sum

__all__ = ["SparseProduct", "multiply"]

_weighted_sum_1, _weighted_sum_3 = make_weighted_sum(1), make_weighted_sum(3)


class SparseProduct(NamedTuple):
    """A product out = S dense, where S sums the entries of each cell and is zero elsewhere."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    values: NDArray[Any]
    dense: NDArray[Any]  # padded to whole vectors
    out: NDArray[Any]  # likewise


@unit()
def multiply(first, last, product):
    """Form rows first … last − 1 of a `SparseProduct`."""
    indptr, indices, values = product.indptr, product.indices, product.values
    dense, out = product.dense, product.out
    lanes = lanes_of(dense)
    for i in range(first, last):
        a = 0
        while a + 3 * lanes <= dense.shape[1]:
            _weighted_sum_3(indices, values, indptr[i], indptr[i + 1], dense, out, i, a)
            a += 3 * lanes
        while a < dense.shape[1]:
            _weighted_sum_1(indices, values, indptr[i], indptr[i + 1], dense, out, i, a)
            a += lanes
