"""`append`: add observations to a store atomically.

The entries are written to a folder of their own, a segment. They become part of the store when a
new manifest replaces the previous one. If there are many segments already, some are merged first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.sources.store.building import write_entries, write_labels
from fastemf.sources.store.chunks import TableColumns
from fastemf.sources.store.files import ArrayFile
from fastemf.sources.store.locks import appending
from fastemf.sources.store.manifest import (
    FILE_NAMES,
    Manifest,
    Segment,
    StoredArray,
    StoreError,
    array_name,
)
from fastemf.sources.store.reading import BUDGET, Store, StoredSide, hold_state, open_store
from fastemf.sources.store.segment import Merge
from fastemf.sources.store.segment_folders import clear_unused, publish, segment_place
from fastemf.sources.store.spill import Spill
from fastemf.sources.store.verification import check_checksums
from fastemf.sources.store.workplace import Workplace
from fastemf.support.validation import check_integer

MOST_SEGMENTS = 8  # of a store; more are merged


def append(
    path: str | os.PathLike[str],
    source: Any,
    *,
    rows: Any = None,
    cols: Any = None,
    values: Any = None,
    weights: Any = None,
    budget: int = BUDGET,
) -> Store:
    """Add observations to a store.

    Fits of the store are bitwise identical to fits of a store built from all observations at once,
    the new ones last. Stored observations are not rewritten, except for an occasional merge of
    earlier appends, so the time depends on the number of new observations.

    Parameters
    ----------
    path
        Folder of the store.
    source
        New observations, in any form that `fastemf.store.build` accepts.
    rows, cols, values
        Column names of tables and files. A store with labels takes labels of the same kind; new
        labels get positions after the existing ones. A store without labels takes positions from
        0, and its shape grows to the largest one.
    weights
        Name of the column of weights, or an array for triplets. Required if the store has weights,
        and an error otherwise.
    budget
        Bytes of memory for sorting, in addition to labels and a few numbers per row and column.

    Returns
    -------
    Store
        The store with all observations, old and new.

    Raises
    ------
    FileExistsError
        Another append to this store is running.
    fastemf.store.StoreError
        There is no sound store at `path`, as for `fastemf.store.open`.
    OSError
        The disk is full; the store is unchanged.
    TypeError, ValueError, IndexError
        As for `build`, or the values have another type than the store, which is unchanged.

    Notes
    -----
    If the process is killed, the store is either unchanged or has all new observations; the next
    call removes leftover files. Readers keep reading the state in which they opened the store.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> fastemf.store.build(([0, 1, 1], [0, 2, 0], [1.5, 2.0, 4.0]), path)
    <Store 2 x 3, 3 observations, float64>
    >>> fastemf.store.append(path, ([2, 0], [1, 0], [3.0, 2.5]))
    <Store 3 x 3, 5 observations, float64>
    """
    folder = Path(os.path.abspath(path))
    budget = check_integer(budget, "budget", minimum=1)
    names = TableColumns(rows, cols, values, weights, positions=True)
    hold_state(folder)  # raises an error for a folder that is not a store
    with appending(folder):
        clear_unused(folder)
        try:
            store = open_store(folder, budget=budget)
            first = _first_to_merge([segment.size for segment in store.by_row.manifest.segments])
            if first is not None:
                _merge(store, first)
                store = open_store(folder, budget=budget)
            _add(store, source, names)
        finally:
            with suppress(StoreError, OSError):
                clear_unused(folder)
    return open_store(folder)


def _merge(store: Store, first: int) -> None:
    """Merge the segments from `first` on into one."""
    manifest = store.by_row.manifest
    kept = manifest.segments[:first]
    with segment_place(store.path, manifest) as (number, place):
        size, written = _write_merged(place, store, first)
    names = {segment.file(name) for segment in kept for name in FILE_NAMES}
    files = {name: stored for name, stored in manifest.files.items() if name in names}
    shrunk = replace(manifest, files=files, segments=kept)
    publish(store.path, _with_segment(shrunk, Segment(number, manifest.shape, size), written))


def _add(store: Store, source: Any, names: TableColumns) -> None:
    """Write the entries of a source as a segment and add it to the store."""
    manifest = store.by_row.manifest
    names = names._replace(positions=store.row_labels is None)
    with segment_place(store.path, manifest) as (number, place):
        added = write_entries(place, source, names, Spill(place, None, store), store.budget)
    grown = replace(
        manifest, shape=added.shape, size=manifest.size + added.size, labels=added.labels,
    )  # fmt: skip
    segment = Segment(number, added.shape, added.size)
    publish(store.path, _with_segment(grown, segment, added.files))


def _with_segment(
    manifest: Manifest, segment: Segment, written: dict[str, StoredArray]
) -> Manifest:
    files = {segment.file(name): stored for name, stored in written.items()}
    return replace(manifest, files=manifest.files | files, segments=(*manifest.segments, segment))


# --- merging segments ----------------------------------------------------------------------


def _first_to_merge(sizes: Sequence[int]) -> int | None:
    """Return the first of the segments to be merged into one; None if there are few segments.

    These are the latest half, and each segment before that is at most twice as large as all later
    ones together. So a large segment is rewritten only after many observations were added.
    """
    if len(sizes) < MOST_SEGMENTS:
        return None
    first = len(sizes) // 2
    while first > 0 and sizes[first - 1] <= 2 * sum(sizes[first:]):
        first -= 1
    return first


def _write_merged(place: Workplace, store: Store, first: int) -> tuple[int, dict[str, StoredArray]]:
    """Write the segments from `first` on as one; return the number of its entries, and its files.

    Checksums are verified, because damaged files would get valid checksums.
    """
    manifest = store.by_row.manifest
    parts = manifest.segments[first:]
    names = {segment.file(name) for segment in parts for name in FILE_NAMES}
    old = {name: stored for name, stored in manifest.files.items() if name in names}
    place.check_space(sum(stored.bytes for stored in old.values()))
    check_checksums(store.path, old)
    latest = replace(manifest, size=sum(segment.size for segment in parts), segments=parts)
    files: dict[str, StoredArray] = {}
    for side in (store.by_row, store.by_col):
        files |= _write_side(place, replace(side, manifest=latest), side.mass)
    known = manifest.segments[first - 1].shape if first else (0, 0)
    labels = [one for one in (store.row_labels, store.col_labels) if one is not None]
    return latest.size, files | write_labels(place, labels, known)[1]


def _write_side(
    place: Workplace, side: StoredSide, mass: NDArray[np.float64]
) -> dict[str, StoredArray]:
    """Write the entries of a side and the masses."""
    manifest = side.manifest
    kinds = {"indices": manifest.index_dtype, "values": side.dtype}
    if manifest.weighted:
        kinds["weights"] = side.dtype

    def create(part: str, dtype: np.dtype[Any], length: int) -> ArrayFile:
        return place.create(array_name(side.axis, part), dtype, length)

    files = {part: create(part, dtype, side.size) for part, dtype in kinds.items()}
    for first, last in pairwise(side.cuts().tolist()):
        merge = Merge(side.segments, first, last)
        for part, file in files.items():
            file.append(merge.read(part, np.empty(merge.size, file.dtype)))
    vectors = {"indptr": side.indptr} | ({"mass": mass} if manifest.weighted else {})
    for part, vector in vectors.items():
        files[part] = create(part, vector.dtype, vector.size)
        files[part].append(vector)
    for file in files.values():
        file.finish()
    return {file.path.name: StoredArray.of(file) for file in files.values()}
