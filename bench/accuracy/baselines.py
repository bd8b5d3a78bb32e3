"""Fits of fastemf, and simple baselines: a constant, and expectiles of columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.splits import Training
from fastemf import complete
from fastemf.loss import expectile, sign_weights

Predictor = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]

NO_FACTORS = 1e12  # a ridge that removes all factors, whatever the unit of the data
COLUMN_RIDGE = 3.0  # ridge of a column's expectile, in units of the intercept ridge


class AbsentError(Exception):
    """A method whose package is not installed."""


def constant(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Predict the ω-expectile of all values."""
    level = expectile(train.cells.values, omega)
    return lambda rows, cols: np.full(rows.size, level)


def column_expectiles(
    train: Training, omega: float, seed: int, k: int, ridge: float = COLUMN_RIDGE
) -> Predictor:
    """Predict the ω-expectile of the column, shrunk towards that of all values."""
    _, cols, values = train.cells
    centre = expectile(values, omega)
    ridge, size = ridge * 4 * omega * (1 - omega), train.shape[1]
    level = np.full(size, centre)
    for _ in range(50):  # reweighting converges for a single unknown
        w = sign_weights(values - level[cols], omega)
        step = np.bincount(cols, w * (values - centre), size)
        found = centre + step / (np.bincount(cols, w, size) + ridge)
        if np.array_equal(found, level):
            break
        level = found
    return lambda rows, cols: level[cols]


def intercepts(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit row and column intercepts only."""
    return _fastemf(train, omega, seed, 1, NO_FACTORS)


def default(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit with the default settings and intercepts."""
    return _fastemf(train, omega, seed, k, "auto")


def noise_adaptive(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit with the noise-adaptive ridge."""
    return _fastemf(train, omega, seed, k, "noise")


def fit_cells(task: Any, train: Training, *args: Any, **options: Any) -> Any:
    """Fit triplets with intercepts, or a labelled table if rows and columns are the same things."""
    with warnings.catch_warnings(action="ignore"):  # columns without entries; max_iter
        if not train.mirrored:
            return task(tuple(train.cells), *args, shape=train.shape, intercepts=True, **options)
        import pyarrow as pa

        names = {"rows": "rows", "cols": "cols", "values": "values"}
        table = pa.table(train.cells._asdict())
        return task(table, *args, **names, intercepts=True, **options)


def _fastemf(train: Training, omega: float, seed: int, k: int, reg: Any) -> Predictor:
    fit = fit_cells(complete, train, omega, k, reg=reg, random_state=seed)
    if not train.mirrored:
        return lambda rows, cols: np.asarray(fit.predict(rows, cols))

    def predict(rows: NDArray[np.int64], cols: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.asarray(fit.predict(rows, cols, unknown="nan"))
        return np.where(np.isnan(found), fit.mu, found)

    return predict
