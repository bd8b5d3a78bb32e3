"""Censored values: the distance of a fit from the fit of the uncensored values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import fastemf

CUTS = (0.9, 0.5)  # quantiles of the values, above which they are censored
NOISES = (0.1, 0.5, 1.0)  # standard deviations of the logarithms
SHAPE, RANK, DENSITY = (200, 150), 3, 0.3
TARGET = {0.1: 0.9, 0.5: 0.9, 1.0: 0.97}  # of the mean error at the first cut
HARM = 1.02  # of the error of any run

Run = dict[str, Any]


def measure(omegas: list[float], seeds: list[int], shape: tuple[int, int] = SHAPE) -> Iterator[Run]:
    """Yield the runs; errors are relative to a fit that treats the limits as measurements."""
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
            truth, ignored, declared, dropped = (
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
            "declared": float(np.linalg.norm(declared - truth) / error),
            "dropped": float(np.linalg.norm(dropped - truth) / error),
        }  # fmt: skip


def line(run: Run) -> str:
    """Format a run as one line."""
    return (
        f"cut {run['cut']:g}  noise {run['noise']:g}  omega {run['omega']:g}  "
        f"{'intercepts' if run['intercepts'] else 'factors   '}  seed {run['seed']}  "
        f"declared {run['declared']:.3f}  dropped {run['dropped']:.3f}"
    )


def target_lines(runs: list[Run]) -> list[str]:
    """Compare means over seeds, and the worst run, with the targets."""
    lines = []
    cases = sorted({(r["noise"], r["omega"], r["intercepts"]) for r in runs if r["cut"] == CUTS[0]})
    for noise, omega, intercepts in cases:
        of_case = [
            run["declared"] for run in runs
            if (run["cut"], run["noise"], run["omega"], run["intercepts"])
            == (CUTS[0], noise, omega, intercepts)
        ]  # fmt: skip
        mean = float(np.mean(of_case))
        verdict = "met" if mean <= TARGET[noise] else "MISSED"
        lines.append(
            f"noise {noise:g}, omega {omega:g}, {'intercepts' if intercepts else 'factors'}: "
            f"{mean:.3f} (target {TARGET[noise]:g}) {verdict}"
        )
    worst = max(runs, key=lambda run: run["declared"])
    lines.append(f"worst: {worst['declared']:.3f} (target {HARM}) at {line(worst)}")
    worse = [run for run in runs if run["declared"] >= run["dropped"]]
    lines.append(f"not better than dropping: {len(worse)} of {len(runs)}")
    return lines + [f"  {line(run)}" for run in worse]
