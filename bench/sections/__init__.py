"""The measurements: one module per section, each with a `run(scale)` that yields result rows."""

from __future__ import annotations

from collections.abc import Callable

from bench.runner import Rows
from bench.scale import Scale
from bench.sections import (
    asymmetry,
    cold_start,
    growth,
    memory,
    ranking,
    set_up,
    sweeps,
    threads,
    time_to_quality,
    tuned,
)

SECTIONS: dict[str, Callable[[Scale], Rows]] = {
    "sweeps": sweeps.run,
    "quality": time_to_quality.run,
    "asymmetry": asymmetry.run,
    "threads": threads.run,
    "growth": growth.run,
    "setup": set_up.run,
    "memory": memory.run,
    "tuned": tuned.run,
    "rank": ranking.run,
    "cold": cold_start.run,
}
