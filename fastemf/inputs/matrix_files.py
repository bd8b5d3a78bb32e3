"""Matrices in files of Matrix Market and SciPy.

NumPy reads the numbers of Matrix Market files: SciPy's reader does not check them, and a damaged
file may crash the process.
"""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import one_line

MATRICES = (".mtx", ".mtx.gz", ".npz")
LONGEST_LINE = 1 << 16  # of the header of a Matrix Market file, in bytes
LAYOUTS = ("coordinate", "array")
FIELDS = {"real": "f8", "double": "f8", "integer": "i8", "pattern": ""}
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
BANNER = (
    "its first line must be %%MatrixMarket matrix, coordinate or array, real, integer or pattern, "
    "general, symmetric or skew-symmetric"
)


def read_matrix(path: Path, extension: str) -> Any:
    """Read a sparse matrix, or a dense one in the array format of Matrix Market."""
    import scipy.sparse

    kind = "a sparse matrix of scipy" if extension == ".npz" else "a Matrix Market file"
    try:
        opened: Any = gzip.open if extension == ".mtx.gz" else open
        with opened(path, "rb") as file:
            return scipy.sparse.load_npz(file) if extension == ".npz" else _read_market(file)
    except Exception as error:  # scipy, zipfile or zlib may raise any error
        raise ValueError(f"{path}: expected {kind}: {one_line(str(error))}") from None


class _Header(NamedTuple):
    layout: str
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int  # lines of numbers


def _read_market(file: IO[bytes]) -> Any:
    import scipy.sparse

    header = _read_header(file)
    is_array = header.layout == "array"
    rows, cols, values = _read_entries(file, header)
    if header.symmetry != "general":  # the lower triangle is stored
        sign = -1 if header.symmetry == "skew-symmetric" else 1
        below = rows != cols
        rows, cols, values = (
            np.concatenate([rows, cols[below]]),
            np.concatenate([cols, rows[below]]),
            np.concatenate([values, sign * values[below]]),
        )
    if not is_array:
        return scipy.sparse.coo_array((values, (rows, cols)), shape=header.shape)
    dense = np.zeros(header.shape, values.dtype)
    dense[rows, cols] = values
    return dense


def _read_header(file: IO[bytes]) -> _Header:
    words = file.readline(LONGEST_LINE).decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError(BANNER)
    layout, field, symmetry = words[2:]
    known = layout in LAYOUTS and field in FIELDS and symmetry in SYMMETRIES
    if not known or (layout == "array" and field == "pattern"):
        raise ValueError(f"{BANNER}, got {words[2:]}")
    line = b"%"
    while line.startswith(b"%") or line.isspace():
        line = file.readline(LONGEST_LINE)
    sizes = line.split()
    if len(sizes) != (2 if layout == "array" else 3) or not all(map(bytes.isdigit, sizes)):
        raise ValueError(f"expected a line with its size, got {line[:60]!r}")
    m, n, *entries = map(int, sizes)
    if symmetry != "general" and m != n:
        raise ValueError(f"a {symmetry} matrix must be square, got {m} x {n}")
    if layout == "array":
        triangle = m * (m + (1 if symmetry == "symmetric" else -1)) // 2
        entries = [m * n if symmetry == "general" else triangle]
    return _Header(layout, field, symmetry, (m, n), entries[0])


def _read_entries(
    file: IO[bytes], header: _Header
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Read the rows, columns (from 0) and values of all stored entries."""
    kinds = [("row", "i8"), ("col", "i8")] if header.layout == "coordinate" else []
    kinds += [] if header.field == "pattern" else [("value", FIELDS[header.field])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no lines
        # Older versions of NumPy only warn that they cut 1.5 to 1.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            table = np.loadtxt(file, kinds, comments=None, ndmin=1)
        except (ValueError, DeprecationWarning) as error:
            names = ", ".join(name for name, _ in kinds)
            reason = str(error).partition(";")[0]  # what follows is about arguments of loadtxt
            raise ValueError(f"expected lines of {names} after the size: {reason}") from None
    if table.size != header.entries:
        raise ValueError(
            f"expected {header.entries} lines of numbers by its header, got {table.size}"
        )
    values = table["value"] if header.field != "pattern" else np.ones(table.size)
    if header.layout == "coordinate":
        return table["row"] - 1, table["col"] - 1, values
    if header.symmetry == "general":  # column by column
        cols, rows = np.divmod(np.arange(table.size), max(1, header.shape[0]))
    else:
        cols, rows = np.triu_indices(header.shape[0], header.symmetry == "skew-symmetric")
    return rows, cols, values
