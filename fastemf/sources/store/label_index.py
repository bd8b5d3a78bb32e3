"""`LabelIndex`: labels numbered in order of first appearance, chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import Where, objects
from fastemf.inputs.csv_files import is_integer_text
from fastemf.inputs.labels import Labels

INTEGERS = ("int64", "uint64")


class LabelIndex:
    """Positions of the labels of one side.

    Parameters
    ----------
    name
        Name of the column.
    is_text
        Whether labels are the strings of a CSV file, which become integers if all of them are.
    known
        Labels that already have positions; their kind and name stay.
    """

    def __init__(self, name: str | None, *, is_text: bool, known: Labels | None = None) -> None:
        self._name = name if known is None else known.name
        self._is_text = is_text
        self._is_settled = known is not None
        self._kind: str | None = None
        self._strings: dict[str, int] = {}
        self._numbers = np.empty(0, np.int64)  # ascending; dates as int64
        self._places = np.empty(0, np.int64)  # of those
        if known is not None:
            self._begin_with(known)

    def __len__(self) -> int:
        return len(self._strings) or self._numbers.size

    def positions(self, column: Any, what: str, where: Where) -> NDArray[np.int64]:
        """Return the position of each label of a chunk; new labels come last."""
        labels, codes = Labels.encode(column, what=what, where=where)
        if self._is_text and self._kind in INTEGERS:
            labels = self._integers(labels, what)
        self._settle_kind(labels, what)
        if self._kind == "str":
            known = self._strings
            found = [known.setdefault(label, len(known)) for label in labels.values.tolist()]
            return np.asarray(np.array(found, np.int64)[codes])
        numbers = labels.values
        numbers = numbers.view(np.int64) if numbers.dtype.kind == "M" else numbers
        places = self._look_up(numbers.astype(self._numbers.dtype, copy=False))
        return np.asarray(places[codes])

    def finish(self) -> Labels:
        """Return all labels."""
        if self._kind == "str":
            texts = list(self._strings)
            if self._is_text and not self._is_settled and all(map(is_integer_text, texts)):
                numbers = [int(label) for label in texts]
                if all(-(2**63) <= number < 2**63 for number in numbers):
                    return Labels(np.array(numbers, np.int64), self._name)
            return Labels(objects(texts), self._name)
        values = np.empty_like(self._numbers)
        values[self._places] = self._numbers
        assert self._kind is not None  # every chunk has entries
        return Labels(values.view(self._kind), self._name)

    def _begin_with(self, known: Labels) -> None:
        self._kind = known.kind
        if self._kind == "str":
            self._strings = {label: at for at, label in enumerate(known.values.tolist())}
            return
        numbers = known.values.view(np.int64) if known.values.dtype.kind == "M" else known.values
        self._places = np.argsort(numbers)
        self._numbers = numbers[self._places]

    def _integers(self, labels: Labels, what: str) -> Labels:
        """Convert labels of a CSV file to integers."""
        texts = labels.values.tolist()
        right = all(map(is_integer_text, texts))
        numbers = [int(label) for label in texts] if right else []
        if not right or not all(-(2**63) <= number < 2**64 for number in numbers):
            raise TypeError(f"{what} must hold labels of one kind, got {self._kind} before and str")
        return Labels(np.array(numbers, object))

    def _settle_kind(self, labels: Labels, what: str) -> None:
        """Require one kind; integers become unsigned if one needs it and none is negative."""
        before, here = self._kind, labels.kind
        if before in INTEGERS and here in INTEGERS and before != here:
            negative = self._numbers if before == "int64" else labels.values
            if negative.size and negative.min() >= 0:
                self._kind, self._numbers = "uint64", self._numbers.astype(np.uint64)
                return
        elif before is None:
            self._kind = here
            self._numbers = self._numbers.astype(np.uint64 if here == "uint64" else np.int64)
            return
        if before != here:
            raise TypeError(f"{what} must hold labels of one kind, got {before} before and {here}")

    def _look_up(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        at = np.searchsorted(self._numbers, numbers)
        inside = np.minimum(at, max(0, self._numbers.size - 1))
        known = self._numbers[inside] == numbers if self._numbers.size else np.zeros(at.size, bool)
        places = np.where(known, self._places[inside], -1) if self._numbers.size else at - at - 1
        new = np.flatnonzero(~known)
        if new.size:
            places[new] = self._numbers.size + np.arange(new.size)
            order = new[np.argsort(numbers[new])]
            at = np.searchsorted(self._numbers, numbers[order])
            self._numbers = np.insert(self._numbers, at, numbers[order])
            self._places = np.insert(self._places, at, places[order])
        return places
