"""The measurements: one module per section, each a `run(scale, say)` that returns rows."""

from __future__ import annotations

from collections.abc import Callable

from bench.runner import Row, Say
from bench.scale import Scale
from bench.sections import (
    asymmetry,
    cold_start,
    growth,
    memory,
    ranks,
    set_up,
    sweeps,
    threads,
    time_to_quality,
    tuned,
)

SECTIONS: dict[str, Callable[[Scale, Say], list[Row]]] = {
    "sweeps": sweeps.run,
    "quality": time_to_quality.run,
    "asymmetry": asymmetry.run,
    "threads": threads.run,
    "growth": growth.run,
    "setup": set_up.run,
    "memory": memory.run,
    "tuned": tuned.run,
    "rank": ranks.run,
    "cold": cold_start.run,
}
