"""Matrices in files of Matrix Market and SciPy.

NumPy reads the numbers of Matrix Market files: SciPy's reader does not check them, and a damaged
file may crash the process.
"""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import IO, Any

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


def read_matrix(path: Path) -> Any:
    """Read a sparse matrix, or a dense one in the array format of Matrix Market."""
    import scipy.sparse

    is_npz = path.name.lower().endswith(".npz")
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            return scipy.sparse.load_npz(file) if is_npz else _read_market(file)
    except Exception as error:  # scipy, zipfile or zlib may raise any error
        kind = "a sparse matrix of scipy" if is_npz else "a Matrix Market file"
        raise ValueError(f"{path}: expected {kind}: {one_line(str(error))}") from None


def _read_market(file: IO[bytes]) -> Any:
    import scipy.sparse

    layout, field, symmetry, m, n, size = _read_header(file)
    is_array = layout == "array"
    table = _read_lines(file, is_array, field)
    if table.size != size:
        raise ValueError(f"expected {size} lines of numbers by its header, got {table.size}")
    values = table["value"] if field != "pattern" else np.ones(size)
    if not is_array:
        rows, cols = table["row"] - 1, table["col"] - 1
    elif symmetry == "general":  # column by column
        cols, rows = np.divmod(np.arange(size), max(1, m))
    else:
        cols, rows = np.triu_indices(m, symmetry == "skew-symmetric")
    if symmetry != "general":  # the lower triangle is stored
        sign = -1 if symmetry == "skew-symmetric" else 1
        below = rows != cols
        rows, cols = np.append(rows, cols[below]), np.append(cols, rows[below])
        values = np.append(values, sign * values[below])
    if not is_array:
        return scipy.sparse.coo_array((values, (rows, cols)), shape=(m, n))
    dense = np.zeros((m, n), values.dtype)
    dense[rows, cols] = values
    return dense


def _read_header(file: IO[bytes]) -> tuple[str, str, str, int, int, int]:
    """Return layout, field, symmetry, rows, columns, and the number of lines that follow."""
    words = file.readline(LONGEST_LINE).decode("ascii", "replace").lower().split()
    layout, field, symmetry = words[2:] if len(words) == 5 else ("", "", "")
    known = layout in LAYOUTS and field in FIELDS and symmetry in SYMMETRIES
    is_banner = words[:2] == ["%%matrixmarket", "matrix"]
    if not (is_banner and known) or (layout == "array" and field == "pattern"):
        raise ValueError(f"{BANNER}, got {words[2:5]}")
    line = b"%"
    while line.startswith(b"%") or line.isspace():
        line = file.readline(LONGEST_LINE)
    sizes = line.split()
    if len(sizes) != (2 if layout == "array" else 3) or not all(map(bytes.isdigit, sizes)):
        raise ValueError(f"expected a line with its size, got {line[:60]!r}")
    m, n, *lines = map(int, sizes)
    if symmetry != "general" and m != n:
        raise ValueError(f"a {symmetry} matrix must be square, got {m} x {n}")
    triangle = m * (m + (1 if symmetry == "symmetric" else -1)) // 2
    size = lines[0] if lines else m * n if symmetry == "general" else triangle
    return layout, field, symmetry, m, n, size


def _read_lines(file: IO[bytes], is_array: bool, field: str) -> NDArray[Any]:
    """Read the lines after the size, as records."""
    kinds = [] if is_array else [("row", "i8"), ("col", "i8")]
    kinds += [] if field == "pattern" else [("value", FIELDS[field])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no lines
        # Older versions of NumPy only warn that they cut 1.5 to 1.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.loadtxt(file, kinds, comments=None, ndmin=1)
        except (ValueError, DeprecationWarning) as error:
            names = ", ".join(name for name, _ in kinds)
            reason = str(error).partition(";")[0]  # what follows is about arguments of loadtxt
            raise ValueError(f"expected lines of {names} after the size: {reason}") from None
