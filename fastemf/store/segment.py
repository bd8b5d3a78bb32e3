"""One segment of a store, by row or by column: its files, read by ranges and checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.store.content import NumberCheck, check_others, check_pointers
from fastemf.store.files import open_regular, read_into
from fastemf.store.manifest import Manifest, Segment, StoredArray, StoreError, array_name, reading

__all__ = ["SegmentSide"]


@dataclass(frozen=True, eq=False)
class SegmentSide:
    """Entries of a segment by row (axis 0) or by column (axis 1), on disk.

    What a range of numbers holds is checked when it is read the first time; `ranges` has the
    smallest and the largest of the values, by file, of both sides.
    """

    folder: Path
    axis: int
    manifest: Manifest
    segment: Segment
    ranges: dict[Path, tuple[float, float]]

    @cached_property
    def _numbers(self) -> dict[str, NumberCheck]:
        return {
            part: NumberCheck(self.path(part), positive=part == "weights")
            for part in ("values", "weights")
        }

    def path(self, part: str) -> Path:
        """Return the path of a file."""
        return self.folder / self.segment.file(array_name(self.axis, part))

    def stored(self, part: str) -> StoredArray:
        """Return what the manifest says of a file."""
        return self.manifest.files[self.segment.file(array_name(self.axis, part))]

    def pointers(self, first: int, last: int) -> NDArray[np.int64]:
        """Return where groups `first` to `last` − 1 begin, and the end; later ones are empty."""
        n = self.segment.shape[self.axis]
        begin, end = min(first, n), min(last, n)
        found = self.read("indptr", begin, end + 1 - begin)
        ends = {"begins": begin == 0, "ends": end == n}
        check_pointers(self.path("indptr"), found, self.segment.size, **ends)
        missing = last - first - (end - begin)
        return np.concatenate([found, np.repeat(found[-1:], missing)]) if missing else found

    def read(
        self, part: str, first: int, count: int, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Read some elements of a file, and check them."""
        path = self.path(part)
        stored = self.stored(part)
        array = np.empty(count, stored.dtype) if out is None else out
        with reading(path), open_regular(path) as file:
            file.seek(stored.data + first * array.itemsize)
            if not read_into(file, array):
                raise StoreError(f"{path} ended early: it is truncated")
        self._check(part, first, array)
        return array

    def finish(self) -> None:
        """Refuse values, once all were read, that no store is built with."""
        self._numbers["values"].finish(np.dtype(self.manifest.dtype), self.ranges)

    def _check(self, part: str, first: int, array: NDArray[Any]) -> None:
        """Check indices whenever they are read, and numbers when they are read the first time."""
        if part == "indices":
            check_others(self.path(part), array, self.segment.shape[1 - self.axis])
        elif part in self._numbers:
            self._numbers[part].see(first, array)
