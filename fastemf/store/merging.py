"""The merging of segments: the entries of each group, those of older segments first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.store.segment import SegmentSide

__all__ = ["Merge"]


class Merge:
    """The entries of a run of groups, from several segments, as if they had been written at once.

    Attributes
    ----------
    pointers : int64 array
        Where each group begins, from 0 on, and the end.
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
        """Where the entries of each run go, None for everywhere.

        The longest run goes where no other does, which takes a byte an entry to say.
        """
        if len(self._runs) < 2:
            return [None] * len(self._runs)
        longest = int(np.argmax([run[-1] - run[0] for run in self._runs]))
        free = np.ones(self.size, bool)
        begins = self.pointers[:-1].copy()  # of what is still to come in each group
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
