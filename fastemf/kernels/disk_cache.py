"""Disk cache of compiled code that is never stale.

Numba stamps a cached function with its own source file only, and stores the variants of a function
in numbered files that two processes may write at the same time. Here the stamp covers every file
of this folder, the compiler's flags and the vector width. The name of a cache file is a hash of
the stamp, the signature and the processor. Code of other sources or types is therefore never
loaded, and processes that write the same file write the same code. A file that cannot be read or
written only costs a compilation.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

from fastemf.kernels.vector_width import VECTOR_BYTES
from fastemf.support.terminal import stderr_is_terminal

try:  # private names of Numba; without them nothing is cached on disk
    from numba.core.caching import FunctionCache, IndexDataCacheFile

    CACHEABLE = True
except ImportError:  # pragma: no cover
    CACHEABLE = False

# Errors of reading a file, and those that pickle documents for damaged files.
UNREADABLE = (
    OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError, KeyError,
    TypeError, ValueError,
)  # fmt: skip


class Announcement:
    """Message on a terminal about a function that is being compiled."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = 0.0

    def begin(self) -> None:
        """Print the name of the function."""
        if stderr_is_terminal():
            self._began = time.perf_counter()
            words = f"fastemf: compiling {self._name} for this machine ... "
            print(words, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Print the duration, if `begin` printed the name."""
        if self._began:
            print(f"{time.perf_counter() - self._began:.1f} s", file=sys.stderr, flush=True)
            self._began = 0.0


def keep_on_disk(
    compiled: Any, function: Callable[..., Any], flags: dict[str, Any], announcement: Announcement
) -> None:
    """Cache compiled code beside the sources or in the user's cache folder, if possible."""
    if not CACHEABLE:  # pragma: no cover
        return

    class StampedCache(FunctionCache):
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)
            # The order of a set differs between processes.
            described = [
                (name, sorted(value) if isinstance(value, set) else value)
                for name, value in sorted(flags.items())
            ]
            self._stamp = (numba.__version__, _sources(), described)

        def _at(self, sig: Any, target_context: Any) -> None:
            key = self._index_key(sig, target_context.codegen())
            digest = hashlib.blake2b(repr((self._stamp, key)).encode(), digest_size=12)
            base = f"{self._impl.filename_base}.{digest.hexdigest()}"
            self._cache_file = IndexDataCacheFile(self._cache_path, base, self._stamp)

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            target_context.refresh()
            self._at(sig, target_context)
            try:
                found = super().load_overload(sig, target_context)
            except UNREADABLE:
                found = None
            if found is None:
                announcement.begin()
            return found

        def save_overload(self, sig: Any, data: Any) -> None:
            announcement.end()
            try:
                super().save_overload(sig, data)
            except OSError:  # such as a full disk: the next process compiles again
                return

    try:
        compiled._cache = StampedCache(function)
    except (AttributeError, OSError, RuntimeError, TypeError):
        return  # no writable folder, or another version of Numba: every process compiles


@cache
def _sources() -> bytes:
    """Hash the source files of the kernels and the vector width."""
    found = hashlib.blake2b(str(VECTOR_BYTES).encode(), digest_size=16)
    folder = Path(__file__).parent
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise RuntimeError(f"no source files found in {folder}: cached code cannot be checked")
    for path in files:
        found.update(path.relative_to(folder).as_posix().encode() + b"\0")
        found.update(path.read_bytes())
    return found.digest()
