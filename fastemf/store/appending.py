"""`append`: add observations to a store, which is the old one or the new one at any moment.

The entries are written to a folder of their own, a segment; they are in the store once the manifest
that names them has taken the place of the one before. Where there are many segments already, some
are merged first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastemf.store.building import write_entries
from fastemf.store.chunks import TableColumns
from fastemf.store.compaction import first_to_merge, write_merged
from fastemf.store.locks import appending
from fastemf.store.manifest import FILE_NAMES, Manifest, Segment, StoredArray, StoreError
from fastemf.store.reading import BUDGET, Store, hold_state, open_store
from fastemf.store.segment_folders import clear_unused, publish, segment_place
from fastemf.store.spill import Spill
from fastemf.support.validation import check_integer

__all__ = ["append"]


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
    """Add observations to a store, as if it had been built with them after all others.

    Fits of the store are bitwise identical to those of one that was built from all observations at
    once. What is there is not written again, but for a merge of the parts that earlier calls added
    once these are many, so a call takes as long as its own observations do.

    Parameters
    ----------
    path
        Folder of the store.
    source
        The new observations, in any form that `fastemf.store.build` takes.
    rows, cols, values
        Names of the columns of tables and files. A store with labels takes labels of the same
        kind, of which new ones come after all others; a store without them takes positions
        from 0, and grows to the largest.
    weights
        Name of the column of weights, or for triplets their array. A store has weights for all
        observations or for none, so they are needed where it has them, and only there.
    budget
        Bytes of memory to sort in, besides a few numbers per row and column, and their labels.

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
        The disk is too small; the store is as it was.
    TypeError, ValueError, IndexError
        As for `build`, or the values are of another type than the store's; it is as it was.

    Notes
    -----
    A process that is killed leaves the store as it was or with all new observations, and the next
    call removes what it left besides. Who reads the store meanwhile goes on reading what it was
    when it was opened. A version of fastemf from before there was this function refuses a store
    that was appended to.

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
    hold_state(folder)  # says what is wrong with a folder that is no store
    with appending(folder):
        clear_unused(folder)
        try:
            store = open_store(folder, budget=budget)
            first = first_to_merge([segment.size for segment in store.by_row.manifest.parts])
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
    kept = manifest.parts[:first]
    with segment_place(store.path, manifest) as (number, place):
        size, written = write_merged(place, store, first)
    names = {segment.file(name) for segment in kept for name in FILE_NAMES}
    files = {name: stored for name, stored in manifest.files.items() if name in names}
    shrunk = replace(manifest, files=files, segments=kept)
    publish(store.path, _with_segment(shrunk, Segment(number, manifest.shape, size), written))


def _add(store: Store, source: Any, names: TableColumns) -> None:
    """Write the entries of a source as a segment, and let the store have it."""
    manifest = store.by_row.manifest
    names = names._replace(positions=store.row_labels is None)
    with segment_place(store.path, manifest) as (number, place):
        added = write_entries(place, source, names, Spill(place, None, store), store.budget)
    grown = replace(
        manifest, shape=added.shape, size=manifest.size + added.size, labels=added.labels,
        segments=manifest.parts,
    )  # fmt: skip
    segment = Segment(number, added.shape, added.size)
    publish(store.path, _with_segment(grown, segment, added.files))


def _with_segment(
    manifest: Manifest, segment: Segment, written: dict[str, StoredArray]
) -> Manifest:
    files = {segment.file(name): stored for name, stored in written.items()}
    return replace(manifest, files=manifest.files | files, segments=(*manifest.segments, segment))
