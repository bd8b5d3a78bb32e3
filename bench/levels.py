"""``python -m bench.levels``: five levels in one call against five fits, on response times.

Prints seconds and sweeps of both, with the noise-adaptive and with the tuned ridge; with the
former, also the objective of each level relative to a fit from scratch with the same ridge; and the
proportion of cells whose levels cross. Needs FASTEMF_DATA (WS-DREAM).
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.problems import skewed, web_services_sample
from bench.runner import print_machine, timed
from fastemf import Factorization, Levels, complete, complete_levels

OMEGAS = (0.1, 0.25, 0.5, 0.75, 0.9)


def compare(R: Any, k: int, intercepts: bool, reg: str, repeats: int) -> dict[str, Any]:
    """Compare one call with one fit per level, the best of a few repeats each."""

    def together() -> Levels:
        return complete_levels(R, OMEGAS, k, intercepts=intercepts, reg=reg)

    def alone() -> list[Factorization]:
        return [complete(R, omega, k, intercepts=intercepts, reg=reg) for omega in OMEGAS]

    seconds: dict[str, list[float]] = {"together": [], "alone": []}
    for _ in range(repeats):
        levels, taken = timed(together)
        seconds["together"].append(taken)
        fits, taken = timed(alone)
        seconds["alone"].append(taken)
    # Tuned fits have noise scales of their own, so their objectives are not comparable.
    kept = levels.fits if reg == "noise" else ()
    from_scratch = [complete(R, fit.omega, k, intercepts=intercepts, reg=fit.reg) for fit in kept]
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
        "excess_objective": [
            fit.objective(R) / other.objective(R) - 1
            for fit, other in zip(kept, from_scratch, strict=True)
        ],
        "crossed_separately": float(levels.crossed(rows, cols).mean()),
        "crossed": int((np.diff(levels.predict_block(rows[:, 0]), axis=-1) < 0).sum()),
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.levels", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to test that it runs")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args(argv)
    R, k, repeats = (skewed(40, 30, 500), 2, 1) if args.smoke else (web_services_sample(), 10, 2)
    about = print_machine()
    print(f"{R.nnz} entries, k={k}")
    results = []
    with warnings.catch_warnings(action="ignore"):  # columns without entries; max_iter
        complete_levels(R, (0.4, 0.6), k, max_iter=2)  # compiled
        for reg, intercepts in product(("noise", "auto"), (False, True)):
            found = compare(R, k, intercepts, reg, repeats)
            results.append(found)
            sweeps = {name: sum(counts) for name, counts in found["sweeps"].items()}
            over = ", ".join(f"{value:+.1e}" for value in found["excess_objective"])
            print(
                f"reg={reg}, {'with' if intercepts else 'without'} intercepts: "
                f"{min(found['seconds']['together']):.2f} s and {sweeps['together']} sweeps in one "
                f"call, {min(found['seconds']['alone']):.2f} s and {sweeps['alone']} in five "
                f"(ratio {found['ratio']:.2f}; {found['over_one']:.2f} times a single fit)\n"
                f"  objective relative to a fit from scratch with the same ridge: {over or '-'}\n"
                f"  cells whose levels cross: {found['crossed_separately']:.1%} as separate fits, "
                f"{found['crossed']} as predicted"
            )
    if args.out:
        args.out.write_text(json.dumps({"machine": about, "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
