"""`build` and `append`: write observations to a store, in bounded memory and atomically."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastemf.inputs.columns import one_line
from fastemf.inputs.label_arrays import to_arrays
from fastemf.inputs.labels import Labels
from fastemf.sources.store import folders
from fastemf.sources.store.batches import ColumnNames, OpenedSource, open_batches
from fastemf.sources.store.entry_check import EntryCheck
from fastemf.sources.store.files import checksum
from fastemf.sources.store.manifest import (
    COLUMNS,
    LABEL_PARTS,
    RAW,
    Manifest,
    StoredArray,
    StoreError,
    array_name,
    data_folder,
    write_array,
)
from fastemf.sources.store.reading import Store, hold_state, open_state, open_store, reading_columns
from fastemf.sources.store.sorting import SortPlan, Spill, write_sides
from fastemf.sources.store.verification import check_checksums
from fastemf.support.validation import check_integer, check_shape

MEMORY_LIMIT = 1 << 30  # bytes
PIECE_BYTES = 128  # upper bound of the memory per entry of a piece of the source


def build(
    source: Any,
    path: str | os.PathLike[str],
    *,
    rows: Any = None,
    cols: Any = None,
    values: Any = None,
    weights: Any = None,
    columns: Sequence[str] = (),
    shape: Any = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
) -> Store:
    """Write observations, possibly larger than memory, to a folder that fits can read.

    Parameters
    ----------
    source
        Any table that `fastemf.complete` reads (a file, a glob, a list or a folder of files, SQL, a
        table in memory), a tuple ``(rows, cols, values)``, or an iterator of chunks, each a table
        or such a tuple (with weights as optional fourth item).
    path
        The folder to create. It appears when it is complete; after an error nothing remains.
    rows, cols, values
        Column names of tables. `rows` and `cols` hold labels, numbered in order of first appearance
        as in `fastemf.complete`, or positions from 0 if `shape` is given. The store remembers the
        names.
    weights
        Name of the column of weights, or an array for triplets.
    columns
        Further columns of tables to keep, one value for each observation.
    shape
        (rows, columns), for positions; for triplets the default is the largest index + 1.
    memory_limit
        Bytes of memory for sorting, in addition to labels and a few numbers per row and column.
        Tables use at least 128 MiB.
    progress
        Whether to show a progress bar.

    Returns
    -------
    Store

    Raises
    ------
    FileExistsError
        `path` exists, or another build of it is running.
    OSError
        The disk is full; nothing was written.
    TypeError, ValueError, IndexError
        As for data in memory; the message names the file and the line, or the chunk and the entry.

    Examples
    --------
    >>> import os, tempfile, fastemf
    >>> path = os.path.join(tempfile.mkdtemp(), "log")
    >>> days = iter([([0, 1], [0, 2], [1.5, 2.0]), ([1], [0], [4.0])])
    >>> fastemf.store.build(days, path)
    <Store 2 x 3, 3 observations, float64>
    """
    target = Path(os.path.abspath(path))
    memory_limit = check_integer(memory_limit, "memory_limit", minimum=1)
    shape = None if shape is None else check_shape(shape, "shape")
    names = ColumnNames(rows, cols, values, weights, _column_names(columns))
    folders.check_absent(target)
    with folders.workplace(target.with_name(f".{target.name}.partial"), "build") as place:
        folders.check_absent(target)  # created by a build that ended just before
        writer = _Writer(place, 1, names, memory_limit, progress, shape)
        folders.publish_store(place / folders.STAGE, target, writer.write(source))
    return open_store(target)


def append(
    path: str | os.PathLike[str],
    source: Any,
    *,
    rows: Any = None,
    cols: Any = None,
    values: Any = None,
    weights: Any = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
) -> Store:
    """Add observations to a store.

    Fits of the store are bitwise identical to fits of a store built from all observations at once,
    the new ones last. All observations are written again, so the time depends on their number.

    Parameters
    ----------
    path
        Folder of the store.
    source
        New observations, in any form that `fastemf.store.build` accepts.
    rows, cols, values
        Column names of tables; the default is the names that the store was built with. A store with
        labels takes labels of the same kind; new labels get positions after the existing ones. A
        store without labels takes positions from 0, and its shape grows to the largest one.
    weights
        Name of the column of weights, by default the one of the build, or an array for triplets.
        Required if the store has weights, and an error otherwise.
    memory_limit
        Bytes of memory for sorting, in addition to labels and a few numbers per row and column.
    progress
        Whether to show a progress bar.

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
    memory_limit = check_integer(memory_limit, "memory_limit", minimum=1)
    hold_state(folder)  # raises an error for a folder that is not a store
    with folders.workplace(folder / ".append", "append") as place:
        manifest, hold = hold_state(folder)
        folders.clear_unused(folder, manifest.generation)
        check_checksums(folder, manifest)  # damaged files would get valid checksums
        store = open_state(folder, manifest, hold, memory_limit)
        names = ColumnNames(rows, cols, values, weights, tuple(manifest.more))
        number = 1 + max(folders.generations(folder))
        writer = _Writer(place, number, names, memory_limit, progress, None, store)
        folders.publish_generation(place / folders.STAGE, folder, writer.write(source))
        del hold, store, writer  # releases the lock of the previous generation
        with suppress(StoreError, OSError):
            folders.clear_unused(folder, number)
    return open_store(folder)


