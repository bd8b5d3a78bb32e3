"""Output of commands: checks before the work, tables by extension, CSV to a pipe, or JSON."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastemf.commands.input import is_same_file, list_inputs
from fastemf.support.terminal import escape_control, output_is_terminal, write_output


def check_out(args: argparse.Namespace, name: str = "out", *, replaces_model: bool = False) -> None:
    """Refuse, before any work, an output file that cannot be written or should not be.

    It must not exist without --force, nor be an input of the command in any case, apart from a
    model that is updated.
    """
    path, force, option = getattr(args, name), args.force, f"--{name}"
    if path is None:
        return
    for what, file in list_inputs(args) if os.path.exists(path) else ():
        if not (what == "model" and replaces_model) and is_same_file(path, file):
            raise ValueError(f"{option} {path} is an input of this command, which it would replace")
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


def check_out_table(args: argparse.Namespace, *, to_json: bool = False) -> None:
    """Check the output file of a table, whose extension is its format."""
    path = args.out
    if path is None or path == "-":
        return
    check_out(args)
    from fastemf.inputs.table_files import check_writable

    if not to_json:
        check_writable(path)
    elif not path.lower().endswith(".json"):
        raise ValueError(f"--out must end in .json with --json, got {path}")


def as_lines(facts: Iterable[tuple[str, str]]) -> str:
    """Return pairs of a name and a text as aligned lines, without control characters."""
    return "\n".join(f"{name:9} {escape_control(text)}" for name, text in facts)


def print_text(text: Any) -> None:
    """Print a text or a result, and a line end."""
    write_output(f"{text}\n")


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
    """Write a table given by columns, arrays of equal length, with numbers rounded to digits.

    Labels in files and pipes keep their control characters. On a terminal these are escaped.
    """
    if digits is not None:
        columns = {name: _rounded(values, digits) for name, values in columns.items()}
    if not to_json:
        from fastemf.inputs.table_files import write_table

        if out in (None, "-") and output_is_terminal():
            columns = _escape_texts(columns)
        write_table("-" if out is None else out, columns)
        return
    import pyarrow as pa

    table = pa.table(columns)
    for place, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):  # formatted as in CSV
            table = table.set_column(place, field.name, table.column(place).cast(pa.string()))
    text = "[" + ",\n ".join(map(as_json, table.to_pylist())) + "]\n"
    if out in (None, "-"):
        write_output(text)
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


def _escape_texts(columns: dict[str, Any]) -> dict[str, Any]:
    """Escape the control characters in the names and labels of a table."""
    import pyarrow as pa

    shown = {}
    for field, column in zip((table := pa.table(columns)).schema, table.columns, strict=True):
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            texts = column.to_pylist()
            column = pa.array([text if text is None else escape_control(text) for text in texts])
        shown[escape_control(field.name)] = column
    return shown


def _replace_nan(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: _replace_nan(fact) for name, fact in facts.items()}
    if isinstance(facts, (list, tuple)):
        return [_replace_nan(fact) for fact in facts]
    return None if isinstance(facts, float) and not math.isfinite(facts) else facts
