"""`EntryCheck`: checks of the entries of a store, batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.entries import check_positions, index_dtype
from fastemf.inputs.value_check import ValueCheck, check_weights
from fastemf.sources.store.batches import Batch
from fastemf.sources.store.reading import Store
from fastemf.support.validation import check_dtype, check_indices


class EntryCheck:
    """Check batches of entries, which must have one type, and weights in all batches or in none."""

    def __init__(
        self, shape: tuple[int, int] | None, before: Store | None, *, labelled: bool
    ) -> None:
        self._shape, self._labelled = shape, labelled
        self._known = (0, 0) if before is None else before.shape
        self._known_size = 0 if before is None else before.size
        self._top = [n - 1 for n in self._known]
        self._check: ValueCheck | None = None
        if before is not None:
            self._begin(before.dtype, before.by_row.manifest.weighted)

    def _begin(self, dtype: np.dtype[Any], weighted: bool) -> ValueCheck:
        self.dtype, self.weighted, self._check = dtype, weighted, ValueCheck(dtype)
        return self._check

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Type of rows and columns; positions that need 64 bits require a shape."""
        return index_dtype(self._shape or self._known)

    def see(self, batch: Batch, part: slice) -> dict[str, NDArray[Any]]:
        """Check a part of a batch; return its rows, cols, values and, if any, weights."""
        values = batch.values[part]
        weights = None if batch.weights is None else batch.weights[part]
        dtype = check_dtype(values.dtype, f"values of {batch.name}")
        check = self._check or self._begin(dtype, weights is not None)
        if dtype != self.dtype:
            kinds = f"{self.dtype} before and {dtype} in {batch.name}"
            raise ValueError(f"values must have one type throughout, got {kinds}")
        if (weights is not None) != self.weighted:
            one, other = ("with", "without") if self.weighted else ("without", "with")
            raise ValueError(
                f"all entries must have weights or none, got entries {one} before and {other} in "
                f"{batch.name}"
            )
        rows, cols = (self._indices(batch, part, axis) for axis in (0, 1))

        def place(entry: int) -> str:
            position = batch.place(part.start + entry)
            if self._labelled:
                return position
            return f"row {int(rows[entry])}, column {int(cols[entry])} ({position})"

        check.see(values, place)
        checked = {"rows": rows, "cols": cols, "values": values}
        if weights is not None:
            check_dtype(weights.dtype, f"weights of {batch.name}")
            with np.errstate(over="ignore"):  # the check rejects infinity
                checked["weights"] = np.asarray(weights.astype(dtype))
            check_weights(checked["weights"], weights, place)
        return checked

    def finish(self, size: int) -> tuple[int, int]:
        """Check all values together, and return the shape of the matrix."""
        if self._check is not None:
            self._check.finish()
        if self._shape is not None:
            return self._shape
        m, n = (top + 1 for top in self._top)
        grown = [after for after, known in zip((m, n), self._known, strict=True) if after > known]
        if grown and not self._labelled:
            check_positions(tuple(grown), size + self._known_size)
        return m, n

    def _indices(self, batch: Batch, part: slice, axis: int) -> NDArray[Any]:
        given, name = (batch.rows, batch.cols)[axis][part], ("rows", "cols")[axis]
        size = None if self._shape is None else self._shape[axis]

        def place(at: Any) -> str:
            return batch.place(part.start + int(at))

        try:
            checked = check_indices(given, name, size, widen=False)
        except TypeError as error:
            raise TypeError(f"{error} ({batch.name})") from None
        except IndexError as error:
            worst = np.argmin(given) if given.min() < 0 else np.argmax(given)
            raise IndexError(f"{error} ({place(worst)})") from None
        top = int(checked.max())
        if size is None and top > max(np.iinfo(np.int32).max - 1, self._top[axis]):
            rule = "identifiers must be numbered first"
            if not self._known_size:
                rule = f"so many need shape=, and {rule}"
            raise IndexError(f"{name} go up to {top} ({place(np.argmax(checked))}): {rule}")
        self._top[axis] = max(self._top[axis], top)
        return checked
