"""`Tabular`, the base of results that are tables: data frames, HTML for notebooks, and text."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np

from fastemf.inputs.columns import LONGEST, one_line, read_column
from fastemf.inputs.tables import arrow, as_read, is_frame, is_lazy
from fastemf.support.terminal import escape_control

Columns = dict[str, Any]  # arrays or lists of equal length, by name

LINES_SHOWN = 20


class Tabular(ABC):
    """A result that is a table: of text, of HTML in notebooks, and as a data frame."""

    library = "pandas"  # of the data frames that the call was given

    @abstractmethod
    def columns(self) -> Columns:
        """Return the columns of the table, as arrays or lists by name."""

    def to_frame(self) -> Any:
        """Return the table as a data frame.

        It is a polars data frame if the data passed to the method were polars, and a pandas data
        frame otherwise. Other libraries take the result of ``columns()``.

        Examples
        --------
        >>> import numpy as np, fastemf
        >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
        >>> fit.rank(1, 2, order="largest").to_frame().round(6)
           row  place  col  prediction
        0    1      1    1         8.0
        1    1      2    0         6.0
        """
        return make_frame(self.columns(), self.library)

    @property
    @abstractmethod
    def _title(self) -> str:
        """What the table is about, in one line."""

    @property
    def _notes(self) -> Iterable[str]:
        """Lines below the table."""
        return ()

    def _shown(self) -> Columns:
        """Return the columns that are printed."""
        return {name: values[:LINES_SHOWN] for name, values in self.columns().items()}

    def __str__(self) -> str:
        lines = [f"{self._title}:", *format_lines(self._shown()), *self._notes]
        return "\n".join(map(escape_control, lines))

    def _repr_html_(self) -> str:
        return render_html(self._title, self._shown(), self._notes)


def format_lines(columns: Columns) -> list[str]:
    r"""Format columns as aligned lines, with numbers on the right and text on the left.

    Examples
    --------
    >>> from fastemf.models.tabular import format_lines
    >>> print("\n".join(format_lines({"client": ["eu-7", "us"], "ms": [2 / 3, 120.0]})))
    client      ms
    eu-7    0.6667
    us         120
    """
    aligned = []
    for name, values in columns.items():
        items = _as_list(values)
        cells = [_text(name), *map(_text, items)]
        width = max(map(len, cells))
        is_text = any(isinstance(item, str) for item in items)
        aligned.append([cell.ljust(width) if is_text else cell.rjust(width) for cell in cells])
    return ["  ".join(line).rstrip() for line in zip(*aligned, strict=True)]


def render_html(title: str, columns: Columns, notes: Iterable[str] = ()) -> str:
    """Return a table as HTML without styles of its own, so that it suits light and dark pages."""
    from fastemf.reporting import markup

    parts = [f"<p>{markup.escape(title)}</p>"]
    if columns:
        lists = [_as_list(values) for values in columns.values()]
        parts.append(markup.table(list(columns), list(zip(*lists, strict=True))))
    parts += [f"<p>{markup.escape(note)}</p>" for note in notes]
    return f"<div>{''.join(parts)}</div>"


def _as_list(values: Any) -> list[Any]:
    """Return the items of a column as Python objects; dates as text."""
    if isinstance(values, np.ndarray):
        return list(map(str, values)) if values.dtype.kind == "M" else list(values.tolist())
    return list(values)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return "" if value is None else one_line(str(value), LONGEST)


# --- data frames --------------------------------------------------------------------------------


def library_of(*given: Any) -> str:
    """Return the library of data frames to answer with: polars if any of the data are."""
    names = (type(one).__module__.partition(".")[0] for one in given)
    return "polars" if "polars" in names else "pandas"


def make_frame(columns: Columns, library: str) -> Any:
    """Make a data frame of pandas or polars."""
    try:
        frames = import_module(library)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"to_frame needs {library}: pip install {library}; columns() does not"
        ) from None
    lists = {  # arrays of objects would become columns of objects
        name: values.tolist() if getattr(values, "dtype", np.dtype(float)).kind == "O" else values
        for name, values in columns.items()
    }
    return frames.DataFrame(lists)


def hold_table(table: Any) -> Any:
    """Return a table that can be read repeatedly: a data frame, or an Arrow table."""
    if is_lazy(table):
        return table.collect()
    return table if is_frame(table) or library_of(table) == "polars" else as_read(table)


def add_columns(table: Any, columns: Columns) -> Any:
    """Return a table of `hold_table` with further columns; names that it has get an underscore."""
    present = list(table.columns if not hasattr(table, "column_names") else table.column_names)
    named = {unused_name(name, present): values for name, values in columns.items()}
    if is_frame(table):
        return table.assign(**named)
    if library_of(table) == "polars":
        return table.hstack(make_frame(named, "polars"))
    for name, values in named.items():
        table = table.append_column(name, arrow().array(values))
    return table


def typed(labels: Any) -> Any:
    """Return labels, none of which is missing, as an array of integers if they are integers."""
    is_integer = labels.dtype.kind == "O" and labels.size and isinstance(labels[0], int)
    return read_column(labels, "labels").values if is_integer else labels


def unused_name(name: str, taken: Iterable[str]) -> str:
    """Return a column name that differs from the names taken.

    Examples
    --------
    >>> from fastemf.models.tabular import unused_name
    >>> unused_name("prediction", ["client", "prediction"])
    'prediction_'
    """
    while name in taken:
        name += "_"
    return name
