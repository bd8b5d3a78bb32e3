"""Reading of untrusted ``.npz`` files, without pickle.

The shapes in a file are compared with its size before memory is allocated, and arrays are read
directly into their memory. Reading takes about as much memory as the size of the file.
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

from fastemf.support.arrays import Array

# Errors that zipfile raises for invalid archives, names and offsets.
NOT_AN_ARCHIVE = (zipfile.BadZipFile, EOFError, ValueError, OverflowError, NotImplementedError)

NPY = np.lib.format.MAGIC_PREFIX
# The header of an array of numbers or strings, as all versions of NumPy write it. It is not
# evaluated as Python, because a hostile header could exhaust the parser.
HEADER = re.compile(
    rb"\{'descr': '([<>|][biufcSU][0-9]{1,5})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18}, )*(?:[0-9]{1,18},?)?)\), \} *\n"
)
JSON_LIMIT = 1 << 20  # bytes of a JSON header; typical headers have about a thousand
CHUNK = 1 << 20  # bytes read at a time
LARGEST_EMPTY = 1 << 40  # size of a table without content, which needs no memory


class DamagedFileError(ValueError):
    """A file is damaged or of another kind."""


def require(condition: bool, rule: str) -> None:
    """Raise `DamagedFileError` unless the condition holds."""
    if not condition:
        raise DamagedFileError(rule)


def check_keys(found: Any, wanted: set[str], what: str) -> None:
    """Raise `DamagedFileError` for missing or unknown names."""
    if missing := sorted(wanted - set(found)):
        raise DamagedFileError(f"{what} {missing[0]!r:.80} is missing")
    if extra := sorted(set(found) - wanted):
        raise DamagedFileError(f"{what} {extra[0]!r:.80} is unknown")


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read all arrays of an ``.npz`` file, in C order."""
    _check_regular(path)
    arrays: dict[str, Array] = {}
    with Path(path).open("rb") as file:
        if file.read(len(NPY)) == NPY:
            raise DamagedFileError("it contains a single array")
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_members(members, os.fstat(file.fileno()).st_size)
                for member in members:
                    with archive.open(member) as content:
                        arrays[_name(member)] = _read_array(member, content)
        except DamagedFileError:
            raise
        except NOT_AN_ARCHIVE as error:
            raise DamagedFileError("truncated, damaged, or another kind of file") from error
        except OSError as error:
            if error.errno != errno.EINVAL:  # a negative offset
                error.filename = error.filename or os.fspath(path)
                raise
            raise DamagedFileError("truncated, damaged, or another kind of file") from error
    return arrays


def parse_header(raw: Array) -> Any:
    """Parse JSON text in an array of bytes."""
    if raw.dtype != np.uint8 or raw.ndim != 1 or raw.size > JSON_LIMIT:
        raise DamagedFileError(f"damaged header (it must be up to {JSON_LIMIT} bytes of JSON)")
    try:
        return json.loads(raw.tobytes().decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deeply
        raise DamagedFileError(f"damaged header ({error})") from error


def _check_regular(path: str | os.PathLike[str]) -> None:
    """Raise unless the path is a regular file: pipes block, and devices have no end."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    """Raise for members that ``numpy.savez`` never writes, or larger than the file."""
    for member in members:
        name = _display_name(member)
        if member.flag_bits & 1 or not member.filename.endswith(".npy"):
            raise DamagedFileError(f"{name} is encrypted, or of another kind of file")
        if member.compress_type != zipfile.ZIP_STORED:
            raise DamagedFileError(
                f"{name} is compressed, which fastemf never writes: "
                "it is damaged, or another kind of file"
            )
        if member.compress_size != member.file_size:
            raise DamagedFileError(f"{name} is damaged, or of another kind of file")
    if sum(member.file_size for member in members) > size:
        raise DamagedFileError("its members are larger than the file: it is truncated or damaged")
    if len({member.filename for member in members}) < len(members):
        raise DamagedFileError("it contains two arrays of the same name")


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _display_name(member: zipfile.ZipInfo) -> str:
    """Return the name for a message, shortened: a hostile name may have 64 kB."""
    name = member.filename
    return name if name.isprintable() and len(name) <= 60 else f"{name[:60]!a}..."


def _read_array(member: zipfile.ZipInfo, content: IO[bytes]) -> Array:
    wrong = f"{_display_name(member)} is damaged, or an array of another kind of file"
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
    # Checked before memory is allocated, because the header cannot be trusted.
    is_plain = dtype.itemsize > 0 and len(shape) <= 32
    is_table = len(shape) == 2 and 0 in shape  # without columns it may have any number of rows
    most = LARGEST_EMPTY if is_table else member.file_size
    is_plain = is_plain and all(number <= most for number in shape)
    if not is_plain or math.prod(shape) * dtype.itemsize != left:
        raise DamagedFileError(wrong)
    array = np.empty(shape, dtype, order="F" if found[2] == b"True" else "C")
    # A view of the bytes in memory order. Reading the last chunk verifies the checksum.
    memory = array.reshape(-1, order="A").view(np.uint8)
    at = 0
    while chunk := content.read(CHUNK):
        memory[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
        at += len(chunk)
    if at < left:
        raise DamagedFileError(wrong)
    return np.asarray(array, order="C")
