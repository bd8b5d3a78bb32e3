"""Arrays in files, written and read by ranges: plain ``.npy``, or raw while a store is built."""

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

__all__ = ["ArrayFile", "checksum", "header", "open_regular", "read_into", "sync_folder"]

PIECE = 1 << 20  # bytes that are read and summed at once


def header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return the header of an ``.npy`` file of a vector."""
    head = io.BytesIO()
    fields = {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(head, fields)
    return head.getvalue()


class ArrayFile:
    """A vector being written to a new file.

    `put` writes anywhere; `append` writes in order and keeps the checksum, which covers the
    whole file once all was appended. With a `length` the file is an ``.npy``.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], length: int | None = None) -> None:
        self.path = path
        self.dtype = dtype
        self.crc32 = 0
        self.length = 0  # as far as it was appended to
        self._file = path.open("x+b", buffering=0)
        head = b"" if length is None else header(dtype, length)
        self._data = len(head)
        if head:
            self.crc32 = zlib.crc32(head)
            _write(self._file, memoryview(head))

    def append(self, array: NDArray[Any]) -> None:
        """Write after all that was appended before."""
        self.put(self.length, array)
        self._count(array)

    def put(self, at: int, array: NDArray[Any]) -> None:
        """Write from element `at` on."""
        self._file.seek(self._data + at * self.dtype.itemsize)
        _write(self._file, _bytes(array, self.dtype))

    def keep(self, count: int) -> Iterator[NDArray[Any]]:
        """Count the next elements, which were put there, as appended; yield them in pieces."""
        while count:
            piece = self.read(self.length, min(count, PIECE // self.dtype.itemsize))
            self._count(piece)
            count -= piece.size
            yield piece

    def read(self, at: int, count: int) -> NDArray[Any]:
        """Return elements that were written."""
        array = np.empty(count, self.dtype)
        self._file.seek(self._data + at * self.dtype.itemsize)
        if not read_into(self._file, array):
            raise OSError(f"{self.path} ended early while it was read back")
        return array

    def finish(self) -> None:
        """Make sure the file is on the disk."""
        os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self.path.unlink()

    def _count(self, array: NDArray[Any]) -> None:
        self.crc32 = zlib.crc32(_bytes(array, self.dtype), self.crc32)
        self.length += array.size


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
    """Open a file to read, unbuffered; refuse a folder, a pipe and whatever else is no file."""
    file = io.FileIO(path, "rb", opener=_open_at_once)
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
    """Make sure that names in a folder are on the disk, where the system can tell."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _bytes(array: NDArray[Any], dtype: np.dtype[Any]) -> memoryview:
    return _view(np.ascontiguousarray(array, dtype))


def _view(array: NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data


def _write(file: io.RawIOBase, rest: memoryview) -> None:
    """Write all bytes: the system may take fewer at a time. Every byte of a store passes here."""
    while rest:
        rest = rest[file.write(rest) :]
