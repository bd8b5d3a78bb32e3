"""`Labels`: the names of the rows, or the columns, of a matrix, in index order."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastemf.inputs import columns

SHOWN = 10  # unknown labels in a message
SPAN = 1 << 63  # of signed 64-bit integers


@dataclass(frozen=True, eq=False, repr=False)
class Labels:
    """Distinct labels of one side, in index order.

    Parameters
    ----------
    values
        Integers, strings or dates, all of one type, each once.
    name
        Name of the column they came from.

    Attributes
    ----------
    values : array
        int64 (uint64 if a label is too large for it), datetime64, or an object array
        of `str`. Read-only.
    name : str or None
    is_utc : bool
        Whether the labels are times with a time zone, in UTC. They equal no time without one.

    Examples
    --------
    >>> from fastemf import Labels
    >>> clients = Labels(["eu-7", "us-1"], name="client")
    >>> clients.positions(["us-1", "eu-7", "us-9"]).tolist()
    [1, 0, -1]
    >>> list(clients), len(clients)
    (['eu-7', 'us-1'], 2)
    """

    values: NDArray[Any]
    name: str | None = None
    is_utc: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        column = columns.read_column(self.values, "labels")
        if len(column.shape) != 1:
            raise ValueError(f"labels must be one-dimensional, got shape {column.shape}")
        distinct, codes = columns.encode(column, "labels")
        if distinct.size < codes.size:
            counts = np.bincount(codes)
            twice = distinct[np.argmax(counts > 1)]
            raise ValueError(f"labels must be distinct, got {twice!r} {counts.max()} times")
        self._hold(distinct, self.name, column.is_utc)

    @classmethod
    def encode(
        cls,
        column: Any,
        name: str | None = None,
        *,
        what: str = "labels",
        where: columns.Where = columns.position,
    ) -> tuple[Labels, NDArray[Any]]:
        """Return the labels of a column in order of first appearance, and each element's position.

        Parameters
        ----------
        column
            A list, an array, a Series or an Arrow array. Unused categories are ignored.
        name
            Name of the labels.
        what, where
            How error messages name the column and describe a position in it.

        Examples
        --------
        >>> from fastemf import Labels
        >>> labels, codes = Labels.encode(["b", "a", "b"])
        >>> labels.values.tolist(), codes.tolist()
        (['b', 'a'], [0, 1, 0])
        """
        read = columns.read_column(column, what, where)
        distinct, codes = columns.encode(read, what, where)
        return cls.__new__(cls)._hold(distinct, name, read.is_utc), codes.reshape(read.shape)

    @classmethod
    def of_distinct(cls, values: Any, name: str | None, is_utc: bool) -> Labels:
        """Return labels from the values of others; `is_utc` marks dates as times in UTC."""
        labels = cls(values, name)
        return labels._hold(labels.values, name, is_utc)

    def _hold(self, distinct: NDArray[Any], name: str | None, is_utc: bool) -> Labels:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a string or None, got {name!r}")
        distinct.flags.writeable = False
        object.__setattr__(self, "values", distinct)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "is_utc", is_utc)
        return self

    def renamed(self, name: str | None) -> Labels:
        """Return the same labels with another column name.

        Examples
        --------
        >>> from fastemf import Labels
        >>> Labels([7, 8]).renamed("client")
        <Labels 'client': 2 of kind int64>
        """
        return Labels.__new__(Labels)._hold(self.values, name, self.is_utc)

    def joined(self, others: Labels) -> Labels:
        """Return these labels followed by others, which must be new and of the same kind.

        Examples
        --------
        >>> from fastemf import Labels
        >>> Labels(["eu-7"], "client").joined(Labels(["us-1"])).values.tolist()
        ['eu-7', 'us-1']
        """
        ours, theirs = self.values, others.values
        if _family(ours, self.is_utc) != _family(theirs, others.is_utc):
            family = _family(ours, self.is_utc)
            raise TypeError(f"labels must be {family}, as those before, got {others!r}")
        if {ours.dtype.kind, theirs.dtype.kind} == {"i", "u"}:
            return Labels(np.array(ours.tolist() + theirs.tolist(), object), self.name)
        together = np.concatenate([ours, theirs])  # dates get the finer unit
        for dates in (ours, theirs) if together.dtype.kind == "M" else ():
            if not _as_type(dates, together.dtype)[1].all():
                raise ValueError(f"dates must lie within the reach of {together.dtype}")
        return Labels.of_distinct(together, self.name, self.is_utc)

    def _as_column(self) -> columns.Column:
        """Return the labels as a column that was read."""
        return columns.Column(self.values, None, self.values.shape, self.is_utc)

    @property
    def kind(self) -> str:
        """Kind of the labels: int64, uint64, str, datetime64[unit] or datetime64[unit, UTC]."""
        kind = "str" if self.values.dtype == object else str(self.values.dtype)
        return kind.replace("]", ", UTC]") if self.is_utc else kind

    def __len__(self) -> int:
        return int(self.values.size)

    def __iter__(self) -> Iterator[Any]:
        if not self.is_utc:
            return iter(self.values)
        # Times in UTC equal no time without a time zone.
        times = self.values.astype("datetime64[us]")
        if (times != self.values).any():  # nanoseconds, which datetime does not have
            from pandas import Timestamp

            return (Timestamp(value, tz="UTC") for value in self.values)
        return (time.replace(tzinfo=datetime.UTC) for time in times.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        same = self.name == other.name and self.kind == other.kind
        return same and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        name = "" if self.name is None else f" {self.name!r}"
        return f"<Labels{name}: {len(self)} of kind {self.kind}>"

    def take(self, indices: ArrayLike) -> NDArray[Any]:
        """Return the labels at the given positions.

        Examples
        --------
        >>> from fastemf import Labels
        >>> Labels(["eu-7", "us-1"]).take([1, 1, 0]).tolist()
        ['us-1', 'us-1', 'eu-7']
        """
        return np.asarray(self.values[np.asarray(indices)])

    def positions(
        self, column: Any, *, what: str = "labels", where: columns.Where = columns.position
    ) -> NDArray[np.int64]:
        """Return the position of each label of a column, -1 for unknown labels.

        Parameters
        ----------
        column
            `Labels`, labels in any form, or a single label, of the same kind: integers, strings,
            or dates with or without a time zone.
        what, where
            How error messages name the column and describe a position in it.

        Examples
        --------
        >>> from fastemf import Labels
        >>> Labels([30, 10, 20]).positions([10, 11]).tolist()
        [1, -1]
        """
        read = columns.read_column(column, what, where)
        asked = read.values
        if asked.size == 0:
            return np.empty(read.shape, np.int64)
        family, ours = _family(asked, read.is_utc), _family(self.values, self.is_utc)
        if family != ours:
            raise TypeError(f"{what} must be {ours}, as the labels are, got {family}")
        if family == "strings":
            places = self._places
            found = np.fromiter((places.get(x, -1) for x in asked.tolist()), np.int64, asked.size)
        else:
            numbers, possible = _as_type(asked, self.values.dtype)
            found = np.where(possible, self._search(numbers), -1)
        return (found if read.codes is None else found[read.codes]).reshape(read.shape)

    def place(self, label: Any) -> int | None:
        """Return the position of one string or integer label; None if it is unknown.

        Examples
        --------
        >>> from fastemf import Labels
        >>> Labels(["eu-7", "us-1"]).place("us-1")
        1
        """
        kind, ours = type(label), self.values.dtype.kind
        if kind is str:
            return self._places.get(label) if ours == "O" else None
        if kind not in (int, np.int64) or ours != "i" or not -SPAN <= label < SPAN:
            return None
        values, order = self._sorted
        at = int(values.searchsorted(label))
        return int(order[at]) if at < values.size and values[at] == label else None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {label: at for at, label in enumerate(self.values.tolist())}

    @cached_property
    def _sorted(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        order = np.argsort(self.values)
        return self.values[order], order

    def _search(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        values, order = self._sorted
        if values.size == 0:
            return np.full(numbers.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(values, numbers), values.size - 1)
        return np.where(values[at] == numbers, order[at], -1)


def check_known(*sides: tuple[NDArray[np.int64], Any, str]) -> None:
    """Raise one error that lists unknown labels of all sides, each (positions, column, what)."""
    parts = []
    for positions, column, what in sides:
        if positions.size and positions.min() < 0:
            distinct, codes = columns.encode(columns.read_column(column, what), what)
            unknown = distinct[np.unique(codes[positions.ravel() < 0])]
            parts.append(f"{unknown.size} in {what} ({listed(unknown)})")
    if parts:
        raise ValueError(f"unknown labels: {' and '.join(parts)}")


def listed(labels: NDArray[Any]) -> str:
    """List the first labels and the number of the others, for a message."""
    first = ", ".join(columns.shortened(repr(label)) for label in labels[:SHOWN].tolist())
    return first + (f", … {labels.size - SHOWN} more" if labels.size > SHOWN else "")


def _family(labels: NDArray[Any], is_utc: bool) -> str:
    """Return the family of labels: integers, strings, or dates with or without a time zone."""
    dates = f"dates {'with' if is_utc else 'without'} a time zone"
    return {"O": "strings", "M": dates}.get(labels.dtype.kind, "integers")


def _as_type(numbers: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Cast integers or dates to another type; also return which values it can represent."""
    cast = numbers.astype(dtype)
    back = cast.astype(numbers.dtype) == numbers
    if numbers.dtype.kind != "M" and numbers.dtype != dtype:  # out-of-range integers wrap around
        back &= (numbers >= 0) & (cast >= 0)
    return cast, back
