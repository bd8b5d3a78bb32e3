"""Output of commands: checks before the work, tables by extension, CSV to a pipe, or JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def check_out(path: str | None, force: bool, option: str = "--out") -> None:
    """Refuse, before any work, an output file that cannot be written or already exists."""
    if path is None:
        return
    if path == "-":
        raise ValueError(f"{option} must be a file, got - for standard output")
    folder = Path(path).absolute().parent
    if Path(path).is_dir():
        raise IsADirectoryError(f"{option} {path} is a directory")
    if Path(path).exists() and not Path(path).is_file():
        raise OSError(f"{option} {path} is not a regular file")
    if Path(path).exists() and not force:
        raise FileExistsError(f"{option} {path} exists; --force replaces it")
    if not folder.is_dir():
        raise FileNotFoundError(f"{option} {path}: the directory does not exist")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{option} {path}: the directory is not writable")


def check_out_table(path: str | None, force: bool, *, to_json: bool = False) -> None:
    """Check the output file of a table, whose extension is its format."""
    if path is None or path == "-":
        return
    check_out(path, force)
    from fastemf.inputs.table_files import check_writable

    if not to_json:
        check_writable(path)
    elif not path.lower().endswith(".json"):
        raise ValueError(f"--out must end in .json with --json, got {path}")


def as_lines(facts: Iterable[tuple[str, str]]) -> str:
    """Return pairs of a name and a text as aligned lines."""
    return "\n".join(f"{name:9} {text}" for name, text in facts)


def as_json(facts: Any) -> str:
    """Return facts as one line of JSON, with null in place of NaN."""
    return json.dumps(_replace_nan(facts))


def check_digits(digits: int | None) -> None:
    """Refuse numbers of digits below 1."""
    if digits is not None and digits < 1:
        raise ValueError(f"--digits must be at least 1, got {digits}")


def write_columns(
    columns: dict[str, Any], out: str | None, to_json: bool, digits: int | None = None
) -> None:
    """Write a table given by columns, arrays of equal length, with numbers rounded to digits."""
    if digits is not None:
        columns = {name: _rounded(values, digits) for name, values in columns.items()}
    if not to_json:
        from fastemf.inputs.table_files import write_table

        write_table("-" if out is None else out, columns)
        return
    import pyarrow as pa

    table = pa.table(columns)
    for place, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):  # formatted as in CSV
            table = table.set_column(place, field.name, table.column(place).cast(pa.string()))
    text = "[" + ",\n ".join(map(as_json, table.to_pylist())) + "]\n"
    if out in (None, "-"):
        sys.stdout.write(text)
    else:
        from fastemf.support.atomic_file import replace_file

        with replace_file(out) as file:
            file.write(text.encode())


def _rounded(values: Any, digits: int) -> Any:
    """Round numbers to significant digits; return other columns as they are."""
    if getattr(getattr(values, "dtype", None), "kind", "") != "f":
        return values
    import numpy as np

    return np.array([float(f"{x:.{digits}g}") for x in values.tolist()], np.float64)


def _replace_nan(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: _replace_nan(fact) for name, fact in facts.items()}
    if isinstance(facts, (list, tuple)):
        return [_replace_nan(fact) for fact in facts]
    return None if isinstance(facts, float) and not math.isfinite(facts) else facts
