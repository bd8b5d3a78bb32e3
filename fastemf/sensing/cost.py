"""What a fit of linear measurements takes, estimated before it begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastemf.operators import Gaussian, Operator, Sparse
from fastemf.operators.full import FullOperator
from fastemf.operators.runs import ADJOINT_CHUNKS
from fastemf.sensing.regression import holds_design, holds_gram
from fastemf.support.memory import check_memory
from fastemf.support.warn import warn

__all__ = ["check_cost", "sweep_seconds"]

# A second on one core of 2020 or later: normal numbers drawn, other entries of the A_i read or
# drawn, and multiply-adds of a Gram matrix.
DRAWN_PER_SECOND = 2.5e8
ENTRIES_PER_SECOND = 1e9
PRODUCTS_PER_SECOND = 1e10
SLOW = 600.0  # seconds of a sweep
GRAM_PASSES = 4  # over all A_i in a half step whose design is not held: H, and two Newton steps
KRYLOV_PASSES = 20  # likewise, with two for each of ten conjugate gradient steps


def check_cost(
    A: Operator, k: int, dtype: np.dtype[Any], n_threads: int, *, insists_on_gram: bool = False
) -> None:
    """Refuse what memory has no room for, and warn of a sweep that takes more than ten minutes.

    Parameters
    ----------
    A, k, dtype, n_threads
        What is to be fitted: the operator, the rank, the type computed in, and threads.
    insists_on_gram
        Whether the Gram matrix of a half step is formed whatever its size.
    """
    p, m, n = A.shape
    what = f"{p} measurements of {m} x {n} matrices at rank {k}"
    check_memory(
        _least_bytes(A, k, dtype, insists_on_gram), f"a fit to {what}", "lower the rank or the size"
    )
    seconds = sweep_seconds(A, k, dtype, n_threads, insists_on_gram=insists_on_gram)
    if seconds > SLOW:
        entries = f", which have {float(p) * m * n:.2g} entries" * isinstance(A, FullOperator)
        warn(
            f"one sweep over both factors is estimated to take {_duration(seconds)} or more on "
            f"{n_threads} threads for {what}{entries}; fewer measurements, a smaller k, or "
            "operators with few entries (RankOne, Sparse) take less"
        )


def sweep_seconds(
    A: Operator, k: int, dtype: np.dtype[Any], n_threads: int, *, insists_on_gram: bool = False
) -> float:
    """Estimate the seconds of one sweep, from below: the numbers it goes through, at known rates.

    A half step goes through all A_i once where its design is held, a few times where only the
    Gram matrix is, and for every conjugate gradient step where neither is.
    """
    p, m, n = A.shape
    rate = DRAWN_PER_SECOND if isinstance(A, Gaussian) else ENTRIES_PER_SECOND
    seconds = 0.0
    for size in (m * k, n * k):
        has_gram = insists_on_gram or holds_gram(size, dtype)
        if holds_design(p, size, dtype):
            passes = 1
        else:
            passes = GRAM_PASSES if has_gram else KRYLOV_PASSES
        entries = float(m) * n if isinstance(A, FullOperator) else float(size)
        seconds += passes * p * entries / rate
        if has_gram:
            seconds += 0.5 * p * float(size) ** 2 / PRODUCTS_PER_SECOND
    return seconds / n_threads


def _least_bytes(A: Operator, k: int, dtype: np.dtype[Any], insists_on_gram: bool) -> int:
    """Bound from below what is in memory at once: numbers of measurements, factors, Gram matrix."""
    p, m, n = A.shape
    size = max(m, n) * k
    bytes_ = 5 * 8 * p + 3 * (m + n) * k * dtype.itemsize
    if isinstance(A, (FullOperator, Sparse)):
        bytes_ += 8 * min(p, ADJOINT_CHUNKS) * size  # sums of adjoints
    if insists_on_gram or holds_gram(size, dtype):
        bytes_ += 2 * size**2 * dtype.itemsize  # and its decomposition
    return bytes_


def _duration(seconds: float) -> str:
    for unit, length in (("years", 3.15e7), ("days", 86400), ("hours", 3600)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"
