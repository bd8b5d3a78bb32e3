"""Least squares with biases (cmfrec), tuned, and brought to the level by its own residuals."""

from __future__ import annotations

from itertools import product

import numpy as np
import scipy.sparse as sp

from bench.accuracy.baselines import AbsentError, Predictor, row_and_column_levels
from bench.accuracy.splits import Cells, Training

RIDGES = (1.0, 3.0, 10.0, 30.0)  # for values of standard deviation 1
FOLDS = 3


def fit(train: Training, omega: float, seed: int, k: int) -> Predictor:
    """Choose rank and ridge by squared error out of fold, and refit all cells.

    A mean is no ω-expectile: row and column levels at ω of the residuals out of fold are added.
    """
    cells, fold = train.cells, train.folds(FOLDS, seed)
    found = []
    for rank, ridge in product(sorted({max(1, k // 3), k}), RIDGES):
        residuals = np.empty(cells.values.size)
        for i in range(FOLDS):
            out = cells.where(fold == i)
            predict = _fit(train.part(fold != i), rank, ridge, seed)
            residuals[fold == i] = out.values - predict(out.rows, out.cols)
        found.append((float(np.mean(residuals**2)), rank, ridge, residuals))
    _, rank, ridge, residuals = min(found, key=lambda entry: entry[0])
    means = _fit(train, rank, ridge, seed)
    left = Training(Cells(cells.rows, cells.cols, residuals), train.shape, train.mirrored)
    levels = row_and_column_levels(left, omega, seed, k)
    return lambda rows, cols: means(rows, cols) + levels(rows, cols)


def _fit(train: Training, rank: int, ridge: float, seed: int) -> Predictor:
    try:
        from cmfrec import CMF
    except ImportError:
        raise AbsentError("cmfrec is not installed") from None
    rows, cols, values = train.cells
    unit = float(values.std()) or 1.0
    cell, of_cell, counts = np.unique(
        rows * train.shape[1] + cols, return_inverse=True, return_counts=True
    )
    # It has no notion of a cell observed twice: the mean stands for both.
    means = np.bincount(of_cell, values) / counts / unit
    observed = sp.coo_matrix((means, np.divmod(cell, train.shape[1])), shape=train.shape)
    model = CMF(
        k=rank, lambda_=ridge, method="als", niter=15, random_state=seed, verbose=False,
        precompute_for_predictions=False,
    )  # fmt: skip
    model.fit(observed)
    # What it has no value for, a row or column without cells, adds nothing.
    X, Y = np.nan_to_num(model.A_), np.nan_to_num(model.B_)
    row, col = np.nan_to_num(model.user_bias_), np.nan_to_num(model.item_bias_)
    mean = float(model.glob_mean_)
    return lambda i, j: unit * (mean + row[i] + col[j] + np.einsum("ij,ij->i", X[i], Y[j]))
