"""A tuned fit against one with the ridge it chose, and one with a noise-adaptive ridge."""

from __future__ import annotations

import warnings
from typing import Any

from bench.problems import clear
from bench.runner import Rows, Timing, row, timed, two_threads
from bench.scale import Scale
from fastemf import complete

DTYPE = "float32"
OMEGAS = (0.5, 0.9)  # at 0.9 tuning tries two families of noise scales


def run(scale: Scale) -> Rows:
    """Time fits with intercepts, once each; only their ratios matter."""
    threads = two_threads()

    def fit(R: Any, omega: float, reg: Any) -> tuple[Any, float]:
        with warnings.catch_warnings(action="ignore"):  # rows without observations; max_iter
            return timed(complete, R, omega, scale.rank, intercepts=True, reg=reg, n_jobs=threads)

    fit(clear("tiny").astype(DTYPE), OMEGAS[1], "auto")  # compiles
    R = clear(scale.problem).astype(DTYPE)
    for omega in OMEGAS:
        tuned, seconds = fit(R, omega, "auto")
        times = {
            "auto": seconds,
            "its ridge": fit(R, omega, tuned.reg)[1],
            "noise": fit(R, omega, "noise")[1],
        }
        for what, seconds in times.items():
            result = row(
                "tuned", what, f"clear {scale.problem}", R.nnz, DTYPE, scale.rank, threads,
                f"fastemf ω={omega:g}", Timing([seconds]),
            )  # fmt: skip
            if what != "its ridge":
                result["note"] = f"{seconds / times['its ridge']:.2f} of its ridge"
            yield result
