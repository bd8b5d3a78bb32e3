"""Locations of the users and services of WS-DREAM data set 1."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from fastemf.datasets.matrix_files import Found, find_matrices, read_npz
from fastemf.support.arrays import Array

USERS, SERVICES = "userlist.txt", "wslist.txt"
COLUMNS = {  # in the published files, and whether they hold numbers
    "country": ("[Country]", False),
    "as": ("[AS]", False),
    "provider": ("[Service Provider]", False),
    "latitude": ("[Latitude]", True),
    "longitude": ("[Longitude]", True),
}
MISSING = ("", "null", "n/a", "not found")


class Places(NamedTuple):
    """Side features of users and of services, by name, in the order of their numbers."""

    users: dict[str, Array]
    services: dict[str, Array]


def load_wsdream_places(path: str | os.PathLike[str]) -> Places:
    r"""Load where the users and services of WS-DREAM data set 1 are.

    Parameters
    ----------
    path
        A directory or zip archive with ``userlist.txt`` and ``wslist.txt`` as published (columns
        separated by tabs), or an ``.npz`` with arrays whose names begin with ``user_`` and
        ``service_``.

    Returns
    -------
    Places
        ``users`` and ``services``: dicts of arrays, for ``row_features`` and ``col_features`` of
        `fastemf.complete_quantiles`, such as ``"user_country"`` and ``"service_as"``.
        Missing texts are None, missing numbers NaN.

    Raises
    ------
    FileNotFoundError, ValueError
        If a file is missing or malformed; the message has its line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastemf.datasets import load_wsdream_places
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for kind, name in (("User", "userlist.txt"), ("Service", "wslist.txt")):
    ...     heads, line = [f"[{kind} ID]", "[Country]", "[AS]"], ["0", "Japan", "AS4713 NTT"]
    ...     _ = (folder / name).write_text("\n".join(map("\t".join, (heads, line))))
    >>> load_wsdream_places(folder).users["user_country"].tolist()
    ['Japan']
    """
    (found, *_) = find_matrices(path, (USERS, "wsdream1_side*.npz"))
    if found.is_npz:
        return _read_arrays(found)
    (services, *_) = find_matrices(path, (SERVICES,))
    return Places(_read_list(found, "user"), _read_list(services, "service"))


def _read_arrays(found: Found) -> Places:
    with found.open() as content, np.load(content, allow_pickle=False) as file:
        names = list(file.files)
    arrays = read_npz(found, tuple(names))
    users, services = (
        {name: _with_missing(arrays[name]) for name in names if name.startswith(kind)}
        for kind in ("user_", "service_")
    )
    for kind, group in (("user_", users), ("service_", services)):
        if not group or len({len(values) for values in group.values()}) > 1:
            raise ValueError(f"{found.name}: expected arrays {kind}* of one length")
    return Places(users, services)


def _read_list(found: Found, kind: str) -> dict[str, Array]:
    """Read a published list of users or services, whose first line names the columns."""
    with found.open() as file:
        lines = file.read().decode("latin-1").splitlines()
    heads = [head.strip() for head in lines[0].split("\t")] if lines else []
    at = {name: heads.index(head) for name, (head, _) in COLUMNS.items() if head in heads}
    if not at:
        raise ValueError(f"{found.name}: line 1: expected names of columns such as [Country]")
    rows: list[list[str]] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip("= \t"):
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < max(at.values()) + 1:
            raise ValueError(
                f"{found.name}: line {number}: expected {len(heads)} columns, got {len(cells)}"
            )
        if cells[0] != str(len(rows)):
            raise ValueError(
                f"{found.name}: line {number}: expected the number {len(rows)}, got {cells[0]!r}"
            )
        rows.append(cells)
    columns = {name: [row[place] for row in rows] for name, place in at.items()}
    return {
        f"{kind}_{name}": _as_numbers(texts)
        if COLUMNS[name][1]
        else _with_missing(np.array(texts, object))
        for name, texts in columns.items()
    }


def _as_numbers(texts: list[str]) -> Array:
    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return np.nan

    return np.array([number(text) for text in texts])


def _with_missing(values: Any) -> Array:
    """Return texts with None for missing ones; numbers as they are."""
    if values.dtype.kind == "f":
        return np.asarray(values)
    return np.array(
        [None if str(text).lower() in MISSING else str(text) for text in values.tolist()], object
    )
