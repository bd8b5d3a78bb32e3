"""Checks of values and weights, whatever they came in, part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import Where
from fastemf.support.warn import warn

__all__ = ["ValueCheck", "check_weights"]


class ValueCheck:
    """Check of values, which must be such that they can be fitted in `dtype`."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._seen = self._zeros = 0
        self._largest = -1.0
        self._where = ""

    def see(self, values: NDArray[Any], place: Where) -> None:
        """Take in one part, not empty; refuse it where it is not finite."""
        size = np.abs(values.astype(self._dtype, copy=False))
        if not np.isfinite(values).all():
            first = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"R must be finite where it is observed, got {values[first]} at "
                f"{place(first)}; leave missing entries out of triplets and of a "
                "sparse R"
            )
        if (top := size.max()) > self._largest:
            largest = int(np.argmax(size))
            self._largest, self._where = top, f"{values[largest]} at {place(largest)}"
        self._seen += size.size
        self._zeros += size.size - np.count_nonzero(size)

    def add(self, other: ValueCheck) -> None:
        """Take in what another check of the same type has seen."""
        if other._largest > self._largest:
            self._largest, self._where = other._largest, other._where
        self._seen += other._seen
        self._zeros += other._zeros

    def finish(self) -> None:
        """Check what only all values together can show."""
        limits, dtype, largest = np.finfo(self._dtype), self._dtype, self._largest
        if largest > 0 and not np.sqrt(limits.tiny) < largest < np.sqrt(limits.max):
            raise ValueError(
                f"R is too {'large' if largest > 1 else 'small'} for {dtype}: the squares of its "
                f"values must neither overflow nor vanish, and the largest is {self._where}; "
                "rescale R" + (" or pass float64" if dtype == np.float32 else "")
            )
        if 2 * self._zeros > self._seen:
            warn(
                f"{self._zeros} of {self._seen} observations are zero. Stored zeros count as "
                "observed; if they mean missing, leave them out (R.eliminate_zeros() for a sparse "
                "R, NaN in a dense one)"
            )


def check_weights(cast: NDArray[Any], given: NDArray[Any], place: Where) -> None:
    """Check weights of one part, in the type they are used in and as they were given."""
    right = np.isfinite(cast) & (cast > 0)
    if not right.all():
        first = int(np.argmin(right))
        raise ValueError(
            f"weights must be finite and positive in {cast.dtype}, got "
            f"{given[first]} at {place(first)}; leave out what should "
            "not count (NaN in a dense R, not a mask of weights)"
        )
