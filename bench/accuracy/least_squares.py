"""Tuned least squares with biases (cmfrec), plus expectiles of its out-of-fold residuals."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bench.accuracy.baselines import AbsentError, Predictor, intercepts
from bench.accuracy.splits import Cells, Training

Ridges = tuple[float, float]

# Ridges of biases and of factors, for values of standard deviation 1.
RIDGES = tuple(product((3.0, 20.0), (1.0, 3.0, 10.0, 30.0)))
FOLDS = 3


def fit(
    train: Training, omega: float, seed: int, k: int, grid: tuple[Ridges, ...] = RIDGES
) -> Predictor:
    """Fit the means, then row and column intercepts at ω to their out-of-fold residuals.

    Without the second step the predictions would be means at every level.
    """
    means, residuals = _tune(train, seed, k, grid)
    left = Training(train.cells._replace(values=residuals), train.shape, train.mirrored)
    shift = intercepts(left, omega, seed, k)
    return lambda rows, cols: means(rows, cols) + shift(rows, cols)


@lru_cache(maxsize=1)  # the means are the same for every level
def _tune(
    train: Training, seed: int, k: int, grid: tuple[Ridges, ...]
) -> tuple[Predictor, NDArray[np.float64]]:
    """Choose ridges, then rank, by out-of-fold squared error; return the fit and the residuals."""
    fold = train.folds(FOLDS, seed)

    def residuals(rank: int, ridges: Ridges) -> NDArray[np.float64]:
        found = np.empty(fold.size)
        for i in range(FOLDS):
            out = train.cells.where(fold == i)
            predict = _fit(train.part(fold != i), rank, ridges, seed)
            found[fold == i] = out.values - predict(out.rows, out.cols)
        return found

    tried = {(k, ridges): residuals(k, ridges) for ridges in grid}
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
    # Rows and columns without cells keep their random initial factors: set them to 0.
    u, v = (np.bincount(at, minlength=n) > 0 for at, n in zip(places, train.shape, strict=True))
    row, X = model.user_bias_ * u, model.A_ * u[:, None]
    col, Y = model.item_bias_ * v, model.B_ * v[:, None]
    mean = float(model.glob_mean_)
    return lambda i, j: unit * (mean + row[i] + col[j] + np.einsum("ij,ij->i", X[i], Y[j]))


def _without_repeats(train: Training) -> Cells:
    """Replace repeated observations of a cell by their mean: cmfrec does not support them."""
    rows, cols, values = train.cells
    cell, of_cell, counts = np.unique(
        rows * train.shape[1] + cols, return_inverse=True, return_counts=True
    )
    return Cells(*np.divmod(cell, train.shape[1]), np.bincount(of_cell, values) / counts)
