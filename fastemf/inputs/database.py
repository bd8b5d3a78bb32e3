"""Connections to DuckDB, which reads tables in files and runs SQL."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastemf.inputs.columns import one_line

LONGEST = 300  # characters of a message of DuckDB, which may quote a whole field


def import_extra(name: str) -> Any:
    """Import a module of the extra ``table``, or raise an error that names the extra."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "tables need duckdb and pyarrow: pip install 'fastemf[table]'"
        ) from None


def connect(
    *, n_threads: int | None = None, memory_limit: str | None = None,
    temp_directory: str | None = None,
) -> Any:  # fmt: skip
    """Open a DuckDB connection that loads no extension by itself and opens no network connection.

    Its settings cannot be changed. The time zone is UTC, and names in a query never refer to
    Python variables.
    """
    duckdb, _ = import_extra("duckdb"), import_extra("pyarrow")
    given = {"threads": n_threads, "memory_limit": memory_limit, "temp_directory": temp_directory}
    settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "preserve_insertion_order": "true",
        **{name: str(value) for name, value in given.items() if value is not None},
    }
    connection = duckdb.connect(config=settings)
    for setting in ("enable_progress_bar = false", "TimeZone = 'UTC'", "lock_configuration = true"):
        connection.execute(f"SET {setting}")
    return connection


@contextmanager
def explained(name: str, expected: str, reason: Callable[[str], str] = str) -> Iterator[None]:
    """Turn errors of DuckDB into built-in ones that name the source.

    `reason` may improve the message of DuckDB.
    """
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.OutOfMemoryException, pa.ArrowMemoryError) as error:
        raise MemoryError(f"{name}: {one_line(str(error), LONGEST)}") from None
    except (duckdb.Error, pa.ArrowException, UnicodeDecodeError, OSError, RuntimeError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        text = re.split(r"\n\s*(?:Possible|LINE \d|Try setting|Please try)", str(error))[0]
        text = re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", text)
        text = one_line(reason(text), LONGEST)
        raise ValueError(f"{name}: expected {expected}: {text}") from None


def identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a string quoted for SQL."""
    return "'" + text.replace("'", "''") + "'"
