"""Compiled code that is kept on disk, and never loaded for anything but what it was compiled from.

Numba stamps a cached function with the file it is written in and with nothing else, and gives
the variants of a function numbered files that two processes may fill at once. Here the stamp
covers every file of this folder, the compiler's flags and the width of the vectors, and the name
of a file is a hash of the stamp, the signature and the processor. So code of other sources or
types is never found, and processes that write the same file write the same code. A file that
cannot be read or written costs a compilation and nothing else.
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

from fastemf.kernels.width import VECTOR_BYTES
from fastemf.support.terminal import stderr_is_terminal

try:  # names that Numba does not promise: without them nothing is kept on disk
    from numba.core.caching import FunctionCache, IndexDataCacheFile

    CACHEABLE = True
except ImportError:  # pragma: no cover
    CACHEABLE = False

__all__ = ["CACHEABLE", "Announcement", "keep_on_disk"]

# What damaged files make pickle raise, by its documentation, beside what reading them does.
UNREADABLE = (
    OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError, KeyError,
    TypeError, ValueError,
)  # fmt: skip


class Announcement:
    """Tells a terminal what is being compiled, and how long it took."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = 0.0

    def begin(self) -> None:
        """Say that compilation begins."""
        if stderr_is_terminal():
            self._began = time.perf_counter()
            words = f"fastemf: compiling {self._name} for this machine ... "
            print(words, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Say that it is over, if it was said to have begun."""
        if self._began:
            print(f"{time.perf_counter() - self._began:.1f} s", file=sys.stderr, flush=True)
            self._began = 0.0


def keep_on_disk(
    compiled: Any, function: Callable[..., Any], flags: dict[str, Any], announcement: Announcement
) -> None:
    """Let compiled code be kept beside the sources or in the user's cache, where Numba can."""
    if not CACHEABLE:  # pragma: no cover
        return

    class StampedCache(FunctionCache):
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)
            # A set prints in another order in every process.
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
            except OSError:  # a full disk: it compiles again next time
                return

    try:
        compiled._cache = StampedCache(function)
    except (AttributeError, OSError, RuntimeError, TypeError):
        return  # no folder to write to, or another Numba: it then compiles in every process


@cache
def _sources() -> bytes:
    """Hash every file that kernels are compiled from, and the vectors' width."""
    found = hashlib.blake2b(str(VECTOR_BYTES).encode(), digest_size=16)
    folder = Path(__file__).parent
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise RuntimeError(f"there are no sources in {folder}: nothing tells versions apart")
    for path in files:
        found.update(path.relative_to(folder).as_posix().encode() + b"\0")
        found.update(path.read_bytes())
    return found.digest()
