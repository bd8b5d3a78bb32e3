"""``python -m bench.levels``: five levels in one call against five fits, on response times.

Seconds and sweeps of both, taken in turn, at a ridge that follows the noise and at the default,
which is tuned; for the former, how each level's objective compares with that of a fit started anew
at the same ridge; in how many cells the fits cross, one by one and sorted. Needs FASTEMF_DATA (the
uniform 5 % sample of the recovered fragments of WS-DREAM).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.problems import sample_of_web_services, skewed
from bench.runner import machine
from fastemf import Factorization, Levels, complete, complete_levels

OMEGAS = (0.1, 0.25, 0.5, 0.75, 0.9)


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and what it returned."""
    began = time.perf_counter()
    found = run()
    return time.perf_counter() - began, found


def compare(R: Any, k: int, intercepts: bool, reg: str, repeats: int) -> dict[str, Any]:
    """Compare one call with one fit per level, the best of a few turns each."""

    def together() -> Levels:
        return complete_levels(R, OMEGAS, k, intercepts=intercepts, reg=reg)

    def alone() -> list[Factorization]:
        return [complete(R, omega, k, intercepts=intercepts, reg=reg) for omega in OMEGAS]

    seconds: dict[str, list[float]] = {"together": [], "alone": []}
    for _ in range(repeats):
        taken, levels = timed(together)
        seconds["together"].append(taken)
        taken, fits = timed(alone)
        seconds["alone"].append(taken)
    # A tuned fit has noise scales of its own, so that its objective is that of no other.
    kept = levels.fits if reg == "noise" else ()
    anew = [complete(R, fit.omega, k, intercepts=intercepts, reg=fit.reg) for fit in kept]
    rows, cols = np.arange(R.shape[0])[:, None], np.arange(R.shape[1])
    return {
        "reg": reg,
        "intercepts": intercepts,
        "seconds": seconds,
        "ratio": min(seconds["together"]) / min(seconds["alone"]),
        "over_one": len(OMEGAS) * min(seconds["together"]) / min(seconds["alone"]),
        "sweeps": {
            "together": [fit.n_iter for fit in levels.fits], "alone": [fit.n_iter for fit in fits],
        },
        "ridge": {"together": [fit.reg for fit in levels.fits], "alone": [fit.reg for fit in fits]},
        "objective_over_anew": [
            fit.objective(R) / other.objective(R) - 1
            for fit, other in zip(kept, anew, strict=True)
        ],
        "crossed_one_by_one": float(levels.crossed(rows, cols).mean()),
        "crossed": int((np.diff(levels.predict_block(rows[:, 0]), axis=-1) < 0).sum()),
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.levels", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: only that it runs")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args(argv)
    R, k, repeats = (skewed(40, 30, 500), 2, 1) if args.smoke else (sample_of_web_services(), 10, 2)
    about = machine()
    print(
        f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, {R.nnz} entries, k={k}"
    )
    results = []
    with warnings.catch_warnings(action="ignore"):  # services without an entry; max_iter
        complete_levels(R, (0.4, 0.6), k, max_iter=2)  # compiled
        for reg, intercepts in product(("noise", "auto"), (False, True)):
            found = compare(R, k, intercepts, reg, repeats)
            results.append(found)
            sweeps = {name: sum(counts) for name, counts in found["sweeps"].items()}
            over = ", ".join(f"{value:+.1e}" for value in found["objective_over_anew"])
            print(
                f"reg={reg}, {'with' if intercepts else 'without'} intercepts: "
                f"{min(found['seconds']['together']):.2f} s and {sweeps['together']} sweeps in one "
                f"call, {min(found['seconds']['alone']):.2f} s and {sweeps['alone']} in five "
                f"({found['ratio']:.2f}; {found['over_one']:.2f} of the mean of one)\n"
                f"  objective over that of a fit started anew at the same ridge: {over or '-'}\n"
                f"  cells whose levels cross: {found['crossed_one_by_one']:.1%} one by one, "
                f"{found['crossed']} as predicted"
            )
    if args.out:
        args.out.write_text(json.dumps({"machine": about, "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
