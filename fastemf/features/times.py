"""The time of each observation: a column of a table, or an array aligned with the observations.

It is read like a side feature: numbers in any unit, or dates, in seconds since 1970.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from fastemf.features.reading import check_names, columns_in_memory
from fastemf.features.schema import FeatureSchema, FeatureTable
from fastemf.features.values import CATEGORY, NUMBER, read_values
from fastemf.inputs.file_lists import is_source
from fastemf.inputs.tables import ColumnNames, is_table
from fastemf.support.arrays import Array, Floats, Ints, Mask
from fastemf.support.validation import check_number

ARRAY = "time of the observations"  # name of the feature, if the time is an array
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
DURATION = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(SECONDS)})")


class Times(NamedTuple):
    """The time of each observation."""

    values: Floats
    is_date: bool  # in seconds since 1970
    name: str  # of the column; empty for an array

    def select(self, kept: Mask | Ints) -> Times:
        """Return the times that a mask or positions select."""
        return self._replace(values=self.values[kept])


def add_time(R: Any, names: ColumnNames, features: Any, time: Any) -> Any:
    """Return side features to read, with the time as the last one, unless it is one of them.

    A matrix of times is not read like a feature, but by `select_times`. `features` and `time` are
    as in `fastemf.complete_quantiles`.
    """
    if time is None or (is_matrix(time) and not (is_table(R) or is_source(R))):
        return features
    if isinstance(time, str):
        if not (is_table(R) or is_source(R)):
            raise ValueError(f"time can name a column of a table only, got {time!r}")
        if time in names:
            raise ValueError(f"time must be a further column, got {time!r} of rows, cols or values")
        listed = [] if features is None else check_names(features)
        return listed if time in listed else [*listed, time]
    if is_table(R) or is_source(R):
        kind = type(time).__name__
        raise TypeError(f"time must be the name of a column of the table, got {kind}")
    if not (isinstance(R, tuple) or getattr(R, "format", "") in ("csr", "csc", "coo")):
        raise TypeError(
            "time must be a matrix of the shape of R unless R is a table, triplets, or a matrix in "
            f"CSR, CSC or COO format, which list the observations; R is a {type(R).__name__}"
        )
    return {**({} if features is None else columns_in_memory(features)), ARRAY: time}


def split_time(table: FeatureTable, features: Any, time: Any) -> tuple[FeatureTable | None, Times]:
    """Split what was read by `add_time` into side features, None if there are none, and times."""
    schema, name = table.schema, time if isinstance(time, str) else ""
    at = schema.names.index(name or ARRAY)
    times = _check_times(table.values[:, at].copy(), schema.kinds[at], name)
    if name and features is not None and name in features:
        return table, times
    others = FeatureSchema(schema.names[:-1], schema.kinds[:-1], schema.categories[:-1])
    return (FeatureTable(others, table.values[:, :-1]) if others.names else None), times


def is_matrix(time: Any) -> bool:
    """Return whether times are a matrix."""
    return not isinstance(time, str) and np.ndim(time) == 2


def select_times(time: Any, shape: tuple[int, int], rows: Array, cols: Array) -> Times:
    """Return the times of the cells (rows[i], cols[i]) of a matrix of times."""
    values = read_values(np.asarray(time), "time")
    if values.shape != shape:
        raise ValueError(f"time must have the shape of R, {shape}, got {values.shape}")
    return _check_times(values.numbers.reshape(shape)[rows, cols], values.kind or NUMBER, "")


def _check_times(numbers: Floats, kind: str, name: str) -> Times:
    if kind == CATEGORY:
        raise TypeError("time must hold numbers or dates, got strings or categories")
    missing = np.count_nonzero(np.isnan(numbers))
    if missing:
        raise ValueError(
            f"time must be known for every observation, got {missing} missing of {numbers.size}"
        )
    return Times(numbers, kind != NUMBER, name)


def format_seconds(seconds: float) -> str:
    """Return a duration in days or, if it is shorter, in a smaller unit.

    Examples
    --------
    >>> from fastemf.features.times import format_seconds
    >>> format_seconds(1_209_600), format_seconds(5400), format_seconds(0.5)
    ('14 d', '1.5 h', '0.5 s')
    """
    unit = next((unit for unit in ("d", "h", "min") if seconds >= SECONDS[unit]), "s")
    return f"{seconds / SECONDS[unit]:.4g} {unit}"


def check_half_life(half_life: Any, time: Any) -> None:
    """Check a half-life as far as possible before the times are read."""
    if half_life is None:
        return
    if time is None:
        raise ValueError(f"half_life must be given with time, got {half_life!r}")
    if isinstance(half_life, str):
        if half_life != "auto" and not _parse_duration(half_life) > 0:
            raise ValueError(
                'half_life must be a number, "auto" or a duration such as "7d", "12h", "30min", '
                f'"45s" or "2w", got {half_life!r}'
            )
    elif isinstance(half_life, timedelta):
        if not half_life > timedelta(0):
            raise ValueError(f"half_life must be positive, got {half_life}")
    elif check_number(half_life, "half_life") == 0:
        raise ValueError("half_life must be positive, got 0")


def parse_half_life(half_life: Any, times: Times) -> float:
    """Return a half-life, which is not "auto", in the unit of the times; infinity for None."""
    if half_life is None:
        return np.inf
    if isinstance(half_life, str | timedelta) != times.is_date:
        rule = 'a duration such as "7d" if' if times.is_date else "a number unless"
        raise ValueError(f"half_life must be {rule} time has dates, got {half_life!r}")
    if isinstance(half_life, timedelta):
        return half_life.total_seconds()
    if not isinstance(half_life, str):
        return float(half_life)
    return _parse_duration(half_life)


def _parse_duration(text: str) -> float:
    """Return a duration in seconds; NaN for other text."""
    found = DURATION.fullmatch(text)
    return float(found[1]) * SECONDS[found[2]] if found else float("nan")
