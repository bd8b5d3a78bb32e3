"""The targets of the project, compared with the results of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from bench.runner import Row

ROOFLINE = {
    ("float64", 10): 0.16, ("float64", 32): 0.42, ("float64", 64): 0.45,
    ("float32", 10): 0.12, ("float32", 32): 0.36, ("float32", 64): 0.42,
}  # fmt: skip
AGAINST_CHOLESKY = {10: 2.0, 32: 4.0, 64: 8.0}
AGAINST_CG = 4.0
ASYMMETRY = 1.3
ASYMMETRIC_FIT = 1.5
TWO_THREADS = 1.8
GROWTH = 0.2
SET_UP = 2.0
MEMORY = 2.6
TUNED = 2.5
RANK = {"product": 2.0, "tables": 4.0}
COLD = {"import beyond numba": 0.3, "first call, warm cache": 1.0, "first call, cold": 25.0}

OURS = "fastemf ω=0.5"


class Target(NamedTuple):
    """One target and the measured value."""

    what: str
    target: float
    at_least: bool
    measured: float
    bound: bool = False  # `measured` is a lower bound: the competitor never reached its goal

    @property
    def met(self) -> bool:
        """Whether the measured value is on the right side."""
        return self.measured >= self.target if self.at_least else self.measured <= self.target


def find_targets(results: list[Row]) -> list[Target]:
    """Return every target that the results have data for."""
    return [
        *_roofline(results),
        *_against_cholesky(results),
        *_against_cg(results),
        *_asymmetry(results),
        *_two_threads(results),
        *_growth(results),
        *_set_up(results),
        *_memory(results),
        *_tuned(results),
        *_rank(results),
        *_cold(results),
    ]


def format_targets(targets: Iterable[Target]) -> list[str]:
    """Return the lines of a table."""
    lines = [f"{'what':<72}{'target':>9}{'measured':>11}  met?"]
    for entry in targets:
        target = f"{'≥' if entry.at_least else '≤'} {entry.target:g}"
        measured = f"{'> ' if entry.bound else ''}{entry.measured:.3g}"
        lines.append(f"{entry.what:<72}{target:>9}{measured:>11}  {'yes' if entry.met else 'NO'}")
    return lines


def relative_half_range(values: Iterable[float]) -> float:
    """Return the x for which every value is within ± x of the middle of the range."""
    values = list(values)
    return (max(values) - min(values)) / (max(values) + min(values))


def _rows(results: list[Row], **wanted: Any) -> list[Row]:
    return [
        row
        for row in results
        if row["error"] is None and all(row.get(key) == value for key, value in wanted.items())
    ]


def _main_problem(results: list[Row], section: str) -> str | None:
    """Return the problem of the section's first row; the targets are set for this problem only."""
    return next((row["problem"] for row in results if row["section"] == section), None)


def _roofline(results: list[Row]) -> Iterable[Target]:
    problem = _main_problem(results, "sweeps")
    for row in _rows(results, section="sweeps", problem=problem, threads=1, competitor=OURS):
        target = ROOFLINE.get((row["dtype"], row["k"]))
        if target is not None and "roofline" in row:
            what = f"fraction of one thread's GEMM rate, ω = 0.5, {row['dtype']}, k = {row['k']}"
            yield Target(what, target, True, row["roofline"])


def _against_cholesky(results: list[Row]) -> Iterable[Target]:
    problem = _main_problem(results, "sweeps")
    sweeps = _rows(results, section="sweeps", problem=problem, threads=2)
    for row in _rows(sweeps, competitor="cmfrec Cholesky"):
        ours = _rows(sweeps, competitor=OURS, dtype=row["dtype"], k=row["k"])
        if row["k"] in AGAINST_CHOLESKY and ours:
            what = f"sweep, times faster than cmfrec Cholesky, {row['dtype']}, k = {row['k']}"
            ratio = row["seconds"] / ours[0]["seconds"]
            yield Target(what, AGAINST_CHOLESKY[row["k"]], True, ratio)


def _against_cg(results: list[Row]) -> Iterable[Target]:
    for row in _rows(results, section="quality", competitor="cmfrec CG", threads=2):
        ours = _rows(results, section="quality", competitor=OURS, threads=2, k=row["k"])
        if ours and ours[0]["seconds"] is not None:
            reached = row["seconds"] is not None
            ratio = (row["seconds"] if reached else row["spent"]) / ours[0]["seconds"]
            what = f"to within 0.1 % of the best, times faster than cmfrec CG, k = {row['k']}"
            yield Target(what, AGAINST_CG, True, ratio, bound=not reached)


def _asymmetry(results: list[Row]) -> Iterable[Target]:
    rows = _rows(results, section="asymmetry", omega=0.1)
    late = [row for row in rows if row.get("sweep", 0) >= 3]
    if late:
        what = f"largest sweep at ω = 0.1 over ω = 0.5 from the third on, k = {late[0]['k']}"
        yield Target(what, ASYMMETRY, False, max(row["ratio"] for row in late))
    for row in _rows(rows, what="to 0.1 %"):
        what = f"to within 0.1 % of the best, ω = 0.1 over ω = 0.5, k = {row['k']}"
        yield Target(what, ASYMMETRIC_FIT, False, row["ratio"])


def _two_threads(results: list[Row]) -> Iterable[Target]:
    for row in _rows(results, section="threads", threads=2):
        what = f"two threads over one, {row['dtype']}, k = {row['k']}"
        yield Target(what, TWO_THREADS, True, row["speedup"])


def _growth(results: list[Row]) -> Iterable[Target]:
    rows = _rows(results, section="growth", what="entries")
    if len(rows) > 1:
        what = f"seconds per entry from {rows[0]['problem']} to {rows[-1]['problem']} within ±, "
        spread = relative_half_range(row["per_entry"] for row in rows)
        yield Target(f"{what}k = {rows[0]['k']}", GROWTH, False, spread)


def _set_up(results: list[Row]) -> Iterable[Target]:
    rows = _rows(results, section="setup")
    seconds = {row["what"]: row["seconds"] for row in rows}
    if seconds:
        what = f"set-up at {rows[0]['problem']} entries in sweeps, k = {rows[0]['k']}"
        ratio = (seconds["observe"] + seconds["start"]) / seconds["sweep"]
        yield Target(what, SET_UP, False, ratio)


def _memory(results: list[Row]) -> Iterable[Target]:
    for row in _rows(results, section="memory"):
        what = f"peak memory at {row['problem']} entries, without factors, over the input"
        yield Target(what, MEMORY, False, row["ratio"])


def _tuned(results: list[Row]) -> Iterable[Target]:
    for fixed in _rows(results, section="tuned", what="its ridge"):
        name = fixed["competitor"]
        for row in _rows(results, section="tuned", what="auto", competitor=name):
            what = f"tuned fit over a fit with the same ridge, {name}, k = {row['k']}"
            yield Target(what, TUNED, False, row["seconds"] / fixed["seconds"])


def _rank(results: list[Row]) -> Iterable[Target]:
    for name, target in RANK.items():
        for row in _rows(results, section="rank", what=name):
            what = f"ranking of all rows over the product, {name}, {row['dtype']}, k = {row['k']}"
            yield Target(what, target, False, row["ratio"])


def _cold(results: list[Row]) -> Iterable[Target]:
    for row in _rows(results, section="cold"):
        if row["what"] in COLD:
            yield Target(f"{row['what']}, seconds", COLD[row["what"]], False, row["seconds"])
