"""Seconds until the objective is within 0.1 % of the best anyone reached, set-up included."""

from __future__ import annotations

from functools import partial

import scipy.sparse as sp

from bench.competitors import Cmfrec, Fastemf, Fitter, Point, point
from bench.problems import PROBLEMS
from bench.quality import first_reaching, gap, target
from bench.runner import (
    LAMBDA,
    Row,
    Say,
    Timing,
    describe,
    interleaved,
    line,
    row,
    two_threads,
    warm_up,
)
from bench.scale import Scale
from fastemf.solver.settings import CG_RANK

DTYPE = "float64"  # what NumPy users have unless they ask for something else
REPEATS = 2  # of the fits that just reach the target


def run(scale: Scale, say: Say) -> list[Row]:
    """Run the race rank by rank."""
    R = PROBLEMS[scale.problem]().astype(DTYPE)
    rows: list[Row] = []
    for k in scale.quality_ranks:
        fitters: list[Fitter] = [Fastemf(0.5), Cmfrec(use_cg=True)]
        if k >= CG_RANK:  # where the default is not exact: was it right?
            fitters.append(Fastemf(0.5, solver="exact"))
        if k <= scale.exact_up_to:
            fitters.append(Cmfrec(use_cg=False))
        for found in race(R, k, fitters, scale):
            rows.append(found)
            say(line(found))
    return rows


def race(R: sp.csr_matrix, k: int, fitters: list[Fitter], scale: Scale) -> list[Row]:
    """Take the curves, which set the target; then time the fits that just reach it, in turn."""
    threads = two_threads()
    warm_up(DTYPE, k)
    curves: dict[str, list[Point]] = {}
    errors: dict[str, str] = {}
    for fitter in fitters:
        try:
            fitter.prepare(R)  # imports what it needs
            curves[fitter.name] = fitter.curve(R, k, LAMBDA, threads, scale.quality_grid)
        except Exception as error:  # whatever a competitor raises is its result
            errors[fitter.name] = describe(error)
    wanted = target(curves.values()) if curves else None

    sweeps: dict[str, int] = {}
    runs = {}
    for fitter in fitters:
        if fitter.name not in curves:
            continue
        fit = partial(point, fitter, R, k, LAMBDA, threads)
        reached = first_reaching(curves[fitter.name], wanted, fit)
        if reached is not None:
            sweeps[fitter.name] = reached.sweeps
            runs[fitter.name] = partial(_seconds, fitter, R, k, threads, reached.sweeps)
    timings = interleaved(runs, min(REPEATS, scale.repeats))

    rows = []
    for fitter in fitters:
        name = fitter.name
        found = row(
            "quality", "to 0.1 %", scale.problem, R.nnz, DTYPE, k, threads, name,
            timings.get(name, Timing(error=errors.get(name))),
            curve=curves.get(name, []), target=wanted, sweeps=sweeps.get(name), spent=None,
        )  # fmt: skip
        if name in sweeps:
            found["note"] = f"{sweeps[name]} sweeps"
        elif name in curves:
            last = curves[name][-1]
            found["spent"] = last.seconds
            found["note"] = f"not in {last.seconds:.1f} s: {gap(last, wanted):.2%} above the best"
        rows.append(found)
    return rows


def _seconds(fitter: Fitter, R: sp.csr_matrix, k: int, threads: int, sweeps: int) -> float:
    return point(fitter, R, k, LAMBDA, threads, sweeps).seconds
