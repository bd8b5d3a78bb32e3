"""What the loaders of measured data return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MeasuredMatrix"]


@dataclass(frozen=True, eq=False)
class MeasuredMatrix:
    """A measured matrix: what was observed, and what the file says besides.

    Attributes
    ----------
    R : scipy.sparse.coo_array
        The observations.
    unit : str
        Unit of the values.
    failed : (count, 2) int64 array
        Rows and columns of the cells whose measurement failed.
    source : uint8 array or None
        For fragments of a data set, the bits of each observation that say where it was
        recovered from, aligned with ``R.data``; None for a whole one.
    """

    R: Any
    unit: str
    failed: NDArray[np.int64]
    source: NDArray[np.uint8] | None = None
