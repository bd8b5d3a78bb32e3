"""Quantiles of held-out cells: pinball loss over a constant's, coverage, and what they cost.

Simple baselines beside them, each fitted to all training cells with the shrinkage that is best out
of fold: columns' shrunk quantiles, rows' and columns' added up, and the larger of both.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.report import Run, average, ordered, usable
from bench.accuracy.splits import Split, Training
from bench.runner import describe
from fastemf import complete, complete_quantiles
from fastemf.metrics import coverage
from fastemf.stacking.item_quantiles import KAPPAS, added
from fastemf.stacking.pinball import mean_pinball
from fastemf.stacking.sampled import Sampled
from fastemf.stacking.shrunk_quantile import Pool, quantile, shrunk_quantiles

TAUS = (0.5, 0.95, 0.99)
OURS = "quantiles"
FOLDS = 5
# Pinball loss over the constant's: the bar, and the goal.
BARS: dict[str, dict[float, tuple[float, float]]] = {
    "wsdream5": {0.5: (0.57, 0.50), 0.95: (0.365, 0.33), 0.99: (0.47, 0.44)},
    "planetlab": {0.5: (0.185, 0.17), 0.95: (0.235, 0.22), 0.99: (0.28, 0.24)},
    "kuairand": {0.5: (0.685, 0.67), 0.95: (0.50, 0.49), 0.99: (0.55, 0.53)},
}
OFF = {0.5: 0.02, 0.95: 0.015, 0.99: 0.005}  # that coverage may be
WITHIN = {0.95: (0.92, 0.985)}  # coverage of each decile of the prediction
COST = (15.0, 8.0)  # tuned fits that three quantiles may cost, and the goal
NO_STRUCTURE, SLACK = "structureless", 1.005


def measure(
    sets: dict[str, Callable[[int], Split]], seeds: list[int], k: int
) -> Iterator[Run]:  # fmt: skip
    """Yield the runs one by one; what is not there is said and left out."""
    for name, make in sets.items():
        for seed in seeds:
            try:
                train, test = make(seed)
            except FileNotFoundError as error:
                print(f"{name}: skipped, {error}")
                break
            about: Run = {"set": name, "seed": seed, "k": k, "error": None}
            try:
                fit, seconds = _timed(_fit, complete, train, 0.5, k, seed)
                found, took = _timed(_fit, complete_quantiles, train, TAUS, k, seed)
                predicted = found.predict(*test[:2], unknown="model")
            except Exception as error:  # the runs after it may still succeed
                yield about | {"error": describe(error), "method": OURS, "tau": TAUS[0]}
                continue
            once = _timed(fit.predict, *test[:2], unknown="model")[1]
            again = _timed(found.predict, *test[:2], unknown="model")[1]
            cost = {"seconds": took, "tuned_fits": took / seconds, "predictions": again / once}
            simple = baselines(train, test.rows, test.cols)
            for t, tau in enumerate(TAUS):
                at = quantile(train.cells.values, tau)
                constant = mean_pinball(test.values - at, tau)
                for method, values in {OURS: predicted[:, t], **simple[tau]}.items():
                    run = about | {"method": method, "tau": tau}
                    run |= _scores(values, test.values, tau, constant)
                    yield run | (cost if method == OURS else {})


def _timed(task: Callable[..., Any], *args: Any, **named: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    found = task(*args, **named)
    return found, time.perf_counter() - began


def _fit(task: Any, train: Training, level: Any, k: int, seed: int) -> Any:
    """Fit triplets, or a table with labels where both sides have the same ones."""
    options = {"intercepts": True, "random_state": seed}
    with warnings.catch_warnings(action="ignore"):  # columns without entries
        if not train.mirrored:
            return task(tuple(train.cells), level, k, shape=train.shape, **options)
        import pyarrow as pa

        table = pa.table(train.cells._asdict())
        return task(table, level, k, rows="rows", cols="cols", values="values", **options)


def _scores(
    predicted: NDArray[Any], values: NDArray[np.float64], tau: float, constant: float
) -> Run:  # fmt: skip
    order = np.argsort(predicted, kind="stable")
    deciles = [coverage(values[part], predicted[part]) for part in np.array_split(order, 10)]
    return {
        "loss": mean_pinball(values - predicted, tau) / constant,
        "coverage": coverage(values, predicted),
        "lowest": min(deciles),
        "highest": max(deciles),
    }


def baselines(
    train: Training, rows: NDArray[np.int64], cols: NDArray[np.int64]
) -> dict[float, dict[str, NDArray[np.float64]]]:  # fmt: skip
    """Predict cells by the simple methods, for each quantile."""
    i, j, values = train.cells
    folds = train.folds(FOLDS, 0)
    found = {}
    for tau in TAUS:

        def of_columns(kept: Any, kappa: float, tau: float = tau) -> Any:
            pool = Pool.of(values[kept])
            c = shrunk_quantiles(values[kept], j[kept], train.shape[1], tau, kappa, pool)
            return np.zeros(train.shape[0]), c

        def of_both(kept: Any, kappa: float, tau: float = tau) -> Any:
            cells = Sampled(train.shape, i[kept], j[kept], values[kept], None, i[kept])
            return added(cells, values[kept], tau, kappa)

        column, both = (_best(train, folds, tau, make) for make in (of_columns, of_both))
        first, second = (a[rows] + c[cols] for a, c in (column, both))
        found[tau] = {"column": first, "row + column": second, "larger": np.maximum(first, second)}
    return found


def _best(train: Training, folds: Any, tau: float, make: Any) -> Any:
    """Fit with the shrinkage that predicts folds best from the others."""
    i, j, values = train.cells
    losses = []
    for kappa in KAPPAS:
        loss = 0.0
        for fold in range(FOLDS):
            out = folds == fold
            a, c = make(~out, kappa)
            loss += mean_pinball(values[out] - a[i[out]] - c[j[out]], tau)
        losses.append(loss)
    return make(slice(None), KAPPAS[int(np.argmin(losses))])


def line(run: Run) -> str:
    """Write a run as one line."""
    head = f"{run['set']:<16}{run['method']:<14}p{100 * run['tau']:<5g}seed {run['seed']}  "
    if run["error"]:
        return head + f"failed: {run['error']}"
    text = f"loss {run['loss']:.4f}  coverage {run['coverage']:.4f}"
    text += f" ({run['lowest']:.3f} to {run['highest']:.3f} by decile)"
    if "seconds" in run:
        text += f"  {run['seconds']:.1f} s, {run['tuned_fits']:.1f} tuned fits"
        text += f", predicts in {run['predictions']:.0f}"
    return head + text


def bars(runs: list[Run]) -> list[str]:
    """Return a line for each bar: means over the seeds, and coverage of every run."""
    runs = usable(runs)
    ours = [run for run in runs if run["method"] == OURS]
    lines = []
    for name, targets in BARS.items():
        for tau, (bar, goal) in targets.items():
            loss = average(ours, "loss", set=name, tau=tau)
            if loss is not None:
                verdict = "goal met" if loss <= goal else "met" if loss <= bar else "MISSED"
                lines.append(
                    f"{name:<16}p{100 * tau:<5g}bar {bar:.3f}  goal {goal:.3f}  now {loss:.4f}  "
                    f"{verdict}"
                )
    lines += _promises(runs, ours)
    dearest = [run for run in ours if "tuned_fits" in run and run["set"] == "wsdream5"]
    if dearest:
        cost = float(np.mean([run["tuned_fits"] for run in dearest]))
        verdict = "goal met" if cost <= COST[1] else "met" if cost <= COST[0] else "MISSED"
        lines.append(f"cost on wsdream5: {cost:.1f} tuned fits  {verdict}")
    return lines


def _promises(runs: list[Run], ours: list[Run]) -> list[str]:
    """Return how often quantiles lose to a baseline or cover too little or too much, and where."""
    losing, off, uneven = [], [], []
    for run in ours:
        same = {key: run[key] for key in ("set", "seed", "tau", "k")}
        for method in ordered(runs, "method"):
            other = average(runs, "loss", method=method, **same)
            slack = SLACK if run["set"] == NO_STRUCTURE else 1.0
            if method != OURS and other is not None and run["loss"] > slack * other:
                losing.append(f"{line(run)}, {method} {other:.4f}")
        if abs(run["coverage"] - run["tau"]) > OFF.get(run["tau"], 1.0):
            off.append(line(run))
        low, high = WITHIN.get(run["tau"], (0.0, 1.0))
        if run["lowest"] < low or run["highest"] > high:
            uneven.append(line(run))
    lines = []
    for what, found in (
        ("worse than a simple baseline", losing),
        ("coverage further off than it may be", off),
        ("coverage of a decile outside .92 to .985 at p95", uneven),
    ):
        lines += [f"{what}: {len(found)} of {len(ours)} runs", *(f"  {text}" for text in found)]
    return lines


def markdown(runs: list[Run]) -> list[str]:
    """Return a table of set × method: losses, and coverage of ours, means over the seeds."""
    runs = usable(runs)
    methods = ordered(runs, "method")
    taus = ordered(runs, "tau")
    head = " / ".join(f"p{100 * tau:g}" for tau in taus)
    lines = [f"| pinball / constant's, {head} | " + " | ".join([*methods, "coverage"]) + " |"]
    lines.append("|---" * (len(methods) + 2) + "|")
    for name in ordered(runs, "set"):
        texts = [_means(runs, "loss", 3, taus, set=name, method=method) for method in methods]
        texts.append(_means(runs, "coverage", 3, taus, set=name, method=OURS))
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return lines


def _means(runs: list[Run], field: str, digits: int, taus: list[Any], **where: Any) -> str:
    found = [average(runs, field, tau=tau, **where) for tau in taus]
    return " / ".join("–" if x is None else f"{x:.{digits}f}".removeprefix("0") for x in found)
