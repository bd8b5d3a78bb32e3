"""The width of the vector registers compiled for, and the sizes that follow from it."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import config
from numpy.typing import NDArray

__all__ = ["PANEL", "PANEL_COLUMNS", "STRETCH", "TILE_ROWS", "VECTOR_BYTES", "padded"]


def _vector_bytes() -> int:
    """Find the width of the vector registers; 32 bytes also suit machines with narrower ones."""
    # Numba's cache knows what it was told to compile for, so this must follow it too.
    if config.CPU_FEATURES is not None:  # type: ignore[attr-defined]
        return 64 if "+avx512f" in config.CPU_FEATURES else 32  # type: ignore[attr-defined]
    if config.CPU_NAME is not None:  # type: ignore[attr-defined]
        return 32
    try:
        return 64 if llvm.get_host_cpu_features().get("avx512f") else 32
    except RuntimeError:  # LLVM cannot tell on every platform
        return 32


VECTOR_BYTES = _vector_bytes()
CACHE_LINE = 64  # bytes
STRETCH = 64  # numbers that are compared at once: a bit of an int64 for each
# A tile has as many rows as leave its sums in the registers.
TILE_ROWS = 8 if VECTOR_BYTES == 64 else 4
PANEL = 4  # rows of a triangle that are factored together; their tiles are this wide:
PANEL_COLUMNS = 4 if VECTOR_BYTES == 64 else 2


def padded(factor: NDArray[Any]) -> NDArray[Any]:
    """Return the factor with zero columns up to whole vectors, as the kernels take it."""
    lanes = VECTOR_BYTES // factor.itemsize
    n_rows, used = factor.shape
    shape = n_rows, -(-used // lanes) * lanes
    size = shape[0] * shape[1] * factor.itemsize
    # np.empty, not np.zeros: only the former asks for huge pages, and rows are fetched at random.
    # From a cache line's beginning on, so that no vector is in two of them.
    room = np.empty(size + CACHE_LINE, np.uint8)
    begin = -room.__array_interface__["data"][0] % CACHE_LINE
    wide = room[begin : begin + size].view(factor.dtype).reshape(shape)
    wide[:, :used] = factor
    wide[:, used:] = 0
    return wide
