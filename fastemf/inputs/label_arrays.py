"""Conversion of labels to plain arrays and back, for files without pickle.

Integers are unchanged, dates become int64, and strings become one array of UTF-8 bytes with
offsets. Arrays that are read back are checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import Labels

DATES = tuple(f"datetime64[{unit}]" for unit in ("D", "s", "ms", "us", "ns"))
DATES += tuple(date.replace("]", ", UTC]") for date in DATES[1:])
KINDS = ("int64", "uint64", "str", *DATES)


def to_arrays(labels: Labels) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Return the kind and name of labels for a header, and arrays of content and offsets."""
    about = {"kind": labels.kind, "name": labels.name}
    if labels.kind == "str":
        return about, encode_strings(labels.values)
    dated = labels.kind in DATES
    content = labels.values.view(np.int64) if dated else labels.values
    return about, [content, np.empty(0, np.int64)]


def from_arrays(about: Any, content: NDArray[Any], offsets: NDArray[Any], size: int) -> Labels:
    """Rebuild `size` labels from the result of `to_arrays`; raise ValueError for invalid arrays."""
    if not isinstance(about, dict) or set(about) != {"kind", "name"}:
        raise ValueError("labels must have a kind and a name")
    kind, name = about["kind"], about["name"]
    if kind not in KINDS:
        raise ValueError(f"the kind of labels must be one of {', '.join(KINDS)}")
    if not (name is None or isinstance(name, str)):
        raise ValueError("the name of labels must be a string")
    if offsets.dtype != np.int64 or offsets.ndim != 1:
        raise ValueError("offsets of labels must be int64")
    if kind == "str":
        values: Any = decode_strings(content, offsets)
    else:
        wanted = np.uint64 if kind == "uint64" else np.int64
        if content.dtype != wanted or content.ndim != 1 or offsets.size:
            raise ValueError(f"{kind} labels must be one array of {np.dtype(wanted)}")
        values = content.view(kind.replace(", UTC", ""))
    if len(values) != size:
        raise ValueError(f"labels must be {size}, got {len(values)}")
    labels = Labels.of_distinct(values, name, kind.endswith(", UTC]"))
    if labels.kind != kind:
        raise ValueError(f"labels must be of kind {kind}, got {labels.kind}")
    return labels


def encode_strings(strings: Iterable[str]) -> list[NDArray[Any]]:
    """Return the bytes of all strings, and offsets."""
    encoded = [one.encode() for one in strings]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(one) for one in encoded], out=offsets[1:])
    return [np.frombuffer(b"".join(encoded), np.uint8), offsets]


def decode_strings(content: NDArray[Any], offsets: NDArray[np.int64]) -> list[str]:
    """Return the strings of `encode_strings`; offsets are int64, other content is checked."""
    if content.dtype != np.uint8 or content.ndim != 1:
        raise ValueError("labels of kind str must be bytes")
    rises = offsets.size > 0 and offsets[0] == 0 and bool((np.diff(offsets) >= 0).all())
    if not rises or offsets[-1] != content.size:
        raise ValueError("offsets of labels must increase from 0 to the number of bytes")
    joined, ends = content.tobytes(), offsets.tolist()
    try:
        return [joined[a:b].decode() for a, b in pairwise(ends)]
    except UnicodeDecodeError as error:
        raise ValueError(f"labels must be UTF-8 ({error})") from None
