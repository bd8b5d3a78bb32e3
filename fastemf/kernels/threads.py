"""Launches of units over blocks, in parallel; the only file that touches Numba's thread settings.

Three facts shape it. On the `workqueue` layer two Python threads that launch a
parallel kernel at once abort the process. A child forked after a parallel
launch dies in its first one. And `set_num_threads` is per Python thread. So
there is one lock around every launch, and such a child runs serially.
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
from fastemf.kernels.frames import Frame, invoke, pack
from fastemf.support.validation import check_integer

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.Lock()
_launched = False  # a parallel kernel ran in this process: its thread pool exists
_serial = False  # forked from such a process: the pool is gone
_blas_lock = threading.Lock()
_blas_is_limited = ContextVar("_blas_is_limited", default=False)


def _after_fork() -> None:
    global _lock, _blas_lock, _serial
    # The old locks may be held by threads that no longer exist.
    _lock, _blas_lock = threading.Lock(), threading.Lock()
    # Other code in the process may have launched kernels too; Numba's flag is not public.
    _serial = _launched or bool(getattr(parallel, "_is_initialized", False))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def count_threads(n_jobs: Any) -> int:
    """Count the threads that scikit-learn's `n_jobs` means: -1 all, -2 all but one, at most all."""
    available = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if n_jobs is None:
        return 1
    jobs = check_integer(n_jobs, "n_jobs", minimum=-(10**9))
    if jobs == 0:
        raise ValueError("n_jobs must not be 0: give a number of threads, or -1 for all")
    return min(jobs, available) if jobs > 0 else max(1, available + 1 + jobs)


@loop
def _in_parallel(address, frame, blocks):
    for b in numba.prange(blocks.size - 1):
        invoke(address, blocks[b], blocks[b + 1], frame)


def launch(unit: Unit, n_threads: int, blocks: NDArray[np.int64], frame: Frame) -> None:
    """Run ``unit(blocks[b], blocks[b + 1], frame)`` for all b, in parallel where that is safe.

    The same machine code runs either way, so the results are bitwise identical.
    """
    global _launched
    if INTERPRETED:
        for first, last in pairwise(blocks.tolist()):
            unit.function(first, last, frame)
        return
    packed = pack(frame)
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


def prepared(unit: Unit, first: int, last: int, frame: Frame) -> Callable[[], None]:
    """Make ``unit(first, last, frame)`` a function to be called again and again, for short work.

    It keeps Python's lock, which other threads, once they have it, may hold for milliseconds.
    The machine code is that of `launch`, so the results are bitwise identical.
    """
    if INTERPRETED:
        return partial(unit.function, first, last, frame)
    packed = pack(frame)
    call = unit.from_python(packed.type, keeps_lock=True)

    def run() -> None:
        call(first, last, packed.address)

    return run


def ready(unit: Unit, frame: Frame) -> Callable[..., None]:
    """Make a unit a function of its whole numbers alone, to be called again and again on a frame.

    Other threads of Python run meanwhile.
    """
    if INTERPRETED:
        return lambda *numbers: unit.function(*numbers, frame)
    packed = pack(frame)
    call = unit.from_python(packed.type)

    def run(*numbers: int) -> None:
        call(*numbers, packed.address)

    return run


def balanced(work: NDArray[np.float64], n_blocks: int) -> NDArray[np.int64]:
    """Cut rows into at most `n_blocks` runs with about equal work, and return the boundaries."""
    done = np.cumsum(work)
    cuts = np.searchsorted(done, done[-1] * np.arange(1, n_blocks) / n_blocks)
    return np.unique(np.concatenate([[0], cuts, [work.size]])).astype(np.int64)


def side_by_side(
    task: Callable[[Item], Result], items: Iterable[Item], n_threads: int
) -> list[Result]:
    """Call a task with each item, several at once, and return the results in the items' order.

    These are threads of Python, each with a BLAS of one, whose kernels must not be launched in
    parallel again: for work in pieces that are too short to be shared well. Other threads that
    want a BLAS of one wait until all is done.
    """
    items = list(items)
    if INTERPRETED or n_threads == 1 or len(items) < 2:
        return [task(item) for item in items]
    with single_threaded_blas(), ThreadPoolExecutor(min(n_threads, len(items))) as pool:
        futures = []
        try:
            with suppress(RuntimeError):  # the main thread has ended, and no new one may begin
                for item in items:
                    # What a thread knows of its surroundings, as NumPy's errstate, it is told.
                    futures.append(pool.submit(copy_context().run, task, item))
            done = [future.result() for future in futures]
        except BaseException:  # Ctrl-C, too
            pool.shutdown(cancel_futures=True)
            raise
        return done + [task(item) for item in items[len(done) :]]


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Let BLAS use one thread, so that results do not depend on how many the machine has.

    The limit holds for the whole process and overlapping ones restore each other's
    values, so only one thread at a time may be inside, with those that work for it.
    """
    if _blas_is_limited.get():
        _blas().limit(limits=1, user_api="blas")  # some libraries have a limit for each thread
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
    """Find the BLAS libraries, once: the search runs in a ctypes callback, which loses a Ctrl-C."""
    import scipy.linalg  # noqa: F401  # brings a BLAS of its own

    return ThreadpoolController()
