"""Labels as text has them, in the type that a model's labels have."""

from __future__ import annotations

from typing import Any

__all__ = ["from_text", "like"]


def like(labels: Any, column: Any) -> Any:
    """A column of a file as labels of a model: CSV writes strings, integers and dates alike."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray) and pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = None if labels is None else labels.values.dtype.kind
    if kind == "O" and pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if kind == "M" and not pa.types.is_temporal(column.type):
        return from_text(labels, column.to_pylist())
    return column


def from_text(labels: Any, texts: list[str]) -> Any:
    """Labels (positions, for a model without) as typed by a person."""
    import numpy as np

    kind = "i" if labels is None else labels.values.dtype.kind
    if kind == "O":
        return np.array(texts, object)
    what = "positions from 0" if labels is None else "labels like those of the model"
    try:
        return np.array(texts, "datetime64" if kind == "M" else np.int64)
    except (ValueError, OverflowError):
        raise ValueError(f"rows must be {what}, got {' '.join(map(str, texts[:10]))}") from None
