"""Quantiles of held-out cells: relative pinball loss, coverage and cost.

The baselines are shrunken quantiles of columns, the sum of row and column effects, and the larger
of both, each with the shrinkage that is best in cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.baselines import fit_cells
from bench.accuracy.report import Run, average, format_means, ordered, usable
from bench.accuracy.splits import Split, Training, open_splits
from bench.runner import describe, timed
from fastemf import complete, complete_quantiles
from fastemf.metrics import coverage
from fastemf.quantile_model.item_quantiles import KAPPAS, additive_effects
from fastemf.quantile_model.observed_cells import ObservedCells
from fastemf.quantile_model.pinball import mean_pinball
from fastemf.quantile_model.shrunk_quantile import Pool, quantile, shrunk_quantiles

TAUS = (0.5, 0.95, 0.99)
OURS = "quantiles"
FOLDS = 5
# Pinball loss relative to the constant: the target, and a more ambitious goal.
TARGETS: dict[str, dict[float, tuple[float, float]]] = {
    "wsdream5": {0.5: (0.57, 0.50), 0.95: (0.365, 0.33), 0.99: (0.47, 0.44)},
    "planetlab": {0.5: (0.185, 0.17), 0.95: (0.235, 0.22), 0.99: (0.28, 0.24)},
    "kuairand": {0.5: (0.685, 0.67), 0.95: (0.50, 0.49), 0.99: (0.55, 0.53)},
}
TOLERANCE = {0.5: 0.02, 0.95: 0.015, 0.99: 0.005}  # of the coverage
WITHIN = {0.95: (0.92, 0.985)}  # coverage of each decile of the prediction
COST = (15.0, 8.0)  # of three quantiles, in tuned fits: target and goal
NO_STRUCTURE, SLACK = "structureless", 1.005


def measure(
    sets: dict[str, Callable[[int], Split]], seeds: list[int], k: int
) -> Iterator[Run]:  # fmt: skip
    """Yield the runs one by one."""
    for name, seed, (train, test) in open_splits(sets, seeds):
        about: Run = {"set": name, "seed": seed, "k": k, "error": None}
        try:
            fit, seconds = timed(fit_cells, complete, train, 0.5, k, random_state=seed)
            model, took = timed(fit_cells, complete_quantiles, train, TAUS, k, random_state=seed)
            predicted = model.predict(*test[:2], unknown="model")
        except Exception as error:  # the next runs may still succeed
            yield about | {"error": describe(error), "method": OURS, "tau": TAUS[0]}
            continue
        once = timed(fit.predict, *test[:2], unknown="model")[1]
        again = timed(model.predict, *test[:2], unknown="model")[1]
        cost = {"seconds": took, "tuned_fits": took / seconds, "predictions": again / once}
        simple = baselines(train, test.rows, test.cols)
        for t, tau in enumerate(TAUS):
            constant = mean_pinball(test.values - quantile(train.cells.values, tau), tau)
            for method, values in {OURS: predicted[:, t], **simple[tau]}.items():
                run = about | {"method": method, "tau": tau}
                run |= _scores(values, test.values, tau, constant)
                yield run | (cost if method == OURS else {})


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
    """Predict cells with the baselines, for each quantile."""
    i, j, values = train.cells
    folds = train.folds(FOLDS, 0)
    found = {}
    for tau in TAUS:

        def of_columns(kept: Any, kappa: float, tau: float = tau) -> Any:
            pool = Pool.fit(values[kept])
            c = shrunk_quantiles(values[kept], j[kept], train.shape[1], tau, kappa, pool)
            return np.zeros(train.shape[0]), c

        def of_both(kept: Any, kappa: float, tau: float = tau) -> Any:
            cells = ObservedCells(train.shape, i[kept], j[kept], values[kept], None, i[kept])
            return additive_effects(cells, values[kept], tau, kappa)

        column, both = (_best(train, folds, tau, make) for make in (of_columns, of_both))
        first, second = (a[rows] + c[cols] for a, c in (column, both))
        found[tau] = {"column": first, "row + column": second, "larger": np.maximum(first, second)}
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
    head = f"{run['set']:<16}{run['method']:<14}p{100 * run['tau']:<5g}seed {run['seed']}  "
    if run["error"]:
        return head + f"failed: {run['error']}"
    text = f"loss {run['loss']:.4f}  coverage {run['coverage']:.4f}"
    text += f" ({run['lowest']:.3f} to {run['highest']:.3f} by decile)"
    if "seconds" in run:
        text += f"  {run['seconds']:.1f} s, {run['tuned_fits']:.1f} tuned fits"
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
                    f"{name:<16}p{100 * tau:<5g}target {target:.3f}  goal {goal:.3f}  "
                    f"now {loss:.4f}  {verdict}"
                )
    lines += _failures(runs, ours)
    timed_runs = [run for run in ours if "tuned_fits" in run and run["set"] == "wsdream5"]
    if timed_runs:
        cost = float(np.mean([run["tuned_fits"] for run in timed_runs]))
        verdict = "goal met" if cost <= COST[1] else "met" if cost <= COST[0] else "MISSED"
        lines.append(f"cost on wsdream5: {cost:.1f} tuned fits  {verdict}")
    return lines


def _failures(runs: list[Run], ours: list[Run]) -> list[str]:
    """Count and list the runs that lose to a baseline or cover too little or too much."""
    losing, off, uneven = [], [], []
    for run in ours:
        same = {key: run[key] for key in ("set", "seed", "tau", "k")}
        for method in ordered(runs, "method"):
            other = average(runs, "loss", method=method, **same)
            slack = SLACK if run["set"] == NO_STRUCTURE else 1.0
            if method != OURS and other is not None and run["loss"] > slack * other:
                losing.append(f"{line(run)}, {method} {other:.4f}")
        if abs(run["coverage"] - run["tau"]) > TOLERANCE.get(run["tau"], 1.0):
            off.append(line(run))
        low, high = WITHIN.get(run["tau"], (0.0, 1.0))
        if run["lowest"] < low or run["highest"] > high:
            uneven.append(line(run))
    lines = []
    for what, found in (
        ("worse than a simple baseline", losing),
        ("coverage outside its tolerance", off),
        ("coverage of a decile outside .92 to .985 at p95", uneven),
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
