"""Measurements in a separate process: ``python -m bench.child TASK ARGUMENTS``.

Only the standard library is imported before a task begins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def call(task: str, *arguments: Any, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a task in a fresh process, from this checkout; return its result."""
    command = [sys.executable, "-m", "bench.child", task, *map(str, arguments)]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(env or {})}, capture_output=True, text=True
    )
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{task}: {last}")
    result: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return result


def imports() -> dict[str, float]:
    """Time `import numba`, and the import of `fastemf.complete` after it."""
    began = time.perf_counter()
    import numba  # noqa: F401

    middle = time.perf_counter()
    from fastemf import complete  # noqa: F401

    return {"numba": middle - began, "beyond": time.perf_counter() - middle}


def first_call() -> dict[str, float]:
    """Time the first fit of a process, of a tiny matrix."""
    import numpy as np

    from fastemf import complete

    rng = np.random.default_rng(0)
    R = np.where(rng.random((100, 80)) < 0.3, rng.random((100, 80)), np.nan)
    began = time.perf_counter()
    complete(R, 0.1, 4, tol=1e-3)
    return {"seconds": time.perf_counter() - began}


def memory(folder: str, m: str, n: str, k: str, threads: str) -> dict[str, int]:
    """Return resident bytes after the imports, and the peak while data are loaded and fitted."""
    import numpy as np
    import scipy.sparse as sp

    from bench.competitors import Fastemf
    from bench.runner import LAMBDA
    from fastemf import complete  # noqa: F401

    level = resident("VmRSS")
    reset_peak()
    parts = [np.load(Path(folder) / f"{part}.npy") for part in ("data", "indices", "indptr")]
    R = sp.csr_matrix(tuple(parts), shape=(int(m), int(n)), copy=False)
    Fastemf(0.5).run(R, int(k), LAMBDA, int(threads), 2)
    return {"level": level, "peak": resident("VmHWM")}


def build_store(source: str, target: str, memory: str, *shape: str) -> dict[str, float]:
    """Build a store from a Parquet file with columns row, col and value; return time and peak.

    With a shape, rows and columns are positions; otherwise they are labels.
    """
    import pyarrow.parquet  # noqa: F401

    from fastemf import store

    level = resident("VmRSS")
    reset_peak()
    began = time.perf_counter()
    store.build(
        source, target, rows="row", cols="col", values="value",
        shape=tuple(map(int, shape)) or None, memory_limit=int(memory),
    )  # fmt: skip
    return {
        "seconds": time.perf_counter() - began, "level": level, "peak": resident("VmHWM"),
    }  # fmt: skip


def fit_csv(source: str) -> dict[str, float]:
    """Read a CSV file with columns row, col and value into a fit of one sweep."""
    import numpy as np

    from fastemf import complete

    settings: dict[str, Any] = {"reg": 0.1, "init": "random", "max_iter": 1, "tol": 0.0}
    complete(np.eye(9) + 1, 0.5, 8, **settings)  # loads the kernels
    reset_peak()
    began = time.perf_counter()
    fit = complete(source, 0.5, 8, rows="row", cols="col", values="value", **settings)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "sweep": fit.history[0].seconds, "peak": resident("VmHWM")}


def append_store(source: str, target: str, times: str, memory: str) -> dict[str, list[float]]:
    """Append a Parquet file with columns row, col and value several times; return the seconds."""
    import pyarrow.parquet  # noqa: F401

    from fastemf import store

    seconds = []
    for _ in range(int(times)):
        began = time.perf_counter()
        store.append(target, source, memory_limit=int(memory))
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds}


def resident(field: str) -> int:
    """Return resident bytes: VmRSS (now) or VmHWM (peak); without /proc always the peak."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def reset_peak() -> None:
    """Reset VmHWM where the system allows it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


TASKS = {
    "imports": imports, "first_call": first_call, "memory": memory, "build_store": build_store,
    "append_store": append_store, "fit_csv": fit_csv,
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
