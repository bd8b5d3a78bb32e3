"""Dataclasses from plain values, as JSON has them."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fastemf.support.array_file import require

Record = TypeVar("Record")


def unpack_record(kind: type[Record], plain: Any, name: str) -> Record:
    """Make a dataclass from a dict, or raise `DamagedFileError` that `name` must be one.

    Values must have the types of the fields: numbers, which may be NaN or infinite, strings,
    booleans, dataclasses, tuples (from lists) and dicts of these.
    """
    hints = get_type_hints(kind)
    right = isinstance(plain, dict) and plain.keys() == hints.keys()
    require(right, f"{name} must have the fields of {kind.__name__}")
    return kind(**{field: _unpack(hints[field], plain[field], name) for field in hints})


def _unpack(hint: Any, value: Any, name: str) -> Any:
    parts = get_args(hint)
    if get_origin(hint) is tuple:
        right = isinstance(value, list) and (... in parts or len(value) == len(parts))
        require(right, f"{name} must have lists of the right length")
        return tuple(_unpack(parts[0], one, name) for one in value)
    if get_origin(hint) is dict:
        require(isinstance(value, dict), f"{name} must have dicts where its fields are")
        return {key: _unpack(parts[1], one, name) for key, one in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return unpack_record(hint, value, name)
    require(type(value) is hint, f"{name} must have fields of the right types, got {value!r:.80}")
    return value
