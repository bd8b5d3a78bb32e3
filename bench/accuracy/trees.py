"""Gradient-boosted trees on statistics of a cell's row and column, and on its features."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.baselines import AbsentError, Predictor
from bench.accuracy.splits import Split, Training
from fastemf.loss import expectile, expectile_loss, sign_weights

FOLDS = 5
ROUNDS, PATIENCE = 600, 30
SETTINGS = {
    "learning_rate": 0.05, "num_leaves": 31, "min_data_in_leaf": 20, "verbosity": -1,
    "deterministic": True,
    "num_threads": 1,  # several threads wait for the slowest on a shared machine
}  # fmt: skip
CATBOOST = {
    "iterations": 1000, "learning_rate": 0.1, "thread_count": 1, "verbose": False,
    "allow_writing_files": False,
}  # fmt: skip

# Features and values of the training cells, and the mask of the validation cells among them.
Arrays = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]


def fit(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit trees under the expectile loss; a tenth of the cells determines their number."""
    try:
        import lightgbm as lgb
    except ImportError:
        raise AbsentError("lightgbm is not installed") from None
    values = train.cells.values
    centre = expectile(values, omega)
    features = _out_of_fold(train, seed)

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


def lightgbm_quantile(
    fitted: Arrays, test: NDArray[np.float64], categories: list[int], tau: float, seed: int
) -> NDArray[np.float64]:
    """Fit trees under the pinball loss; validation cells determine their number."""
    try:
        import lightgbm as lgb
    except ImportError:
        raise AbsentError("lightgbm is not installed") from None
    settings = {**SETTINGS, "objective": "quantile", "alpha": tau, "seed": seed}
    features, values, held_out = fitted

    def data(part: Any) -> Any:
        return lgb.Dataset(features[part], values[part], categorical_feature=categories)

    stop = lgb.early_stopping(PATIENCE, verbose=False)
    first = lgb.train(
        settings, data(~held_out), ROUNDS, valid_sets=[data(held_out)], callbacks=[stop]
    )
    whole = lgb.train(settings, data(slice(None)), max(1, first.best_iteration))
    return np.asarray(whole.predict(test))


def catboost_quantile(
    fitted: Arrays, test: NDArray[np.float64], categories: list[int], tau: float, seed: int
) -> NDArray[np.float64]:
    """Do the same with CatBoost."""
    try:
        import catboost
    except ImportError:
        raise AbsentError("catboost is not installed") from None
    settings = {**CATBOOST, "loss_function": f"Quantile:alpha={tau}", "random_seed": seed}
    features, values, held_out = fitted

    def data(features: NDArray[np.float64], values: Any = None) -> Any:
        codes = features[:, categories].astype(int).astype(bytes).astype(object)
        numbers = np.delete(features, categories, axis=1).astype(np.float32)
        return catboost.Pool(catboost.FeaturesData(numbers, codes if categories else None), values)

    first = catboost.CatBoostRegressor(**settings)
    parts = [data(features[part], values[part]) for part in (~held_out, held_out)]
    first.fit(parts[0], eval_set=parts[1], early_stopping_rounds=PATIENCE)
    settings["iterations"] = max(1, first.best_iteration_ + 1)
    whole = catboost.CatBoostRegressor(**settings).fit(data(features, values))
    return np.asarray(whole.predict(data(test)))


def predict_quantiles(
    one: Callable[..., NDArray[np.float64]], split: Split, taus: tuple[float, ...], seed: int
) -> NDArray[np.float64]:
    """Predict quantiles of the test cells by trees.

    Cells in new rows get trees of their own, fitted without the statistics of rows, and cells in
    new columns likewise: other trees have not seen that these are missing.
    """
    train, test, _ = split
    values = train.cells.values
    known, asked = _out_of_fold(train, seed), _features(train, test.rows, test.cols, values.size)
    (known_side, asked_side), categories = _side_features(split)
    seen, unseen = np.hstack([known, known_side]), np.hstack([asked, asked_side])
    held_out = train.folds(10, seed + 1) == 0
    predicted = np.tile(np.quantile(values, taus), (len(asked), 1))  # if nothing is known
    new_row, new_col = asked[:, 0] == 0, asked[:, 8] == 0
    for row, col in product((False, True), repeat=2):
        cells = (new_row == row) & (new_col == col)
        used = np.ones(seen.shape[1], bool)
        used[:8], used[8:16] = not row, not col
        if not cells.any() or not used.any():
            continue
        fitted, places = (seen[:, used], values, held_out), np.cumsum(used) - 1
        of_words = [int(places[16 + at]) for at in categories]
        for t, tau in enumerate(taus):
            predicted[cells, t] = one(fitted, unseen[cells][:, used], of_words, tau, seed)
    return predicted


def _side_features(
    split: Split,
) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], list[int]]:
    """Return the features of training and of test cells, and which columns are categories."""
    train, test, of_test = split
    columns = [
        (values[train.cells[axis]], values[test[axis]])
        for axis, table in enumerate((train.row_features, train.col_features))
        for values in table.values()
    ]
    columns += [(values, of_test[name]) for name, values in train.features.items()]
    pairs, categories = [], []
    for at, pair in enumerate(columns):
        joined = np.concatenate(pair)
        if joined.dtype.kind not in "iuf":
            categories.append(at)
            joined = np.unique(joined, return_inverse=True)[1]
        pairs.append(np.asarray(joined, np.float64))
    size = train.cells.values.size
    both = np.reshape(pairs, (len(pairs), size + test.values.size)).T
    return (both[:size], both[size:]), categories


def _out_of_fold(train: Training, seed: int) -> NDArray[np.float64]:
    """Return the statistics of the training cells, each without its fold."""
    rows, cols, values = train.cells
    features = np.empty((values.size, 16))
    fold = train.folds(FOLDS, seed)
    for i in range(FOLDS):
        out = fold == i
        features[out] = _features(train.part(~out), rows[out], cols[out], values.size)
    return features


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
