"""Throughput against threads: one, two, four, … as many as there are."""

from __future__ import annotations

from functools import partial

from bench.competitors import Fastemf
from bench.problems import PROBLEMS
from bench.runner import (
    LAMBDA,
    Row,
    Say,
    available_threads,
    interleaved,
    line,
    row,
    warm_up,
)
from bench.scale import Scale


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, … and the last one whatever it is."""
    counts = [1]
    while 2 * counts[-1] <= most:
        counts.append(2 * counts[-1])
    return counts if counts[-1] == most else [*counts, most]


def run(scale: Scale, say: Say) -> list[Row]:
    """Time both types at one rank, thread counts in turn."""
    R = PROBLEMS[scale.problem]()
    entry = Fastemf(0.5)
    rows: list[Row] = []
    for dtype in scale.dtypes:
        warm_up(dtype, scale.rank)
        data = entry.prepare(R.astype(dtype))
        runs = {
            str(threads): partial(entry.sweep_seconds, data, scale.rank, LAMBDA, threads)
            for threads in powers_of_two(available_threads())
        }
        timings = interleaved(runs, scale.repeats)
        for threads, timing in timings.items():
            found = row(
                "threads", "sweep", scale.problem, R.nnz, dtype, scale.rank, int(threads),
                entry.name, timing,
            )  # fmt: skip
            if timing.best and timings["1"].best:
                found["speedup"] = timings["1"].best / timing.best
                found["note"] = f"×{found['speedup']:.2f} of one thread"
            rows.append(found)
            say(line(found))
    return rows
