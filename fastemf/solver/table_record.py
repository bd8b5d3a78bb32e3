"""What a model file keeps of tables: a header field and arrays, checked when they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.tables import COL_LEVEL, ROW_LEVEL, STATISTICS, Table, Tables
from fastemf.support.array_file import require

__all__ = ["array_names", "check_numbers", "tables_from", "tables_named", "tables_to", "upgraded"]

MOST = 100  # tables, of a file that may be anything


def array_names(place: int) -> tuple[str, str, str]:
    """Return the names of a table's arrays: the knots of both its statistics, and its values."""
    return f"table_{place}_first", f"table_{place}_second", f"table_{place}"


def tables_to(tables: Tables) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header field and the arrays of tables."""
    arrays: dict[str, Any] = {}
    for place, table in enumerate(tables.each):
        arrays |= dict(zip(array_names(place), (*table.knots, table.values), strict=True))
    return {"ridge": tables.ridge, "over": [list(table.over) for table in tables.each]}, arrays


def upgraded(
    header: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Name the one table that version 3 had as later versions do."""
    if "table" not in header:
        return header, arrays
    names = dict(zip(("row_centres", "col_centres", "table"), array_names(0), strict=True))
    header, ridge = dict(header), header["table"]
    del header["table"]
    header["tables"] = None
    if ridge is not None:
        header["tables"] = {"ridge": ridge, "over": [[ROW_LEVEL, COL_LEVEL]]}
    return header, {names.get(name, name): array for name, array in arrays.items()}


def tables_named(field: Any) -> list[tuple[str, str]]:
    """Check the header field, and return what each table is over."""
    right = isinstance(field, dict) and set(field) == {"ridge", "over"}
    right = right and type(field["ridge"]) is float and 0 <= field["ridge"] < np.inf
    require(right, "tables must have a ridge, finite and not negative, and what they are over")
    over = field["over"]
    right = isinstance(over, list) and 0 < len(over) <= MOST
    right = right and all(
        isinstance(pair, list) and len(pair) == 2 and all(name in STATISTICS for name in pair)
        for pair in over
    )
    require(right, f"tables must be over pairs of {', '.join(STATISTICS)}")
    return [(first, second) for first, second in over]


def tables_from(field: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Tables:
    """Make tables of a header field that `tables_named` has seen, and of arrays."""
    found = []
    for place, over in enumerate(tables_named(field)):
        names = array_names(place)
        first, second, values = (arrays[name] for name in names)
        for name, knots in zip(names, (first, second), strict=False):
            check_numbers(name, knots, max(knots.size, 1))
            require(bool((knots[1:] > knots[:-1]).all()), f"{name} must rise")
        check_numbers(names[2], values, first.size, second.size)
        found.append(Table(over, (first, second), values))
    return Tables(tuple(found), field["ridge"])


def check_numbers(name: str, array: NDArray[Any], *shape: int) -> None:
    """Refuse an array of another type or shape, or with numbers that are not finite."""
    right = array.dtype == np.float64 and array.shape == shape
    require(right, f"{name} must be float64 of shape {shape}")
    # So that differences are finite too.
    right = bool((np.abs(array) < np.finfo(np.float64).max / 4).all())
    require(right, f"{name} must be finite, and not near the largest number there is")
