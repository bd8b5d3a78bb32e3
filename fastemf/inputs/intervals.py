"""Values that are only known to lie in intervals, such as the buckets of a histogram."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.censoring.limits import BETWEEN, LEFT, RIGHT
from fastemf.inputs import tables
from fastemf.inputs.columns import Where, position, shortened
from fastemf.inputs.entries import check_lengths
from fastemf.support.arrays import Array, Floats
from fastemf.support.validation import check_dtype


class Intervals(NamedTuple):
    """One interval per observation.

    The value is the middle of the interval, or its finite end if it has only one.
    """

    values: Floats
    half_widths: Floats
    codes: NDArray[np.int8]


def is_intervals(R: Any, values: Any) -> bool:
    """Return whether observations are intervals: of two columns, or triplets of two arrays."""
    if isinstance(values, tuple):
        return True
    ends = R[2] if isinstance(R, tuple) and len(R) == 3 else None
    return isinstance(ends, tuple) and len(ends) == 2 and all(np.ndim(end) == 1 for end in ends)


def refuse_intervals(R: Any, values: Any) -> None:
    """Raise an error for intervals where only exact values are supported."""
    if is_intervals(R, values):
        raise ValueError(
            "values must be exact here, got intervals, which only complete, complete_levels and "
            "complete_quantiles take, from memory or files"
        )


def read_bounds(table: Any, names: tuple[str, str], where: Where) -> Intervals:
    """Read intervals from two columns of an Arrow table; a missing end is infinite."""
    if len(names) != 2:
        raise ValueError(f"values as intervals must name two columns, got {names}")
    columns = tables.select_columns(table, names)
    lower, upper = (read_numbers(c, name, where) for c, name in zip(columns, names, strict=True))
    return parse_intervals(lower, upper, where)


def read_numbers(column: Any, name: str, where: Where) -> Floats:
    """Read an Arrow column of numbers or of texts such as "+Inf"; a missing one becomes NaN."""
    types = tables.arrow().types
    if types.is_floating(column.type) or types.is_integer(column.type):
        return np.asarray(column.cast("float64").to_numpy())
    items = column.to_pylist()
    numbers = np.empty(len(items))
    for at, item in enumerate(items):
        try:
            numbers[at] = np.nan if item in (None, "") else float(item)
        except (TypeError, ValueError):
            text = shortened(repr(item))
            raise TypeError(
                f"column {name!r} must hold numbers, got {text} at {where(at)}"
            ) from None
    return numbers


def parse_arrays(pair: tuple[Any, Any]) -> Intervals:
    """Read intervals from two arrays; NaN is a missing end, which is infinite."""
    ends = []
    for name, given in zip(("lower", "upper"), pair, strict=True):
        array = np.asarray(given)
        check_dtype(array.dtype, f"the {name} ends of intervals")
        ends.append(array.astype(np.float64))
    check_lengths(*ends, of=" of intervals")
    return parse_intervals(ends[0], ends[1], position)


def parse_intervals(lower: Array, upper: Array, where: Where) -> Intervals:
    """Check intervals, given their ends; NaN is a missing end."""
    lower = np.where(np.isnan(lower), -np.inf, lower)
    upper = np.where(np.isnan(upper), np.inf, upper)
    wrong = (lower > upper) | (lower == np.inf) | (upper == -np.inf)
    wrong |= np.isinf(lower) & np.isinf(upper)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            "values as intervals must have lower <= upper, at least one of them finite, got "
            f"{lower[at]:g} and {upper[at]:g} at {where(at)}"
        )
    codes = np.where(lower < upper, np.int8(BETWEEN), np.int8(0))
    codes = np.where(np.isinf(upper), np.int8(RIGHT), codes)
    codes = np.where(np.isinf(lower), np.int8(LEFT), codes)
    half_widths = np.where(codes == BETWEEN, upper - lower, 0.0) / 2
    values = np.where(np.isinf(lower), upper, lower) + half_widths
    return Intervals(values, half_widths, codes)
