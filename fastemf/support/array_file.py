"""Arrays in one ``.npz`` file, read without pickle and without trust.

What a file claims is compared with its size before memory is asked for, and its arrays are read
straight into their memory: reading takes about as much memory as the file has bytes.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DamagedFileError", "check_keys", "parse_header", "read_arrays", "require"]

# What zipfile raises for bytes that are no archive it can read; ValueError and OverflowError for
# odd names and places.
NOT_AN_ARCHIVE = (
    zipfile.BadZipFile, EOFError, ValueError, OverflowError, NotImplementedError,
)  # fmt: skip

NPY = np.lib.format.MAGIC_PREFIX
# The text before an array of plain numbers or strings, as every NumPy has written it. It is not
# evaluated as Python: a hostile one could exhaust the parser.
HEADER = re.compile(
    rb"\{'descr': '([<>|][biufcSU][0-9]{1,5})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18}, )*(?:[0-9]{1,18},?)?)\), \} *\n"
)
JSON_LIMIT = 1 << 20  # bytes of a header in JSON, which has about a thousand
CHUNK = 1 << 20  # bytes read at once


class DamagedFileError(ValueError):
    """A file whose content is not what it claims to be."""


def require(right: bool, rule: str) -> None:
    """Refuse a file that breaks a rule."""
    if not right:
        raise DamagedFileError(rule)


def check_keys(found: Any, wanted: set[str], what: str) -> None:
    """Refuse names that are missing or unknown."""
    if missing := sorted(wanted - set(found)):
        raise DamagedFileError(f"{what} {missing[0]!r:.80} is missing")
    if extra := sorted(set(found) - wanted):
        raise DamagedFileError(f"{what} {extra[0]!r:.80} is unknown")


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read all arrays of an ``.npz`` file, each with memory of its own, in C order."""
    _check_regular(path)
    arrays: dict[str, NDArray[Any]] = {}
    with Path(path).open("rb") as file:
        if file.read(len(NPY)) == NPY:
            raise DamagedFileError("it holds a single array")
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_members(members, os.fstat(file.fileno()).st_size)
                for member in members:
                    with archive.open(member) as content:
                        arrays[_name(member)] = _array(member, content)
        except DamagedFileError:
            raise
        except NOT_AN_ARCHIVE as error:
            raise DamagedFileError("truncated, damaged, or another kind of file") from error
        except OSError as error:
            if error.errno != errno.EINVAL:  # which is a place before the file's beginning
                error.filename = error.filename or os.fspath(path)
                raise
            raise DamagedFileError("truncated, damaged, or another kind of file") from error
    return arrays


def parse_header(raw: NDArray[Any]) -> Any:
    """Parse the JSON text that an array of bytes holds."""
    if raw.dtype != np.uint8 or raw.ndim != 1 or raw.size > JSON_LIMIT:
        raise DamagedFileError(f"damaged header (it must be up to {JSON_LIMIT} bytes of JSON)")
    try:
        return json.loads(raw.tobytes().decode())
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number too long, too deep
        raise DamagedFileError(f"damaged header ({error})") from error


def _check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse what is no file: a pipe would be waited for, and a device has no end."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse what NumPy's ``savez`` never writes, and more bytes than the file has."""
    for member in members:
        if member.flag_bits & 1 or not member.filename.endswith(".npy"):
            raise DamagedFileError(f"{_shown(member)} is encrypted, or of another kind of file")
        if member.compress_type != zipfile.ZIP_STORED:
            raise DamagedFileError(
                f"{_shown(member)} is compressed, which fastemf never writes: it is damaged, or "
                "another kind of file"
            )
        if member.compress_size != member.file_size:
            raise DamagedFileError(f"{_shown(member)} is damaged, or of another kind of file")
    if sum(member.file_size for member in members) > size:
        raise DamagedFileError("its parts are larger than the file: it is truncated or damaged")
    if len({member.filename for member in members}) < len(members):
        raise DamagedFileError("it holds two arrays of one name")


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _shown(member: zipfile.ZipInfo) -> str:
    """Return the name for a message; a hostile one may be 64 kB long."""
    name = member.filename
    return name if name.isprintable() and len(name) <= 60 else f"{name[:60]!a}..."


def _array(member: zipfile.ZipInfo, content: IO[bytes]) -> NDArray[Any]:
    wrong = f"{_shown(member)} is damaged, or an array of another kind of file"
    length = content.read(10)
    text = content.read(int.from_bytes(length[8:], "little"))
    found = HEADER.fullmatch(text)
    if length[:8] != NPY + b"\x01\x00" or found is None:
        raise DamagedFileError(wrong)
    try:
        dtype = np.dtype(found[1].decode())
    except TypeError as error:
        raise DamagedFileError(wrong) from error
    shape = tuple(int(number) for number in found[3].replace(b",", b" ").split())
    left = member.file_size - len(length) - len(text)
    # Before memory is asked for: a number in the header is worth nothing by itself.
    is_plain = dtype.itemsize > 0 and len(shape) <= 32
    is_plain = is_plain and all(number <= member.file_size for number in shape)
    if not is_plain or math.prod(shape) * dtype.itemsize != left:
        raise DamagedFileError(wrong)
    array = np.empty(shape, dtype, order="F" if found[2] == b"True" else "C")
    # A view of its bytes in the order of memory. The last chunk compares the checksum.
    memory = array.reshape(-1, order="A").view(np.uint8)
    at = 0
    while chunk := content.read(CHUNK):
        memory[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
        at += len(chunk)
    if at < left:
        raise DamagedFileError(wrong)
    return np.asarray(array, order="C")
