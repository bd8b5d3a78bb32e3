"""Interleaved timings of every competitor on every setting, with what they were taken on."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import numpy as np
import scipy.sparse as sp

from bench.competitors import Competitor
from bench.flops import gemm_rate, roofline_fraction, sweep_flops

LAMBDA = 1.0


def machine() -> dict[str, Any]:
    """Hardware and versions, for the record."""
    cpu = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        cpu = names[0] if names else cpu
    versions = {}
    for package in ("fastemf", "numpy", "scipy", "numba", "cmfrec", "implicit"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "versions": versions,
    }


def time_sweeps(
    R: sp.csr_matrix,
    problem: str,
    competitors: Sequence[Competitor],
    settings: Sequence[tuple[str, int, int]],
    repeats: int,
    say: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """One row per (dtype, k, threads) and competitor: the best of `repeats`, taken in turn.

    A competitor that fails is listed with its error. Its first run, which may compile, is timed
    apart.
    """
    rows: list[dict[str, Any]] = []
    for dtype, k, threads in settings:
        data = R.astype(dtype)
        flops = sweep_flops(data, k)
        state = [
            {"best": np.inf, "first_call": None, "error": None, "entry": competitor}
            for competitor in competitors
        ]
        gemm = 0.0
        for _ in range(repeats):
            gemm = max(gemm, gemm_rate(dtype))
            for run in state:
                if run["error"] is not None:
                    continue
                began = time.perf_counter()
                try:
                    seconds = run["entry"].sweep_seconds(data, k, LAMBDA, threads)
                except Exception as error:  # whatever a competitor raises is its result
                    run["error"] = f"{type(error).__name__}: {error}"
                    continue
                if run["first_call"] is None:
                    run["first_call"] = time.perf_counter() - began
                run["best"] = min(run["best"], seconds)
        for run in state:
            row = {
                "problem": problem,
                "entries": int(data.nnz),
                "dtype": dtype,
                "k": k,
                "threads": threads,
                "competitor": run["entry"].name,
                "seconds": None if run["error"] else float(run["best"]),
                "first_call": run["first_call"],
                "gemm": gemm,
                "flops": flops,
                "error": run["error"],
            }
            if row["seconds"] and run["entry"].name != "nothing":
                row["roofline"] = roofline_fraction(flops, row["seconds"], threads, gemm)
            rows.append(row)
            say(line(row))
    return rows


def line(row: dict[str, Any]) -> str:
    """A row of the printed table."""
    head = f"{row['problem']:<12} {row['dtype']:<8} {row['k']:>4} {row['threads']:>7}  "
    head += f"{row['competitor']:<16} "
    if row["error"]:
        return head + f"failed: {row['error']}"
    return head + f"{row['seconds']:>11.4f} {row.get('roofline', 0):>9.3f}"


HEADER = f"{'problem':<12} {'dtype':<8} {'k':>4} {'threads':>7}  {'competitor':<16} "
HEADER += f"{'s per sweep':>11} {'roofline':>9}"
