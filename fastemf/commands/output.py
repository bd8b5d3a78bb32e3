"""Where a command's answer goes: a file by its ending, CSV to a pipe, or JSON."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

__all__ = ["write_columns"]


def write_columns(columns: dict[str, Any], out: str | None, as_json: bool) -> None:
    """Write a table given by columns, arrays of one length."""
    if not as_json:
        from fastemf.table_files import write

        write("-" if out is None else out, columns)
        return
    lists = [_plain(column) for column in columns.values()]
    lines = (dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True))
    text = "[" + ",\n ".join(json.dumps(line) for line in lines) + "]\n"
    if out in (None, "-"):
        sys.stdout.write(text)
    else:
        from fastemf.whole_file import replacing

        with replacing(out) as file:
            file.write(text.encode())


def _plain(column: Any) -> list[Any]:
    """Python values: JSON knows no NaN, and no dates."""
    values = column.to_pylist() if hasattr(column, "to_pylist") else column.tolist()
    return [
        None if isinstance(value, float) and not math.isfinite(value)
        else value if isinstance(value, (int, float, str)) or value is None
        else str(value)
        for value in values
    ]  # fmt: skip
