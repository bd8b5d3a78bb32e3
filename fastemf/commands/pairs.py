"""Pairs of a row and a column in a file, for the commands that are asked about pairs."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from fastemf.commands.arguments import is_text_file, refuse_header, rereadable
from fastemf.commands.label_text import from_text

__all__ = ["Pairs", "read_pairs"]


class Pairs(NamedTuple):
    """Two columns of a table, of one length."""

    names: tuple[str, str]
    rows: Any
    cols: Any


def read_pairs(path: str, args: argparse.Namespace, model: Any) -> Pairs | None:
    """Read the labels in a file as they are written there; None for one that holds a matrix."""
    from fastemf.inputs.table_files import column_names, read_file

    source = rereadable(path, args)
    present = column_names(source())
    if present is None:
        return None
    names = _pair_columns(path, present, args, model)
    sides = zip(names, model.axes, strict=True)
    texts = [name for name, axis in sides if axis.labels is not None and axis.labels.kind == "str"]
    table = read_file(source(), names, [], texts).content
    return Pairs(names, table.column(names[0]), table.column(names[1]))


def _pair_columns(
    path: str, present: list[str], args: argparse.Namespace, model: Any
) -> tuple[str, str]:
    """Return the names of the two label columns: as told, as in the fit, or the only two."""
    from fastemf.inputs.table_files import name_of

    given = (args.rows, args.cols)
    names = [told or axis.name for told, axis in zip(given, model.axes, strict=True)]
    if not all(name in present for name in names) and not any(given) and len(present) == 2:
        names = present
        if is_text_file(path) and all(map(_is_item, model.axes, names)):
            refuse_header(
                path, f"{names[0]!r} for the rows, which is one of them", "--rows and --cols"
            )
    for option, name in zip(("--rows", "--cols"), names, strict=True):
        if name not in present:
            what = f"there is no column {name!r}" if name else f"name a column with {option}"
            raise ValueError(f"{name_of(path)}: {what}; there are {', '.join(present)}")
    return names[0], names[1]


def _is_item(axis: Any, text: str) -> bool:
    """Tell whether a model has a row or a column of this name."""
    from fastemf.inputs.csv_files import is_integer_text

    if axis.labels is not None:
        return bool(axis.labels.positions(from_text(axis.labels, [text], "nan"))[0] >= 0)
    short = len(text) < 20  # as all positions are, and what Python makes integers of
    return short and is_integer_text(text) and axis.place(int(text)) is not None
