"""Values cut at a limit: how near is a fit that is told of it to that of the values themselves?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import fastemf

CUTS = (0.9, 0.5)  # quantiles of the values, above which they are cut
NOISES = (0.1, 0.5, 1.0)  # of their logarithms
SHAPE, RANK, DENSITY = (200, 150), 3, 0.3
BAR = {0.1: 0.9, 0.5: 0.9, 1.0: 0.97}  # at the first cut
HARM = 1.02  # anywhere

Run = dict[str, Any]


def measure(omegas: list[float], seeds: list[int], shape: tuple[int, int] = SHAPE) -> Iterator[Run]:
    """Yield the runs one by one: errors over that of the fit that takes limits for values."""
    for cut, noise, omega, intercepts, seed in product(CUTS, NOISES, omegas, (False, True), seeds):
        rng = np.random.default_rng(seed)
        m, n = shape
        whole = rng.gamma(2, 1, (m, RANK)) @ rng.gamma(2, 1, (n, RANK)).T
        whole *= np.exp(noise * rng.standard_normal(shape))
        i, j = np.nonzero(rng.random(shape) < DENSITY)
        values = whole[i, j]
        limit = float(np.quantile(values, cut))
        kept, limited = values < limit, np.minimum(values, limit)
        options = {"shape": shape, "intercepts": intercepts}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            truth, ignored, told, dropped = (
                fastemf.complete(R, omega, RANK, **options, **more).to_dense()
                for R, more in (
                    ((i, j, values), {}),
                    ((i, j, limited), {}),
                    ((i, j, limited), {"censored": ("right", limit)}),
                    ((i[kept], j[kept], values[kept]), {}),
                )
            )
        error = np.linalg.norm(ignored - truth)
        yield {
            "cut": cut, "noise": noise, "omega": omega, "intercepts": intercepts, "seed": seed,
            "told": float(np.linalg.norm(told - truth) / error),
            "dropped": float(np.linalg.norm(dropped - truth) / error),
        }  # fmt: skip


def line(run: Run) -> str:
    """Write a run in one line."""
    return (
        f"cut {run['cut']:g}  noise {run['noise']:g}  omega {run['omega']:g}  "
        f"{'intercepts' if run['intercepts'] else 'factors   '}  seed {run['seed']}  "
        f"told {run['told']:.3f}  dropped {run['dropped']:.3f}"
    )


def bars(runs: list[Run]) -> list[str]:
    """Compare with the bars: means over seeds, and the worst run."""
    lines = []
    cases = sorted({(r["noise"], r["omega"], r["intercepts"]) for r in runs if r["cut"] == CUTS[0]})
    for noise, omega, intercepts in cases:
        of_case = [
            run["told"] for run in runs
            if (run["cut"], run["noise"], run["omega"], run["intercepts"])
            == (CUTS[0], noise, omega, intercepts)
        ]  # fmt: skip
        mean = float(np.mean(of_case))
        verdict = "met" if mean <= BAR[noise] else "MISSED"
        lines.append(
            f"noise {noise:g}, omega {omega:g}, {'intercepts' if intercepts else 'factors'}: "
            f"{mean:.3f} (bar {BAR[noise]:g}) {verdict}"
        )
    worst = max(runs, key=lambda run: run["told"])
    lines.append(f"worst: {worst['told']:.3f} (bar {HARM}) at {line(worst)}")
    behind = [run for run in runs if run["told"] >= run["dropped"]]
    lines.append(f"not better than dropping: {len(behind)} of {len(runs)}")
    return lines + [f"  {line(run)}" for run in behind]
