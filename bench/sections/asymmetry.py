"""The price of asymmetry: a sweep at ω = 0.1 over one at ω = 0.5, by sweep number."""

from __future__ import annotations

from bench.competitors import Fastemf
from bench.problems import PROBLEMS
from bench.runner import LAMBDA, Row, Say, Timing, line, row, two_threads, warm_up
from bench.scale import Scale

DTYPE = "float64"
LEVELS = (0.5, 0.1)


def run(scale: Scale, say: Say) -> list[Row]:
    """Time plain sweeps from the spectral start; for each number the best of the repeats."""
    R = PROBLEMS[scale.problem]()
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
