"""`verify`: read all of a store, and compare it with its checksums and with itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastemf.store.files import checksum, header, open_regular
from fastemf.store.manifest import StoredArray, StoreError, array_name, reading
from fastemf.store.reading import StoredSide, hold_state, open_state

__all__ = ["check_checksums", "verify"]

BUDGET = 1 << 26
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits all over


def verify(path: str | os.PathLike[str]) -> None:
    """Read a store from end to end and compare it with its checksums, and with itself.

    Checksums find what was damaged by chance. What was written wrongly on purpose, checksums
    included, still has to be a store: indices within range, finite values, positive weights
    with the sums that are stored, and the same entries by row and by column.

    Raises
    ------
    fastemf.store.StoreError
        As for `open`, or a file's content has changed; the file is named.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> _ = fastemf.store.build(([0, 1, 1], [0, 2, 0], [1.5, 2.0, 4.0]), path)
    >>> fastemf.store.verify(path)
    """
    folder = Path(os.path.abspath(path))
    manifest, hold = hold_state(folder)
    check_checksums(folder, manifest.files)
    store = open_state(folder, manifest, hold, BUDGET)
    if _digest(store.by_row) != _digest(store.by_col):
        raise StoreError(
            f"{folder / array_name(1, 'indices')} is damaged, or another file of entries: the "
            "entries by column are not those by row"
        )


def check_checksums(folder: Path, files: Mapping[str, StoredArray]) -> None:
    """Refuse files of a store whose bytes are not those that were written."""
    for name, stored in files.items():
        with reading(folder / name):
            if checksum(folder / name) != stored.crc32:
                raise StoreError(f"{folder / name} is damaged: its checksum is not the manifest's")
            expected = header(np.dtype(stored.dtype), stored.length)
            with open_regular(folder / name) as file:
                if file.read(len(expected)) != expected:
                    raise StoreError(f"{folder / name} is damaged: its header is not a vector's")


def _digest(side: StoredSide) -> int:
    """Hash the entries of a side, whatever their order; reading them checks them."""
    total = 0
    for first, block in side.blocks():
        groups = np.arange(first, first + block.indptr.size - 1, dtype=np.uint64)
        keys = [np.repeat(groups, np.diff(block.indptr)), block.indices.astype(np.uint64)]
        row, col = keys if side.axis == 0 else reversed(keys)
        hashed = _mixed(_mixed(row) + col)
        for numbers in (block.values, block.weights):
            if numbers.size:
                hashed = _mixed(hashed + numbers.view(f"u{numbers.itemsize}"))
        total += int(hashed.sum(dtype=np.uint64))
    return total % 2**64


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers spread over all of 64 bits, one to one."""
    spread = (numbers ^ (numbers >> np.uint64(32))) * MULTIPLIER
    return np.asarray(spread ^ (spread >> np.uint64(29)))
