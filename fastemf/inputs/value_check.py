"""Checks of values and weights, part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import Where
from fastemf.support.warn import warn

# Safety factor for float64 data: sums of squares over all observations, also at starting values
# that overshoot, must stay within the range. Sums of float32 data, which use float64, are safe.
ROOM = 2.0**40


class ValueCheck:
    """Check that values can be fitted in `dtype`."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._seen = self._zeros = 0
        self._largest = -1.0
        self._where = ""

    def see(self, values: NDArray[Any], place: Where) -> None:
        """Check one nonempty part, which must be finite."""
        size = np.abs(values.astype(self._dtype, copy=False))
        if not np.isfinite(values).all():
            first = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"R must be finite where it is observed, got {values[first]} at "
                f"{place(first)}; leave missing entries out of triplets and of a "
                "sparse R"
            )
        if (top := size.max()) > self._largest:
            self._largest, self._where = top, ""
            least, most = size_limits(self._dtype)
            if not least < top < most:  # the position is needed only then, and may be slow to find
                largest = int(np.argmax(size))
                self._where = f"{values[largest]} at {place(largest)}"
        self._seen += size.size
        self._zeros += size.size - np.count_nonzero(size)

    def finish(self) -> None:
        """Check all values together."""
        check_size("R", float(self._largest), self._where, self._dtype)
        if 2 * self._zeros > self._seen:
            warn(
                f"{self._zeros} of {self._seen} observations are zero. Stored zeros count as "
                "observed; if they mean missing, leave them out (R.eliminate_zeros() for a sparse "
                "R, NaN in a dense one)"
            )


def size_limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the range of the largest value in which squares neither overflow nor underflow."""
    limits, room = np.finfo(dtype), ROOM if dtype == np.float64 else 1.0
    return float(np.sqrt(limits.tiny)) * room, float(np.sqrt(limits.max)) / room


def check_size(name: str, largest: float, where: str, dtype: np.dtype[Any]) -> None:
    """Raise an error if the largest magnitude, which is at `where`, is out of range; 0 is valid."""
    least, most = size_limits(dtype)
    if largest > 0 and not least < largest < most:
        raise ValueError(
            f"{name} is too {'large' if largest > 1 else 'small'} for {dtype}: the squares of its "
            f"values must neither overflow nor underflow, so the largest must be between "
            f"{least:.2g} and {most:.2g}, got {where}; rescale {name}"
            + (" or pass float64" if dtype == np.float32 else "")
        )


def check_totals(
    name: str, size: float, mass: float, heaviest: float, dtype: np.dtype[Any]
) -> None:
    """Raise an error if weighted sums would overflow or underflow.

    `size` is the root mean square of the values, `mass` the sum of all weights, and `heaviest` the
    largest sum of the weights of a row or column. Factors are of the order of √size, so the Gram
    matrix of a row is of the order of heaviest · size and its gradient of heaviest · size^1.5, in
    `dtype`.
    """
    wide = np.finfo(np.float64)
    with np.errstate(over="ignore"):
        squares = np.float64(mass) * size * size
        slope = np.float64(heaviest) * max(size, size * np.sqrt(size))
    large = not (squares < wide.max / ROOM and slope < float(np.finfo(dtype).max) / 256)
    if large or squares < wide.tiny * ROOM:
        raise ValueError(
            f"{name} and its weights are too {'large' if large else 'small'} for {dtype}: the root "
            f"mean square of {name} is {size:.3g} and the largest sum of weights is "
            f"{heaviest:.3g}, so sums of squares {'overflow' if large else 'underflow'}; "
            f"rescale the weights or {name}" + (" or pass float64" if dtype == np.float32 else "")
        )


def check_weights(cast: NDArray[Any], given: NDArray[Any], place: Where) -> None:
    """Check the weights of one part, `cast` to the type of the values and as `given`."""
    right = np.isfinite(cast) & (cast > 0)
    if not right.all():
        first = int(np.argmin(right))
        raise ValueError(
            f"weights must be finite and positive in {cast.dtype}, got "
            f"{given[first]} at {place(first)}; omit observations "
            "instead of giving them weight 0 (NaN in a dense R)"
        )
