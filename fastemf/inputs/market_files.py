"""Matrix Market files: checked line by line, then read by SciPy.

SciPy's reader does not check its input. It ignores extra numbers of a line, takes missing numbers
from the next line, and reads out of bounds after the last line, which may crash the process.
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

CHUNK = 1 << 22  # bytes checked at once
LONGEST_LINE = 1 << 16  # of the header, in bytes

BANNER = "%%MatrixMarket matrix, coordinate or array, real, integer or pattern, general, symmetric"
LAYOUTS = ("coordinate", "array")
SYMMETRIES = ("general", "symmetric", "skew-symmetric")

# Possessive quantifiers (a second +) do not backtrack, so the time is linear.
POSITION = rb"[0-9]++"
INTEGER = rb"-?+[0-9]++"
REAL = rb"-?+(?:(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][-+]?+[0-9]++)?+|(?i:nan|inf(?:inity)?+))"
VALUES = {"real": REAL, "double": REAL, "integer": INTEGER, "pattern": b""}
BLANK = re.compile(rb"\n[ \t\r]*+(?=\n)")  # after the end of the previous line


class _Header(NamedTuple):
    layout: str
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int  # lines of numbers

    @property
    def lines(self) -> re.Pattern[bytes]:
        """Pattern of any number of lines, including blank lines."""
        positions = [POSITION, POSITION] if self.layout == "coordinate" else []
        numbers = [part for part in (*positions, VALUES[self.field]) if part]
        line = rb"[ \t]++".join(numbers)
        return re.compile(rb"(?:[ \t\r]*+(?:" + line + rb"[ \t\r]*+)?+\n)*+")


def read_market(path: Path, *, is_packed: bool) -> Any:
    """Read a sparse matrix, or a dense one in the array format."""
    import scipy.io

    with _plain(path, is_packed=is_packed) as plain:
        with plain.open("rb") as file:
            header = _read_header(file)
            found = sum(_count_lines(text, header.lines) for text in _whole_lines(file))
        if found != header.entries:
            raise ValueError(
                f"expected {header.entries} lines of numbers by its header, got {found}"
            )
        return scipy.io.mmread(plain)


@contextmanager
def _plain(path: Path, *, is_packed: bool) -> Iterator[Path]:
    """Yield an uncompressed file with a UTF-8 name, as SciPy requires."""
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
    """Yield the rest of a file in chunks of whole lines."""
    left = b""
    for chunk in chain(iter(lambda: file.read(CHUNK), b""), [b"\n"]):
        whole, end, rest = chunk.rpartition(b"\n")
        if end:
            yield left + whole + end
            left = rest
        else:
            left += rest
        if len(left) > CHUNK:
            raise ValueError("expected lines of numbers, got a line without end")


def _count_lines(text: bytes, lines: re.Pattern[bytes]) -> int:
    """Count the lines that are not blank; raise an error for an invalid line."""
    found = lines.match(text)
    end = 0 if found is None else found.end()
    if end < len(text):
        raise ValueError(
            "expected lines of positions from 1 and the entry there (in an array, of entries), got "
            f"{text[end : end + 40].splitlines()[0]!r}"
        )
    return text.count(b"\n") - len(BLANK.findall(b"\n" + text))
