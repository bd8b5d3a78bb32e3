"""Least squares with biases (cmfrec), tuned, and brought to the level by its own residuals."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bench.accuracy.baselines import AbsentError, Predictor, row_and_column_levels
from bench.accuracy.splits import Cells, Training

# Ridges of biases and of factors, for values of standard deviation 1.
RIDGES = tuple(product((3.0, 20.0), (1.0, 3.0, 10.0, 30.0)))
FOLDS = 3

Ridges = tuple[float, float]


def fit(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Fit the means, then row and column levels at ω of their residuals out of fold.

    Without the second step this would be judged at levels that it does not predict.
    """
    means, residuals = _tuned(train, seed, k)
    left = Training(train.cells._replace(values=residuals), train.shape, train.mirrored)
    levels = row_and_column_levels(left, omega, seed, k)
    return lambda rows, cols: means(rows, cols) + levels(rows, cols)


@lru_cache(maxsize=1)  # the means are the same for every level
def _tuned(train: Training, seed: int, k: int) -> tuple[Predictor, NDArray[np.float64]]:
    """Choose ridges, then rank, by squared error out of fold; return the fit and its residuals."""
    fold = train.folds(FOLDS, seed)

    def residuals(rank: int, ridges: Ridges) -> NDArray[np.float64]:
        found = np.empty(fold.size)
        for i in range(FOLDS):
            out = train.cells.where(fold == i)
            predict = _fit(train.part(fold != i), rank, ridges, seed)
            found[fold == i] = out.values - predict(out.rows, out.cols)
        return found

    tried = {(k, ridges): residuals(k, ridges) for ridges in RIDGES}
    best = min(tried, key=lambda setting: np.sum(tried[setting] ** 2))
    smaller = (max(1, k // 3), best[1])
    tried[smaller] = residuals(*smaller)
    best = min(best, smaller, key=lambda setting: np.sum(tried[setting] ** 2))
    return _fit(train, *best, seed), tried[best]


def _fit(train: Training, rank: int, ridges: Ridges, seed: int) -> Predictor:
    try:
        from cmfrec import CMF
    except ImportError:
        raise AbsentError("cmfrec is not installed") from None
    cells, unit = _without_repeats(train), float(train.cells.values.std()) or 1.0
    biases, factors = ridges
    model = CMF(
        k=rank, lambda_=[biases, biases, factors, factors, 0, 0], method="als",
        random_state=seed, nthreads=1, verbose=False, precompute_for_predictions=False,
    )  # fmt: skip
    places = cells.rows, cells.cols
    model.fit(sp.coo_matrix((cells.values / unit, places), shape=train.shape))
    # Of a row or column without cells it leaves what its arrays were made with.
    u, v = (np.bincount(at, minlength=n) > 0 for at, n in zip(places, train.shape, strict=True))
    row, X = model.user_bias_ * u, model.A_ * u[:, None]
    col, Y = model.item_bias_ * v, model.B_ * v[:, None]
    mean = float(model.glob_mean_)
    return lambda i, j: unit * (mean + row[i] + col[j] + np.einsum("ij,ij->i", X[i], Y[j]))


def _without_repeats(train: Training) -> Cells:
    """Give a cell that was observed more than once its mean: cmfrec has no notion of repeats."""
    rows, cols, values = train.cells
    cell, of_cell, counts = np.unique(
        rows * train.shape[1] + cols, return_inverse=True, return_counts=True
    )
    return Cells(*np.divmod(cell, train.shape[1]), np.bincount(of_cell, values) / counts)
