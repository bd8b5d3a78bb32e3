"""``python -m bench.cluster``: the overhead of a half-sweep on a Dask cluster.

Local worker processes with one thread each solve the blocks of a store. The overhead of a
half-sweep is its time less that of the slowest worker's solves: sending factors and results,
messages, waiting. The matrix with ten thousand entries takes next to no time to solve.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.problems import grown, label
from bench.runner import print_machine

HEADER = f"{'entries':>8}{'k':>4}{'half-sweep':>12}{'solves':>10}{'overhead':>10}{'factors':>11}"


def timed_solve(*args: Any) -> tuple[str, float, int]:
    """Run `solve_block` on a worker; return the worker, the seconds and the bytes of the rows."""
    from distributed import get_worker

    from fastemf.solver.half_sweep import solve_block

    began = time.perf_counter()
    solved = solve_block(*args)
    return get_worker().address, time.perf_counter() - began, solved.factor.nbytes


def half_sweep(source: Any, axis: int, k: int) -> tuple[float, float, int]:
    """Return wall-clock seconds, seconds of the slowest worker, and bytes of both factors."""
    from fastemf.solver.half_sweep import Regressors, RowArrays, RowProblem

    rng = np.random.default_rng(0)
    sides = (source.by_row, source.by_col)
    start, other = (
        rng.random((source.shape[at], k)).astype(source.dtype) for at in (axis, 1 - axis)
    )
    began = time.perf_counter()
    reports = sides[axis].each(
        timed_solve, Regressors.of(other),
        RowArrays(start, np.column_stack([sides[axis].mass] * 2)), RowProblem(0.1, k), n_threads=1,
    )  # fmt: skip
    busy: dict[str, float] = {}
    for _, (worker, seconds, _) in reports:
        busy[worker] = busy.get(worker, 0.0) + seconds
    return time.perf_counter() - began, max(busy.values()), start.nbytes + other.nbytes


def measure(store: Any, client: Any, ranks: list[int], repeats: int) -> list[str]:
    """Return one line per rank: medians over rows and columns."""
    from fastemf.sources.cluster.distribution import distribute

    lines = []
    with distribute(store, client) as source:
        for k in ranks:
            for axis in (0, 1):
                half_sweep(source, axis, k)  # blocks are loaded and kernels compiled
            runs = [half_sweep(source, axis, k) for _ in range(repeats) for axis in (0, 1)]
            wall, solves = (median(column) for column in list(zip(*runs, strict=True))[:2])
            overhead = median(run[0] - run[1] for run in runs)
            lines.append(
                f"{label(source.size):>8}{k:>4}{wall * 1e3:>9.0f} ms{solves * 1e3:>7.0f} ms"
                f"{overhead * 1e3:>7.0f} ms{runs[0][2] / 1e6:>8.1f} MB"
            )
    return lines


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    from distributed import Client, LocalCluster

    import fastemf

    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--entries", type=float, nargs="+", default=[1e4, 1e6, 4e6])
    parser.add_argument("--ranks", type=int, nargs="+", default=[10, 32])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    print_machine()
    print(f"{options.workers} workers with one thread each")
    print(HEADER, flush=True)
    with (
        TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=options.workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as workers,
        Client(workers) as client,
    ):
        for entries in options.entries:
            R = grown(int(entries)).tocoo()
            path = Path(folder) / f"{entries:.0f}"
            built = fastemf.store.build((R.row, R.col, R.data), path, shape=R.shape)
            print("\n".join(measure(built, client, options.ranks, options.repeats)), flush=True)


if __name__ == "__main__":
    main()
