"""Arrays in files, written and read by ranges: ``.npy``, or raw while a store is built."""

from __future__ import annotations

import errno
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 20  # bytes read at once


def header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return the header of an ``.npy`` file of a vector."""
    head = io.BytesIO()
    fields = {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(head, fields)
    return head.getvalue()


class ArrayFile:
    """A vector being written to a new file.

    `put` writes anywhere. `append` writes in order and updates the checksum. With a `length` the
    file is an ``.npy`` file.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], length: int | None = None) -> None:
        self.path = path
        self.dtype = dtype
        self.crc32 = 0
        self.length = 0  # number of appended elements
        self._file = path.open("x+b", buffering=0)
        head = b"" if length is None else header(dtype, length)
        self._data = len(head)
        if head:
            self.crc32 = zlib.crc32(head)
            _write(self._file, memoryview(head))

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, array: NDArray[Any]) -> None:
        """Write after all appended elements."""
        self.put(self.length, array)
        self.crc32 = zlib.crc32(_bytes(array, self.dtype), self.crc32)
        self.length += array.size

    def put(self, at: int, array: NDArray[Any]) -> None:
        """Write from element `at` on."""
        self._file.seek(self._data + at * self.dtype.itemsize)
        _write(self._file, _bytes(array, self.dtype))

    def pieces(self, at: int, count: int, length: int) -> Iterator[NDArray[Any]]:
        """Read written elements, at most `length` at a time."""
        for first in range(at, at + count, length):
            array = np.empty(min(length, at + count - first), self.dtype)
            self._file.seek(self._data + first * self.dtype.itemsize)
            if not read_into(self._file, array):
                raise OSError(f"{self.path} ended early while it was read back")
            yield array

    def finish(self) -> None:
        """Flush the file to the disk and close it."""
        os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        """Close the file without flushing it to the disk."""
        self._file.close()


def read_into(file: io.RawIOBase, array: NDArray[Any]) -> bool:
    """Fill an array from an unbuffered file; return False if the file ends too early."""
    rest = _view(array)
    while rest:
        got = file.readinto(rest)
        if not got:
            return False
        rest = rest[got:]
    return True


def open_regular(path: Path) -> io.FileIO:
    """Open a regular file for unbuffered reading; raise an error for folders, pipes and others."""
    file = io.FileIO(path, "rb", opener=_open_nonblocking)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
    return file


def checksum(path: Path) -> int:
    """Return the CRC-32 of a whole file."""
    total = 0
    with open_regular(path) as file:
        while piece := file.read(PIECE):
            total = zlib.crc32(piece, total)
    return total


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to the disk, where the system supports it."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without blocking on a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _bytes(array: NDArray[Any], dtype: np.dtype[Any]) -> memoryview:
    return _view(np.ascontiguousarray(array, dtype))


def _view(array: NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data


def _write(file: io.RawIOBase, rest: memoryview) -> None:
    """Write all bytes; one call of the system may write fewer."""
    while rest:
        rest = rest[file.write(rest) :]
