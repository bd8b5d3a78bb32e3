"""Peak resident size of a fit, in a process that loads its input and does nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from bench.child import call
from bench.problems import grown, label
from bench.runner import Rows, Timing, row, two_threads, warm_up
from bench.scale import Scale

DTYPE = "float32"
PARTS = ("data", "indices", "indptr")


def run(scale: Scale) -> Rows:
    """Measure the peak beyond the imports, without the factors, in multiples of the input."""
    k, threads = scale.growth_rank, two_threads()
    warm_up(DTYPE, k)  # so that the child process does not compile
    R = grown(scale.growth_entries[-1])
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS:
            np.save(Path(folder) / f"{part}.npy", getattr(R, part))
        measured = call("memory", folder, *R.shape, k, threads)
    given = sum(getattr(R, part).nbytes for part in PARTS)
    factors = sum(R.shape) * k * R.dtype.itemsize
    ratio = memory_ratio(measured["peak"], measured["level"], given, factors)
    yield row(
        "memory", "peak over input", label(scale.growth_entries[-1]), R.nnz, DTYPE, k, threads,
        "fastemf ω=0.5", Timing(), **measured, given=given, factors=factors, ratio=ratio,
        note=f"{ratio:.2f} × input of {given / 1e6:.0f} MB, plus factors of {factors / 1e6:.0f} MB",
    )  # fmt: skip


def memory_ratio(peak: int, level: int, given: int, factors: int) -> float:
    """Return the x in peak = level + x · input + factors."""
    return (peak - level - factors) / given
