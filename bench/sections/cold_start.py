"""The time a user waits before anything is computed: imports, and the first call."""

from __future__ import annotations

import tempfile

from bench.child import call
from bench.runner import Row, Say, Timing, line, row, two_threads
from bench.scale import Scale


def run(scale: Scale, say: Say) -> list[Row]:
    """Time each in fresh processes; a cold first call fills the cache that the warm ones use."""
    timings = {"import numba": Timing(), "import beyond numba": Timing()}
    for _ in range(scale.repeats):
        found = call("imports")
        timings["import numba"].seconds.append(found["numba"])
        timings["import beyond numba"].seconds.append(found["beyond"])
    with tempfile.TemporaryDirectory() as folder:
        env = {}
        if scale.cold_compile:
            env = {"NUMBA_CACHE_DIR": folder}
            timings["first call, cold"] = Timing([call("first_call", env=env)["seconds"]])
        warm = [call("first_call", env=env)["seconds"] for _ in range(scale.repeats)]
        timings["first call, warm cache"] = Timing(warm)
    rows = []
    for what, timing in timings.items():
        found = row(
            "cold", what, "100 x 80", 0, "float64", 4, two_threads(), "fastemf ω=0.5", timing
        )
        rows.append(found)
        say(line(found))
    return rows
