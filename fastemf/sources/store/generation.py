"""`GenerationWriter`: write all files of a store, sorted by row and by column."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fastemf.inputs.columns import one_line
from fastemf.inputs.label_arrays import to_arrays
from fastemf.inputs.labels import Labels
from fastemf.sources.store.batches import OpenedSource, open_batches
from fastemf.sources.store.entry_check import EntryCheck
from fastemf.sources.store.files import ArrayFile, checksum
from fastemf.sources.store.folders import SCRATCH, STAGE
from fastemf.sources.store.manifest import (
    LABEL_PARTS,
    RAW,
    Manifest,
    StoredArray,
    array_name,
    columns_name,
    data_folder,
)
from fastemf.sources.store.reading import Store
from fastemf.sources.store.sorting import SortPlan, Spill, write_sides
from fastemf.sources.store.table_log import ColumnNames

PIECE_BYTES = 128  # upper bound of the memory per entry of a piece of the source


class GenerationWriter:
    """Writes one generation of a store."""

    def __init__(
        self,
        place: Path,
        generation: int,
        names: ColumnNames,
        memory_limit: int,
        progress: bool,
        *,
        shape: tuple[int, int] | None = None,
        before: Store | None = None,
    ) -> None:
        self._scratch = place / SCRATCH
        self._folder = data_folder(place / STAGE, generation)
        self._before = before
        self._generation = generation
        self._names = names
        self._shape = shape
        self._memory_limit = memory_limit
        self._progress = progress

    def write(self, source: Any) -> Manifest:
        """Write the entries of a source, after those of the store, by row and by column."""
        self._folder.mkdir()
        before = self._before
        positions = self._shape is not None or (before is not None and before.row_labels is None)
        piece = max(1, min(1 << 20, self._memory_limit // PIECE_BYTES))
        with ExitStack() as undo:
            with open_batches(
                source, self._names, positions, before, self._scratch, self._memory_limit
            ) as opened:
                if (before is not None) and (before.row_labels is None) != (opened.labels is None):
                    raise TypeError(
                        "rows and cols must be labels or positions as those of the store, got "
                        f"{'positions' if opened.labels is None else 'labels'}"
                    )
                check = EntryCheck(self._shape, before, opened.labels)
                spill, parts = self._spill(opened, check, piece, undo)
            shape = check.finish(spill.size)
            budget = max(1, self._memory_limit // 2)
            plan = SortPlan(spill, before, shape, piece, budget, bool(self._names.more))
            self._check_space(plan)
            files = write_sides(plan, self._folder)
        labels, written = self._write_labels(opened.labels)
        known = 0 if before is None else before.size
        return Manifest(
            self._generation, shape, known + spill.size, spill.dtype.name, spill.weighted, labels,
            opened.columns, list(self._names.more), len(parts), files | written | parts,
        )  # fmt: skip

    def _spill(
        self, opened: OpenedSource, check: EntryCheck, piece: int, undo: ExitStack
    ) -> tuple[Spill, dict[str, StoredArray]]:
        """Check all batches, and write them to temporary files in order."""
        from tqdm.auto import tqdm

        spill: Spill | None = None
        bar = tqdm(unit="observation", unit_scale=True, leave=False, disable=not self._progress)
        with bar, ExitStack() as columns:
            writer: Any = None
            for batch in opened.batches:
                if len(batch.values) == 0:
                    continue
                for first in range(0, len(batch.values), piece):
                    entries = check.see(batch, slice(first, first + piece))
                    if spill is None:
                        weighted = bool(entries.weights.size)
                        spill = Spill(self._scratch, check.dtype, check.index_dtype, weighted)
                        undo.callback(spill.close)
                    spill.append(entries)
                    bar.update(entries.values.size)
                if batch.more is not None:
                    writer = writer or columns.enter_context(self._column_writer(batch.more))
                    writer.write_batch(batch.more)
        if spill is None:
            raise ValueError("source must hold at least one observation, got none")
        return spill, self._finish_columns(writer is not None)

    def _column_writer(self, batch: Any) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        if self._before is not None:
            known = self._before.by_row.manifest
            folder = data_folder(self._before.path, known.generation)
            names = map(columns_name, range(1, 1 + known.parts))
            schemas = [parquet.read_schema(folder / name) for name in names]
            try:
                pa.unify_schemas([*schemas, batch.schema], promote_options="permissive")
            except pa.ArrowException as error:
                raise TypeError(
                    "columns must have the types of the store, or types that can be converted: "
                    f"{one_line(str(error))}"
                ) from None
        return parquet.ParquetWriter(self._folder / self._new_part, batch.schema)

    @property
    def _new_part(self) -> str:
        known = 0 if self._before is None else self._before.by_row.manifest.parts
        return columns_name(known + 1)

    def _finish_columns(self, is_written: bool) -> dict[str, StoredArray]:
        """Return the files of further columns, with those of the previous generation."""
        parts: dict[str, StoredArray] = {}
        if self._before is not None:
            manifest = self._before.by_row.manifest
            for name in map(columns_name, range(1, 1 + manifest.parts)):
                here = data_folder(self._before.path, manifest.generation) / name
                try:
                    os.link(here, self._folder / name)
                except OSError:  # some file systems have no hard links
                    shutil.copyfile(here, self._folder / name)
                    _flush(self._folder / name)
                parts[name] = manifest.files[name]
        if is_written:
            path = self._folder / self._new_part
            _flush(path)
            parts[path.name] = StoredArray(RAW, path.stat().st_size, checksum(path))
        return parts

    def _write_labels(
        self, labels: tuple[Labels, Labels] | None
    ) -> tuple[list[dict[str, Any]], dict[str, StoredArray]]:
        described, files = [], {}
        for axis, side in enumerate(labels or ()):
            about, arrays = to_arrays(side)
            described.append(about)
            for part, array in zip(LABEL_PARTS, arrays, strict=True):
                path = self._folder / array_name(axis, part)
                with ArrayFile(path, array.dtype, array.size) as file:
                    file.append(array)
                    file.finish()
                files[path.name] = StoredArray.of(file)
        return described, files

    def _check_space(self, plan: SortPlan) -> None:
        """Raise an error if the disk has too little space for buckets and both sides."""
        spill, known = plan.spill, 0 if plan.before is None else plan.before.size
        entry = spill.index_dtype.itemsize + spill.dtype.itemsize * (2 if spill.weighted else 1)
        bucket = entry + spill.index_dtype.itemsize + 8 * plan.positioned
        needed = (2 * entry + 8 * plan.positioned) * (known + spill.size) + bucket * spill.size
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise OSError(
                f"writing the store needs {needed:,} bytes in {self._folder.parents[2]}, where "
                f"{free:,} bytes are free"
            )


def _flush(path: Path) -> None:
    """Flush a file to the disk that was written without `ArrayFile`."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
