"""Columns of labels, as NumPy arrays.

A label is an integer, a string or a date (with or without a time). Integers become int64, or
uint64 if one is too large for it. Dates become datetime64 in days, seconds or finer units. Strings
become an object array of `str`. Times with a time zone become datetime64 in UTC and equal no time
without one. Lists and arrays do not need pyarrow.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastemf.support import terminal

Where = Callable[[int], str]  # describes the position of an element, for messages

# Units to which coarser ones are converted; tables have no finer units than nanoseconds.
UNITS = dict(zip(("Y", "M", "W", "D", "h", "m", "s"), "DDDDsss", strict=True))
UNITS |= {unit: unit for unit in ("ms", "us", "ns")}

RULE = "must hold integers, strings or dates as labels"
INTEGER = r"^(0|-?[1-9][0-9]*)$"  # in canonical form
LONGEST = 60  # characters of a label in a printed table


class Column(NamedTuple):
    """Flattened labels, or distinct ones and the place of each element among them."""

    values: NDArray[Any]  # int64, uint64, datetime64 or object array
    codes: NDArray[Any] | None
    shape: tuple[int, ...]
    is_utc: bool = False  # whether dates have a time zone


def position(at: int) -> str:
    """Describe the position of an element of a list."""
    return f"position {at}"


def shortened(text: str, length: int = 200) -> str:
    """Shorten text for a message."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def one_line(text: str, length: int = 200) -> str:
    """Convert the message of another library, which may quote any content, to one line."""
    return shortened(terminal.one_line(text[: 2 * length]), length)


def is_integer_text(text: str) -> bool:
    """Return whether a string is an integer in canonical form."""
    return re.fullmatch(INTEGER, text) is not None


def read_column(column: Any, what: str, where: Where = position) -> Column:
    """Read labels in any form; they must be of one type and have no nulls.

    Parameters
    ----------
    column
        A scalar, a list, an array, a Series, an Arrow array, or `Labels`.
    what
        Name of the column in messages.
    where
        Describes the position of an element in messages.
    """
    if hasattr(column, "_as_column"):  # `Labels`, which this module cannot import
        return cast(Column, column._as_column())
    arrow = arrow_column(column, what)
    if arrow is not None:
        return _of_arrow(arrow, what, where)
    array = np.asarray(column) if hasattr(column, "dtype") else np.array(column, dtype=object)
    flat, is_utc = array.ravel(), False
    if flat.dtype.kind in "OUT":
        flat, is_utc = _of_objects(flat.astype(object), what, where)
    elif flat.size == 0 and flat.dtype.kind == "f":  # np.asarray([]) is float64
        flat = flat.astype(np.int64)
    return Column(_as_kind(flat, what, where), None, array.shape, is_utc)


def encode(column: Column, what: str, where: Where = position) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return distinct labels in order of first appearance, and each element's position there."""
    values = column.values
    if column.codes is not None:
        return values, column.codes
    if values.dtype == object:
        places = {label: at for at, label in enumerate(dict.fromkeys(values.tolist()))}
        _check_text(places, values, what, where)
        codes = np.fromiter(map(places.__getitem__, values.tolist()), np.int64, values.size)
        return objects(list(places)), codes
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)  # of appearance
    return distinct[order], np.argsort(order)[inverse]


