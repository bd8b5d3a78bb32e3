"""`sql`: the result of an SQL query as a table."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """An SQL query and the DuckDB database it runs on; made by `fastemf.sql`."""

    text: str
    database: str | None = None

    def __str__(self) -> str:
        return "the SQL query"

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"query must be a string, got {type(self.text).__name__}")


def sql(query: str, database: str | os.PathLike[str] | None = None) -> Query:
    """Use the result of an SQL query as a table.

    DuckDB runs the query when the data are read. It must be one SELECT statement, which can read
    files by name. Without ORDER BY at its end, the result is sorted by row, column, value and
    weight, because SQL has no order of its own.

    Parameters
    ----------
    query
        The statement, in the dialect of DuckDB.
    database
        A DuckDB database file, opened read-only.

    Examples
    --------
    >>> import fastemf
    >>> numbers = "SELECT i % 3 AS client, i % 2 AS service, i + 1.5 AS ms FROM range(6) t(i)"
    >>> fit = fastemf.complete(
    ...     fastemf.sql(numbers), 0.5, 1, rows="client", cols="service", values="ms")
    >>> fit.shape
    (3, 2)
    """
    return Query(query, None if database is None else os.fspath(database))
