"""Matrix Market files: looked through line by line, then read by scipy.

scipy's reader trusts what it reads. It ignores numbers that a line should not have, takes those
of the next line where one has too few, and after the last line reads foreign memory, which may end
the process.
"""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

__all__ = ["read_market"]

CHUNK = 1 << 22  # bytes looked through at once
LONGEST_LINE = 1 << 16  # of the header, in bytes

BANNER = "%%MatrixMarket matrix, coordinate or array, real, integer or pattern, general, symmetric"
LAYOUTS = ("coordinate", "array")
SYMMETRIES = ("general", "symmetric", "skew-symmetric")

# Quantifiers with a second + never give back what they took: time is linear in the text.
POSITION = rb"[0-9]++"
INTEGER = rb"-?+[0-9]++"
REAL = rb"-?+(?:(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][-+]?+[0-9]++)?+|(?i:nan|inf(?:inity)?+))"
VALUES = {"real": REAL, "double": REAL, "integer": INTEGER, "pattern": b""}
BLANK = re.compile(rb"\n[ \t\r]*+(?=\n)")  # after the end of the line before


class _Header(NamedTuple):
    layout: str
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int  # lines of numbers

    @property
    def lines(self) -> re.Pattern[bytes]:
        """Any number of lines, blank ones too."""
        positions = [POSITION, POSITION] if self.layout == "coordinate" else []
        numbers = [part for part in (*positions, VALUES[self.field]) if part]
        line = rb"[ \t]++".join(numbers)
        return re.compile(rb"(?:[ \t\r]*+(?:" + line + rb"[ \t\r]*+)?+\n)*+")


def read_market(path: Path, *, is_packed: bool) -> Any:
    """Read a sparse matrix, or a dense one from a file in the array format."""
    import scipy.io

    with _plain(path, is_packed=is_packed) as plain:
        with plain.open("rb") as file:
            header = _read_header(file)
            found = sum(_count_lines(text, header.lines) for text in _whole_lines(file))
        if found != header.entries:
            raise ValueError(f"its header says {header.entries} lines of numbers, got {found}")
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


def _read_header(file: IO[bytes]) -> _Header:
    words = file.readline(LONGEST_LINE).decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError(f"its first line must be {BANNER} or skew-symmetric")
    layout, field, symmetry = words[2:]
    known = layout in LAYOUTS and field in VALUES and symmetry in SYMMETRIES
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


def _whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the rest of a file, a chunk at a time, each of them whole lines."""
    left = b""
    for chunk in chain(iter(lambda: file.read(CHUNK), b""), [b"\n"]):
        whole, end, rest = chunk.rpartition(b"\n")
        if end:
            yield left + whole + end
            left = rest
        else:
            left += rest
        if len(left) > CHUNK:
            raise ValueError("expected lines of numbers, got one that does not end")


def _count_lines(text: bytes, lines: re.Pattern[bytes]) -> int:
    """Count the lines that are not blank, all of which must be as they should."""
    found = lines.match(text)
    end = 0 if found is None else found.end()
    if end < len(text):
        raise ValueError(
            "expected lines of positions from 1 and the entry there (in an array, of entries), got "
            f"{text[end : end + 40].splitlines()[0]!r}"
        )
    return text.count(b"\n") - len(BLANK.findall(b"\n" + text))
