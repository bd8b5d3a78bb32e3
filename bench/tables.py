"""``python -m bench.tables``: the cost of reading labelled tables, compared with sweeps.

An Arrow table (client, service, ms) with labels as strings, as a dictionary (categories) and as
integers: seconds to labels and grouped observations, in multiples of a sweep at k = 16, and the
peak memory beyond the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.child import reset_peak, resident
from bench.runner import machine
from fastemf import Solver, complete
from fastemf.sources.memory import observe

NAMES = {"rows": "client", "cols": "service", "values": "ms"}
RANK = 16
TARGET = 3.0  # sweeps


def log(lines: int, clients: int, services: int, kind: str) -> pa.Table:
    """Return a table with one chunk per column and rows in random order."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for name, size in (("client", clients), ("service", services)):
        codes = pa.array(rng.integers(0, size, lines, np.int32))
        labels = pa.array([f"{name}-{at:07d}" for at in range(size)])
        if kind == "strings":
            columns[name] = labels.take(codes)
        elif kind == "dictionary":
            columns[name] = pa.DictionaryArray.from_arrays(codes, labels)
        else:
            columns[name] = codes.cast(pa.int64())
    columns["ms"] = rng.gamma(2.0, 10.0, lines)
    return pa.table(columns)


def measure(table: pa.Table, threads: int, repeats: int) -> dict[str, Any]:
    """Measure the seconds of set-up and of a sweep, best of the repeats, and memory."""
    level = resident("VmRSS")
    reset_peak()
    set_up, sweeps = [], []
    for repeat in range(repeats):
        began = time.perf_counter()
        observed = observe(table, **NAMES, n_threads=threads)
        set_up.append(time.perf_counter() - began)
        if repeat == 0:
            peak, kept = resident("VmHWM") - level, resident("VmRSS") - level
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it does not converge
            fit = complete(
                observed, 0.1, RANK, reg=0.1, init="random", tol=0.0, max_iter=2,
                solver=Solver(momentum=False), n_jobs=threads,
            )  # fmt: skip
        sweeps += [record.seconds for record in fit.history]
    return {
        "seconds": min(set_up),
        "sweep": min(sweeps),
        "sweeps": min(set_up) / min(sweeps),
        "table_bytes": table.nbytes,
        "peak_bytes": peak,
        "kept_bytes": kept,
    }


def main(argv: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to test that it runs")
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args(argv)
    lines = 2000 if args.smoke else args.lines
    clients, services = (50, 40) if args.smoke else (100_000, 10_000)
    about = machine()
    print(
        f"{about['cpu']}, {about['cores']} cores, pyarrow {pa.__version__}, {args.threads} threads"
    )
    print(f"{lines:,} lines, {clients:,} clients, {services:,} services, float64, k={RANK}")
    measure(log(2000, 50, 40, "strings"), args.threads, 1)  # compiled
    results: dict[str, Any] = {"machine": about, "lines": lines, "tables": {}}
    for kind in ("strings", "dictionary", "integers"):
        found = measure(log(lines, clients, services, kind), args.threads, args.repeats)
        results["tables"][kind] = found
        print(
            f"{kind:<11} {found['seconds']:6.2f} s, a sweep {found['sweep']:.2f} s: "
            f"{found['sweeps']:.2f} sweeps (target {TARGET:g}); beyond the "
            f"{found['table_bytes'] / 1e6:.0f} MB of the table at most "
            f"{found['peak_bytes'] / 1e6:.0f} MB, "
            f"{found['kept_bytes'] / 1e6:.0f} MB kept"
        )
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
