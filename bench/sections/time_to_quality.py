"""Seconds until the objective is within 0.1 % of the best of all competitors, set-up included."""

from __future__ import annotations

from functools import partial

import scipy.sparse as sp

from bench.competitors import Cmfrec, Fastemf, Fitter, Point, point
from bench.problems import PROBLEMS
from bench.quality import first_reaching, gap, target
from bench.runner import LAMBDA, Rows, Timing, describe, interleaved, row, two_threads, warm_up
from bench.scale import Scale
from fastemf.solver.settings import CG_RANK

DTYPE = "float64"  # the default of NumPy
REPEATS = 2  # of the fits that just reach the target


def run(scale: Scale) -> Rows:
    """Compare all fitters, rank by rank."""
    R = PROBLEMS[scale.problem]().astype(DTYPE)
    for k in scale.quality_ranks:
        fitters: list[Fitter] = [Fastemf(0.5), Cmfrec(use_cg=True)]
        if k >= CG_RANK:  # the default uses conjugate gradients here
            fitters.append(Fastemf(0.5, solver="exact"))
        if k <= scale.exact_up_to:
            fitters.append(Cmfrec(use_cg=False))
        yield from race(R, k, fitters, scale)


def race(R: sp.csr_matrix, k: int, fitters: list[Fitter], scale: Scale) -> Rows:
    """Compute the curves, which set the target; then time the fits that just reach it, in turn."""
    threads = two_threads()
    warm_up(DTYPE, k)
    curves: dict[str, list[Point]] = {}
    errors: dict[str, str] = {}
    for fitter in fitters:
        try:
            fitter.prepare(R)  # imports its dependencies
            curves[fitter.name] = fitter.curve(R, k, LAMBDA, threads, scale.quality_grid)
        except Exception as error:  # a competitor may raise anything
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

    for fitter in fitters:
        name = fitter.name
        result = row(
            "quality", "to 0.1 %", scale.problem, R.nnz, DTYPE, k, threads, name,
            timings.get(name, Timing(error=errors.get(name))),
            curve=curves.get(name, []), target=wanted, sweeps=sweeps.get(name), spent=None,
        )  # fmt: skip
        if name in sweeps:
            result["note"] = f"{sweeps[name]} sweeps"
        elif name in curves:
            last = curves[name][-1]
            result["spent"] = last.seconds
            result["note"] = f"not in {last.seconds:.1f} s: {gap(last, wanted):.2%} above the best"
        yield result


def _seconds(fitter: Fitter, R: sp.csr_matrix, k: int, threads: int, sweeps: int) -> float:
    return point(fitter, R, k, LAMBDA, threads, sweeps).seconds