def objects(items: list[Any]) -> NDArray[Any]:
    """Return a one-dimensional object array of any items."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def check_nulls(count: int, first: Callable[[], int], what: str, where: Where) -> None:
    """Raise an error if a column has nulls."""
    if count:
        noun = "null" if count == 1 else "nulls"
        raise ValueError(
            f"{what} must have no nulls, got {count} {noun}, first at {where(first())}"
        )


# --- lists and arrays ----------------------------------------------------------------------


def _of_objects(flat: NDArray[Any], what: str, where: Where) -> tuple[NDArray[Any], bool]:
    """Check that Python objects are labels of one kind; convert all but `str`.

    Also return whether they are times with a time zone.
    """
    items = flat.tolist()
    types = set(map(type, items))
    if types <= {str}:
        return flat, False
    nulls = [at for at, item in enumerate(items) if is_null(item)]
    check_nulls(len(nulls), lambda: nulls[0], what, where)
    if all(issubclass(t, str) for t in types):
        return objects([str(item) for item in items]), False
    if all(issubclass(t, (int, np.integer)) and t is not bool for t in types):
        return _of_integers(items, what, where), False
    if all(issubclass(t, (datetime.date, np.datetime64)) for t in types):
        aware = [getattr(item, "tzinfo", None) is not None for item in items]
        if any(aware) and not all(aware):
            at = aware.index(not aware[0])
            raise TypeError(f"{what} must all have a time zone, or none{such_as(items, at, where)}")
        if any(aware):
            items = [item.astimezone(datetime.UTC).replace(tzinfo=None) for item in items]
        precise = [
            item.to_datetime64() if hasattr(item, "to_datetime64") else np.datetime64(item)
            for item in items
        ]
        return np.array(precise), any(aware)
    names = ", ".join(sorted(t.__name__ for t in types))
    one = "" if len(types) == 1 else ", all of one type"
    at = next((at for at, item in enumerate(items) if type(item) is not type(items[0])), 0)
    raise TypeError(f"{what} {RULE}{one}, got {names}{such_as(items, at, where)}")


def such_as(items: Any, at: int, where: Where | None) -> str:
    """Quote an element and its position, for a message."""
    if len(items) == 0:
        return ""
    item = items[at].as_py() if hasattr(items[at], "as_py") else items[at]
    return f", such as {shortened(repr(item))}" + ("" if where is None else f" at {where(at)}")


def _check_text(labels: Iterable[str], flat: NDArray[Any], what: str, where: Where) -> None:
    try:
        "".join(labels).encode()
    except UnicodeEncodeError:
        items = flat.tolist()
        at = next(
            at for at, item in enumerate(items) if any("\ud800" <= c <= "\udfff" for c in item)
        )
        raise ValueError(f"{what} must be Unicode text{such_as(items, at, where)}") from None


def is_null(item: Any) -> bool:
    """Return whether a Python object stands for a missing value."""
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, (float, np.datetime64)) and bool(item != item)


def _of_integers(items: list[int], what: str, where: Where) -> NDArray[Any]:
    for dtype in (np.int64, np.uint64):
        with suppress(OverflowError):
            return np.array(items, dtype)
    at = next(at for at, item in enumerate(items) if not -(2**63) <= item < 2**63)
    raise ValueError(f"{what} must fit into 64-bit integers{such_as(items, at, where)}")


def _as_kind(flat: NDArray[Any], what: str, where: Where) -> NDArray[Any]:
    """Return an array of one of the four kinds."""
    kind = flat.dtype.kind
    if kind == "O":
        return flat
    if kind in "iu":
        is_large = kind == "u" and flat.size and int(flat.max()) > np.iinfo(np.int64).max
        return flat.astype(np.uint64 if is_large else np.int64, copy=False)
    if kind == "M":
        nulls = np.isnat(flat)
        check_nulls(int(nulls.sum()), lambda: int(np.argmax(nulls)), what, where)
        unit, step = np.datetime_data(flat.dtype)
        if unit not in UNITS:
            raise TypeError(f"{what} {RULE}, got dtype {flat.dtype}")
        exact = flat if step == 1 else flat.astype(f"datetime64[{unit}]")
        return exact.astype(f"datetime64[{UNITS[unit]}]", copy=False)
    hint = "; convert whole numbers to integers" if kind == "f" else ""
    raise TypeError(f"{what} {RULE}, got dtype {flat.dtype}{such_as(flat, 0, where)}{hint}")


# --- Arrow ---------------------------------------------------------------------------------


def offers_arrow(data: Any) -> bool:
    """Return whether a column or a table supports the Arrow interface."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def arrow_column(column: Any, what: str) -> Any:
    """Return a column as an Arrow array, or None if it does not support Arrow."""
    if not offers_arrow(column):
        return None
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        return None  # a Series is an array too
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    try:
        # NaN means null in pandas, which a stream would lose.
        return (
            pa.array(column, from_pandas=True)
            if hasattr(column, "iloc")
            else pa.chunked_array(column)
        )
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:  # also pyarrow's
        if hasattr(column, "iloc"):
            return None  # read as Python objects, for a message with the row
        raise TypeError(f"{what} must be of one type: {error}") from None


def first_null(column: Any) -> int:
    """Return the position of the first null of an Arrow column that has one."""
    import pyarrow.compute as pc

    return int(pc.index(pc.is_null(column), True).as_py())


def _chunks(column: Any) -> list[Any]:
    return column.chunks if hasattr(column, "chunks") else [column]


def decoded(column: Any, kind: Any) -> Any:
    """Return an Arrow column in another type; a dictionary becomes its values."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return pa.chunked_array([chunk.cast(kind) for chunk in _chunks(column)], kind)
    chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in _chunks(column)]
    return pa.chunked_array(chunks, kind)


def concatenated(column: Any) -> NDArray[Any]:
    """Return the numbers of an Arrow column without nulls; a single chunk is not copied."""
    parts = [chunk.to_numpy(zero_copy_only=False) for chunk in _chunks(column)]
    if not parts:
        return np.empty(0, column.type.to_pandas_dtype())
    return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def _of_arrow(column: Any, what: str, where: Where) -> Column:
    import pyarrow as pa

    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if (
        is_text := types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
    ):
        kind = pa.large_string()
    column = decoded(column, kind)
    check_nulls(column.null_count, lambda: first_null(column), what, where)
    is_integer = types.is_integer(kind) or (types.is_decimal(kind) and kind.scale == 0)
    if len(column) and not (
        is_text or is_integer or types.is_date(kind) or types.is_timestamp(kind)
    ):
        hint = "; convert whole numbers to integers" if types.is_floating(kind) else ""
        raise TypeError(f"{what} {RULE}, got type {kind}{such_as(column, 0, where)}{hint}")
    zone = getattr(kind, "tz", None)
    if types.is_date64(kind) or zone is not None:
        column = column.cast(pa.timestamp("ms" if zone is None else kind.unit))
    encoded = column.dictionary_encode().unify_dictionaries()
    if len(column) == 0:
        return Column(np.empty(0, object if is_text else np.int64), None, (0,))
    distinct = encoded.chunk(0).dictionary
    codes = concatenated(pa.chunked_array([chunk.indices for chunk in encoded.chunks]))

    def first(at: int) -> str:
        return where(int(np.argmax(codes == at)))

    if types.is_decimal(kind):
        values = _of_integers(distinct.to_pylist(), what, first)
    else:
        values = distinct.to_numpy(zero_copy_only=False)
    return Column(_as_kind(values, what, first), codes, (len(column),), zone is not None)
