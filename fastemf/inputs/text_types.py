"""Types of columns from text files, which have none: numbers, booleans, dates, or strings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fastemf.inputs.columns import INTEGER, is_integer_text
from fastemf.inputs.tables import arrow

CODE = r"^[-+]?0[0-9]"  # codes such as 007 are not numbers
MISSING = ("", "NA")  # in a column that otherwise holds numbers, booleans or dates
MARK = {b"fastemf": b"text"}  # metadata of columns of stores


def types_of_text(column: Any) -> Any:
    """Return an Arrow column of strings as numbers, booleans or dates if all of its strings are.

    Dates are in ISO 8601 format, all with or all without a time zone.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from fastemf.inputs.text_types import types_of_text
    >>> types_of_text(pa.chunked_array([["1", None, "2.5"]])).to_pylist()
    [1.0, None, 2.5]
    """
    return _convert_distinct(column, _convert)


def integers_of_text(column: Any) -> Any:
    """Return an Arrow column of strings as integers if all are canonical, else unchanged."""
    if len(column) and not is_integer_text(str(column[0])):  # so that most are not encoded
        return column
    return _convert_distinct(column, _convert_integers)


def _convert_distinct(column: Any, convert: Callable[[Any], Any]) -> Any:
    encoded = column.dictionary_encode().unify_dictionaries()
    converted = convert(encoded.chunk(0).dictionary) if encoded.num_chunks else None
    if converted is None:
        return column
    return arrow().chunked_array([converted.take(chunk.indices) for chunk in encoded.chunks])


def _convert_integers(texts: Any) -> Any:
    import pyarrow.compute as pc

    if pc.all(pc.match_substring_regex(texts, INTEGER)).as_py():
        with suppress(arrow().ArrowInvalid):  # beyond 64 bits
            return texts.cast(arrow().int64())
    return None


def _convert(texts: Any) -> Any:
    """Return distinct strings as values of another type; None if they stay strings."""
    pa = arrow()
    import pyarrow.compute as pc

    is_missing = pc.is_in(texts, value_set=pa.array(MISSING, texts.type))
    texts = pc.if_else(is_missing, None, texts)
    kinds = [pa.bool_()]
    kinds += [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
    if not pc.any(pc.match_substring_regex(texts, CODE)).as_py():
        kinds.insert(0, pa.float64())
    for kind in kinds:
        with suppress(pa.ArrowInvalid):
            return texts.cast(kind)
    return None


def mark_text(batch: Any) -> Any:
    """Mark the columns of a record batch as text without types, for `types_of_marked`."""
    fields = [field.with_metadata(MARK) for field in batch.schema]
    return arrow().RecordBatch.from_arrays(batch.columns, schema=arrow().schema(fields))


def types_of_marked(table: Any) -> Any:
    """Apply `types_of_text` to the marked columns of an Arrow table."""
    for at, field in enumerate(table.schema):
        if MARK.items() <= (field.metadata or {}).items():
            table = table.set_column(at, field.name, types_of_text(table.column(at)))
    return table
