"""The time before anything is computed: imports, and the first call."""

from __future__ import annotations

import tempfile

from bench.child import call
from bench.runner import Rows, Timing, row, two_threads
from bench.scale import Scale


def run(scale: Scale) -> Rows:
    """Time fresh processes; the cold first call fills the cache that the warm ones use."""
    imports = [call("imports") for _ in range(scale.repeats)]
    timings = {
        "import numba": Timing([found["numba"] for found in imports]),
        "import beyond numba": Timing([found["beyond"] for found in imports]),
    }
    with tempfile.TemporaryDirectory() as folder:
        env = {}
        if scale.cold_compile:
            env = {"NUMBA_CACHE_DIR": folder}
            timings["first call, cold"] = Timing([call("first_call", env=env)["seconds"]])
        warm = [call("first_call", env=env)["seconds"] for _ in range(scale.repeats)]
        timings["first call, warm cache"] = Timing(warm)
    for what, timing in timings.items():
        yield row("cold", what, "100 x 80", 0, "float64", 4, two_threads(), "fastemf ω=0.5", timing)
