"""Gradient boosting with LightGBM: trees that correct the start of a prediction.

The number of trees is that with the smallest out-of-fold loss, and may be zero. The boosters of
the folds are trained side by side to find it. Then one booster is trained on all observations.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastemf.boosting.forest import Forest
from fastemf.boosting.objective import Objective
from fastemf.sources.cell_sample import FOLDS
from fastemf.support.arrays import Floats, Ints, Mask
from fastemf.support.progress import count_steps

MOST_TREES = 400
LEARNING_RATE = 0.05  # of extreme levels; twice that in the middle, which needs the most trees
STEP = 10  # trees between evaluations
PATIENCE = 6  # evaluations without a smaller loss
EVALUATED = 15_000  # cells that determine the number of trees, if there are as many
WORTH_THREADS = 50_000  # observations from which several threads are faster
FEWEST = 50  # observations of a leaf
FEWEST_BEYOND = 5  # observations of a leaf that are expected on the rarer side of its quantile
SETTINGS = {
    "num_leaves": 15, "lambda_l2": 1.0,
    "bagging_fraction": 0.7, "bagging_freq": 1, "feature_fraction": 0.6,
    # Features of hundreds of categories, most of them rare, are overfitted otherwise.
    "cat_smooth": 60, "max_cat_threshold": 8,
    "deterministic": True, "force_row_wise": True, "boost_from_average": False,
    "feature_pre_filter": False, "metric": "none", "verbosity": -1, "seed": 0,
}  # fmt: skip


class TrainingTable:
    """Out-of-fold columns of observations, in the form of LightGBM.

    Parameters
    ----------
    columns
        One row per observation.
    values, weights, folds
        One entry per observation; no weights for ones.
    categorical
        Indices of columns that are categories.
    n_threads
        Threads of LightGBM, which do not change the trees.
    sizes
        Effective number of cells in each fold.
    """

    def __init__(
        self, columns: Floats, values: Floats, weights: Floats | None, folds: Ints,
        categorical: list[int], n_threads: int, sizes: Floats,
    ) -> None:  # fmt: skip
        self.columns, self.values, self.weights, self.folds = columns, values, weights, folds
        n_threads = n_threads if values.size >= WORTH_THREADS else 1
        self.settings = SETTINGS | {"num_threads": n_threads}
        self.evaluated = _list_evaluated(folds, sizes)
        self._categorical = categorical

    @cached_property
    def data(self) -> Any:
        """The columns as a data set of LightGBM."""
        return lightgbm().Dataset(
            self.columns, categorical_feature=self._categorical, params=self.settings,
            free_raw_data=False,
        )  # fmt: skip

    @property
    def is_evaluated(self) -> Mask:
        """Mark the observations that have out-of-fold predictions."""
        return np.isin(self.folds, self.evaluated)


class Boosted(NamedTuple):
    """Trees, and the out-of-fold predictions of evaluated observations; others are NaN."""

    forest: Forest
    predicted: Floats


def lightgbm() -> Any:
    """Import LightGBM, or raise an error that names the extra to install."""
    try:
        import lightgbm
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "fitting quantiles needs lightgbm: pip install 'fastemf[quantiles]'"
        ) from None
    return lightgbm


def boost(table: TrainingTable, start: Floats, objective: Objective) -> Boosted:
    """Train trees that correct `start`, the prediction of each observation."""
    predicted = np.where(table.is_evaluated, start, np.nan)
    nothing = Boosted(Forest.without_trees(table.columns.shape[1]), predicted)
    fewest = max(FEWEST, round(FEWEST_BEYOND / min(objective.level, 1 - objective.level)))
    if table.values.size < 2 * fewest:
        return nothing
    residuals = table.values - start
    # LightGBM has labels in float32: the unit keeps them in its range.
    unit = float(np.ldexp(1.0, int(np.frexp(np.mean(np.abs(residuals)))[1])))
    rate = LEARNING_RATE * (1 + 4 * objective.level * (1 - objective.level))
    own = {"min_data_in_leaf": fewest, "learning_rate": rate}
    settings = table.settings | objective.parameters() | own
    table.data.set_label(residuals / unit)
    if table.weights is not None:
        table.data.set_weight(table.weights / np.mean(table.weights))
    boosters = [_Booster(table, settings, objective, fold) for fold in table.evaluated]
    count = _choose_count(boosters)
    if not count:
        return nothing
    for booster in boosters:
        predicted[booster.out] += unit * booster.predict(table.columns[booster.out], count)
    final = lightgbm().Booster(settings, table.data)
    _grow(final, objective, count)
    return Boosted(Forest.from_lightgbm(final, count).scaled(unit), predicted)


class _Booster:
    """A booster trained on all folds but one."""

    def __init__(
        self, table: TrainingTable, settings: dict[str, Any], objective: Objective, fold: int
    ) -> None:
        self.out = np.flatnonzero(table.folds == fold)
        rest = np.flatnonzero(table.folds != fold)
        self._weights = None if table.weights is None else table.weights[self.out]
        library = lightgbm()
        self._booster = library.Booster(settings, table.data.subset(rest))
        self._booster.add_valid(table.data.subset(self.out), "out")
        self._objective = objective

    @property
    def mass(self) -> float:
        """Total weight of the observations that are left out."""
        return float(self.out.size if self._weights is None else self._weights.sum())

    def loss(self) -> float:
        """Compute the mean loss of the observations that are left out."""

        def evaluate(predicted: Floats, data: Any) -> tuple[str, float, bool]:
            labels = data.get_label().astype(np.float64)
            return "loss", self._objective.loss(labels - predicted, self._weights), False

        [(*_, loss, _)] = self._booster.eval_valid(evaluate)
        return float(loss)

    def grow(self, count: int) -> None:
        """Add trees."""
        _grow(self._booster, self._objective, count)

    def predict(self, columns: Floats, count: int) -> Floats:
        """Predict with the first `count` trees."""
        return np.asarray(self._booster.predict(columns, num_iteration=count), np.float64)


def _grow(booster: Any, objective: Objective, count: int) -> None:
    """Add trees to a booster."""
    for _ in range(count):
        booster.update(fobj=objective.derivatives)


def _choose_count(boosters: list[_Booster]) -> int:
    """Return the number of trees with the smallest loss of the observations that are left out."""
    losses: list[float] = []
    with count_steps(MOST_TREES, "tree", "boosting") as advance:
        while True:
            losses.append(sum(one.mass * one.loss() for one in boosters))
            best = int(np.argmin(losses))
            if len(losses) > MOST_TREES // STEP or len(losses) - 1 - best >= PATIENCE:
                return best * STEP
            for one in boosters:
                one.grow(STEP)
            advance(STEP)


def _list_evaluated(folds: Ints, sizes: Floats) -> list[int]:
    """List as many folds as are needed to evaluate enough cells."""
    counts = np.bincount(folds, minlength=FOLDS)
    enough = int(np.searchsorted(np.cumsum(sizes), EVALUATED)) + 1
    return [fold for fold in range(min(enough, FOLDS)) if 0 < counts[fold] < folds.size]
