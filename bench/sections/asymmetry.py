"""The price of asymmetry: a sweep, and a good fit, at ω = 0.1 over those at ω = 0.5."""

from __future__ import annotations

from typing import Any

from bench.competitors import Fastemf
from bench.problems import PROBLEMS
from bench.quality import target
from bench.runner import LAMBDA, Row, Say, Timing, line, row, two_threads, warm_up
from bench.scale import Scale

DTYPE = "float64"
LEVELS = (0.5, 0.1)


def run(scale: Scale, say: Say) -> list[Row]:
    """Time plain sweeps from the spectral start, then fits to within 0.1 % of their best."""
    R = PROBLEMS[scale.problem]()
    return [*_sweeps(scale, R, say), *_fits(scale, R, say)]


def _sweeps(scale: Scale, R: Any, say: Say) -> list[Row]:
    """Time sweeps by number, the best of the repeats for each."""
    warm_up(DTYPE, scale.rank)
    data = Fastemf().prepare(R.astype(DTYPE))
    threads = two_threads()
    by_sweep: dict[float, list[list[float]]] = {omega: [] for omega in LEVELS}
    for _ in range(scale.repeats):
        for omega in LEVELS:
            fit = Fastemf(omega).run(
                data, scale.rank, LAMBDA, threads, scale.asymmetry_sweeps, momentum=False
            )
            by_sweep[omega].append([record.seconds for record in fit.history])
    best = {omega: [min(times) for times in zip(*by_sweep[omega], strict=True)] for omega in LEVELS}
    rows = []
    for number in range(min(map(len, best.values()))):
        ratio = best[0.1][number] / best[0.5][number]
        for omega in LEVELS:
            timing = Timing([times[number] for times in by_sweep[omega]])
            found = row(
                "asymmetry", f"sweep {number + 1}", scale.problem, R.nnz, DTYPE, scale.rank,
                threads, Fastemf(omega).name, timing, sweep=number + 1, omega=omega,
            )  # fmt: skip
            if omega != 0.5:
                found |= {"ratio": ratio, "note": f"×{ratio:.2f} of ω=0.5"}
            rows.append(found)
            say(line(found))
    return rows


def _fits(scale: Scale, R: Any, say: Say) -> list[Row]:
    """Time fits, set-up and start included, until F is near the lowest of their own level."""
    data, threads = R.astype(DTYPE), two_threads()
    times: dict[float, list[float]] = {omega: [] for omega in LEVELS}
    for _ in range(scale.repeats):
        for omega in LEVELS:
            entry = Fastemf(omega)
            curve = entry.curve(data, scale.rank, LAMBDA, threads, scale.quality_grid)
            wanted = target([curve])
            reached = next(point for point in curve if point.objective <= wanted)
            times[omega].append(reached.seconds)
    rows = []
    for omega in LEVELS:
        found = row(
            "asymmetry", "to 0.1 %", scale.problem, R.nnz, DTYPE, scale.rank, threads,
            Fastemf(omega).name, Timing(times[omega]), omega=omega,
        )  # fmt: skip
        if omega != 0.5:
            ratio = min(times[omega]) / min(times[0.5])
            found |= {"ratio": ratio, "note": f"×{ratio:.2f} of ω=0.5"}
        rows.append(found)
        say(line(found))
    return rows
