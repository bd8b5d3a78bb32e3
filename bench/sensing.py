"""``python -m bench.sensing``: the cost of linear measurements.

Entries drawn per second inside `forward` against NumPy's generator, a sweep's time
against m, n, k and p, the price of asymmetry, and one sweep of an operator that would take 14 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.runner import machine
from fastemf.operators import Dense, Gaussian, Operator, Rademacher
from fastemf.sensing.sense import SensingEngine
from fastemf.solver.alternation import Alternation
from fastemf.solver.ridge import FixedRidge
from fastemf.solver.settings import Settings

BUFFER = 1 << 16  # NumPy draws into a buffer that stays in the cache, over and over


def best(run: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of the fastest of a few runs."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def drawing_rates(p: int, size: int, threads: int, repeats: int) -> list[dict[str, Any]]:
    """Measure entries per second, in turn with NumPy's `standard_normal` on one thread."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((size, 5)), rng.standard_normal((size, 5))
    buffer = np.empty(BUFFER)
    drawn = p * size * size
    kinds = {"Gaussian": Gaussian(p, (size, size)), "Rademacher": Rademacher(p, (size, size))}
    for A in kinds.values():
        A.forward(X, Y, n_jobs=threads)  # compiled
    seconds: dict[str, list[float]] = {name: [] for name in ("NumPy", *kinds)}
    for _ in range(repeats):
        seconds["NumPy"].append(
            best(lambda: [rng.standard_normal(out=buffer) for _ in range(50)], 1) / (50 * BUFFER)
        )
        for name, A in kinds.items():
            seconds[name].append(best(lambda A=A: A.forward(X, Y, n_jobs=threads), 1) / drawn)
    numpy = min(seconds["NumPy"])
    return [
        {"what": name, "per_second": 1 / min(taken), "over_numpy": numpy / min(taken)}
        for name, taken in seconds.items()
    ]


def sweep_seconds(
    A: Operator, k: int, omega: float, threads: int, sweeps: int = 4
) -> tuple[list[float], float]:
    """Return seconds of each sweep from a rough start, and Newton iterations per half step."""
    _, m, n = A.shape
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    b = np.asarray(A.forward(X, Y, n_jobs=threads), np.float64)
    b += 0.2 * np.std(b) * rng.chisquare(3, b.size)
    engine = SensingEngine(A, b, omega, weights=None, dtype=np.dtype(np.float64), n_threads=threads)
    settings = Settings(omega=omega, k=k, reg=0, tol=0, max_iter=sweeps, momentum=False)
    loop = Alternation(engine, FixedRidge.given(0.0, omega), settings, lambda record: None)
    end = loop.run(loop.start(X + 0.5 * rng.standard_normal(X.shape), Y.copy()))
    iterations = float(np.mean([record.inner_iterations for record in end.history]))
    return [record.seconds for record in end.history], iterations


def main(argv: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.sensing", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: only that it runs")
    parser.add_argument("--part", choices=["rates", "cost", "asymmetry", "memory"], action="append")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args(argv)
    parts = args.part or ["rates", "cost", "asymmetry", "memory"]
    threads, tiny = args.threads, args.smoke
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, {threads} threads")
    results: dict[str, Any] = {"machine": about, "threads": threads}

    if "memory" in parts:  # first: a process's peak never falls
        p, size = (200, 12) if tiny else (20_000, 300)
        Gaussian(50, (12, 12)).design(np.ones((12, 2)), 0, n_jobs=threads)  # compiled
        seconds, iterations = sweep_seconds(Gaussian(p, (size, size)), 5, 0.1, threads, sweeps=1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        results["memory"] = {"seconds": seconds[0], "peak_bytes": peak}
        print(
            f"one sweep, Gaussian {size} x {size}, k=5, p={p}, ω=0.1: {seconds[0]:.2f} s, "
            f"{iterations:.1f} Newton iterations per half, peak {peak / 1e6:.0f} MB of the process"
        )
    if "rates" in parts:
        rates = drawing_rates(*((20, 20) if tiny else (1000, 300)), threads, 1 if tiny else 7)
        results["rates"] = rates
        for row in rates:
            print(
                f"{row['what']:<11} {row['per_second'] / 1e6:8.0f} M entries/s   "
                f"{row['over_numpy']:5.1f} x NumPy on one thread"
            )
    if "asymmetry" in parts:
        p, size = (60, 8) if tiny else (2925, 100)
        A = Dense(Gaussian(p, (size, size)).design(np.eye(size), 0).reshape(p, size, size))
        times = {omega: sweep_seconds(A, 1 if tiny else 5, omega, threads) for omega in (0.5, 0.1)}
        for omega in (0.5, 0.1) * 3:  # more often, in turn
            again, _ = sweep_seconds(A, 1 if tiny else 5, omega, threads)
            times[omega] = (
                [min(pair) for pair in zip(times[omega][0], again, strict=True)],
                times[omega][1],
            )
        results["asymmetry"] = {str(omega): times[omega][0] for omega in times}
        print(f"Dense {size} x {size}, p={p}, seconds of sweeps 1, 2, …")
        for omega, (seconds, iterations) in times.items():
            shown = " ".join(f"{s:.3f}" for s in seconds)
            print(f"  ω={omega}: {shown}   {iterations:.1f} Newton iterations per half")
        ratios = [a / b for a, b in zip(times[0.1][0], times[0.5][0], strict=True)]
        print("  ratio:  " + " ".join(f"{ratio:.2f}" for ratio in ratios))
    if "cost" in parts:
        results["cost"] = []
        base = (300, 12, 12, 2) if tiny else (1200, 60, 60, 3)
        print(f"{'p':>6} {'m':>5} {'n':>5} {'k':>3}  s per sweep: Gaussian  Rademacher")
        changes = [(0, 1), (0, 2), (1, 2), (2, 2)] + ([] if tiny else [(0, 4), (3, 2)])
        for which, times_as_much in changes:
            sizes = list(base)
            sizes[which] *= times_as_much
            p, m, n, k = sizes
            taken = [
                min(sweep_seconds(kind(p, (m, n)), k, 0.1, threads, 3)[0])
                for kind in (Gaussian, Rademacher)
            ]
            results["cost"].append({"p": p, "m": m, "n": n, "k": k, "seconds": taken})
            print(f"{p:>6} {m:>5} {n:>5} {k:>3}  {taken[0]:21.4f}  {taken[1]:10.4f}")
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
