"""Matrix Market files: looked through first, then read by scipy.

scipy's reader trusts what it reads. Numbers beyond those that a line should have are ignored, and
where a line has fewer the next one's are taken; after the last line that is foreign memory, and
the process may end.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_market"]

CHUNK = 1 << 22  # bytes looked through at once
LONGEST_LINE = 1 << 16  # of the header, in bytes

# What a byte may be in the lines of numbers.
FOREIGN, BLANK, END, PART = range(4)
CLASSES = np.full(256, FOREIGN, np.uint8)
CLASSES[list(b" \t\r")] = BLANK
CLASSES[list(b"\n")] = END
CLASSES[list(b"0123456789+-.eEnNaAiIfFtTyY")] = PART


class _Header(NamedTuple):
    body: int  # where the lines of numbers begin, in bytes
    lines: int  # how many there are
    width: int  # numbers in each


def read_market(path: Path, *, is_packed: bool) -> Any:
    """Read a matrix: a sparse one, or a dense one from a file in the array format."""
    import scipy.io

    with _plain(path, is_packed=is_packed) as plain:
        header = _header(plain, scipy.io.mminfo(plain))
        _check_lines(plain, header)
        return scipy.io.mmread(plain)


@contextmanager
def _plain(path: Path, *, is_packed: bool) -> Iterator[Path]:
    """Give a file that is not packed, and whose name is UTF-8, which scipy insists on."""
    if not is_packed and not any("\udc80" <= letter <= "\udcff" for letter in str(path)):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fastemf-") as folder:
        copy = Path(folder) / "matrix.mtx"
        opened: Any = gzip.open if is_packed else open
        with opened(path, "rb") as file, copy.open("wb") as plain:
            shutil.copyfileobj(file, plain, 1 << 20)
        yield copy


def _header(path: Path, info: tuple[Any, ...]) -> _Header:
    rows, _, entries, layout, field, symmetry = info
    if layout == "array":
        if symmetry != "general":  # one triangle, without the diagonal where that is zero
            entries = rows * (rows - 1 if symmetry == "skew-symmetric" else rows + 1) // 2
        width = 1
    else:
        width = 2 if field == "pattern" else 3
    if field == "complex":
        width += 1
    with path.open("rb") as file:
        file.readline(LONGEST_LINE)  # the banner
        while (line := file.readline(LONGEST_LINE)).startswith(b"%") or line.isspace():
            pass
        return _Header(file.tell(), int(entries), width)


def _check_lines(path: Path, header: _Header) -> None:
    """Check that there are as many lines as the header says, each with its numbers."""
    found = 0
    left = b""
    with path.open("rb") as file:
        file.seek(header.body)
        while chunk := file.read(CHUNK):
            whole, end, rest = (left + chunk).rpartition(b"\n")
            left = rest
            if end:
                found += _count_lines(whole + end, header.width)
            elif len(left) > LONGEST_LINE:
                raise ValueError(f"a line of numbers has more than {LONGEST_LINE} bytes")
    found += _count_lines(left + b"\n", header.width)
    if found != header.lines:
        raise ValueError(f"its header says {header.lines} lines of numbers, got {found}")


def _count_lines(text: bytes, width: int) -> int:
    """Count the lines that are not blank; each must have `width` numbers."""
    classes: NDArray[np.uint8] = CLASSES[np.frombuffer(text, np.uint8)]
    if (classes == FOREIGN).any():
        at = int(np.argmax(classes == FOREIGN))
        raise ValueError(f"expected numbers, got {text[at : at + 20]!r}")
    is_part = classes == PART
    begins = is_part.copy()
    begins[1:] &= ~is_part[:-1]
    ends = np.flatnonzero(classes == END)
    counts = np.diff(np.cumsum(begins)[ends], prepend=0)
    counts = counts[counts > 0]
    if (counts != width).any():
        wrong = int(counts[np.argmax(counts != width)])
        raise ValueError(f"expected {width} numbers in every line, got one with {wrong}")
    return int(counts.size)
