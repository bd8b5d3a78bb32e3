"""Seconds per sweep against the number of entries, and against the rank."""

from __future__ import annotations

from functools import partial

from bench.competitors import Fastemf
from bench.problems import PROBLEMS, grown, label
from bench.runner import LAMBDA, Row, Say, interleaved, line, row, two_threads, warm_up
from bench.scale import Scale

DTYPE = "float32"


def run(scale: Scale, say: Say) -> list[Row]:
    """Time all sizes in turn, then all ranks in turn."""
    entry = Fastemf(0.5)
    threads = two_threads()
    warm_up(DTYPE, scale.growth_rank)
    sizes = {label(entries): entry.prepare(grown(entries)) for entries in scale.growth_entries}
    timings = interleaved(
        {
            name: partial(entry.sweep_seconds, data, scale.growth_rank, LAMBDA, threads)
            for name, data in sizes.items()
        },
        scale.repeats,
    )
    rows = []
    for name, timing in timings.items():
        entries = sizes[name].size
        found = row(
            "growth", "entries", name, entries, DTYPE, scale.growth_rank, threads, entry.name,
            timing,
        )  # fmt: skip
        if timing.best:
            found["per_entry"] = timing.best / entries
            found["note"] = f"{1e9 * found['per_entry']:.1f} ns per entry"
        rows.append(found)
        say(line(found))
    del sizes

    for k in scale.growth_ranks:
        warm_up(DTYPE, k)
    data = entry.prepare(PROBLEMS[scale.problem]().astype(DTYPE))
    timings = interleaved(
        {
            str(k): partial(entry.sweep_seconds, data, k, LAMBDA, threads)
            for k in scale.growth_ranks
        },
        min(2, scale.repeats),
    )
    for k, timing in timings.items():
        found = row(
            "growth", "rank", scale.problem, data.size, DTYPE, int(k), threads, entry.name, timing
        )
        rows.append(found)
        say(line(found))
    return rows
