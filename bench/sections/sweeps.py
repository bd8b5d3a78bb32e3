"""One sweep: fastemf against the hardware on one thread, all competitors on two threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import scipy.sparse as sp

from bench.competitors import COMPETITORS, Competitor, Fastemf, NumpyReference
from bench.flops import gemm_rate, gemm_seconds, roofline_fraction, sweep_flops
from bench.problems import PROBLEMS
from bench.runner import LAMBDA, Rows, interleaved, row, two_threads
from bench.scale import Scale

OWN = (Fastemf(0.5),)


def run(scale: Scale) -> Rows:
    """Time every rank and type on the main problem, and one setting on the others."""
    R = PROBLEMS[scale.problem]()
    settings = [(dtype, k) for dtype in scale.dtypes for k in scale.ranks]
    for dtype, k in settings:
        yield from time_sweeps(R, scale.problem, OWN, dtype, k, 1, scale.repeats)
    fewer = min(2, scale.repeats)
    for dtype, k in settings:
        chosen = competitors(R.nnz, every_level=dtype == scale.dtypes[0])
        yield from time_sweeps(R, scale.problem, chosen, dtype, k, two_threads(), fewer)
    dtype, k = scale.dtypes[0], scale.rank
    for name in scale.others:
        try:
            R = PROBLEMS[name]()
        except FileNotFoundError as error:
            print(f"{name:<13}skipped: {error}", flush=True)
            continue
        chosen = competitors(R.nnz, every_level=True)
        yield from time_sweeps(R, name, chosen, dtype, k, two_threads(), fewer)


def competitors(entries: int, every_level: bool) -> list[Competitor]:
    """Return the competitors; the NumPy loop is left out on millions of entries."""
    few = entries < 1_000_000
    return [
        entry
        for entry in COMPETITORS
        if (few or not isinstance(entry, NumpyReference))
        and (every_level or not isinstance(entry, Fastemf) or entry.omega == 0.5)
    ]


def time_sweeps(
    R: sp.csr_matrix, problem: str, chosen: Sequence[Competitor], dtype: str, k: int,
    threads: int, repeats: int,
) -> Rows:  # fmt: skip
    """Yield one row per competitor; the rate of the matrix product is measured in turn."""
    data = R.astype(dtype)
    forms: dict[str, object] = {}

    def seconds(entry: Competitor) -> float:
        if entry.name not in forms:
            forms[entry.name] = entry.prepare(data)
        return entry.sweep_seconds(forms[entry.name], k, LAMBDA, threads)

    runs = {entry.name: partial(seconds, entry) for entry in chosen}
    timings = interleaved({"gemm": partial(gemm_seconds, dtype), **runs}, repeats)
    gemm = gemm_rate(timings.pop("gemm").best)
    flops = sweep_flops(data, k)
    for entry in chosen:
        timing = timings[entry.name]
        result = row(
            "sweeps", "sweep", problem, data.nnz, dtype, k, threads, entry.name, timing,
            flops=flops, gemm=gemm,
        )  # fmt: skip
        if timing.best and entry.exact:
            result["roofline"] = roofline_fraction(flops, timing.best, threads, gemm)
            result["note"] = f"{result['roofline']:.3f} of GEMM"
        yield result
