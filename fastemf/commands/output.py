"""Output of a command: a file by its ending, CSV to a pipe, or JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from typing import Any

__all__ = ["as_json", "unused", "write_columns"]


def unused(name: str, taken: Iterable[str]) -> str:
    """Return a name for a column that none of the user's columns has."""
    while name in taken:
        name += "_"
    return name


def as_json(facts: Any) -> str:
    """Return the facts on one line, with null for NaN, which JSON does not have."""
    return json.dumps(_plain(facts))


def write_columns(columns: dict[str, Any], out: str | None, to_json: bool) -> None:
    """Write a table given by columns, arrays of one length."""
    if not to_json:
        from fastemf.inputs.table_files import write_table

        write_table("-" if out is None else out, columns)
        return
    import pyarrow as pa

    table = pa.table(columns)
    for place, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):  # as CSV has it
            table = table.set_column(place, field.name, table.column(place).cast(pa.string()))
    text = "[" + ",\n ".join(map(as_json, table.to_pylist())) + "]\n"
    if out in (None, "-"):
        sys.stdout.write(text)
    else:
        from fastemf.support.whole_file import replacing

        with replacing(out) as file:
            file.write(text.encode())


def _plain(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: _plain(fact) for name, fact in facts.items()}
    if isinstance(facts, list):
        return [_plain(fact) for fact in facts]
    return None if isinstance(facts, float) and not math.isfinite(facts) else facts
