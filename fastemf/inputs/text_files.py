"""Text files of tables (CSV and JSON lines) as Python reads them: headers, lines and errors.

DuckDB reads the content. Python reads the header, checks that compressed files are complete, and
finds the line of a row, or of an error, for messages.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from fastemf.inputs.columns import shortened
from fastemf.inputs.tables import arrow

PACKED = {".gz": "gzip", ".zst": "zstd"}  # suffixes of compressed text

# First bytes of files that are often mistaken for CSV. No UTF-8 text begins with these,
FOREIGN = {
    b"\x1f\x8b": "is compressed by gzip: add .gz to its name",
    b"BZh9": "is compressed by bzip2: unpack it",
    b"\xfd7zXZ": "is compressed by xz: unpack it",
    b"(\xb5/\xfd": "is compressed by zstd: add .zst to its name",
    b"PK\x03\x04": "is a zip archive or an Excel workbook: unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook: save the sheet as CSV",
    b"\xff\xfe": "is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "is UTF-16 text: save it as UTF-8",
    b"ARROW1\0\0": "is a Feather file: save it as Parquet",
}
# and a table rarely begins with these.
SUSPECT = {
    b"PAR1": "it looks like Parquet: rename it to .parquet",
    b"%%MatrixMarket": "it looks like a Matrix Market file: rename it to .mtx",
    b"SQLite format 3": "it looks like an SQLite database",
    b"{": "it looks like JSON: rename it to .jsonl",
    b"[": "it looks like JSON",
    b"<": "it looks like HTML or XML",
}
HEAD = 1 << 12  # bytes inspected to guess the kind of a file
BLOCK = 1 << 20  # bytes read at a time
SAMPLED = 1000  # lines of JSON inspected for names
REPLACED = "\ufffd"  # replaces bytes that are not UTF-8
SAVE_AS_UTF8 = "; save the file as UTF-8"


@dataclass(frozen=True)
class TextFile:
    """A text file, possibly compressed."""

    path: Path
    name: str  # for messages
    delimiter: str = ","

    def opened(self) -> Any:
        """Open the decompressed bytes."""
        packing = PACKED.get(self.path.suffix.lower())
        if packing is None:
            return self.path.open("rb")
        return arrow().CompressedInputStream(arrow().OSFile(os.fsencode(self.path)), packing)

    def head(self) -> bytes:
        """Return the first bytes."""
        with self.opened() as file:
            return bytes(file.read(HEAD))

    def has_quotes(self) -> bool:
        """Return whether a CSV file has quotes, after a check that the file is complete.

        DuckDB ignores a last row whose quote does not end, and the missing end of a zstd file.
        """
        count = 0
        with self.opened() as file:
            while block := file.read(BLOCK):
                count += block.count(b'"')
        if count % 2 and (error := self.find_csv_error("")) is not None:
            self._refuse(error)
        return count > 0

    # --- CSV -----------------------------------------------------------------------------------

    def rows(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows of a CSV file, each after the line where it ends; no empty lines."""
        usual = csv.field_size_limit(sys.maxsize)
        try:
            # Unused columns may hold any bytes.
            with io.TextIOWrapper(self.opened(), "utf-8-sig", errors="replace", newline="") as file:
                reader = csv.reader(file, delimiter=self.delimiter, strict=strict)
                yield from ((reader.line_num, row) for row in reader if row)
        finally:
            csv.field_size_limit(usual)

    def header(self) -> list[str]:
        """Read the names of the columns of a CSV file."""
        head = self.head()
        for first, what in FOREIGN.items():
            if head.startswith(first):
                raise ValueError(f"{self.name}: expected a table in UTF-8 text, but it {what}")
        try:
            rows = self.rows(strict=True)
            header = next(rows, (0, []))[1]
        except csv.Error as error:
            self._refuse(f"its header: {error}")
        if not header:
            self._refuse("it is empty")
        return header

    def _refuse(self, reason: str) -> NoReturn:
        raise ValueError(f"{self.name}: expected a table: {reason}{self.hint()}")

    def hint(self) -> str:
        """Guess why a CSV file could not be read; return an empty string without a guess."""
        head = self.head().removeprefix(codecs.BOM_UTF8)
        for first, what in SUSPECT.items():
            if head.lstrip().startswith(first):
                return f"; {what}"
        if b"\0" in head:
            return "; it contains NUL bytes, so it is not UTF-8 text"
        header = head.splitlines()[0] if head else b""
        if header.count(b";") > header.count(self.delimiter.encode()):
            return (
                "; its header seems to be separated by ';' instead of ',' (.csv) or tabs (.tsv): "
                "in a shell, use --sep ';', and --decimal , if numbers have commas"
            )
        return ""

    def find_csv_error(self, message: str) -> str | None:
        """Describe the first row that is not valid; None without one."""
        line = n_fields = 0
        try:
            for line, row in self.rows(strict=True):
                n_fields = n_fields or len(row)
                if len(row) < n_fields or any(row[n_fields:]):
                    return f"line {line} has {len(row)} fields, its header has {n_fields}"
        except csv.Error as error:
            return f"{error} after line {line}"
        if "unicode" in message or "utf-8" in message.lower():
            return message + SAVE_AS_UTF8
        return None

    # --- JSON ----------------------------------------------------------------------------------

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the objects of a file with one JSON object per line, each after its line."""
        with io.BufferedReader(self.opened()) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        found = json.loads(line)
                    except (ValueError, RecursionError) as error:
                        raise ValueError(f"line {number}: {error}") from None
                    if not isinstance(found, dict):
                        raise ValueError(f"line {number}: got {shortened(repr(found), 40)}")
                    yield number, found

    def keys(self, wanted: Sequence[str]) -> list[str]:
        """Return the names in the first objects, and in all of them if one that is wanted lacks."""
        names: dict[str, None] = {}
        for place, (_, found) in enumerate(self.objects()):
            names |= dict.fromkeys(found)
            if place >= SAMPLED and set(wanted) <= names.keys():
                break
        return list(names)

    def find_json_error(self, message: str) -> str | None:
        """Describe the first line that is not a JSON object; None without one."""
        try:
            for _ in self.objects():
                pass
        except ValueError as error:
            return str(error)
        return None


def locate(files: Sequence[TextFile], at: int, *, is_json: bool) -> tuple[TextFile, int, Any]:
    """Return the file, the line and the content of row `at` of several files."""
    before = 0
    for file in files:
        rows: Iterator[Any] = file.objects() if is_json else islice(file.rows(), 1, None)
        for place, (line, row) in enumerate(rows, before):
            if place == at:
                return file, line, row
            before = place + 1
    return files[-1], 0, {} if is_json else []
