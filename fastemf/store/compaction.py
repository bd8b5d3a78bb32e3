"""The merging of segments on disk, where there are so many that reading them would take longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.store.building import write_labels
from fastemf.store.files import ArrayFile
from fastemf.store.manifest import FILE_NAMES, StoredArray, array_name
from fastemf.store.merging import Merge
from fastemf.store.reading import Store, StoredSide
from fastemf.store.verification import check_checksums
from fastemf.store.workplace import Workplace

__all__ = ["first_to_merge", "write_merged"]

MOST = 8  # segments of a store


def first_to_merge(sizes: Sequence[int]) -> int | None:
    """Return the first of the latest segments to be merged into one; None while there are few.

    It is the latest half, and each before them that is at most twice as large as all after it: the
    large part of a store is written again only when much was added to it.
    """
    if len(sizes) < MOST:
        return None
    first = len(sizes) // 2
    while first > 0 and sizes[first - 1] <= 2 * sum(sizes[first:]):
        first -= 1
    return first


def write_merged(place: Workplace, store: Store, first: int) -> tuple[int, dict[str, StoredArray]]:
    """Write the segments from `first` on as one; return the number of its entries, and its files.

    What is damaged is refused: it would have the checksum of sound files from then on.
    """
    manifest = store.by_row.manifest
    parts = manifest.parts[first:]
    names = {segment.file(name) for segment in parts for name in FILE_NAMES}
    old = {name: stored for name, stored in manifest.files.items() if name in names}
    place.check_space(sum(stored.bytes for stored in old.values()))
    check_checksums(store.path, old)
    latest = replace(manifest, size=sum(segment.size for segment in parts), segments=parts)
    files: dict[str, StoredArray] = {}
    for side in (store.by_row, store.by_col):
        files |= _write_side(place, replace(side, manifest=latest), side.mass)
    known = manifest.parts[first - 1].shape if first else (0, 0)
    labels = [one for one in (store.row_labels, store.col_labels) if one is not None]
    return latest.size, files | write_labels(place, labels, known)[1]


def _write_side(
    place: Workplace, side: StoredSide, mass: NDArray[np.float64]
) -> dict[str, StoredArray]:
    """Write the entries of a side, and the summed weights up to then."""
    manifest = side.manifest
    kinds = {"indices": manifest.index_dtype, "values": side.dtype}
    if manifest.weighted:
        kinds["weights"] = side.dtype

    def created(part: str, dtype: np.dtype[Any], length: int) -> ArrayFile:
        return place.create(array_name(side.axis, part), dtype, length)

    files = {part: created(part, dtype, side.size) for part, dtype in kinds.items()}
    for first, last in pairwise(side.cuts().tolist()):
        merge = Merge(side.segments, first, last)
        for part, file in files.items():
            file.append(merge.read(part, np.empty(merge.size, file.dtype)))
    vectors = {"indptr": side.indptr} | ({"mass": mass} if manifest.weighted else {})
    for part, vector in vectors.items():
        files[part] = created(part, vector.dtype, vector.size)
        files[part].append(vector)
    for file in files.values():
        file.finish()
    return {file.path.name: StoredArray.of(file) for file in files.values()}
