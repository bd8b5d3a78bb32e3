"""How functions are compiled: the only file that touches Numba's compiler.

There are two kinds of compiled functions. A `helper` is compiled into whatever calls it and is
never kept. A `Unit` is compiled on its own, kept on disk (`fastemf.kernels.disk_cache`), and
called through its address, so that no caller compiles it again and no caller's optimisation
reaches into it: a unit's machine code follows from the sources alone, whatever the disk cache
holds already.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

import numba
from numba import types

from fastemf.kernels.disk_cache import CACHEABLE, Announcement, keep_on_disk

if CACHEABLE:
    from numba.core.ccallback import CFunc

__all__ = ["INTERPRETED", "Unit", "helper", "loop", "unit"]

INTERPRETED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]

_compiling = threading.RLock()


def _after_fork() -> None:
    global _compiling
    _compiling = threading.RLock()  # a thread that no longer exists may hold the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

# What lets LLVM vectorise a dot product, without "nnan" and "ninf": those make
# isnan(nan) false, and a NaN must be seen.
FASTMATH = ("reassoc", "contract", "nsz", "arcp", "afn")


def helper(*, exact: bool = False, allocates: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function into its callers, always inline.

    Out of line it would exist twice, on its own and optimised within the caller, under one name:
    a process that has compiled it calls the one, a process that has loaded the caller from disk
    the other, and sums that are contracted in another way differ in their last bits.

    Unless it `allocates`, reference counts are left out, which are atomic operations, two per
    array and call, more than a short row's arithmetic. `exact` forbids the compiler to
    rearrange arithmetic, so that results are bitwise identical wherever the function is used.
    """
    flags = _flags(exact=exact, allocates=allocates)
    compiler: Any = numba.njit  # whose stubs do not know all flags
    return compiler(**flags, forceinline=True, no_cfunc_wrapper=True)  # type: ignore[no-any-return]


def loop(function: Callable[..., Any]) -> Any:
    """Compile a function that has a parallel loop and is called from Python."""
    compiled = numba.njit(parallel=True, nogil=True, error_model="numpy")(function)
    if not INTERPRETED:
        keep_on_disk(compiled, function, {"parallel": True}, Announcement("the parallel loop"))
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
        self._callable: dict[tuple[Any, bool], Callable[..., None]] = {}

    def address(self, *frames: types.Type) -> int:
        """Return the address of the machine code for frames of these types."""
        return int(self._for(frames).address)

    def from_python(self, *frames: types.Type, keeps_lock: bool = False) -> Callable[..., None]:
        """Return the function as one that takes an address for each frame.

        Unless it keeps Python's lock, other threads run meanwhile.
        """
        if (frames, keeps_lock) not in self._callable:
            kind = ctypes.PYFUNCTYPE if keeps_lock else ctypes.CFUNCTYPE
            made = kind(None, *[ctypes.c_int64] * self._n_parameters)(self._for(frames).address)
            self._callable[frames, keeps_lock] = made
        return self._callable[frames, keeps_lock]

    @property
    def signatures(self) -> list[tuple[Any, ...]]:
        """The types of frames it has been compiled for in this process."""
        return list(self._compiled)

    def _for(self, frames: tuple[types.Type, ...]) -> Any:
        if frames not in self._compiled:
            with _compiling:  # another thread may be at it: what it gets is used by both
                if frames not in self._compiled:
                    numbers = [types.int64] * (self._n_parameters - len(frames))
                    self._compiled[frames] = self._compile((*numbers, *frames))
        return self._compiled[frames]

    def _compile(self, arguments: tuple[types.Type, ...]) -> Any:
        announcement = Announcement(self.name)
        try:
            if not CACHEABLE:
                announcement.begin()
                return numba.cfunc(types.void(*arguments), **self._flags)(self.function)
            compiled = CFunc(self.function, (arguments, types.void), {}, self._flags)
            keep_on_disk(compiled, self.function, self._flags, announcement)
            compiled.compile()
            return compiled
        finally:
            announcement.end()


def _flags(*, exact: bool = False, allocates: bool = False) -> dict[str, Any]:
    return {
        "fastmath": False if exact else set(FASTMATH),
        "nogil": True,
        "error_model": "numpy",
        "_nrt": allocates,
    }
