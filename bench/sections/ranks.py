"""The best columns of all rows, over the matrix product that predicts all cells."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.competitors import Fastemf
from bench.runner import Row, Say, interleaved, line, row, two_threads
from bench.scale import Scale

BEST = 10  # columns of each row
KNOTS = 8  # of each side of a table
CELLS = 1 << 20  # that are multiplied at once, into memory that is there


def run(scale: Scale, say: Say) -> list[Row]:
    """Rank all rows of models with and without tables, in turn with NumPy's product."""
    m, n = scale.ranked
    rows: list[Row] = []
    for dtype in scale.dtypes:
        rng = np.random.default_rng(0)
        X, Y = (rng.standard_normal((size, scale.rank)).astype(dtype) for size in (m, n))
        models = {"product": model(X, Y, tables=False), "tables": model(X, Y, tables=True)}
        for fit in models.values():  # compiled, or loaded from the cache
            fit.rank([0, 1], BEST, order="largest")
        timings = interleaved(
            {"GEMM": lambda X=X, Y=Y: multiply(X, Y)}
            | {name: lambda fit=fit: rank(fit) for name, fit in models.items()},
            scale.repeats,
        )
        for name, timing in timings.items():
            competitor = "NumPy" if name == "GEMM" else Fastemf().name
            found = row(
                "rank", name, f"{m} × {n}", m * n, dtype, scale.rank, two_threads(), competitor,
                timing,
            )  # fmt: skip
            if name != "GEMM" and timing.best and timings["GEMM"].best:
                found["ratio"] = timing.best / timings["GEMM"].best
                found["note"] = f"×{found['ratio']:.2f} of GEMM"
            rows.append(found)
            say(line(found))
    return rows


def model(X: Any, Y: Any, *, tables: bool) -> Any:
    """Make a model with intercepts of such factors."""
    import fastemf
    from fastemf.solver.axis import Axis, AxisNoise
    from fastemf.solver.tables import AxisLevels, Table, Tables

    rng = np.random.default_rng(1)
    knots = np.linspace(-2, 2, KNOTS)
    made = Tables(
        tuple(
            Table(over, (knots, knots), rng.standard_normal((KNOTS, KNOTS)))
            for over in (("row level", "column level"), ("product", "column noise"))
        ),
        1.0,
    )
    axes = []
    for factor in (X, Y):
        level, noise = rng.standard_normal((2, factor.shape[0]))
        axes.append(
            Axis(
                factor, level.astype(factor.dtype),
                noise=AxisNoise(np.exp(noise), 1.0) if tables else None,
                levels=AxisLevels(level, made) if tables else None,
            )
        )  # fmt: skip
    return fastemf.Factorization(
        rows=axes[0], cols=axes[1], omega=0.5, mu=1.0, reg=1.0, reg_scaling="count",
        intercept_reg=1.0, scale=1.0, converged=True, history=(),
    )  # fmt: skip


def multiply(X: Any, Y: Any) -> float:
    """Time the product alone, a block of rows after the other, and return the seconds."""
    step = max(1, CELLS // Y.shape[0])
    room, turned = np.empty((step, Y.shape[0]), X.dtype), np.ascontiguousarray(Y.T)
    began = time.perf_counter()
    for first in range(0, X.shape[0], step):
        part = X[first : first + step]
        np.matmul(part, turned, out=room[: part.shape[0]])
    return time.perf_counter() - began


def rank(fit: Any) -> float:
    """Time the ranking of all rows."""
    began = time.perf_counter()
    fit.rank(None, BEST, order="largest")
    return time.perf_counter() - began
