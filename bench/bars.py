"""The project's own targets, and how a run's results stand against them."""

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


class Bar(NamedTuple):
    """One target and the measured value."""

    what: str
    bar: float
    at_least: bool
    measured: float
    bound: bool = False  # the true value is beyond `measured`: the other one never got there

    @property
    def met(self) -> bool:
        """Whether the measured value is on the right side."""
        return self.measured >= self.bar if self.at_least else self.measured <= self.bar


def bars(results: list[Row]) -> list[Bar]:
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


def table(found: Iterable[Bar]) -> list[str]:
    """Return the lines to print."""
    lines = [f"{'bar':<72}{'target':>9}{'measured':>11}  met?"]
    for bar in found:
        target = f"{'≥' if bar.at_least else '≤'} {bar.bar:g}"
        measured = f"{'> ' if bar.bound else ''}{bar.measured:.3g}"
        lines.append(f"{bar.what:<72}{target:>9}{measured:>11}  {'yes' if bar.met else 'NO'}")
    return lines


def growth_spread(per_entry: Iterable[float]) -> float:
    """Return the x for which every value is within ± x of the middle of the range."""
    values = list(per_entry)
    return (max(values) - min(values)) / (max(values) + min(values))


def _rows(results: list[Row], **wanted: Any) -> list[Row]:
    return [
        row
        for row in results
        if row["error"] is None and all(row.get(key) == value for key, value in wanted.items())
    ]


def _main(results: list[Row], section: str) -> str | None:
    """Return the problem of the section's first row; no bar is about the others."""
    return next((row["problem"] for row in results if row["section"] == section), None)


def _roofline(results: list[Row]) -> Iterable[Bar]:
    sweeps = _rows(results, section="sweeps", problem=_main(results, "sweeps"), threads=1)
    for row in _rows(sweeps, competitor=OURS):
        bar = ROOFLINE.get((row["dtype"], row["k"]))
        if bar is not None and "roofline" in row:
            what = f"share of one thread's GEMM rate, ω = 0.5, {row['dtype']}, k = {row['k']}"
            yield Bar(what, bar, True, row["roofline"])


def _against_cholesky(results: list[Row]) -> Iterable[Bar]:
    sweeps = _rows(results, section="sweeps", problem=_main(results, "sweeps"), threads=2)
    for row in _rows(sweeps, competitor="cmfrec Cholesky"):
        ours = _rows(sweeps, competitor=OURS, dtype=row["dtype"], k=row["k"])
        if row["k"] in AGAINST_CHOLESKY and ours:
            what = f"sweep, times faster than cmfrec Cholesky, {row['dtype']}, k = {row['k']}"
            ratio = row["seconds"] / ours[0]["seconds"]
            yield Bar(what, AGAINST_CHOLESKY[row["k"]], True, ratio)


def _against_cg(results: list[Row]) -> Iterable[Bar]:
    for row in _rows(results, section="quality", competitor="cmfrec CG", threads=2):
        ours = _rows(results, section="quality", competitor=OURS, threads=2, k=row["k"])
        if ours and ours[0]["seconds"] is not None:
            reached = row["seconds"] is not None
            ratio = (row["seconds"] if reached else row["spent"]) / ours[0]["seconds"]
            what = f"to within 0.1 % of the best, times faster than cmfrec CG, k = {row['k']}"
            yield Bar(what, AGAINST_CG, True, ratio, bound=not reached)


def _asymmetry(results: list[Row]) -> Iterable[Bar]:
    rows = _rows(results, section="asymmetry", omega=0.1)
    late = [row for row in rows if row.get("sweep", 0) >= 3]
    if late:
        what = f"largest sweep at ω = 0.1 over ω = 0.5 from the third on, k = {late[0]['k']}"
        yield Bar(what, ASYMMETRY, False, max(row["ratio"] for row in late))
    for row in _rows(rows, what="to 0.1 %"):
        what = f"to within 0.1 % of the best, ω = 0.1 over ω = 0.5, k = {row['k']}"
        yield Bar(what, ASYMMETRIC_FIT, False, row["ratio"])


def _two_threads(results: list[Row]) -> Iterable[Bar]:
    for row in _rows(results, section="threads", threads=2):
        what = f"two threads over one, {row['dtype']}, k = {row['k']}"
        yield Bar(what, TWO_THREADS, True, row["speedup"])


def _growth(results: list[Row]) -> Iterable[Bar]:
    rows = _rows(results, section="growth", what="entries")
    if len(rows) > 1:
        what = f"seconds per entry from {rows[0]['problem']} to {rows[-1]['problem']} within ±, "
        spread = growth_spread(row["per_entry"] for row in rows)
        yield Bar(f"{what}k = {rows[0]['k']}", GROWTH, False, spread)


def _set_up(results: list[Row]) -> Iterable[Bar]:
    seconds = {row["what"]: row["seconds"] for row in _rows(results, section="setup")}
    if seconds:
        example = _rows(results, section="setup")[0]
        what = f"set-up at {example['problem']} entries in sweeps, k = {example['k']}"
        ratio = (seconds["observe"] + seconds["start"]) / seconds["sweep"]
        yield Bar(what, SET_UP, False, ratio)


def _memory(results: list[Row]) -> Iterable[Bar]:
    for row in _rows(results, section="memory"):
        what = f"peak memory at {row['problem']} entries less factors, over the input's"
        yield Bar(what, MEMORY, False, row["ratio"])


def _tuned(results: list[Row]) -> Iterable[Bar]:
    for known in _rows(results, section="tuned", what="its ridge"):
        name = known["competitor"]
        for row in _rows(results, section="tuned", what="auto", competitor=name):
            what = f"a tuned fit over one with its ridge, {name}, k = {row['k']}"
            yield Bar(what, TUNED, False, row["seconds"] / known["seconds"])


def _rank(results: list[Row]) -> Iterable[Bar]:
    for name, bar in RANK.items():
        for row in _rows(results, section="rank", what=name):
            what = f"ranks of all rows over the product, {name}, {row['dtype']}, k = {row['k']}"
            yield Bar(what, bar, False, row["ratio"])


def _cold(results: list[Row]) -> Iterable[Bar]:
    for row in _rows(results, section="cold"):
        if row["what"] in COLD:
            yield Bar(f"{row['what']}, seconds", COLD[row["what"]], False, row["seconds"])
