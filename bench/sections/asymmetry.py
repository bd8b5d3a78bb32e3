"""The price of asymmetry: a sweep, and a good fit, at ω = 0.1 over those at ω = 0.5."""

from __future__ import annotations

from typing import Any

from bench.competitors import Fastemf
from bench.problems import PROBLEMS
from bench.quality import target
from bench.runner import LAMBDA, Rows, Timing, row, two_threads, warm_up
from bench.scale import Scale

DTYPE = "float64"
LEVELS = (0.5, 0.1)

Times = dict[float, list[float]]


def run(scale: Scale) -> Rows:
    """Time sweeps from the spectral start, then fits to within 0.1 % of their best objective."""
    R = PROBLEMS[scale.problem]().astype(DTYPE)
    warm_up(DTYPE, scale.rank)
    by_sweep = _time_sweeps(scale, R)
    for number in range(min(len(times[0]) for times in by_sweep.values())):
        times = {omega: [repeat[number] for repeat in by_sweep[omega]] for omega in LEVELS}
        yield from _rows(scale, R, f"sweep {number + 1}", times, sweep=number + 1)
    yield from _rows(scale, R, "to 0.1 %", _time_fits(scale, R))


def _time_sweeps(scale: Scale, R: Any) -> dict[float, list[list[float]]]:
    """Return the seconds of each sweep, by level and repeat."""
    data = Fastemf().prepare(R)
    by_sweep: dict[float, list[list[float]]] = {omega: [] for omega in LEVELS}
    for _ in range(scale.repeats):
        for omega in LEVELS:
            fit = Fastemf(omega).run(
                data, scale.rank, LAMBDA, two_threads(), scale.asymmetry_sweeps, momentum=False
            )
            by_sweep[omega].append([record.seconds for record in fit.history])
    return by_sweep


def _time_fits(scale: Scale, R: Any) -> Times:
    """Time fits, set-up and start included, until the objective is near its own minimum."""
    times: Times = {omega: [] for omega in LEVELS}
    for _ in range(scale.repeats):
        for omega in LEVELS:
            curve = Fastemf(omega).curve(R, scale.rank, LAMBDA, two_threads(), scale.quality_grid)
            wanted = target([curve])
            reached = next(point for point in curve if point.objective <= wanted)
            times[omega].append(reached.seconds)
    return times


def _rows(scale: Scale, R: Any, what: str, times: Times, **more: Any) -> Rows:
    for omega in LEVELS:
        result = row(
            "asymmetry", what, scale.problem, R.nnz, DTYPE, scale.rank, two_threads(),
            Fastemf(omega).name, Timing(times[omega]), omega=omega, **more,
        )  # fmt: skip
        if omega != 0.5:
            ratio = min(times[omega]) / min(times[0.5])
            result |= {"ratio": ratio, "note": f"×{ratio:.2f} of ω=0.5"}
        yield result
