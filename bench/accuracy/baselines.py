"""Fits of fastemf, and the simplest predictions there are: a constant and levels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy.splits import Training
from fastemf import complete
from fastemf.loss import expectile, sign_weights
from fastemf.support.validation import check_reg

Predictor = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]

NO_FACTORS = 1e12  # a ridge that leaves nothing of the factors, in any unit that data come in
COLUMN_RIDGE = 3.0  # of a column's level, in ridges of an intercept


class AbsentError(Exception):
    """A method that this installation does not have."""


def constant(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Predict the ω-expectile of all values."""
    level = expectile(train.cells.values, omega)
    return lambda rows, cols: np.full(rows.size, level)


def column_level(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Predict the column's ω-expectile, shrunk towards the constant where it has few values."""
    _, cols, values = train.cells
    centre = expectile(values, omega)
    ridge, size = COLUMN_RIDGE * 4 * omega * (1 - omega), train.shape[1]
    level = np.full(size, centre)
    for _ in range(50):  # reweighting in one unknown cannot cycle
        w = sign_weights(values - level[cols], omega)
        step = np.bincount(cols, w * (values - centre), size)
        found = centre + step / (np.bincount(cols, w, size) + ridge)
        if np.array_equal(found, level):
            break
        level = found
    return lambda rows, cols: level[cols]


def row_and_column_levels(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit the intercepts of fastemf alone."""
    return _fastemf(train, omega, seed, 1, NO_FACTORS)


def default(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit as a user does who sets nothing: this is what is judged."""
    return _fastemf(train, omega, seed, k, "auto")


def noise_following(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit with the ridge that follows the size of the training residuals."""
    try:
        check_reg("noise")
    except ValueError:
        raise AbsentError('this version has no reg="noise"') from None
    return _fastemf(train, omega, seed, k, "noise")


def _fastemf(train: Training, omega: float, seed: int, k: int, reg: Any) -> Predictor:
    """Fit triplets, or a table with labels where both sides have the same ones."""
    options = {"reg": reg, "intercepts": True, "random_state": seed}
    with warnings.catch_warnings(action="ignore"):  # columns without entries; max_iter
        if not train.mirrored:
            fit = complete(tuple(train.cells), omega, k, shape=train.shape, **options)
            return lambda rows, cols: np.asarray(fit.predict(rows, cols))
        import pyarrow as pa

        table = pa.table(train.cells._asdict())
        fit = complete(table, omega, k, rows="rows", cols="cols", values="values", **options)

    def predict(rows: NDArray[np.int64], cols: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.asarray(fit.predict(rows, cols, unknown="nan"))
        return np.where(np.isnan(found), fit.mu, found)

    return predict
