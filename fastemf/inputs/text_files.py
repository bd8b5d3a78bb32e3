"""Text files of tables (CSV and JSON lines) as Python reads them: names, lines and errors.

DuckDB reads the content. Python reads the names of the columns, checks that files are complete, and
finds the line of a row, or of an error, for messages.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fastemf.inputs.columns import shortened
from fastemf.inputs.tables import arrow

PACKED = {".gz": "gzip", ".zst": "zstd"}  # suffixes of compressed text

# First bytes of files that are often mistaken for CSV. No UTF-8 text begins with these,
FOREIGN = {
    b"\x1f\x8b": "is compressed by gzip: add .gz to its name",
    b"(\xb5/\xfd": "is compressed by zstd: add .zst to its name",
    b"PK\x03\x04": "is a zip archive or an Excel workbook: unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook: save the sheet as CSV",
    b"\xff\xfe": "is UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "is UTF-16 text: save it as UTF-8",
}
# and a table rarely begins with these.
SUSPECT = {
    b"PAR1": "it looks like Parquet: rename it to .parquet",
    b"%%MatrixMarket": "it looks like a Matrix Market file: rename it to .mtx",
    b"{": "it looks like JSON: rename it to .jsonl",
    b"[": "it looks like JSON",
    b"<": "it looks like HTML or XML",
}
HEAD = 1 << 12  # bytes inspected to guess the kind of a file
BLOCK = 1 << 20  # bytes read at a time
# Bytes of a file with quotes that Python checks, which takes seconds for more. In a longer file,
# only an odd number of quotes leads to a check.
CHECKED = 1 << 26
SAMPLED = 1000  # lines of JSON inspected for names
REPLACED = "\ufffd"  # replaces bytes that are not UTF-8
SAVE_AS_UTF8 = "; save the file as UTF-8"


@dataclass(frozen=True)
class TextFile:
    """A text file, possibly compressed: JSON lines, or CSV with a delimiter."""

    path: Path
    name: str  # for messages
    delimiter: str = ""  # none for JSON lines

    @property
    def packing(self) -> str | None:
        """The compression, by suffix."""
        return PACKED.get(self.path.suffix.lower())

    def opened(self) -> Any:
        """Open the decompressed bytes."""
        if self.packing is None:
            return self.path.open("rb")
        return arrow().CompressedInputStream(arrow().OSFile(os.fsencode(self.path)), self.packing)

    def _lines(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield all rows of CSV with the header, each after the line where it ends."""
        usual = csv.field_size_limit(sys.maxsize)
        try:
            # Unused columns may hold any bytes.
            with io.TextIOWrapper(self.opened(), "utf-8-sig", errors="replace", newline="") as file:
                reader = csv.reader(file, delimiter=self.delimiter, strict=strict)
                yield from ((reader.line_num, row) for row in reader if row)
        finally:
            csv.field_size_limit(usual)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the objects of JSON lines, each after its line."""
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

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows by column name, each after its line."""
        if not self.delimiter:
            yield from self._objects()
            return
        lines = self._lines()
        _, header = next(lines)
        yield from ((line, dict(zip(header, row, strict=False))) for line, row in lines)

    @cached_property
    def header(self) -> list[str]:
        """The names of the columns of CSV."""
        for first, what in FOREIGN.items():
            if self._head.startswith(first):
                raise ValueError(f"{self.name}: expected a table in UTF-8 text, but it {what}")
        try:
            header = next(self._lines(strict=True), (0, []))[1]
        except csv.Error as error:
            raise self._error(f"its header: {error}") from None
        if not header:
            raise self._error("it is empty")
        return header

    def names(self, wanted: Sequence[str]) -> list[str]:
        """Return the names of the columns; of JSON at least those wanted and in the first lines."""
        if self.delimiter:
            return self.header
        names: dict[str, None] = {}
        try:
            for place, (_, found) in enumerate(self._objects()):
                names |= dict.fromkeys(found)
                if place >= SAMPLED and set(wanted) <= names.keys():
                    break
        except ValueError as error:
            raise ValueError(f"{self.name}: expected one JSON object per line: {error}") from None
        return list(names)

    def has_quotes(self) -> bool:
        """Return whether CSV has quotes, after a check that the file is complete.

        DuckDB ignores a last row whose quote does not end, and the missing end of a zstd file.
        """
        count = size = 0
        with self.opened() as file:
            while block := file.read(BLOCK):
                count += block.count(b'"')
                size += len(block)
        is_suspect = count % 2 or (count and size <= CHECKED)
        if is_suspect and (error := self.find_error("")) is not None:
            raise self._error(error)
        return count > 0

    def find_error(self, message: str) -> str | None:
        """Describe the first row that is not valid, given the message of DuckDB."""
        line = n_fields = 0
        try:
            if not self.delimiter:
                deque(self._objects(), 0)
                return None
            for line, row in self._lines(strict=True):
                n_fields = n_fields or len(row)
                if len(row) < n_fields or any(row[n_fields:]):
                    return f"line {line} has {len(row)} fields, its header has {n_fields}"
        except csv.Error as error:
            return f"{error} after line {line}"
        except ValueError as error:
            return str(error)
        is_encoding = "unicode" in message or "utf-8" in message.lower()
        return message + SAVE_AS_UTF8 if is_encoding else None

    @cached_property
    def _head(self) -> bytes:
        with self.opened() as file:
            return bytes(file.read(HEAD))

    def _error(self, reason: str) -> ValueError:
        return ValueError(f"{self.name}: expected a table: {reason}{self.hint()}")

    def hint(self) -> str:
        """Guess why CSV could not be read; return an empty string without a guess."""
        if not self.delimiter:
            return ""
        head = self._head.removeprefix(codecs.BOM_UTF8)
        for first, what in SUSPECT.items():
            if head.lstrip().startswith(first):
                return f"; {what}"
        if b"\0" in head:
            return "; it contains NUL bytes, so it is not UTF-8 text"
        header = head.partition(b"\n")[0]
        if header.count(b";") > header.count(self.delimiter.encode()):
            return (
                "; its header seems to be separated by ';' instead of ',' (.csv) or tabs (.tsv): "
                "in a shell, use --sep ';', and --decimal , if numbers have commas"
            )
        is_utf8 = b"\n" not in head or REPLACED not in header.decode(errors="replace")
        return "" if is_utf8 else SAVE_AS_UTF8


def locate(files: Sequence[TextFile], at: int) -> tuple[str, dict[str, Any]]:
    """Return the place and the content of row `at` of several files."""
    before = 0
    for file in files:
        for place, (line, row) in enumerate(file.rows(), before):
            if place == at:
                return f"line {line} of {file.name}", row
            before = place + 1
    return f"line 0 of {files[-1].name}", {}
