"""Interleaved timings, the result rows built from them, and the machine they were taken on."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numba

from bench.competitors import Fastemf
from bench.problems import skewed

# The plain ridge of every timing: the best by held-out error on the skewed problem at k = 32 among
# 1, 3, 10, 20 and 40. Time to quality depends on it: weaker ridges overfit and converge slowly.
LAMBDA = 20.0
PATIENCE = 15.0  # a run that took longer is not repeated

Row = dict[str, Any]
Rows = Iterator[Row]


def machine() -> dict[str, Any]:
    """Describe hardware and versions."""
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


def print_machine() -> dict[str, Any]:
    """Print and return the description of the machine."""
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, Python {about['python']}")
    return about


def available_threads() -> int:
    """Return the number of threads that Numba may use."""
    return int(numba.config.NUMBA_NUM_THREADS)


def two_threads() -> int:
    """Return two, or one if there is only one; rows record the number that was used."""
    return min(2, available_threads())


@dataclass
class Timing:
    """Results of the repeats of one run."""

    seconds: list[float] = field(default_factory=list)
    first_call: float | None = None  # wall time of the first repeat, which may compile
    error: str | None = None

    @property
    def best(self) -> float | None:
        """The fastest repeat, which was disturbed least."""
        return min(self.seconds) if self.seconds and not self.error else None


def timed(task: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, float]:
    """Call a function; return its result and the seconds it took."""
    began = time.perf_counter()
    result = task(*args, **options)
    return result, time.perf_counter() - began


def interleaved(
    runs: Mapping[str, Callable[[], float]], repeats: int, patience: float = PATIENCE
) -> dict[str, Timing]:
    """Take the runs in turn, `repeats` times round; each returns its own seconds.

    A run that fails is not tried again and keeps its error; one that takes longer than
    `patience` seconds is not repeated.
    """
    timings = {name: Timing() for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            timing = timings[name]
            again = timing.first_call is not None
            if timing.error or (again and timing.first_call > patience):
                continue
            began = time.perf_counter()
            try:
                timing.seconds.append(float(run()))
            except Exception as error:  # a competitor may raise anything
                timing.error = describe(error)
            if not again:
                timing.first_call = time.perf_counter() - began
    return timings


def describe(error: Exception) -> str:
    """Describe an error on one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def warm_up(dtype: str, k: int) -> float:
    """Compile the kernels of a type and rank, or load them from the cache; return seconds."""
    R = skewed(8 * k, 4 * k, 200 * k).astype(dtype)
    return timed(Fastemf().fit, R, k, LAMBDA, two_threads(), 1)[1]


def row(
    section: str, what: str, problem: str, entries: int, dtype: str, k: int, threads: int,
    competitor: str, timing: Timing, **more: Any,
) -> Row:  # fmt: skip
    """Return one row of the results: the setting, and the best of the repeats."""
    return {
        "section": section, "what": what, "problem": problem, "entries": int(entries),
        "dtype": dtype, "k": k, "threads": threads, "competitor": competitor,
        "seconds": timing.best, "repeats": timing.seconds, "first_call": timing.first_call,
        "error": timing.error, **more,
    }  # fmt: skip


def line(row: Row) -> str:
    """Format a row of the printed table."""
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
