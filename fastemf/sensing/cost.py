"""Estimates of the memory and time of a fit to linear measurements."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastemf.operators import Gaussian, Operator
from fastemf.operators.kernel_operator import ADJOINT_CHUNKS, DenseOperator, KernelOperator
from fastemf.sensing.regression import fits_design, fits_gram
from fastemf.support.memory import check_memory
from fastemf.support.warn import warn

# Per second on one core of 2020 or later: normal numbers generated, other entries of the A_i read
# or generated, multiply-adds of a Gram matrix.
DRAWN_PER_SECOND = 2.5e8
ENTRIES_PER_SECOND = 1e9
PRODUCTS_PER_SECOND = 1e10
SLOW = 600.0  # seconds of a sweep
GRAM_PASSES = 4  # over all A_i in a half step with a streamed design: H, two Newton steps
KRYLOV_PASSES = 20  # the same with two passes for each of ten conjugate gradient steps


def check_cost(
    A: Operator, k: int, dtype: np.dtype[Any], n_threads: int, *, insists_on_gram: bool = False
) -> None:
    """Raise if memory does not suffice, and warn if a sweep takes more than ten minutes.

    With `insists_on_gram` the Gram matrix of a half step is formed whatever its size.
    """
    p, m, n = A.shape
    what = f"{p} measurements of {m} x {n} matrices at rank {k}"
    least = _least_bytes(A, k, dtype, insists_on_gram)
    check_memory(least, f"a fit to {what}", "reduce the rank or the size")
    seconds = sweep_seconds(A, k, dtype, n_threads, insists_on_gram=insists_on_gram)
    if seconds > SLOW:
        entries = f", which have {float(p) * m * n:.2g} entries" * isinstance(A, DenseOperator)
        warn(
            f"one sweep over both factors is estimated to take {_duration(seconds)} or more on "
            f"{n_threads} threads for {what}{entries}; fewer measurements, a smaller k, or "
            "operators with few entries (RankOne, Sparse) take less"
        )


def sweep_seconds(
    A: Operator, k: int, dtype: np.dtype[Any], n_threads: int, *, insists_on_gram: bool = False
) -> float:
    """Return a lower estimate of the seconds of one sweep, from operation counts and rates.

    A half step reads all A_i once if its design fits into memory, a few times if only the Gram
    matrix does, and in every conjugate gradient step otherwise.
    """
    p, m, n = A.shape
    rate = DRAWN_PER_SECOND if isinstance(A, Gaussian) else ENTRIES_PER_SECOND
    seconds = 0.0
    for size in (m * k, n * k):
        has_gram = insists_on_gram or fits_gram(size, dtype)
        if fits_design(p, size, dtype):
            passes = 1
        else:
            passes = GRAM_PASSES if has_gram else KRYLOV_PASSES
        entries = float(m) * n if isinstance(A, DenseOperator) else float(size)
        seconds += passes * p * entries / rate
        if has_gram:
            seconds += 0.5 * p * float(size) ** 2 / PRODUCTS_PER_SECOND
    return seconds / n_threads


def _least_bytes(A: Operator, k: int, dtype: np.dtype[Any], insists_on_gram: bool) -> int:
    """Return a lower bound of the memory for measurements, factors and Gram matrix."""
    p, m, n = A.shape
    size = max(m, n) * k
    bytes_ = 5 * 8 * p + 3 * (m + n) * k * dtype.itemsize
    if isinstance(A, KernelOperator):
        bytes_ += 8 * min(p, ADJOINT_CHUNKS) * size  # partial sums of the adjoint
    if insists_on_gram or fits_gram(size, dtype):
        bytes_ += 2 * size**2 * dtype.itemsize  # and its decomposition
    return bytes_


def _duration(seconds: float) -> str:
    for unit, length in (("years", 3.15e7), ("days", 86400), ("hours", 3600)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"
