"""``python -m bench.sensing``: the cost of linear measurements.

Entries drawn per second inside `forward` against NumPy's generator, the time of a sweep against m,
n, k and p, the price of asymmetry, and one sweep of an operator that would take 14 GB if stored.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.runner import print_machine, timed
from fastemf.operators import Dense, Gaussian, Operator, Rademacher
from fastemf.sensing.sense import SensingEngine
from fastemf.solver.alternation import Alternation
from fastemf.solver.ridge import FixedRidge
from fastemf.solver.settings import Settings, Solver

BUFFER = 1 << 16  # NumPy draws into a buffer that stays in the cache


def best(run: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of the fastest of several runs."""
    return min(timed(run)[1] for _ in range(repeats))


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
    """Return the seconds of each sweep, and the Newton iterations per half-sweep."""
    _, m, n = A.shape
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    b = np.asarray(A.forward(X, Y, n_jobs=threads), np.float64)
    b += 0.2 * np.std(b) * rng.chisquare(3, b.size)
    engine = SensingEngine(A, b, omega, weights=None, dtype=np.dtype(np.float64), n_threads=threads)
    solver = Solver(momentum=False)
    settings = Settings(omega=omega, k=k, reg=0, tol=0, max_iter=sweeps, solver=solver)
    loop = Alternation(engine, FixedRidge.from_number(0.0, omega), settings, lambda record: None)
    end = loop.run(loop.start(X + 0.5 * rng.standard_normal(X.shape), Y.copy()))
    iterations = float(np.mean([record.inner_iterations for record in end.history]))
    return [record.seconds for record in end.history], iterations


def measure_memory(threads: int, tiny: bool) -> dict[str, Any]:
    """Time one sweep of a large operator, and measure the peak memory of the process."""
    p, size = (200, 12) if tiny else (20_000, 300)
    Gaussian(50, (12, 12)).design(np.ones((12, 2)), 0, n_jobs=threads)  # compiled
    seconds, iterations = sweep_seconds(Gaussian(p, (size, size)), 5, 0.1, threads, sweeps=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"one sweep, Gaussian {size} x {size}, k=5, p={p}, ω=0.1: {seconds[0]:.2f} s, "
        f"{iterations:.1f} Newton iterations per half, peak {peak / 1e6:.0f} MB of the process"
    )
    return {"seconds": seconds[0], "peak_bytes": peak}


def measure_rates(threads: int, tiny: bool) -> list[dict[str, Any]]:
    """Print the entries drawn per second."""
    rates = drawing_rates(*((20, 20) if tiny else (1000, 300)), threads, 1 if tiny else 7)
    for row in rates:
        print(
            f"{row['what']:<11} {row['per_second'] / 1e6:8.0f} M entries/s   "
            f"{row['over_numpy']:5.1f} x NumPy on one thread"
        )
    return rates


def measure_asymmetry(threads: int, tiny: bool) -> dict[str, list[float]]:
    """Compare sweeps at ω = 0.1 and 0.5, the best of four repeats in turn."""
    p, size, k = (60, 8, 1) if tiny else (2925, 100, 5)
    A = Dense(Gaussian(p, (size, size)).design(np.eye(size), 0).reshape(p, size, size))
    repeats: dict[float, list[list[float]]] = {0.5: [], 0.1: []}
    iterations = {}
    for _ in range(4):
        for omega, runs in repeats.items():
            seconds, iterations[omega] = sweep_seconds(A, k, omega, threads)
            runs.append(seconds)
    best = {
        omega: [min(times) for times in zip(*runs, strict=True)] for omega, runs in repeats.items()
    }
    print(f"Dense {size} x {size}, p={p}, seconds of sweeps 1, 2, …")
    for omega, seconds in best.items():
        shown = " ".join(f"{s:.3f}" for s in seconds)
        print(f"  ω={omega}: {shown}   {iterations[omega]:.1f} Newton iterations per half")
    ratios = [a / b for a, b in zip(best[0.1], best[0.5], strict=True)]
    print("  ratio:  " + " ".join(f"{ratio:.2f}" for ratio in ratios))
    return {str(omega): seconds for omega, seconds in best.items()}


def measure_cost(threads: int, tiny: bool) -> list[dict[str, Any]]:
    """Time sweeps against p, m, n and k."""
    base = (300, 12, 12, 2) if tiny else (1200, 60, 60, 3)
    changes = [(0, 1), (0, 2), (1, 2), (2, 2)] + ([] if tiny else [(0, 4), (3, 2)])
    rows = []
    print(f"{'p':>6} {'m':>5} {'n':>5} {'k':>3}  s per sweep: Gaussian  Rademacher")
    for which, factor in changes:
        sizes = list(base)
        sizes[which] *= factor
        p, m, n, k = sizes
        taken = [
            min(sweep_seconds(kind(p, (m, n)), k, 0.1, threads, 3)[0])
            for kind in (Gaussian, Rademacher)
        ]
        rows.append({"p": p, "m": m, "n": n, "k": k, "seconds": taken})
        print(f"{p:>6} {m:>5} {n:>5} {k:>3}  {taken[0]:21.4f}  {taken[1]:10.4f}")
    return rows


PARTS: dict[str, Callable[[int, bool], Any]] = {
    "memory": measure_memory,  # first, because the peak of a process never decreases
    "rates": measure_rates,
    "asymmetry": measure_asymmetry,
    "cost": measure_cost,
}


def main(argv: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.sensing", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to test that it runs")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args(argv)
    results: dict[str, Any] = {"machine": print_machine(), "threads": args.threads}
    print(f"{args.threads} threads")
    for name, measure in PARTS.items():
        if args.part is None or name in args.part:
            results[name] = measure(args.threads, args.smoke)
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
