"""Two experiments with quantiles: ``python -m bench.accuracy.experiments``.

``ranking``: the coverage of the p95 of the safest column of every row. ``sentinel``: the pinball
loss at p95 if one value is a sentinel (2³¹ − 1), over the loss without it, and over that of the
constant.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import numpy as np

from fastemf import complete_quantiles
from fastemf.boosting.statistics import mean_pinball, quantile
from fastemf.metrics import coverage

TAU = 0.95
SENTINEL = 2.0**31 - 1
SEEDS = {"ranking": range(10, 16), "sentinel": range(12)}


def rank_safest(seed: int, shape: tuple[int, int] = (1000, 50)) -> float:
    """Return the coverage of p95 in the column with the smallest p95 of every row."""
    rng = np.random.default_rng(seed)
    m, n = shape
    mean = np.exp(rng.normal(0, 1.3, m)[:, None] + rng.normal(0, 1, n))
    i, j = np.nonzero(rng.random(shape) < 0.1)
    first, second = (mean * np.exp(0.5 * rng.normal(size=shape)) for _ in range(2))
    with warnings.catch_warnings(action="ignore"):  # rows without observations
        model = complete_quantiles((i, j, first[i, j]), (0.5, TAU), 2, shape=shape)
    best = model.rank(None, 1, order="smallest", tau=TAU)
    return coverage(second[np.arange(m), best.cols[:, 0]], best.values[:, 0])


def add_sentinel(seed: int, shape: tuple[int, int] = (60, 50)) -> tuple[float, float]:
    """Return the held-out loss with a sentinel, over that without, and over the constant's."""
    rng = np.random.default_rng(seed)
    rows, cols = (rng.normal(0, 0.5, size) for size in shape)
    values = np.exp(rows[:, None] + cols + 0.5 * rng.normal(size=shape))
    fitted = rng.random(shape) < 2 / 3
    i, j = np.nonzero(fitted)
    clean = values[i, j]
    spoiled = clean.copy()
    spoiled[rng.integers(clean.size)] = SENTINEL
    losses = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* values equal 2147483647")
        for given in (clean, spoiled):
            model = complete_quantiles((i, j, given), (0.5, TAU), 2, shape=shape)
            predicted = model.predict(*np.nonzero(~fitted))[:, 1]
            losses.append(mean_pinball(values[~fitted] - predicted, TAU))
    plain, hurt = losses
    return hurt / plain, hurt / mean_pinball(values[~fitted] - quantile(spoiled, TAU), TAU)


def main(argv: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy.experiments")
    parser.add_argument("names", nargs="*", help=f"by default {' and '.join(SEEDS)}")
    parser.add_argument("--seeds", help="by default 10,...,15 and 0,...,11")
    args = parser.parse_args(argv)
    for name in args.names or SEEDS:
        seeds = [int(seed) for seed in args.seeds.split(",")] if args.seeds else SEEDS[name]
        for seed in seeds:
            if name == "ranking":
                text = f"coverage of the safest columns {rank_safest(seed):.3f}"
            else:
                text = "loss over that without the sentinel {:.3f}, over the constant {:.3f}"
                text = text.format(*add_sentinel(seed))
            print(f"{name:<10}seed {seed:<4}{text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
