"""Matrix Market files, read line by line as the format has them.

scipy's reader is not used, because it trusts what it reads: it ignores numbers that a line should
not have, takes those of the next line where one has too few, and after the last line reads
foreign memory, which may end the process.
"""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_market"]

CHUNK = 1 << 22  # bytes parsed at once
LONGEST_LINE = 1 << 16

# What a byte is in the lines of numbers: part of one (of nan and infinity too), between two, the
# end of a line, or foreign.
PART, BLANK, END, FOREIGN = b"x \n!"
CLASSES = bytearray([FOREIGN] * 256)
for letters, kind in ((b"0123456789+-.eEnNaAiIfFtTyY", PART), (b" \t\r", BLANK), (b"\n", END)):
    for letter in letters:
        CLASSES[letter] = kind

BANNER = "%%MatrixMarket matrix, coordinate or array, real, integer or pattern, general, symmetric"
LAYOUTS = ("coordinate", "array")
FIELDS = ("real", "double", "integer", "pattern")
SYMMETRIES = ("general", "symmetric", "skew-symmetric")


class _Header(NamedTuple):
    layout: str
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int  # lines of numbers

    @property
    def width(self) -> int:
        """Numbers in each line."""
        if self.layout == "array":
            return 1
        return 2 if self.field == "pattern" else 3


def read_market(path: Path, *, is_packed: bool) -> Any:
    """Read a sparse matrix, or a dense one from a file in the array format."""
    opened: Any = gzip.open if is_packed else open
    with opened(path, "rb") as file:
        header = _read_header(file)
        parts = list(_read_numbers(file, header.width))
    lines = np.concatenate([np.empty((0, header.width)), *parts])
    if len(lines) != header.entries:
        raise ValueError(f"its header says {header.entries} lines of numbers, got {len(lines)}")
    return _dense(header, lines[:, 0]) if header.layout == "array" else _sparse(header, lines)


# --- lines ---------------------------------------------------------------------------------


def _read_header(file: IO[bytes]) -> _Header:
    words = file.readline(LONGEST_LINE).decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError(f"its first line must be {BANNER} or skew-symmetric")
    layout, field, symmetry = words[2:]
    known = layout in LAYOUTS and field in FIELDS and symmetry in SYMMETRIES
    if not known or (layout == "array" and field == "pattern"):
        raise ValueError(f"its first line must be {BANNER} or skew-symmetric, got {words[2:]}")
    line = b"%"
    while line.startswith(b"%") or line.isspace():
        line = file.readline(LONGEST_LINE)
    sizes = line.split()
    if len(sizes) != (2 if layout == "array" else 3) or not all(map(bytes.isdigit, sizes)):
        raise ValueError(f"expected a line with its size, got {line[:60]!r}")
    rows, cols, *entries = (int(size) for size in sizes)
    if symmetry != "general" and rows != cols:
        raise ValueError(f"a {symmetry} matrix must be square, got {rows} x {cols}")
    if layout == "array":
        triangle = rows * (rows + (1 if symmetry == "symmetric" else -1)) // 2
        entries = [rows * cols if symmetry == "general" else triangle]
    return _Header(layout, field, symmetry, (rows, cols), entries[0])


def _read_numbers(file: IO[bytes], width: int) -> Iterator[NDArray[np.float64]]:
    """Yield lines of numbers as the rows of arrays."""
    left = b""
    for chunk in chain(iter(lambda: file.read(CHUNK), b""), [b"\n"]):
        whole, end, rest = chunk.rpartition(b"\n")
        if end:
            yield _parsed(left + whole + end, width)
            left = rest
        else:
            left += rest
        if len(left) > CHUNK:
            raise ValueError("expected lines of numbers, got one that does not end")


def _parsed(text: bytes, width: int) -> NDArray[np.float64]:
    """Parse whole lines, each of which must have `width` numbers, or none at all."""
    kinds = text.translate(CLASSES)
    if FOREIGN in kinds:
        at = kinds.index(FOREIGN)
        raise ValueError(f"expected numbers, got {text[at : at + 20]!r}")
    classes = np.frombuffer(b" " + kinds, np.uint8)
    is_part = classes == PART
    begins = np.flatnonzero(is_part[1:] & ~is_part[:-1])
    counts = np.diff(np.searchsorted(begins, np.flatnonzero(classes[1:] == END)), prepend=0)
    counts = counts[counts > 0]
    if (counts != width).any():
        wrong = int(counts[np.argmax(counts != width)])
        raise ValueError(f"expected {width} numbers in every line, got one with {wrong}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # what older NumPy gives instead
            numbers = np.fromstring(text, np.float64, sep=" ") if counts.size else np.empty(0)
        return numbers.reshape(counts.size, width)
    except (DeprecationWarning, ValueError):
        raise ValueError("expected numbers, got words or signs that are none") from None


# --- matrices ------------------------------------------------------------------------------


def _sparse(header: _Header, lines: NDArray[np.float64]) -> Any:
    import scipy.sparse

    places = []
    for axis, size in enumerate(header.shape):
        given = lines[:, axis]
        right = (given >= 1) & (given <= size) & (given == np.floor(given))
        if not right.all():
            entry = int(np.argmin(right))
            raise ValueError(
                f"{('rows', 'columns')[axis]} must be whole numbers from 1 to {size}, got "
                f"{given[entry]:g} in entry {entry + 1}"
            )
        places.append(given.astype(np.int64) - 1)
    values = lines[:, 2] if header.width == 3 else np.ones(len(lines))
    if header.symmetry != "general":
        mirrored = np.flatnonzero(places[0] != places[1])
        sign = -1.0 if header.symmetry == "skew-symmetric" else 1.0
        values = np.concatenate([values, sign * values[mirrored]])
        places = [np.concatenate([places[side], places[1 - side][mirrored]]) for side in (0, 1)]
    return scipy.sparse.coo_array((values, tuple(places)), shape=header.shape)


def _dense(header: _Header, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Place numbers that are given column by column, of a symmetric matrix from the diagonal."""
    if header.symmetry == "general":
        return numbers.reshape(header.shape[::-1]).T
    matrix = np.zeros(header.shape)
    is_skew = header.symmetry == "skew-symmetric"
    upper = np.triu_indices(header.shape[0], int(is_skew))  # row by row
    matrix.T[upper] = numbers
    matrix[upper] = -numbers if is_skew else numbers
    return matrix
