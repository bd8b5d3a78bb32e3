"""Values in buckets: pinball loss of quantiles fitted to intervals and to midpoints of buckets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastemf
from bench.accuracy.splits import Make, Split, open_splits, planetlab_10, wsdream_5
from fastemf.metrics import pinball_loss

SECONDS: dict[str, tuple[Make, float]] = {  # the values, in seconds times a number
    "wsdream5": (wsdream_5, 1.0),
    "planetlab": (planetlab_10, 1e3),
}
BUCKETS = {
    "Prometheus": np.array([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]),
    "coarse": np.array([0.1, 0.3, 1, 3, 10]),
}
TAUS = (0.5, 0.95)
HARM, MEAN = 1.01, 0.97  # of the loss relative to midpoints: of any case, and on average

Run = dict[str, Any]


def measure(seeds: list[int], k: int) -> Iterator[Run]:
    """Yield the runs: losses of exact values, midpoints and intervals, and distances to exact."""
    makes = {name: make for name, (make, _) in SECONDS.items()}
    for name, seed, split in open_splits(makes, seeds):
        yield from measure_split(name, seed, split, SECONDS[name][1], k)


def measure_split(name: str, seed: int, split: Split, per_second: float, k: int) -> Iterator[Run]:
    """Yield the runs of one data set."""
    rows, cols, values = split.train.cells
    values, truth = values / per_second, split.test.values / per_second

    def predict(given: Any) -> NDArray[np.float64]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = fastemf.complete_quantiles(
                (rows, cols, given), TAUS, k, shape=split.train.shape, random_state=seed
            )
        return np.asarray(model.predict(*split.test[:2], unknown="model"))

    exact = predict(values)
    for kind, bounds in BUCKETS.items():
        at = np.searchsorted(bounds, values)
        lower, upper = np.append(0, bounds)[at], np.append(bounds, np.inf)[at]
        middles = np.where(lower > 0, np.sqrt(lower * upper), upper / 2)
        middles = np.where(np.isinf(upper), lower, middles)
        found = {
            "exact": exact, "midpoints": predict(middles), "intervals": predict((lower, upper))
        }  # fmt: skip
        for t, tau in enumerate(TAUS):
            yield {
                "set": name, "buckets": kind, "tau": tau, "seed": seed,
                **{one: pinball_loss(truth, p[:, t], tau) for one, p in found.items()},
                **{
                    f"{one} apart": float(np.mean(np.abs(p[:, t] - exact[:, t])))
                    for one, p in found.items() if one != "exact"
                },
            }  # fmt: skip


def line(run: Run) -> str:
    """Format a run as one line."""
    losses = "  ".join(f"{one} {run[one]:.5f}" for one in ("exact", "midpoints", "intervals"))
    apart = "  ".join(f"{one} {run[f'{one} apart']:.5f}" for one in ("midpoints", "intervals"))
    return (
        f"{run['set']:<10}{run['buckets']:<11}p{100 * run['tau']:<4g}seed {run['seed']}  {losses}  "
        f"ratio {run['intervals'] / run['midpoints']:.3f}  from exact: {apart}"
    )


def target_lines(runs: list[Run]) -> list[str]:
    """Compare the loss relative to midpoints with the targets."""
    if not runs:
        return []
    ratios = [run["intervals"] / run["midpoints"] for run in runs]
    figures = {"largest": (max(ratios), HARM), "mean": (float(np.mean(ratios)), MEAN)}
    return [
        f"{name} loss relative to midpoints: {found:.3f} (target {target:g}) "
        f"{'met' if found <= target else 'MISSED'}"
        for name, (found, target) in figures.items()
    ]
