"""Ranking the columns of all rows, compared with the matrix product that predicts all cells."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.competitors import Fastemf
from bench.runner import Rows, interleaved, row, timed, two_threads
from bench.scale import Scale

BEST = 10  # columns of each row
KNOTS = 8  # of each side of a correction table
CELLS = 1 << 20  # cells that are multiplied at once, into the same buffer


def run(scale: Scale) -> Rows:
    """Rank all rows of models with and without correction tables, in turn with NumPy's product."""
    m, n = scale.ranked
    for dtype in scale.dtypes:
        rng = np.random.default_rng(0)
        X, Y = (rng.standard_normal((size, scale.rank)).astype(dtype) for size in (m, n))
        models = {"product": model(X, Y, tables=False), "tables": model(X, Y, tables=True)}
        for fit in models.values():  # compiled, or loaded from the cache
            fit.rank([0, 1], BEST, order="largest")
        runs = {"GEMM": partial(multiply_seconds, X, Y)}
        runs |= {name: partial(rank_seconds, fit) for name, fit in models.items()}
        timings = interleaved(runs, scale.repeats)
        for name, timing in timings.items():
            competitor = "NumPy" if name == "GEMM" else Fastemf().name
            result = row(
                "rank", name, f"{m} × {n}", m * n, dtype, scale.rank, two_threads(), competitor,
                timing,
            )  # fmt: skip
            if name != "GEMM" and timing.best and timings["GEMM"].best:
                result["ratio"] = timing.best / timings["GEMM"].best
                result["note"] = f"×{result['ratio']:.2f} of GEMM"
            yield result


def model(X: Any, Y: Any, *, tables: bool) -> Any:
    """Build a model with random intercepts, and with correction tables if `tables`."""
    import fastemf
    from fastemf.models.entities import Entities
    from fastemf.tuning.corrections import Correction, Corrections, EntityEffects
    from fastemf.tuning.noise import EntityNoise

    rng = np.random.default_rng(1)
    knots = np.linspace(-2, 2, KNOTS)
    made = Corrections(
        tuple(
            Correction(over, (knots, knots), rng.standard_normal((KNOTS, KNOTS)))
            for over in (("row effect", "column effect"), ("product", "column noise"))
        ),
        1.0,
    )
    axes = []
    for factor in (X, Y):
        level, noise = rng.standard_normal((2, factor.shape[0]))
        axes.append(
            Entities(
                factor, level.astype(factor.dtype),
                noise=EntityNoise(np.exp(noise), 1.0) if tables else None,
                effects=EntityEffects(level, made) if tables else None,
            )
        )  # fmt: skip
    return fastemf.Factorization(
        rows=axes[0], cols=axes[1], omega=0.5, mu=1.0, reg=1.0, reg_scaling="count",
        intercept_reg=1.0, scale=1.0, converged=True, history=(),
    )  # fmt: skip


def multiply_seconds(X: Any, Y: Any) -> float:
    """Time the product alone, one block of rows after the other."""
    step = max(1, CELLS // Y.shape[0])
    buffer, transposed = np.empty((step, Y.shape[0]), X.dtype), np.ascontiguousarray(Y.T)

    def multiply() -> None:
        for first in range(0, X.shape[0], step):
            part = X[first : first + step]
            np.matmul(part, transposed, out=buffer[: part.shape[0]])

    return timed(multiply)[1]


def rank_seconds(fit: Any) -> float:
    """Time the ranking of all rows."""
    return timed(fit.rank, None, BEST, order="largest")[1]
