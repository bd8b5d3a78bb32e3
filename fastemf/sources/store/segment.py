"""The segments of a store, by row or by column: files read by ranges, checked, and merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.sources.store.content import NumberCheck, check_others, check_pointers
from fastemf.sources.store.files import open_regular, read_into
from fastemf.sources.store.manifest import (
    Manifest,
    Segment,
    StoredArray,
    StoreError,
    array_name,
    reading,
)


@dataclass(frozen=True, eq=False)
class SegmentSide:
    """Entries of a segment by row (axis 0) or by column (axis 1), on disk.

    A range is checked when it is read for the first time. `ranges` holds the smallest and the
    largest value of each file of both sides.
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
        """Return the entry of a file in the manifest."""
        return self.manifest.files[self.segment.file(array_name(self.axis, part))]

    def pointers(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the first entries of groups `first` to `last` − 1, and the end."""
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
        """Read and check some elements of a file."""
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
        """Check the range of the values after all of them were read."""
        self._numbers["values"].finish(np.dtype(self.manifest.dtype), self.ranges)

    def _check(self, part: str, first: int, array: NDArray[Any]) -> None:
        """Check indices at every read, and numbers at the first read."""
        if part == "indices":
            check_others(self.path(part), array, self.segment.shape[1 - self.axis])
        elif part in self._numbers:
            self._numbers[part].see(first, array)


class Merge:
    """The entries of a run of groups from all segments, those of older segments first.

    Attributes
    ----------
    pointers : int64 array
        First entry of each group, from 0, and the end.
    """

    def __init__(self, segments: Sequence[SegmentSide], first: int, last: int) -> None:
        runs = [segment.pointers(first, last) for segment in segments]
        self.pointers = np.zeros(last - first + 1, np.int64)
        for run in runs:
            self.pointers += run - run[0]
        filled = [number for number, run in enumerate(runs) if run[-1] > run[0]]
        self._segments = [segments[number] for number in filled]
        self._runs = [runs[number] for number in filled]

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.pointers[-1])

    def read(self, part: str, out: NDArray[Any]) -> NDArray[Any]:
        """Fill an array with the indices, values or weights."""
        for segment, run, place in zip(self._segments, self._runs, self._places, strict=True):
            at, count = int(run[0]), int(run[-1] - run[0])
            if place is None and out.dtype == segment.stored(part).dtype:
                segment.read(part, at, count, out)
            else:
                out[... if place is None else place] = segment.read(part, at, count)
        return out

    @cached_property
    def _places(self) -> list[NDArray[Any] | None]:
        """The places of the entries of each run; None for all places.

        The longest run fills the places that the others leave, as a mask of one byte per entry.
        """
        if len(self._runs) < 2:
            return [None] * len(self._runs)
        longest = int(np.argmax([run[-1] - run[0] for run in self._runs]))
        free = np.ones(self.size, bool)
        begins = self.pointers[:-1].copy()  # of the remaining entries of each group
        places: list[NDArray[Any] | None] = []
        for number, run in enumerate(self._runs):
            lengths = np.diff(run)
            if number == longest:
                places.append(free)
            else:
                place = np.repeat(begins - (run[:-1] - run[0]), lengths)
                place += np.arange(place.size)
                free[place] = False
                places.append(place)
            begins += lengths
        return places


def cuts_within(budget: int, indptr: NDArray[np.int64], entry: int, row: int) -> NDArray[np.int64]:
    """Return the boundaries of runs of rows of at most `budget` bytes, or of one row.

    An entry takes `entry` bytes and a row takes `row`.
    """
    cost = indptr * entry + row * np.arange(indptr.size)
    cuts = [0]
    while cuts[-1] < indptr.size - 1:
        last = int(np.searchsorted(cost, cost[cuts[-1]] + budget, side="right")) - 1
        cuts.append(max(last, cuts[-1] + 1))
    return np.array(cuts, np.int64)
