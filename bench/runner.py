"""Interleaved timings, the rows they become, and the machine they were taken on."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numba

from bench.competitors import Fastemf
from bench.problems import skewed

# The plain ridge of every timing: on the skewed problem the best by held-out error at k = 32 among
# 1, 3, 10, 20 and 40. Time to quality depends on it: weaker ones overfit, and converge slowly.
LAMBDA = 20.0
PATIENCE = 15.0  # a run that took longer is not repeated

Row = dict[str, Any]
Say = Callable[[str], None]


def machine() -> dict[str, Any]:
    """Describe hardware and versions, for the record."""
    cpu = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        cpu = names[0] if names else cpu
    versions: dict[str, str | None] = {}
    for package in ("fastemf", "numpy", "scipy", "numba", "cmfrec", "implicit", "lightgbm"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": available_threads(),
        "python": sys.version.split()[0],
        "versions": versions,
    }


def available_threads() -> int:
    """Return the threads that Numba may use: more would be asked for in vain."""
    return int(numba.config.NUMBA_NUM_THREADS)


def two_threads() -> int:
    """Return two, or one where there is but one: rows always say what was really used."""
    return min(2, available_threads())


@dataclass
class Timing:
    """Results of the repeats of one run."""

    seconds: list[float] = field(default_factory=list)
    first_call: float | None = None  # wall time of the first repeat, which may compile
    error: str | None = None

    @property
    def best(self) -> float | None:
        """The quickest repeat: the one that others disturbed least."""
        return min(self.seconds) if self.seconds and not self.error else None


def interleaved(runs: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, Timing]:
    """Take the runs in turn, `repeats` times round; each returns its own seconds.

    One that fails is not tried again and keeps its error; one that takes longer than
    `PATIENCE` is not repeated.
    """
    timings = {name: Timing() for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            timing = timings[name]
            again = timing.first_call is not None
            if timing.error or (again and timing.first_call > PATIENCE):
                continue
            began = time.perf_counter()
            try:
                timing.seconds.append(float(run()))
            except Exception as error:  # whatever a competitor raises is its result
                timing.error = describe(error)
            if not again:
                timing.first_call = time.perf_counter() - began
    return timings


def describe(error: Exception) -> str:
    """Describe an error on one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def warm_up(dtype: str, k: int) -> float:
    """Compile, or load from the cache, what a fit of that type and rank runs; return seconds."""
    began = time.perf_counter()
    R = skewed(8 * k, 4 * k, 200 * k).astype(dtype)
    Fastemf().fit(R, k, LAMBDA, two_threads(), 1)
    return time.perf_counter() - began


def row(
    section: str, what: str, problem: str, entries: int, dtype: str, k: int, threads: int,
    competitor: str, timing: Timing, **more: Any,
) -> Row:  # fmt: skip
    """Return one line of the results: what was timed, and the best of its repeats."""
    return {
        "section": section, "what": what, "problem": problem, "entries": int(entries),
        "dtype": dtype, "k": k, "threads": threads, "competitor": competitor,
        "seconds": timing.best, "repeats": timing.seconds, "first_call": timing.first_call,
        "error": timing.error, **more,
    }  # fmt: skip


def line(row: Row) -> str:
    """Format a row of the printed table; `note` says what it is compared with."""
    head = (
        f"{row['problem']:<13}{row['dtype']:<8}{row['k']:>4}{row['threads']:>8}  "
        f"{row['competitor']:<31}{row['what']:<24}"
    )
    if row["error"]:
        return head + f"failed: {row['error']}"
    seconds = "" if row["seconds"] is None else f"{row['seconds']:.4f}"
    return head + f"{seconds:>10}  {row.get('note', '')}".rstrip()


HEADER = f"{'problem':<13}{'dtype':<8}{'k':>4}{'threads':>8}  {'competitor':<31}{'what':<24}"
HEADER += f"{'seconds':>10}"
