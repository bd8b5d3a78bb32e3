"""Compilation of functions and their cache on disk; the only file that touches Numba's compiler.

There are two kinds of compiled functions. A `helper` is compiled into whatever calls it and is
never kept. A `Unit` is compiled on its own, kept on disk, and called through its address, so
that no caller compiles it again and no caller's optimisation reaches into it: a unit's machine
code follows from the sources alone, whatever the cache holds already.

Numba stamps a cached function with the file it is written in and with nothing else. The stamp
here covers every file of this folder, the compiler's flags and the width of the vectors: what
was compiled from other sources is never loaded.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import types

from fastemf.kernels.width import VECTOR_BYTES

try:  # Numba does not promise these names; without them nothing is kept on disk
    from numba.core.caching import FunctionCache, IndexDataCacheFile
    from numba.core.ccallback import CFunc

    CACHEABLE = True
except ImportError:  # pragma: no cover
    CACHEABLE = False

__all__ = ["INTERPRETED", "Unit", "helper", "loop", "unit"]

INTERPRETED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]

# These flags let LLVM vectorise a dot product. "nnan" and "ninf" are not among them: they make
# isnan(nan) false, and a NaN must be seen.
FASTMATH = ("reassoc", "contract", "nsz", "arcp", "afn")


def helper(*, exact: bool = False, allocates: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function into its callers.

    Unless it `allocates`, reference counts are left out: they are atomic operations, two per
    array and call, and cost more than a short row's arithmetic. `exact` forbids the compiler to
    rearrange arithmetic, so that results are bitwise identical wherever the function is used,
    and inlines it there, so that loops around it still vectorise.
    """
    flags = _flags(exact=exact, allocates=allocates)
    compiler: Any = numba.njit  # whose stubs do not know all flags
    return compiler(**flags, forceinline=exact, no_cfunc_wrapper=True)  # type: ignore[no-any-return]


def loop(function: Callable[..., Any]) -> Any:
    """Compile a function that has a parallel loop and is called from Python."""
    compiled = numba.njit(parallel=True, nogil=True, error_model="numpy")(function)
    if not INTERPRETED:
        _keep_on_disk(compiled, function, {"parallel": True})
    return compiled


def unit(*, allocates: bool = False) -> Callable[[Callable[..., Any]], Unit]:
    """Make a function a `Unit`; only one that `allocates` counts references."""
    return lambda function: Unit(function, allocates)


class Unit:
    """A function that is compiled on its own for each type of its frames.

    It takes whole numbers, then frames (`fastemf.kernels.frames`), and returns nothing.
    """

    def __init__(self, function: Callable[..., Any], allocates: bool) -> None:
        self.function = function
        self.name = function.__name__
        self._flags = _flags(allocates=allocates)
        self._n_parameters = len(inspect.signature(function).parameters)
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def address(self, *frames: types.Type) -> int:
        """Return the address of the machine code for frames of these types."""
        return int(self._for(frames).address)

    def ctypes(self, *frames: types.Type) -> Callable[..., None]:
        """Return the function as one that takes an address for each frame."""
        import ctypes

        found = self._for(frames)
        if not hasattr(found, "from_python"):
            arguments = [ctypes.c_int64] * self._n_parameters
            found.from_python = ctypes.CFUNCTYPE(None, *arguments)(found.address)
        return found.from_python  # type: ignore[no-any-return]

    @property
    def signatures(self) -> list[tuple[Any, ...]]:
        """The types of frames it has been compiled for in this process."""
        return list(self._compiled)

    def _for(self, frames: tuple[types.Type, ...]) -> Any:
        if frames not in self._compiled:
            numbers = [types.int64] * (self._n_parameters - len(frames))
            self._compiled[frames] = self._compile((*numbers, *frames))
        return self._compiled[frames]

    def _compile(self, arguments: tuple[types.Type, ...]) -> Any:
        if not CACHEABLE:  # pragma: no cover
            with announced(self.name):
                return numba.cfunc(types.void(*arguments), **self._flags)(self.function)
        compiled = CFunc(self.function, (arguments, types.void), {}, self._flags)
        _keep_on_disk(compiled, self.function, self._flags)
        compiled.compile()
        return compiled


@contextmanager
def announced(name: str) -> Iterator[None]:
    """Tell a terminal what is being compiled, and how long it took."""
    if not sys.stderr.isatty():
        yield
        return
    began = time.perf_counter()
    print(f"fastemf: compiling {name} for this machine ... ", end="", file=sys.stderr, flush=True)
    yield
    print(f"{time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)


def _flags(*, exact: bool = False, allocates: bool = False) -> dict[str, Any]:
    return {
        "fastmath": False if exact else set(FASTMATH),
        "nogil": True,
        "error_model": "numpy",
        "_nrt": allocates,
    }


@cache
def _sources() -> bytes:
    """Hash every file that kernels are compiled from, and the vectors' width."""
    found = hashlib.blake2b(str(VECTOR_BYTES).encode(), digest_size=16)
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        found.update(path.relative_to(folder).as_posix().encode() + b"\0")
        found.update(path.read_bytes())
    return found.digest()


def _keep_on_disk(compiled: Any, function: Callable[..., Any], flags: dict[str, Any]) -> None:
    """Let compiled code be kept beside the sources or in the user's cache, if Numba can."""
    if not CACHEABLE:  # pragma: no cover
        return

    class StampedCache(FunctionCache):
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)
            described = sorted((name, value) for name, value in flags.items() if name != "fastmath")
            stamp = (_sources(), described, sorted(FASTMATH))
            self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, stamp)

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            found = super().load_overload(sig, target_context)
            if found is None:
                self._announcement = announced(function.__name__)
                self._announcement.__enter__()
            return found

        def save_overload(self, sig: Any, data: Any) -> None:
            self._announcement.__exit__(None, None, None)
            super().save_overload(sig, data)

    try:
        compiled._cache = StampedCache(function)
    except (AttributeError, RuntimeError, TypeError):
        return  # no writable folder, or another Numba: it then compiles in every process
