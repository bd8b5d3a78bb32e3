"""Parallel launches of units over blocks; the only module that uses Numba's thread settings.

Three properties of Numba shape it. On the `workqueue` layer, two Python threads that launch
parallel kernels at the same time abort the process. A child that was forked after a parallel
launch dies in its first own launch. `set_num_threads` applies to one Python thread. Therefore a
lock surrounds every launch, and a forked child runs serially.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache, partial
from itertools import pairwise
from typing import Any, TypeVar

import numba
import numpy as np
from numba.np.ufunc import parallel
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fastemf.kernels.compilation import INTERPRETED, Unit, loop
from fastemf.kernels.kernel_args import KernelArgs, invoke, pack
from fastemf.support.validation import check_integer

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.Lock()
_launched = False  # a parallel kernel ran in this process, so its thread pool exists
_serial = False  # forked from such a process, so the pool is gone
_blas_lock = threading.Lock()
_blas_is_limited = ContextVar("_blas_is_limited", default=False)


def _after_fork() -> None:
    global _lock, _blas_lock, _serial
    # Threads that no longer exist may hold the old locks.
    _lock, _blas_lock = threading.Lock(), threading.Lock()
    # Other code in the process may have launched kernels; Numba's flag is not public.
    _serial = _launched or bool(getattr(parallel, "_is_initialized", False))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def count_threads(n_jobs: Any) -> int:
    """Return the number of threads for `n_jobs`, as in scikit-learn: -1 all, -2 all but one."""
    available = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if n_jobs is None:
        return 1
    jobs = check_integer(n_jobs, "n_jobs", minimum=-(10**9))
    if jobs == 0:
        raise ValueError("n_jobs must not be 0; give a number of threads, or -1 for all, got 0")
    return min(jobs, available) if jobs > 0 else max(1, available + 1 + jobs)


@loop
def _in_parallel(address, args, blocks):
    for b in numba.prange(blocks.size - 1):
        invoke(address, blocks[b], blocks[b + 1], args)


def launch(unit: Unit, n_threads: int, blocks: NDArray[np.int64], args: KernelArgs) -> None:
    """Run ``unit(blocks[b], blocks[b + 1], args)`` for all b, in parallel where that is safe.

    Serial and parallel launches run the same machine code: results are bitwise identical.
    """
    global _launched
    if INTERPRETED:
        for first, last in pairwise(blocks.tolist()):
            unit.function(first, last, args)
        return
    packed = pack(args)
    if _serial or n_threads == 1 or blocks.size <= 2:
        call = unit.from_python(packed.type)
        for first, last in pairwise(blocks.tolist()):
            call(first, last, packed.address)
        return
    address = unit.address(packed.type)
    with _lock:
        _launched = True
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads)
        try:
            _in_parallel(address, packed.address, blocks)
        finally:
            numba.set_num_threads(before)


def bind_block(unit: Unit, first: int, last: int, args: KernelArgs) -> Callable[[], None]:
    """Return a function that runs ``unit(first, last, args)``, for short work that is repeated.

    It keeps the GIL, because other threads may hold the GIL for milliseconds once it is released.
    The machine code is the same as in `launch`, so results are bitwise identical.
    """
    if INTERPRETED:
        return partial(unit.function, first, last, args)
    packed = pack(args)
    call = unit.from_python(packed.type, keeps_gil=True)

    def run() -> None:
        call(first, last, packed.address)

    return run


def bind_unit(unit: Unit, args: KernelArgs) -> Callable[..., None]:
    """Return a function of the unit's integers, for repeated calls with the same arguments.

    Other Python threads run meanwhile.
    """
    if INTERPRETED:
        return lambda *integers: unit.function(*integers, args)
    packed = pack(args)
    call = unit.from_python(packed.type)

    def run(*integers: int) -> None:
        call(*integers, packed.address)

    return run


def balance_blocks(work: NDArray[np.float64], n_blocks: int) -> NDArray[np.int64]:
    """Return the boundaries of at most `n_blocks` blocks of rows with about equal work."""
    done = np.cumsum(work)
    cuts = np.searchsorted(done, done[-1] * np.arange(1, n_blocks) / n_blocks)
    return np.unique(np.concatenate([[0], cuts, [work.size]])).astype(np.int64)


def map_threads(
    task: Callable[[Item], Result], items: Iterable[Item], n_threads: int
) -> list[Result]:
    """Call a task for each item in a pool of Python threads; return results in the items' order.

    Each thread uses single-threaded BLAS and must not launch parallel kernels. This is meant for
    pieces of work that are too short for a parallel kernel. Other threads that need
    `single_threaded_blas` wait until all items are done.
    """
    items = list(items)
    if INTERPRETED or n_threads == 1 or len(items) < 2:
        return [task(item) for item in items]
    with single_threaded_blas(), ThreadPoolExecutor(min(n_threads, len(items))) as pool:
        futures = []
        try:
            with suppress(RuntimeError):  # no threads can start after the main thread has ended
                for item in items:
                    # Context variables, such as NumPy's errstate, apply to the thread too.
                    futures.append(pool.submit(copy_context().run, task, item))
            done = [future.result() for future in futures]
        except BaseException:  # including Ctrl-C
            pool.shutdown(cancel_futures=True)
            raise
        return done + [task(item) for item in items[len(done) :]]


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread, so that results do not depend on the number of cores.

    The limit applies to the whole process, and overlapping limits would restore each other's
    values. Therefore only one thread at a time may enter, together with its worker threads.
    """
    if _blas_is_limited.get():
        _blas().limit(limits=1, user_api="blas")  # some libraries limit each thread separately
        yield
        return
    with _blas_lock, _blas().limit(limits=1, user_api="blas"):
        token = _blas_is_limited.set(True)
        try:
            yield
        finally:
            _blas_is_limited.reset(token)


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries once; the search runs in a ctypes callback, which loses Ctrl-C."""
    import scipy.linalg  # noqa: F401  # loads its own BLAS

    return ThreadpoolController()
