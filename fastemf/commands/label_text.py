"""Labels as text has them, in the type that a model's labels have."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["from_text", "like"]

DATE = re.compile(r"[0-9]{4,}-[0-9]{2}-[0-9]{2}([T ].+)?")


def like(labels: Any, column: Any, what: str, unknown: str = "error") -> Any:
    """Turn a column of a file into labels like a model's: CSV has no types but text.

    Text that is not written as the model's labels are is an unknown label.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = None if labels is None else labels.values.dtype.kind
    is_integer = pa.types.is_integer(column.type)
    is_text = str(column.type) in ("string", "large_string")
    if kind == "O" and (is_integer or pa.types.is_date(column.type)):
        return column.cast(pa.string())
    if kind == "M" and is_integer:
        column, is_text = column.cast(pa.string()), True
    if kind is None or kind == "O" or not is_text or column.null_count:
        return column
    encoded = column.combine_chunks().dictionary_encode()
    distinct = _parsed(labels, encoded.dictionary.to_pylist(), what, unknown)
    return distinct[encoded.indices.to_numpy()]


def from_text(labels: Any, texts: list[str], unknown: str = "error") -> Any:
    """Read rows as typed by a person: labels, or positions of a model without."""
    import numpy as np

    if labels is not None:
        is_text = labels.values.dtype == object
        return np.array(texts, object) if is_text else _parsed(labels, texts, "row", unknown)
    try:
        return np.array(texts, np.int64)
    except (ValueError, OverflowError):
        given = " ".join(texts)
        raise ValueError(f"row must be positions from 0: no labels here, got {given}") from None


def _parsed(labels: Any, texts: list[str], what: str, unknown: str) -> Any:
    """Parse integers or dates; any other text becomes one that is not among the labels."""
    import numpy as np

    from fastemf.inputs.labels import check_known

    dtype = labels.values.dtype
    taken = labels.values.view(np.int64)
    absent = np.setdiff1d(np.arange(len(labels) + 1), taken)[:1].astype(np.int64).view(dtype)[0]
    parse = _date if dtype.kind == "M" else _integer
    values = np.array([parse(text, absent) for text in texts])
    if unknown == "error":
        check_known((labels.positions(values), texts, what))
    return values


def _integer(text: str, absent: Any) -> Any:
    from fastemf.inputs.csv_files import is_integer_text

    try:
        return absent.dtype.type(int(text)) if is_integer_text(text) else absent
    except (OverflowError, ValueError):  # of more digits than Python reads, too
        return absent


def _date(text: str, absent: Any) -> Any:
    import numpy as np

    try:
        return np.datetime64(text) if DATE.fullmatch(text) else absent
    except ValueError:
        return absent
