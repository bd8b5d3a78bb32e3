"""A tuned fit against one with the ridge it ends at, and one whose ridge follows the noise."""

from __future__ import annotations

import time
import warnings
from typing import Any

import scipy.sparse as sp

from bench.problems import clear
from bench.runner import Row, Say, Timing, line, row, two_threads
from bench.scale import Scale
from fastemf import complete

DTYPE = "float32"
OMEGAS = (0.5, 0.9)  # the second tries two families of noise scales where the tail is to the right


def run(scale: Scale, say: Say) -> list[Row]:
    """Time fits with intercepts, once each: they take long, and what counts is their ratio."""
    threads = two_threads()
    timed_fit(clear("tiny").astype(DTYPE), OMEGAS[1], scale.rank, threads, "auto")  # compiles
    R = clear(scale.problem).astype(DTYPE)
    rows = []
    for omega in OMEGAS:
        fit, seconds = timed_fit(R, omega, scale.rank, threads, "auto")
        _, fixed = timed_fit(R, omega, scale.rank, threads, fit.reg)
        _, noise = timed_fit(R, omega, scale.rank, threads, "noise")
        for what, found in (("auto", seconds), ("its ridge", fixed), ("noise", noise)):
            result = row(
                "tuned", what, f"clear {scale.problem}", R.nnz, DTYPE, scale.rank, threads,
                f"fastemf ω={omega:g}", Timing([found]),
            )  # fmt: skip
            if what != "its ridge":
                result["note"] = f"{found / fixed:.2f} of its ridge"
            rows.append(result)
            say(line(result))
    return rows


def timed_fit(
    R: sp.csr_matrix, omega: float, k: int, threads: int, reg: Any
) -> tuple[Any, float]:  # fmt: skip
    """Fit, and return the fit and its seconds."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows without observations, and of slow convergence
        fit = complete(R, omega, k, intercepts=True, reg=reg, n_jobs=threads)
    return fit, time.perf_counter() - began
