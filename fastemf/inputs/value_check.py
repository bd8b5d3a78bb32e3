"""Checks of values and weights, whatever they came in, part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import Where
from fastemf.support.warn import warn

__all__ = ["ValueCheck", "check_size", "check_totals", "check_weights", "size_limits"]

# Squares are summed in float64, over all observations and at starts that overshoot; data in it
# leave that much room to the ends of its range. In float32 these squares are far from them.
ROOM = 2.0**40


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
            self._largest, self._where = top, ""
            least, most = size_limits(self._dtype)
            if not least < top < most:  # only then is its place told, which may take a while
                largest = int(np.argmax(size))
                self._where = f"{values[largest]} at {place(largest)}"
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
        check_size("R", float(self._largest), self._where, self._dtype)
        if 2 * self._zeros > self._seen:
            warn(
                f"{self._zeros} of {self._seen} observations are zero. Stored zeros count as "
                "observed; if they mean missing, leave them out (R.eliminate_zeros() for a sparse "
                "R, NaN in a dense one)"
            )


def size_limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return between which sizes the largest value must lie: squares do not overflow or vanish."""
    limits, room = np.finfo(dtype), ROOM if dtype == np.float64 else 1.0
    return float(np.sqrt(limits.tiny)) * room, float(np.sqrt(limits.max)) / room


def check_size(name: str, largest: float, where: str, dtype: np.dtype[Any]) -> None:
    """Refuse data by their largest magnitude, which is at `where`; 0 passes."""
    least, most = size_limits(dtype)
    if largest > 0 and not least < largest < most:
        raise ValueError(
            f"{name} is too {'large' if largest > 1 else 'small'} for {dtype}: the squares of its "
            f"values must neither overflow nor vanish, so the largest must lie between {least:.2g} "
            f"and {most:.2g}, and it is {where}; rescale {name}"
            + (" or pass float64" if dtype == np.float32 else "")
        )


def check_totals(
    name: str, size: float, mass: float, heaviest: float, dtype: np.dtype[Any]
) -> None:
    """Refuse data of which sums over the weights leave the range they are computed in.

    `size` is the root mean square of the values, `mass` the sum of all weights and `heaviest` the
    largest sum of those that are fitted together, as of a row. Factors are about as large as the
    root of `size`, so a row's Gram matrix is about heaviest · size and its gradient
    heaviest · size^1.5, in `dtype`.
    """
    wide = np.finfo(np.float64)
    with np.errstate(over="ignore"):
        squares = np.float64(mass) * size * size
        slope = np.float64(heaviest) * max(size, size * np.sqrt(size))
    large = not (squares < wide.max / ROOM and slope < float(np.finfo(dtype).max) / 256)
    if large or squares < wide.tiny * ROOM:
        raise ValueError(
            f"{name} and its weights are too {'large' if large else 'small'} for {dtype}: the root "
            f"mean square of {name} is {size:.3g} and weights that are summed amount to "
            f"{heaviest:.3g}, of which sums of squares {'overflow' if large else 'vanish'}; "
            f"rescale the weights or {name}" + (" or pass float64" if dtype == np.float32 else "")
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