def _column_names(columns: Any) -> tuple[str, ...]:
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise TypeError(f"columns must be a list of column names, got {columns!r}")
    if len(set(columns)) < len(columns):
        raise ValueError(f"columns must be distinct, got {list(columns)}")
    return tuple(columns)


@dataclass(frozen=True)
class _Writer:
    """Writes one generation of a store."""

    place: Path
    generation: int
    names: ColumnNames
    memory_limit: int
    progress: bool
    shape: tuple[int, int] | None
    before: Store | None = None

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return data_folder(self.place / folders.STAGE, self.generation)

    def write(self, source: Any) -> Manifest:
        """Write the entries of a source, after those of the store, by row and by column."""
        self.folder.mkdir()
        before, scratch, memory = self.before, self.place / folders.SCRATCH, self.memory_limit
        positions = self.shape is not None or (before is not None and before.row_labels is None)
        with ExitStack() as undo:
            with open_batches(source, self.names, positions, before, scratch, memory) as opened:
                if before is not None and before.row_labels is not None and not opened.coders:
                    raise TypeError(
                        "store and source must both have labels or positions, got positions"
                    )
                check = EntryCheck(self.shape, before, labelled=bool(opened.coders))
                spill = self._spill(opened, check, undo)
            labels = opened.labels()
            shape, piece = check.finish(spill.size), self._piece
            plan = SortPlan(spill, before, shape, piece, max(1, memory // 2))
            self._check_space(plan)
            files = write_sides(plan, self.folder)
        described = self._write_labels(labels, files)
        if self.names.columns:
            path = self.folder / COLUMNS
            with path.open("r+b") as file:
                os.fsync(file.fileno())
            files[COLUMNS] = StoredArray(RAW, path.stat().st_size, checksum(path))
        return Manifest(
            self.generation, shape, self._n_known + spill.size, check.dtype.name, check.weighted,
            described, opened.columns, list(self.names.columns), files,
        )  # fmt: skip

    @property
    def _n_known(self) -> int:
        return 0 if self.before is None else self.before.size

    @property
    def _piece(self) -> int:
        return max(1, min(1 << 20, self.memory_limit // PIECE_BYTES))

    def _spill(self, opened: OpenedSource, check: EntryCheck, undo: ExitStack) -> Spill:
        """Check all batches, and write them to temporary files in order."""
        from tqdm.auto import tqdm

        spill = columns = None
        bar = tqdm(unit="observation", unit_scale=True, leave=False, disable=not self.progress)
        with bar, ExitStack() as closing:
            for batch in opened.batches:
                for first in range(0, len(batch.values), self._piece):
                    entries = check.see(batch, slice(first, first + self._piece))
                    if spill is None:
                        spill = Spill(
                            self.place / folders.SCRATCH, check.dtype, check.index_dtype,
                            check.weighted, bool(self.names.columns), self._n_known,
                        )  # fmt: skip
                        undo.callback(spill.close)
                    spill.append(entries)
                    bar.update(entries["values"].size)
                if batch.more is not None:
                    if columns is None:
                        columns = self._open_columns(batch.more.schema, closing)
                    columns(batch.more)
        if spill is None:
            raise ValueError("source must hold at least one observation, got none")
        return spill

    def _open_columns(self, schema: Any, closing: ExitStack) -> Callable[[Any], None]:
        """Write the further columns of the store, and return a function that writes more."""
        import pyarrow as pa
        from pyarrow import parquet

        known: Any = []
        if self.before is not None:
            path = data_folder(self.before.path, self.before.by_row.manifest.generation) / COLUMNS
            with reading_columns(path):
                file = closing.enter_context(parquet.ParquetFile(path))
            try:
                both = [file.schema_arrow, schema]
                schema = pa.unify_schemas(both, promote_options="permissive")
            except pa.ArrowException as error:
                reason = one_line(str(error))
                raise TypeError(f"columns must have the types of the store: {reason}") from None
            known = file.iter_batches()
        writer = closing.enter_context(parquet.ParquetWriter(self.folder / COLUMNS, schema))

        def write(batch: Any) -> None:
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))

        for batch in known:
            write(batch)
        return write

    def _write_labels(
        self, labels: Sequence[Labels], files: dict[str, StoredArray]
    ) -> list[dict[str, Any]]:
        described = []
        for axis, side in enumerate(labels):
            about, arrays = to_arrays(side)
            described.append(about)
            for part, array in zip(LABEL_PARTS, arrays, strict=True):
                name = array_name(axis, part)
                files[name] = write_array(self.folder / name, array)
        return described

    def _check_space(self, plan: SortPlan) -> None:
        """Raise an error if the disk has too little space for buckets and both sides."""
        spill, index = plan.spill, plan.spill.record[0].itemsize
        record, position = spill.record.itemsize, 8 * spill.positioned
        entries = (2 * (record - index) - position) * (self._n_known + spill.size)
        needed = entries + record * spill.size
        free = shutil.disk_usage(self.place).free
        if needed > free:
            place = f"{self.place.parent}, where {free:,} bytes are free"
            raise OSError(f"writing the store needs {needed:,} bytes in {place}")
