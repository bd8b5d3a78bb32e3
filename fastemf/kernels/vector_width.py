"""The width of the vector registers, and sizes derived from it."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import config
from numpy.typing import NDArray


def _vector_bytes() -> int:
    """Return the width of the vector registers; 32 bytes also suit narrower registers."""
    # Follows the target that Numba is configured to compile for.
    if config.CPU_FEATURES is not None:  # type: ignore[attr-defined]
        return 64 if "+avx512f" in config.CPU_FEATURES else 32  # type: ignore[attr-defined]
    if config.CPU_NAME is not None:  # type: ignore[attr-defined]
        return 32
    try:
        return 64 if llvm.get_host_cpu_features().get("avx512f") else 32
    except RuntimeError:  # unknown to LLVM on some platforms
        return 32


VECTOR_BYTES = _vector_bytes()
CACHE_LINE = 64  # bytes
STRETCH = 64  # numbers compared at a time: one bit of an int64 each
# The sums of a tile with so many rows fit into the registers.
TILE_ROWS = 8 if VECTOR_BYTES == 64 else 4
PANEL = 4  # rows of a triangle that are factored together, in tiles of PANEL_COLUMNS
PANEL_COLUMNS = 4 if VECTOR_BYTES == 64 else 2


def pad_columns(factor: NDArray[Any]) -> NDArray[Any]:
    """Return the factor with zero columns appended up to whole vectors, as kernels require."""
    lanes = VECTOR_BYTES // factor.itemsize
    n_rows, used = factor.shape
    shape = n_rows, -(-used // lanes) * lanes
    size = shape[0] * shape[1] * factor.itemsize
    # np.empty instead of np.zeros, because only np.empty requests huge pages, which help random
    # access to rows. The data begin at a cache line, so that no vector crosses two lines.
    room = np.empty(size + CACHE_LINE, np.uint8)
    begin = -room.__array_interface__["data"][0] % CACHE_LINE
    wide = room[begin : begin + size].view(factor.dtype).reshape(shape)
    wide[:, :used] = factor
    wide[:, used:] = 0
    return wide
