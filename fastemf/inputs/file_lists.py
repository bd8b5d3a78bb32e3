"""Names of files with tables or matrices: kinds by suffix, globs, folders, streams."""

from __future__ import annotations

import glob
import os
import sys
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastemf.inputs.matrix_files import MATRICES
from fastemf.inputs.query import Query
from fastemf.inputs.text_files import PACKED
from fastemf.support.terminal import escape_control

DELIMITERS = {".csv": ",", ".tsv": "\t"}
WRITTEN = (*DELIMITERS, ".parquet")
TEXTS = {
    f"{plain}{packed}": kind
    for plain, kind in {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json"}.items()
    for packed in ("", *PACKED)
}
KINDS = {**TEXTS, ".parquet": "parquet", ".duckdb": "duckdb"}  # of tables by suffix
FORMATS = (*KINDS, *MATRICES)
IN_FOLDERS = (*TEXTS, ".parquet")  # suffixes of the files of a folder


@dataclass(frozen=True)
class TextSource:
    """Text tables in another format than that of their suffix, or from a stream."""

    paths: Any  # as in `fastemf.complete`
    delimiter: str | None = None
    decimal: str | None = None
    name: str | None = None  # for messages


def is_source(R: Any) -> bool:
    """Return whether `R` is a path, a list of paths, SQL, ``"-"`` or an open file."""
    if isinstance(R, list):
        return bool(R) and all(isinstance(path, (str, os.PathLike)) for path in R)
    return isinstance(R, (str, os.PathLike, Query, TextSource)) or hasattr(R, "read")


def is_table_source(source: Any) -> bool:
    """Return whether a source is a table, by its suffix if it is a file.

    Examples
    --------
    >>> from fastemf.inputs.file_lists import is_table_source
    >>> is_table_source("log.csv"), is_table_source("R.mtx")
    (True, False)
    """
    if not isinstance(source, (str, os.PathLike)):
        return is_source(source)
    return not Path(source).name.lower().endswith(MATRICES)


def is_stream(source: Any) -> bool:
    """Return whether a source is ``"-"`` or an open file, which can be read only once."""
    return hasattr(source, "read") or (isinstance(source, str) and source == "-")


def hold_stream(stream: Any, **given: str) -> TextSource:
    """Copy CSV from an open file, or standard input for ``"-"``, to a temporary file.

    The file is removed when the result is no longer in use. `given` describes its format.
    """
    if isinstance(stream, str) and sys.stdin is None:
        raise ValueError("standard input is closed")
    content = (sys.stdin.buffer if isinstance(stream, str) else stream).read()
    handle, path = tempfile.mkstemp(suffix=".csv", prefix="fastemf-")
    with os.fdopen(handle, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    held = TextSource(path, name=name_of(stream), **given)
    weakref.finalize(held, _remove, path)
    return held


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def list_files(source: Any) -> list[Path]:
    """List the files of a path, a glob, a folder or a list of paths, in the order of reading."""
    if isinstance(source, list):
        return [path for one in source for path in list_files(one)]
    path = Path(source)
    if path.is_dir():
        files = [
            file
            for file in sorted(path.rglob("*"))
            if file.name.lower().endswith(IN_FOLDERS)
            and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        ]
        if not files:
            raise FileNotFoundError(
                f"{path} is neither a store nor a folder of .parquet, .csv, .tsv or .jsonl files"
            )
        return files
    if not path.exists() and glob.has_magic(str(path)):
        files = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
        if not files:
            raise FileNotFoundError(f"{path}: no file matches")
        return files
    check_regular(path, "; CSV from a pipe is read as -")
    return [path]


def check_regular(path: Path, instead: str = "") -> None:
    """Raise an error unless a path is a regular file; `instead` ends the message."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():  # pipes cannot be read twice, and devices may be endless
        raise OSError(f"{path}: expected a regular file{instead}")


def file_extension(path: Path, formats: Sequence[str]) -> str:
    """Return the one of the extensions in which the name of a file ends."""
    for extension in formats:
        if path.name.lower().endswith(extension):
            return extension
    raise ValueError(f"{path}: the name must end in {', '.join(formats)}")


def name_of(source: Any) -> str:
    """Return the name of a source for messages."""
    if isinstance(source, Query):
        return str(source)
    if isinstance(source, TextSource):
        return source.name or name_of(source.paths)
    if isinstance(source, list):
        others = len(source) - 1
        more = f" and {others} more file{'s' * (others > 1)}" if others else ""
        return escape_control(str(source[0])) + more
    if isinstance(source, (str, os.PathLike)):
        return "standard input" if source == "-" else escape_control(str(Path(source)))
    return escape_control(str(getattr(source, "name", "the file")))
