"""Arrays in one ``.npz`` file, read without pickle and without trust."""

from __future__ import annotations

import io
import json
import math
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DamagedFileError", "parse_json", "read_arrays"]

# What zipfile raises for bytes that are no archive it can read; ValueError for odd names.
NOT_AN_ARCHIVE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError,
)  # fmt: skip
# What NumPy raises for the text before an array: its own error, what `ast.literal_eval` is
# documented to raise, what a tokenizer does, and IndexError for a type of no parts.
NOT_A_HEADER = (
    ValueError, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError,
    IndexError,
)  # fmt: skip

HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
NPY = np.lib.format.MAGIC_PREFIX


class DamagedFileError(ValueError):
    """A file whose content is not what it claims to be."""


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read all arrays of an ``.npz`` file, each with memory of its own."""
    arrays = {}
    with Path(path).open("rb") as file:
        if file.read(len(NPY)) == NPY:
            raise DamagedFileError("it holds a single array")
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    _check_member(member)
                    name = member.filename
                    # Reading checks the checksum.
                    arrays[name.removesuffix(".npy")] = _array(name, archive.read(member))
        except DamagedFileError:
            raise
        except NOT_AN_ARCHIVE as error:
            raise DamagedFileError("truncated, damaged, or another kind of file") from error
    return arrays


def _check_member(member: zipfile.ZipInfo) -> None:
    """Refuse what NumPy never writes, before zipfile asks for a password or another library."""
    plain = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if not plain or member.flag_bits & 1:
        raise DamagedFileError(f"{member.filename} is encrypted, damaged, or another kind of file")


def _array(name: str, data: bytes) -> NDArray[Any]:
    file = io.BytesIO(data)
    wrong = f"{name} is damaged, or an array of another kind of file"
    try:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise DamagedFileError(wrong)
        shape, is_fortran, dtype = HEADERS[version](file)
    except NOT_A_HEADER as error:
        # Not NumPy's own words: they advise unpickling what is not even an array.
        raise DamagedFileError(wrong) from error
    first = file.tell()
    # Before memory is asked for: a number in the header is worth nothing by itself.
    is_plain = not dtype.hasobject and len(shape) <= 32
    is_plain = is_plain and all(0 <= length <= len(data) for length in shape)
    if not is_plain or math.prod(shape) * dtype.itemsize != len(data) - first:
        raise DamagedFileError(wrong)
    read_only: NDArray[Any] = np.ndarray(
        shape, dtype, data, first, order="F" if is_fortran else "C"
    )
    return read_only.copy(order="K")


def parse_json(raw: bytes) -> Any:
    """Parse a JSON text."""
    try:
        return json.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number too long, too deep
        raise DamagedFileError(f"damaged header ({error})") from error
