"""`verify`: read a whole store and check it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fastemf.sources.source import mix_bits
from fastemf.sources.store.files import checksum, open_regular
from fastemf.sources.store.manifest import Manifest, StoreError, data_folder, reading
from fastemf.sources.store.reading import StoredSide, hold_state, open_state
from fastemf.support.progress import track

BUDGET = 1 << 26


def verify(path: str | os.PathLike[str]) -> None:
    """Read a whole store, and check its checksums and its consistency.

    Checksums detect accidental damage. In addition, indices must be within range, values finite,
    weights positive and consistent with the stored sums, and the entries by row the same as those
    by column.

    Raises
    ------
    fastemf.store.StoreError
        As for `open`, or the content of a file has changed; the message names the file.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> _ = fastemf.store.build(([0, 1, 1], [0, 2, 0], [1.5, 2.0, 4.0]), path)
    >>> fastemf.store.verify(path)
    """
    folder = Path(os.path.abspath(path))
    manifest, hold = hold_state(folder)
    check_checksums(folder, manifest)
    store = open_state(folder, manifest, hold, BUDGET)
    if _digest(store.by_row) != _digest(store.by_col):
        path = store.by_col.path("indices")
        raise StoreError(f"{path} is damaged: the entries by column differ from those by row")


def check_checksums(folder: Path, manifest: Manifest) -> None:
    """Raise an error if the checksum of a file does not match."""
    files = list(manifest.files.items())
    for name, stored in map(files.__getitem__, track(range(len(files)), "file")):
        path = data_folder(folder, manifest.generation) / name
        with reading(path):
            if checksum(path) != stored.crc32:
                raise StoreError(f"{path} is damaged: its checksum does not match the manifest")
            with open_regular(path) as file:
                if file.read(len(stored.header)) != stored.header:
                    raise StoreError(f"{path} is damaged: its header is not that of a vector")


def _digest(side: StoredSide) -> int:
    """Hash the entries of a side, independent of their order; reading also checks them."""
    total = 0
    for first, block in side.blocks():
        groups = np.arange(first, first + block.indptr.size - 1, dtype=np.uint64)
        keys = [np.repeat(groups, np.diff(block.indptr)), block.indices.astype(np.uint64)]
        row, col = keys if side.axis == 0 else reversed(keys)
        for numbers in filter(np.size, (col, block.values, block.weights)):
            mix_bits(row)
            row += numbers.view(f"u{numbers.itemsize}")
        mix_bits(row)
        total += int(row.sum(dtype=np.uint64))
    return total % 2**64
