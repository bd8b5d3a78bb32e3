"""`Spill`: checked entries of the input in raw files, because the input can be read only once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.entries import CheckedEntries, check_positions, index_dtype
from fastemf.inputs.labels import Labels
from fastemf.inputs.value_check import ValueCheck
from fastemf.sources.store.chunks import Chunk
from fastemf.sources.store.files import ArrayFile
from fastemf.sources.store.label_index import LabelIndex
from fastemf.sources.store.reading import Store
from fastemf.sources.store.workplace import Workplace
from fastemf.support.validation import check_dtype, check_indices


class Spill:
    """Checked entries in raw files.

    Parameters
    ----------
    place
        Place of the files.
    shape
        Shape of the matrix, or None if it follows from the entries.
    before
        The store to which the entries are appended. It determines the types; its labels keep
        their positions.
    """

    def __init__(
        self, place: Workplace, shape: tuple[int, int] | None, before: Store | None = None
    ) -> None:
        self._place = place
        self._shape = shape
        self.before = before
        self._check: ValueCheck | None = None
        self._files: list[ArrayFile] = []  # rows, columns, values, weights
        self._top = [-1, -1] if before is None else [n - 1 for n in before.shape]
        self._labels: list[LabelIndex] = []  # of both sides, if any
        self.size = 0
        self.weighted = False

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Type of rows and columns; positions that need 64 bits require a shape."""
        return index_dtype(self._shape or (self.before.shape if self.before else (0, 0)))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self._files[2].dtype

    def append(self, chunk: Chunk) -> None:
        """Check some entries and write them."""
        if len(chunk.values) == 0:
            return
        dtype = check_dtype(chunk.values.dtype, f"values of {chunk.name}")
        if self._check is None:
            self._begin(dtype, chunk)
        self._check_consistent(chunk, dtype)
        indices = [self._indices(chunk, axis) for axis in (0, 1)]

        def place(entry: int) -> str:
            if chunk.labels is not None:
                return chunk.place(entry)
            row, col = (int(index[entry]) for index in indices)
            return f"row {row}, column {col} ({chunk.place(entry)})"

        assert self._check is not None
        self._check.see(chunk.values, place)
        columns = [*indices, chunk.values]
        if chunk.weights is not None:
            columns.append(chunk.checked_weights(dtype, place))
        for file, column in zip(self._files, columns, strict=True):
            file.append(column)
        self.size += len(chunk.values)

    def finish(self) -> tuple[tuple[int, int], list[Labels]]:
        """Return the shape of the matrix and the labels of both sides, after the last entry."""
        if self._check is None:
            raise ValueError("source must hold at least one observation, got none")
        self._check.finish()
        if self._labels:
            found = [index.finish() for index in self._labels]
            return (len(found[0]), len(found[1])), found
        if self._shape is not None:
            return self._shape, []
        m, n = (top + 1 for top in self._top)
        known, size = (self.before.shape, self.before.size) if self.before else ((0, 0), 0)
        if grown := [after for after, before in zip((m, n), known, strict=True) if after > before]:
            check_positions(tuple(grown), self.size + size)
        return (m, n), []

    def pieces(self, length: int) -> Iterator[CheckedEntries]:
        """Yield all entries in order, at most `length` at a time."""
        for first in range(0, self.size, length):
            count = min(length, self.size - first)
            rows, cols, values, *weights = (file.read(first, count) for file in self._files)
            yield CheckedEntries((rows, cols), values, weights[0] if weights else values[:0])

    def remove(self) -> None:
        """Delete the files."""
        for file in self._files:
            file.remove()

    def _begin(self, dtype: np.dtype[Any], chunk: Chunk) -> None:
        before = self.before
        is_labelled = chunk.labels is not None
        known: tuple[Labels | None, ...] = (None, None)
        self.weighted = chunk.weights is not None
        if before is not None:
            dtype, self.weighted = before.dtype, before.by_row.manifest.weighted
            known = before.row_labels, before.col_labels
            is_labelled = known[0] is not None
        self._check = ValueCheck(dtype)
        if is_labelled:
            names = chunk.labels or (None, None)
            self._labels = [
                LabelIndex(name, is_text=chunk.is_text, known=labels)
                for name, labels in zip(names, known, strict=True)
            ]
        kinds = {"rows": self.index_dtype, "cols": self.index_dtype, "values": dtype}
        if self.weighted:
            kinds["weights"] = dtype
        for name, kind in kinds.items():
            self._files.append(self._place.create(f"spill.{name}", kind))

    def _check_consistent(self, chunk: Chunk, dtype: np.dtype[Any]) -> None:
        if dtype != self.dtype:
            raise ValueError(
                f"values must have one type throughout, got {self.dtype} before and {dtype} in "
                f"{chunk.name}"
            )
        if (chunk.labels is not None) != bool(self._labels):
            raise TypeError(
                f"rows and cols must be labels or positions throughout, got both by {chunk.name}"
            )
        if (chunk.weights is not None) != self.weighted:
            words = ("without", "with") if chunk.weights is not None else ("with", "without")
            raise ValueError(
                f"all entries must have weights or none, got entries {words[0]} before and "
                f"{words[1]} in {chunk.name}"
            )

    def _indices(self, chunk: Chunk, axis: int) -> NDArray[Any]:
        given = (chunk.rows, chunk.cols)[axis]
        name = ("rows", "cols")[axis]
        if chunk.labels is not None:
            what = f"column {chunk.labels[axis]!r}"
            try:
                codes = self._labels[axis].positions(given, what, chunk.place)
            except TypeError as error:
                raise TypeError(f"{error} ({chunk.name})") from None
            return codes.astype(self.index_dtype)
        size = None if self._shape is None else self._shape[axis]
        try:
            checked = check_indices(given, name, size, widen=False)
        except (IndexError, TypeError) as error:
            where = chunk.name
            if isinstance(error, IndexError):
                limit = np.iinfo(np.int64).max if size is None else size
                where = chunk.place(int(np.argmax((given < 0) | (given >= limit))))
            raise type(error)(f"{error} ({where})") from None
        top = int(checked.max())
        if size is None and top > max(np.iinfo(np.int32).max - 1, self._top[axis]):
            where = chunk.place(int(np.argmax(checked)))
            rule = "identifiers must be numbered first"
            if self.before is None:
                rule = f"so many need shape=, and {rule}"
            raise IndexError(f"{name} go up to {top} ({where}): {rule}")
        self._top[axis] = max(self._top[axis], top)
        return checked.astype(self.index_dtype, copy=False)
