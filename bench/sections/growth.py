"""Seconds per sweep against the number of entries, and against the rank."""

from __future__ import annotations

from functools import partial

from bench.competitors import Fastemf
from bench.problems import PROBLEMS, grown, label
from bench.runner import LAMBDA, Rows, interleaved, row, two_threads, warm_up
from bench.scale import Scale

DTYPE = "float32"


def run(scale: Scale) -> Rows:
    """Time all sizes in turn, then all ranks in turn."""
    yield from _by_entries(scale)
    yield from _by_rank(scale)


def _by_entries(scale: Scale) -> Rows:
    entry, threads, k = Fastemf(0.5), two_threads(), scale.growth_rank
    warm_up(DTYPE, k)
    sizes = {label(entries): entry.prepare(grown(entries)) for entries in scale.growth_entries}
    runs = {
        name: partial(entry.sweep_seconds, data, k, LAMBDA, threads) for name, data in sizes.items()
    }
    for name, timing in interleaved(runs, scale.repeats).items():
        entries = sizes[name].size
        result = row("growth", "entries", name, entries, DTYPE, k, threads, entry.name, timing)
        if timing.best:
            result["per_entry"] = timing.best / entries
            result["note"] = f"{1e9 * result['per_entry']:.1f} ns per entry"
        yield result


def _by_rank(scale: Scale) -> Rows:
    entry, threads = Fastemf(0.5), two_threads()
    for k in scale.growth_ranks:
        warm_up(DTYPE, k)
    data = entry.prepare(PROBLEMS[scale.problem]().astype(DTYPE))
    runs = {
        str(k): partial(entry.sweep_seconds, data, k, LAMBDA, threads) for k in scale.growth_ranks
    }
    for k, timing in interleaved(runs, min(2, scale.repeats)).items():
        yield row(
            "growth", "rank", scale.problem, data.size, DTYPE, int(k), threads, entry.name, timing
        )
