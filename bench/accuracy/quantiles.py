"""Quantiles of held-out cells: relative pinball loss, coverage, CRPS, interval score and cost.

The simple baselines are shrunken quantiles of rows and of columns, the sum of row and column
effects, and the larger of column and sum, each with the shrinkage that is best in cross-validation.
The others are trees on statistics of rows and columns, and on the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy import trees
from bench.accuracy.baselines import AbsentError, fit_cells
from bench.accuracy.report import Run, average, format_means, ordered, usable
from bench.accuracy.splits import Cells, Make, Split, Training, open_splits
from bench.runner import describe, timed
from fastemf import complete, complete_quantiles
from fastemf.boosting.cell_features import KAPPAS
from fastemf.boosting.statistics import mean_pinball, quantile, shrunk_quantiles
from fastemf.distribution import Distribution
from fastemf.metrics import coverage, interval_score

TAUS: tuple[float, ...] = (0.5, 0.95, 0.99)
OURS = "quantiles"
SIMPLE = ("row", "column", "row + column", "larger")
FOLDS = 5
# Pinball loss relative to the constant: the target, and a more ambitious goal.
TARGETS: dict[str, dict[float, tuple[float, float]]] = {
    "wsdream5": {0.5: (0.505, 0.485), 0.95: (0.332, 0.318), 0.99: (0.418, 0.400)},
    "planetlab": {0.5: (0.158, 0.150), 0.95: (0.205, 0.190), 0.99: (0.250, 0.230)},
    "kuairand": {0.5: (0.672, 0.660), 0.95: (0.485, 0.475), 0.99: (0.505, 0.490)},
    "kuairand_duration": {0.5: (0.668, 0.655), 0.95: (0.465, 0.450), 0.99: (0.495, 0.480)},
}
TOLERANCE = {0.5: 0.02, 0.95: 0.012, 0.99: 0.005}  # of the coverage
WITHIN = {0.95: (0.92, 0.98)}  # coverage of each decile of the prediction
ERROR_IN = ("wsdream5", "wsdream5_places")  # where the mean absolute error of p50 is reported
COST = (15.0, 8.0)  # of three quantiles, in tuned fits: target and goal
NO_STRUCTURE, SLACK = "structureless", 1.005

Taus = tuple[float, ...]
Found = tuple[dict[str, NDArray[np.float64]], dict[str, float]]  # predictions by name, and the cost


def measure(
    sets: dict[str, Make], seeds: list[int], k: int, methods: list[str], taus: Taus = TAUS
) -> Iterator[Run]:  # fmt: skip
    """Yield the runs one by one; report and skip methods that are not installed."""
    absent: set[str] = set()
    for (name, seed, split), method in product(open_splits(sets, seeds), methods):
        if method in absent:
            continue
        about: Run = {"set": name, "seed": seed, "k": k, "error": None}
        try:
            predicted, cost = METHODS[method](split, seed, k, taus)
        except AbsentError as error:
            absent.add(method)
            print(f"{method}: skipped, {error}")
            continue
        except Exception as error:  # the next runs may still succeed
            yield about | {"error": describe(error), "method": method, "tau": taus[0]}
            continue
        train, test, _ = split
        constants = [quantile(train.cells.values, tau) for tau in taus]
        lowest = float(train.cells.values.min())
        base = _distribution_scores(np.tile(constants, (test.values.size, 1)), test, taus, lowest)
        for one, values in predicted.items():
            own = _distribution_scores(values, test, taus, lowest)
            whole = {name: score / base[name] for name, score in own.items()}
            for t, tau in enumerate(taus):
                constant = mean_pinball(test.values - constants[t], tau)
                scores = _scores(values[:, t], test.values, tau, constant)
                yield about | {"method": one, "tau": tau} | scores | whole | cost


def _fit_ours(split: Split, seed: int, k: int, taus: Taus) -> Found:
    train, test, features = split
    fit, seconds = timed(fit_cells, complete, train, 0.5, k, random_state=seed)
    model, took = timed(
        fit_cells, complete_quantiles, train, taus, k, random_state=seed, **train.side
    )
    given: dict[str, Any] = {"features": features} if features else {}
    predicted, again = timed(model.predict, *test[:2], unknown="model", **given)
    once = timed(fit.predict, *test[:2], unknown="model")[1]
    cost = {"seconds": took, "tuned_fits": took / seconds, "predictions": again / once}
    return {OURS: predicted}, cost


def _fit_simple(split: Split, seed: int, k: int, taus: Taus) -> Found:
    found = baselines(split.train, split.test.rows, split.test.cols, taus)
    return {name: np.column_stack([found[tau][name] for tau in taus]) for name in SIMPLE}, {}


def _fit_trees(one: Any, name: str, split: Split, seed: int, k: int, taus: Taus) -> Found:
    predicted, seconds = timed(trees.predict_quantiles, one, split, taus, seed)
    return {name: predicted}, {"seconds": seconds}


METHODS: dict[str, Callable[[Split, int, int, Taus], Found]] = {
    OURS: _fit_ours,
    "simple": _fit_simple,
    "lightgbm": partial(_fit_trees, trees.lightgbm_quantile, "lightgbm"),
    "catboost": partial(_fit_trees, trees.catboost_quantile, "catboost"),
}


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
        "absolute_error": float(np.abs(values - predicted).mean()),
    }


def _distribution_scores(
    predicted: NDArray[Any], test: Cells, taus: Taus, lowest: float
) -> dict[str, float]:
    """Compute the CRPS, and the score of the widest central interval, if there is one."""
    if len(taus) < 2:
        return {}
    quantiles = np.sort(predicted.astype(np.float64))
    found = {"crps": float(Distribution(taus, quantiles, lowest=lowest).crps(test.values).mean())}
    if np.isclose(taus[0] + taus[-1], 1):
        ends = quantiles[:, 0], quantiles[:, -1]
        found["interval"] = interval_score(test.values, *ends, taus[-1] - taus[0])
    return found


def baselines(
    train: Training, rows: NDArray[np.int64], cols: NDArray[np.int64], taus: Taus = TAUS
) -> dict[float, dict[str, NDArray[np.float64]]]:  # fmt: skip
    """Predict cells with the baselines, for each quantile."""
    i, j, values = train.cells
    folds = train.folds(FOLDS, 0)
    found = {}
    for tau in taus:

        def of_rows(kept: Any, kappa: float, tau: float = tau) -> Any:
            centre = quantile(values[kept], tau)
            a = shrunk_quantiles(i[kept], values[kept], train.shape[0], tau, kappa, centre)
            return a, np.zeros(train.shape[1] + 1)

        def of_columns(kept: Any, kappa: float, tau: float = tau) -> Any:
            centre = quantile(values[kept], tau)
            c = shrunk_quantiles(j[kept], values[kept], train.shape[1], tau, kappa, centre)
            return np.zeros(train.shape[0] + 1), c

        def of_both(kept: Any, kappa: float, tau: float = tau) -> Any:
            """Alternate between quantiles of rows and of columns of what the others leave."""
            a, c = of_columns(kept, kappa)
            for _ in range(2):
                a = shrunk_quantiles(
                    i[kept], values[kept] - c[j[kept]], train.shape[0], tau, kappa,
                    quantile(values[kept] - c[j[kept]], tau),
                )  # fmt: skip
                rest = values[kept] - a[i[kept]]
                c = shrunk_quantiles(j[kept], rest, train.shape[1], tau, kappa, quantile(rest, tau))
            return a, c

        row, column, both = (
            a[rows] + c[cols]
            for a, c in (_best(train, folds, tau, make) for make in (of_rows, of_columns, of_both))
        )
        own = (row, column, both, np.maximum(column, both))
        found[tau] = dict(zip(SIMPLE, own, strict=True))
    return found


def _best(train: Training, folds: Any, tau: float, make: Any) -> Any:
    """Fit with the shrinkage that has the smallest cross-validated loss."""
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
    """Format a run as one line."""
    head = f"{run['set']:<28}{run['method']:<14}p{100 * run['tau']:<5g}seed {run['seed']}  "
    if run["error"]:
        return head + f"failed: {run['error']}"
    text = f"loss {run['loss']:.4f}  coverage {run['coverage']:.4f}"
    text += f" ({run['lowest']:.3f} to {run['highest']:.3f} by decile)"
    for name, what in (("crps", "CRPS"), ("interval", "interval score")):
        text += f"  {what} {run[name]:.4f}" if name in run else ""
    if "seconds" in run:
        text += f"  {run['seconds']:.1f} s"
    if "tuned_fits" in run:
        text += f", {run['tuned_fits']:.1f} tuned fits"
        text += f", prediction takes {run['predictions']:.0f} times as long"
    return head + text


def target_lines(runs: list[Run]) -> list[str]:
    """Return a line per target, and the runs that lose to a baseline or miss their coverage."""
    runs = usable(runs)
    ours = [run for run in runs if run["method"] == OURS]
    lines = []
    for name, targets in TARGETS.items():
        for tau, (target, goal) in targets.items():
            loss = average(ours, "loss", set=name, tau=tau)
            if loss is not None:
                verdict = "goal met" if loss <= goal else "met" if loss <= target else "MISSED"
                lines.append(
                    f"{name:<18}p{100 * tau:<5g}target {target:.3f}  goal {goal:.3f}  "
                    f"now {loss:.4f}  {verdict}"
                )
    for name, method in product(ERROR_IN, ordered(runs, "method")):
        error = average(runs, "absolute_error", set=name, method=method, tau=0.5)
        if error is not None:
            lines.append(f"{name:<18}{method:<14}mean absolute error of p50 {error:.4f}")
    lines += _failures(runs, ours)
    timed_runs = [run for run in ours if "tuned_fits" in run and run["set"] == "wsdream5"]
    if timed_runs:
        cost = float(np.mean([run["tuned_fits"] for run in timed_runs]))
        verdict = "goal met" if cost <= COST[1] else "met" if cost <= COST[0] else "MISSED"
        lines.append(f"cost on wsdream5: {cost:.1f} tuned fits  {verdict}")
    return lines


def _failures(runs: list[Run], ours: list[Run]) -> list[str]:
    """Count and list the runs that lose to a baseline or cover too little or too much."""
    losing: list[str] = []
    behind: list[str] = []
    off, uneven = [], []
    for run in ours:
        same = {key: run[key] for key in ("set", "seed", "tau", "k")}
        for method in ordered(runs, "method"):
            other = average(runs, "loss", method=method, **same)
            slack = SLACK if run["set"] == NO_STRUCTURE else 1.0
            if method != OURS and other is not None and run["loss"] > slack * other:
                worse = losing if method in SIMPLE else behind
                worse.append(f"{line(run)}, {method} {other:.4f}")
        if abs(run["coverage"] - run["tau"]) > TOLERANCE.get(run["tau"], 1.0):
            off.append(line(run))
        low, high = WITHIN.get(run["tau"], (0.0, 1.0))
        if run["lowest"] < low or run["highest"] > high:
            uneven.append(line(run))
    lines = []
    for what, found in (
        ("worse than a simple baseline", losing),
        ("worse than trees", behind),
        ("coverage outside its tolerance", off),
        ("coverage of a decile outside .92 to .98 at p95", uneven),
    ):
        lines += [f"{what}: {len(found)} of {len(ours)} runs", *(f"  {text}" for text in found)]
    return lines


def markdown(runs: list[Run]) -> list[str]:
    """Return a table, data set × method: mean losses, and the mean coverage of the quantiles."""
    runs = usable(runs)
    methods, taus = ordered(runs, "method"), ordered(runs, "tau")
    head = " / ".join(f"p{100 * tau:g}" for tau in taus)
    lines = [f"| relative pinball loss, {head} | " + " | ".join([*methods, "coverage"]) + " |"]
    lines.append("|---" * (len(methods) + 2) + "|")
    for name in ordered(runs, "set"):
        columns = [("loss", method) for method in methods] + [("coverage", OURS)]
        texts = [
            format_means([average(runs, field, tau=tau, set=name, method=m) for tau in taus], 3)
            for field, m in columns
        ]
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return lines
