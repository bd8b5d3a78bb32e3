"""Compilation of functions: the only module that calls Numba's compiler.

There are two kinds of compiled functions. A `helper` is compiled into its callers and is never
cached. A `Unit` is compiled separately, cached on disk (`fastemf.kernels.disk_cache`) and called
by its address. Callers neither compile it again nor optimize across the call, so its machine code
depends on the sources alone and not on the content of the disk cache.
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

INTERPRETED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]

_compiling = threading.RLock()


def _after_fork() -> None:
    global _compiling
    _compiling = threading.RLock()  # the old one may be held by a thread that no longer exists


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

# These flags let LLVM vectorise dot products. "nnan" and "ninf" are left out because they make
# isnan(nan) false, and NaN must be detected.
FASTMATH = ("reassoc", "contract", "nsz", "arcp", "afn")


def helper(*, exact: bool = False, allocates: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function into its callers, always inline.

    Without inlining, two versions of the function would exist under one name: one compiled on its
    own, one optimized within the caller. A process that compiles and a process that loads from
    disk could then call different versions, whose sums differ in the last bits.

    Unless it `allocates`, reference counting is disabled: its atomic operations, two per array and
    call, cost more than the arithmetic of a short row. `exact` forbids the compiler to rearrange
    arithmetic, so that results are bitwise identical wherever the function is used.
    """
    flags = _flags(exact=exact, allocates=allocates)
    compiler: Any = numba.njit  # its type stubs lack some flags
    return compiler(**flags, forceinline=True, no_cfunc_wrapper=True)  # type: ignore[no-any-return]


def loop(function: Callable[..., Any]) -> Any:
    """Compile a function with a parallel loop that is called from Python."""
    compiled = numba.njit(parallel=True, nogil=True, error_model="numpy")(function)
    if not INTERPRETED:
        keep_on_disk(compiled, function, {"parallel": True}, Announcement("the parallel loop"))
    return compiled


def unit(*, allocates: bool = False) -> Callable[[Callable[..., Any]], Unit]:
    """Return a decorator that makes a `Unit`; only with `allocates` it counts references."""
    return lambda function: Unit(function, allocates)


class Unit:
    """A function that is compiled separately for each combination of argument types.

    It takes integers, then kernel arguments (`fastemf.kernels.kernel_args`), and returns nothing.
    """

    def __init__(self, function: Callable[..., Any], allocates: bool) -> None:
        self.function = function
        self.name = function.__name__
        self._flags = _flags(allocates=allocates)
        self._n_parameters = len(inspect.signature(function).parameters)
        self._compiled: dict[tuple[Any, ...], Any] = {}
        self._callable: dict[tuple[Any, bool], Callable[..., None]] = {}

    def address(self, *args_types: types.Type) -> int:
        """Return the address of the machine code for kernel arguments of these types."""
        return int(self._for(args_types).address)

    def from_python(self, *args_types: types.Type, keeps_gil: bool = False) -> Callable[..., None]:
        """Return a Python function that takes the addresses of the kernel arguments.

        Unless it keeps the GIL, other Python threads run meanwhile.
        """
        if (args_types, keeps_gil) not in self._callable:
            kind = ctypes.PYFUNCTYPE if keeps_gil else ctypes.CFUNCTYPE
            signature = kind(None, *[ctypes.c_int64] * self._n_parameters)
            self._callable[args_types, keeps_gil] = signature(self._for(args_types).address)
        return self._callable[args_types, keeps_gil]

    @property
    def signatures(self) -> list[tuple[Any, ...]]:
        """The argument types for which the unit has been compiled in this process."""
        return list(self._compiled)

    def _for(self, args_types: tuple[types.Type, ...]) -> Any:
        if args_types not in self._compiled:
            with _compiling:
                if args_types not in self._compiled:  # unless another thread has compiled it
                    integers = [types.int64] * (self._n_parameters - len(args_types))
                    self._compiled[args_types] = self._compile((*integers, *args_types))
        return self._compiled[args_types]

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
