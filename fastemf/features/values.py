"""The values of one side feature, from a column of any library.

A feature is a number (booleans are 0 and 1), a date without or with a time zone, in seconds since
1970, or a category: strings, and the strings or integers of a categorical column. None, NaN and
null are missing. Lists and arrays do not need pyarrow.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import (
    UNITS,
    Where,
    arrow_column,
    concatenated,
    decoded,
    is_null,
    objects,
    position,
    read_column,
    shortened,
)
from fastemf.support.arrays import Array, Floats, Mask

NUMBER, DATE, ZONED_DATE, CATEGORY = "number", "date", "date with a time zone", "category"
KINDS = {  # and how messages name their values
    NUMBER: "numbers",
    DATE: "dates without a time zone",
    ZONED_DATE: "dates with a time zone",
    CATEGORY: "strings or categories",
}
RULE = "must hold numbers, booleans, strings, categories or dates"


class Values(NamedTuple):
    """Flattened values of a feature and their original shape."""

    kind: str | None  # of KINDS; None if all values are missing
    numbers: Floats  # of a category, positions among the categories; NaN where missing
    categories: list[str]
    shape: tuple[int, ...]

    def select(self, kept: Mask) -> Values:
        """Return the values where a mask is true."""
        numbers = self.numbers[kept]
        kind = None if np.isnan(numbers).all() else self.kind
        return Values(kind, numbers, self.categories, numbers.shape)


def read_values(column: Any, what: str, where: Where = position) -> Values:
    """Read a scalar, a list, an array, a Series or an Arrow array.

    Parameters
    ----------
    column
        The values.
    what
        Name of the feature in messages.
    where
        Describes the position of an element in messages.
    """
    arrow = arrow_column(column, what)
    if arrow is not None:
        shape: tuple[int, ...] = (len(arrow),)
        kind, numbers, categories = _of_arrow(arrow, what)
    else:
        array = np.asarray(column) if hasattr(column, "dtype") else np.array(column, object)
        shape = array.shape
        kind, numbers, categories = _of_array(array.ravel(), what, where)
        if isinstance(column, np.ma.MaskedArray):
            numbers[np.ma.getmaskarray(column).ravel()] = np.nan
    infinite = np.isinf(numbers)
    if infinite.any():
        at = int(np.argmax(infinite))
        raise ValueError(f"{what} must be finite or missing, got {numbers[at]} at {where(at)}")
    return Values(None if np.isnan(numbers).all() else kind, numbers, categories, shape)


_Read = tuple[str, Floats, list[str]]  # as in Values


def _of_array(flat: Array, what: str, where: Where) -> _Read:
    if flat.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # the caller refuses infinity
            return NUMBER, flat.astype(np.float64), []
    if flat.dtype.kind == "M":
        return DATE, _seconds(flat, what), []
    if flat.dtype.kind not in "OUT":
        raise TypeError(f"{what} {RULE}, got dtype {flat.dtype}")
    items = flat.astype(object).tolist()
    present = np.array([not is_null(item) for item in items], bool)
    places = np.flatnonzero(present)
    numbers, kept = np.full(len(items), np.nan), [items[at] for at in places]
    kinds = [_kind_of(item) for item in kept]
    for at, (kind, item) in enumerate(zip(kinds, kept, strict=True)):
        if kind is None or kind != kinds[0]:
            mixed = "" if kind is None else ", all of one kind"
            shown = f"{shortened(repr(item))} ({type(item).__name__}) at {where(int(places[at]))}"
            raise TypeError(f"{what} {RULE}{mixed}, got {shown}")
    kind = kinds[0] if kinds else None
    if kind == CATEGORY:
        code_of = {text: code for code, text in enumerate(dict.fromkeys(map(str, kept)))}
        numbers[present] = [code_of[text] for text in kept]
        return CATEGORY, numbers, list(code_of)
    if kind == DATE:
        dates = read_column(objects(kept), what, lambda at: where(int(places[at])))
        numbers[present] = _seconds(dates.values, what)
        return ZONED_DATE if dates.is_utc else DATE, numbers, []
    numbers[present] = [_as_float(item) for item in kept]
    return NUMBER, numbers, []


def _kind_of(item: Any) -> str | None:
    """Return the kind of a Python object; DATE also with a time zone, None for other objects."""
    if isinstance(item, str):
        return CATEGORY
    if isinstance(item, (datetime.date, np.datetime64)):
        return DATE
    is_number = isinstance(item, (int, float, Decimal, np.bool_, np.integer, np.floating))
    return NUMBER if is_number and not isinstance(item, np.timedelta64) else None


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of more than 308 digits
        return np.inf


def _seconds(dates: NDArray[Any], what: str) -> Floats:
    """Return dates as seconds since 1970, equal for equal times in different units."""
    unit, _ = np.datetime_data(dates.dtype)
    if unit not in UNITS:
        raise TypeError(f"{what} {RULE}, got dtype {dates.dtype}")
    unit = UNITS[unit]
    whole = dates.astype(f"datetime64[{unit}]").view(np.int64)
    if unit == "ns":
        unit, whole = "us", whole // 1000
    factor, divisor = {"D": (86400, 1), "s": (1, 1), "ms": (1, 1e3), "us": (1, 1e6)}[unit]
    return np.where(np.isnat(dates), np.nan, whole.astype(np.float64) * factor / divisor)


def _of_arrow(column: Any, what: str) -> _Read:
    import pyarrow as pa

    types, kind = pa.types, column.type
    is_categorical = types.is_dictionary(kind)
    if is_categorical:
        kind = kind.value_type
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if is_text or (is_categorical and types.is_integer(kind)):
        return CATEGORY, *_categories(column)
    if is_categorical:
        raise TypeError(f"{what} must hold strings or integers as categories, got type {kind}")
    if types.is_null(kind):
        return NUMBER, np.full(len(column), np.nan), []
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if is_number or types.is_boolean(kind):
        return NUMBER, concatenated(column.cast(pa.float64(), safe=False)), []
    if not types.is_date(kind) and not types.is_timestamp(kind):
        raise TypeError(f"{what} {RULE}, got type {kind}")
    if types.is_date64(kind):
        column = column.cast(pa.timestamp("ms"))
    zone = getattr(kind, "tz", None)
    if zone is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit))
    return DATE if zone is None else ZONED_DATE, _seconds(concatenated(column), what), []


def _categories(column: Any) -> tuple[Floats, list[str]]:
    """Return the code of each string, NaN for null, and the strings."""
    import pyarrow as pa

    encoded = decoded(column, pa.large_string()).dictionary_encode().unify_dictionaries()
    if not encoded.num_chunks:
        return np.empty(0), []
    codes = pa.chunked_array([chunk.indices for chunk in encoded.chunks])
    return concatenated(codes.cast(pa.float64())), encoded.chunk(0).dictionary.to_pylist()
