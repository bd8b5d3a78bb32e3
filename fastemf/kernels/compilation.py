"""The one owner of Numba's compiler flags.

A cached kernel is stamped with the file it is written in and with nothing
else: neither the files it calls into nor these flags. So every kernel lives in
one file with all that it calls, and each body is compiled with one set of
flags only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

# What lets LLVM vectorise a dot product, without "nnan" and "ninf": those make
# isnan(nan) false, and a NaN must be seen.
FASTMATH = {"reassoc", "contract", "nsz", "arcp", "afn"}


def kernel(
    *, parallel: bool = False, lean: bool = False, exact: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Compile on first call, cached on disk where the disk lets us.

    `lean` leaves reference counts out, for functions that allocate nothing: they are
    atomic operations, two per array and call, more than a short row's arithmetic.
    `exact` forbids the compiler to rearrange arithmetic, so that the bits are the
    same wherever the function is used, and inlines it there, so that loops around
    it still vectorise.
    """

    def compile_lazily(function: Callable[..., Any]) -> Any:
        flags: dict[str, Any] = {
            "parallel": parallel,
            "fastmath": False if exact else FASTMATH,
            "nogil": True,
            "error_model": "numpy",
            "_nrt": not lean,
            "no_cpython_wrapper": lean,
            "no_cfunc_wrapper": True,
            "forceinline": exact,
        }
        try:
            return numba.njit(cache=True, **flags)(function)
        except RuntimeError:  # read-only install and no writable home
            return numba.njit(**flags)(function)

    return compile_lazily
