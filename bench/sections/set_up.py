"""The work of a fit before its first sweep, compared with a sweep."""

from __future__ import annotations

import time
from typing import Any

from bench.competitors import Fastemf
from bench.problems import grown, label
from bench.runner import LAMBDA, Rows, Timing, row, timed, two_threads, warm_up
from bench.scale import Scale

DTYPE = "float32"
REPEATS = 2  # of about a minute each at full size


def run(scale: Scale) -> Rows:
    """Time the grouping of the entries, the spectral start and a sweep."""
    k, threads = scale.rank, two_threads()
    warm_up(DTYPE, k)
    R = grown(scale.growth_entries[-1])
    entry = Fastemf(0.5)
    times: dict[str, list[float]] = {"observe": [], "start": [], "sweep": []}
    for _ in range(min(REPEATS, scale.repeats)):
        data, seconds = timed(entry.prepare, R)
        times["observe"].append(seconds)
        sweep_starts: list[float] = []

        def read(record: Any, sweep_starts: list[float] = sweep_starts) -> None:
            sweep_starts.append(time.perf_counter() - record.seconds)

        began = time.perf_counter()
        fit = entry.run(data, k, LAMBDA, threads, 2, momentum=False, callback=read)
        times["start"].append(sweep_starts[0] - began)
        times["sweep"].append(min(record.seconds for record in fit.history))
        del data, fit
    for what, seconds in times.items():
        result = row(
            "setup", what, label(scale.growth_entries[-1]), R.nnz, DTYPE, k, threads, entry.name,
            Timing(seconds),
        )  # fmt: skip
        if what != "sweep":
            result["note"] = f"{result['seconds'] / min(times['sweep']):.2f} sweeps"
        yield result
