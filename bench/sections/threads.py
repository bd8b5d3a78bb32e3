"""Throughput against the number of threads: one, two, four, … all."""

from __future__ import annotations

from functools import partial

from bench.competitors import Fastemf
from bench.problems import PROBLEMS
from bench.runner import LAMBDA, Rows, available_threads, interleaved, row, warm_up
from bench.scale import Scale


def run(scale: Scale) -> Rows:
    """Time both types at one rank, with the numbers of threads in turn."""
    R = PROBLEMS[scale.problem]()
    entry, k = Fastemf(0.5), scale.rank
    for dtype in scale.dtypes:
        warm_up(dtype, k)
        data = entry.prepare(R.astype(dtype))
        runs = {
            str(threads): partial(entry.sweep_seconds, data, k, LAMBDA, threads)
            for threads in powers_of_two(available_threads())
        }
        timings = interleaved(runs, scale.repeats)
        for threads, timing in timings.items():
            result = row(
                "threads", "sweep", scale.problem, R.nnz, dtype, k, int(threads), entry.name, timing
            )
            if timing.best and timings["1"].best:
                result["speedup"] = timings["1"].best / timing.best
                result["note"] = f"×{result['speedup']:.2f} of one thread"
            yield result


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, … below `most`, and `most`."""
    counts = [1]
    while 2 * counts[-1] <= most:
        counts.append(2 * counts[-1])
    return counts if counts[-1] == most else [*counts, most]
