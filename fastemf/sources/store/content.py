"""Checks of arrays read from a store, which protect kernels from damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.value_check import size_limits
from fastemf.sources.source import Side
from fastemf.sources.store.manifest import StoreError


def check_pointers(
    path: Path, pointers: NDArray[np.int64], size: int, *, begins: bool, ends: bool
) -> None:
    """Raise an error unless pointers increase from 0 (if `begins`) to `size` (if `ends`)."""
    right = bool((pointers[1:] >= pointers[:-1]).all())  # a difference could overflow
    right = right and pointers[0] >= 0 and pointers[-1] <= size
    right = right and not (begins and pointers[0]) and not (ends and pointers[-1] < size)
    if not right:
        raise StoreError(f"{path} is damaged: it must increase from 0 to {size}")


def check_others(path: Path, indices: NDArray[Any], n: int) -> None:
    """Raise an error if an index is out of bounds."""
    # Negative indices are large as unsigned integers.
    if indices.size and indices.view(f"u{indices.itemsize}").max() >= n:
        raise StoreError(f"{path} is damaged: an index is not below {n}")


class NumberCheck:
    """Check that a file holds valid values, or positive weights.

    A range is checked only when it is read for the first time, because fits read it many times.
    """

    def __init__(self, path: Path, *, positive: bool) -> None:
        self._path = path
        self._positive = positive
        self._seen: set[tuple[int, int]] = set()
        self._low, self._high = np.inf, -np.inf

    def see(self, first: int, numbers: NDArray[Any]) -> None:
        """Check the numbers from place `first` on: they must be finite and not too large."""
        here = (first, numbers.size)
        if here in self._seen or numbers.size == 0:
            return
        low, high = numbers.min(), numbers.max()
        # NaN fails every comparison. The squares of values must not overflow.
        if self._positive:
            right, rule = low > 0 and high < np.inf, "positive and finite"
        else:
            limit = size_limits(numbers.dtype)[1]
            right, rule = low > -limit and high < limit, f"below {limit:.3g} in size"
        if not right:
            raise StoreError(
                f"{self._path} is damaged: its numbers must be {rule}, got {low} to {high}"
            )
        self._seen.add(here)
        self._low, self._high = min(self._low, float(low)), max(self._high, float(high))

    def finish(self, dtype: np.dtype[Any], ranges: dict[Path, tuple[float, float]]) -> None:
        """Check that not all squares underflow, and that both sides agree.

        `ranges` holds the smallest and the largest value of each file checked so far.
        """
        largest = max(-self._low, self._high)
        if 0 < largest <= size_limits(dtype)[0]:
            raise StoreError(
                f"{self._path} is damaged: the square of {largest} underflows in {dtype}"
            )
        ranges[self._path] = here = self._low, self._high
        for other, there in ranges.items():
            if there != here:
                raise StoreError(f"{self._path} is damaged, or {other} is: their values differ")


def check_masses(path: Path, mass: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
    """Raise an error unless masses are finite, and positive exactly for groups with entries."""
    right = np.isfinite(mass) & np.where(counts > 0, mass > 0, mass == 0)
    if not right.all():
        raise StoreError(
            f"{path} is damaged: a mass must be positive for a group with entries, else 0"
        )


def check_sums(path: Path, weights: str, block: Side) -> None:
    """Raise an error unless masses are the sums of the weights, up to rounding."""
    sums = np.zeros(block.mass.size)
    filled = np.flatnonzero(np.diff(block.indptr))
    sums[filled] = np.add.reduceat(block.weights, block.indptr[filled], dtype=np.float64)
    if not np.allclose(sums, block.mass, rtol=1e-6, atol=0):
        raise StoreError(
            f"{path} is damaged, or {weights} is: it must hold the sum of the weights of each group"
        )
