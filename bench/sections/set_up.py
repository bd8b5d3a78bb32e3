"""The work of a fit before its first sweep, against a sweep."""

from __future__ import annotations

import time
from typing import Any

from bench.competitors import Fastemf
from bench.problems import grown, label
from bench.runner import LAMBDA, Row, Say, Timing, line, row, two_threads, warm_up
from bench.scale import Scale

DTYPE = "float32"
REPEATS = 2  # of about a minute each at full size


def run(scale: Scale, say: Say) -> list[Row]:
    """Time grouping the entries, the spectral start and a sweep; the best of the repeats each."""
    k, threads = scale.rank, two_threads()
    warm_up(DTYPE, k)
    R = grown(scale.growth_entries[-1])
    entry = Fastemf(0.5)
    times: dict[str, list[float]] = {"observe": [], "start": [], "sweep": []}
    for _ in range(min(REPEATS, scale.repeats)):
        began = time.perf_counter()
        data = entry.prepare(R)
        times["observe"].append(time.perf_counter() - began)
        stamps: list[float] = []

        def read(record: Any, stamps: list[float] = stamps) -> None:
            stamps.append(time.perf_counter() - record.seconds)

        began = time.perf_counter()
        fit = entry.run(data, k, LAMBDA, threads, 2, momentum=False, callback=read)
        times["start"].append(stamps[0] - began)  # up to where the first sweep began
        times["sweep"].append(min(record.seconds for record in fit.history))
        del data, fit
    sweep = min(times["sweep"])
    rows = []
    for what, seconds in times.items():
        found = row(
            "setup", what, label(scale.growth_entries[-1]), R.nnz, DTYPE, k, threads, entry.name,
            Timing(seconds),
        )  # fmt: skip
        if what != "sweep":
            found["note"] = f"{found['seconds'] / sweep:.2f} sweeps"
        rows.append(found)
        say(line(found))
    return rows
