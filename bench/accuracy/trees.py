"""Gradient-boosted trees (LightGBM) on statistics of a cell's row and column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.baselines import AbsentError, Predictor
from bench.accuracy.splits import Training
from fastemf.loss import expectile, expectile_loss, sign_weights

FOLDS = 5
ROUNDS, PATIENCE = 600, 30
SETTINGS = {
    "learning_rate": 0.05, "num_leaves": 31, "min_data_in_leaf": 20, "verbosity": -1,
    "deterministic": True,
    "num_threads": 1,  # several threads wait for the slowest on a fractiond machine
}  # fmt: skip


def fit(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit trees under the expectile loss; a tenth of the cells determines their number."""
    try:
        import lightgbm as lgb
    except ImportError:
        raise AbsentError("lightgbm is not installed") from None
    rows, cols, values = train.cells
    centre = expectile(values, omega)
    # The statistics of a training cell are computed without its fold.
    features = np.empty((values.size, 16))
    fold = train.folds(FOLDS, seed)
    for i in range(FOLDS):
        out = fold == i
        features[out] = _features(train.part(~out), rows[out], cols[out], values.size)

    def gradient(predicted: NDArray[Any], data: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        r = data.get_label() - predicted
        w = sign_weights(r, omega)
        return -2 * w * r, 2 * w

    def loss(predicted: NDArray[Any], data: Any) -> tuple[str, float, bool]:
        return "loss", expectile_loss(data.get_label() - predicted, omega), False

    settings = {**SETTINGS, "objective": gradient, "metric": "none", "seed": seed}
    held_out = train.folds(10, seed + 1) == 0
    parts = [lgb.Dataset(features[part], values[part] - centre) for part in (~held_out, held_out)]
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    first = lgb.train(
        settings, parts[0], ROUNDS, valid_sets=[parts[1]], feval=loss, callbacks=[stop]
    )
    whole = lgb.Dataset(features, values - centre)
    model = lgb.train(settings, whole, max(1, first.best_iteration))
    return lambda i, j: centre + np.asarray(model.predict(_features(train, i, j, values.size)))


def _features(
    seen: Training, rows: NDArray[np.int64], cols: NDArray[np.int64], lines: int
) -> NDArray[np.float64]:
    """Return statistics of the rows and columns of cells, with counts scaled to `lines`."""
    values = seen.cells.values
    sides = zip((seen.cells.rows, seen.cells.cols), seen.shape, (rows, cols), strict=True)
    fraction = values.size / lines
    return np.hstack([_statistics(of, values, size, fraction)[at] for of, size, at in sides])


def _statistics(
    of: NDArray[np.int64], values: NDArray[np.float64], size: int, fraction: float
) -> NDArray[np.float64]:
    """Return count, mean, mean log, log variance, three quantiles and maximum of groups."""
    order = np.lexsort((values, of))
    v, counts = values[order], np.bincount(of, minlength=size)
    last = np.cumsum(counts) - 1
    some = counts > 0
    # Logarithms of magnitudes with their sign where not all values are positive.
    logs = np.log(values) if values.min() > 0 else np.sign(values) * np.log1p(np.abs(values))
    found = np.full((size, 8), np.nan)  # LightGBM treats NaN as missing
    n = counts[some]
    found[:, 0] = counts / fraction
    mean = np.bincount(of, values, size)[some] / n
    found[some, 1] = mean
    found[some, 2] = np.bincount(of, logs, size)[some] / n
    centred = values - found[of, 1]
    variance = np.bincount(of, centred**2, size)[some] / np.maximum(n - 1, 1)
    found[some, 3] = np.where(n > 1, np.log(variance + 1e-300), np.nan)
    for column, q in enumerate((0.1, 0.5, 0.9), start=4):
        found[some, column] = v[np.rint(last[some] - (1 - q) * (n - 1)).astype(np.int64)]
    found[some, 7] = v[last[some]]
    return found
