"""Forests against plain Python, the definition of Shapley values, and LightGBM."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from fastemf.boosting import forest as module
from fastemf.boosting.forest import ARRAYS, Forest, ForestPredictor
from fastemf.kernels.compilation import INTERPRETED
from fastemf.support.array_file import DamagedFileError

ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, -0.5, 0.5, -1.0, 1.7, 31, 32, 64, 1e10, 1e300, -1e300]


# --- random forests, and their evaluation in plain Python -------------------------------------


def random_forest(rng, n_features, n_trees=3, most=6, categorical=0.3):
    """Create a valid forest, with repeated thresholds and an occasional threshold of infinity."""
    sizes = rng.integers(0, most + 1, n_trees)
    left_sizes = []

    def grow(size):
        if size:
            left = int(rng.integers(size))
            left_sizes.append(left)
            grow(left)
            grow(size - 1 - left)

    for size in sizes:
        grow(size)
    n = len(left_sizes)
    is_set = rng.random(n) < categorical
    set_sizes = np.where(is_set, rng.integers(1, 4, n), 0)
    thresholds = np.round(rng.standard_normal(n), 1)
    thresholds[rng.random(n) < 0.1] = np.inf
    arrays = {
        "sizes": sizes,
        "left_sizes": left_sizes,
        "features": rng.integers(0, n_features, n),
        "thresholds": thresholds,
        "missing_left": rng.random(n) < 0.5,
        "set_sizes": set_sizes,
        "words": rng.integers(0, 2**32, set_sizes.sum()),
        "values": rng.standard_normal(n + n_trees),
        "covers": rng.integers(1, 9, n + n_trees),
    }
    return Forest.unpack({k: np.array(v, ARRAYS[k]) for k, v in arrays.items()}, n_features)


def random_features(rng, cells, n_features):
    """Draw features that reach all cases, many of them equal to thresholds."""
    X = np.round(rng.standard_normal((cells, n_features)), 1)
    X = np.where(rng.random(X.shape) < 0.3, rng.integers(0, 99, X.shape), X)
    return np.where(rng.random(X.shape) < 0.3, rng.choice(ODD, X.shape), X)


def predict(forest, X):
    return ForestPredictor([forest]).predict(X)[:, 0]


def trees_of(forest):
    """Convert the trees to nested tuples (goes_left, feature, left, right), and (value, cover)."""
    a, at, node = forest.pack(), 0, 0
    word = np.concatenate([[0], np.cumsum(a["set_sizes"])])

    def goes_left(i, x):
        if a["set_sizes"][i]:
            if not np.isfinite(x) or int(x) < 0:
                return False
            words = a["words"][word[i] : word[i + 1]].tolist()
            return int(x) // 32 < len(words) and bool(words[int(x) // 32] >> int(x) % 32 & 1)
        return bool(a["missing_left"][i]) if np.isnan(x) else bool(x <= a["thresholds"][i])

    def read(size):
        nonlocal at, node
        if not size:
            at += 1
            return float(a["values"][at - 1]), int(a["covers"][at - 1])
        i, left = node, int(a["left_sizes"][node])
        node += 1
        test = lambda x: goes_left(i, x)  # noqa: E731
        return test, int(a["features"][i]), read(left), read(size - 1 - left)

    return [read(size) for size in a["sizes"].tolist()]


def evaluate(tree, x):
    while len(tree) == 4:
        test, feature, left, right = tree
        tree = left if test(x[feature]) else right
    return tree[0]


def cover(tree):
    return tree[1] if len(tree) == 2 else cover(tree[2]) + cover(tree[3])


def expectation(tree, x, known):
    """Average a tree over the features outside the coalition `known`."""
    if len(tree) == 2:
        return tree[0]
    test, feature, left, right = tree
    if feature in known:
        return expectation(left if test(x[feature]) else right, x, known)
    parts = [cover(child) * expectation(child, x, known) for child in (left, right)]
    return sum(parts) / cover(tree)


def shapley_values(trees, x):
    """Compute the Shapley values by their definition, and the value of the empty coalition."""
    n = len(x)
    game = {
        known: sum(expectation(tree, x, known) for tree in trees)
        for size in range(n + 1)
        for known in itertools.combinations(range(n), size)
    }
    out = []
    for f in range(n):
        total = 0.0
        for known in game:
            if f not in known:
                weight = 1 / (n * math.comb(n - 1, len(known)))
                total += weight * (game[tuple(sorted((*known, f)))] - game[known])
        out.append(total)
    return [*out, game[()]]


@given(seeds, st.integers(1, 5), st.integers(0, 5), st.sampled_from([1, 6, 63]))
def test_predictions_are_those_of_plain_python(seed, n_features, n_trees, most):
    rng = np.random.default_rng(seed)
    forest = random_forest(rng, n_features, n_trees, most)
    X, trees = random_features(rng, 20, n_features), trees_of(forest)
    expected = [sum((evaluate(tree, x) for tree in trees), 0.0) for x in X]
    np.testing.assert_array_equal(predict(forest, X), expected)


@given(seeds, st.integers(1, 4), st.sampled_from([3, 18]))
def test_contributions_are_shapley_values(seed, n_features, most):
    rng = np.random.default_rng(seed)
    forest = random_forest(rng, n_features, 2, most)
    X, trees = random_features(rng, 3, n_features), trees_of(forest)
    expected = [shapley_values(trees, x) for x in X]
    np.testing.assert_allclose(forest.contributions(X), expected, rtol=0, atol=1e-11)


def test_contributions_of_deep_paths_sum_to_the_prediction():
    """A chain of 63 nodes, each of a feature of its own, half of which most observations leave."""
    n = 63
    arrays = random_forest(np.random.default_rng(0), n, 1, 0).pack()
    arrays |= {
        "sizes": np.array([n], np.int32),
        "left_sizes": np.arange(n - 1, -1, -1, dtype=np.int32),
        "features": np.arange(n, dtype=np.int32),
        "thresholds": np.zeros(n),
        "missing_left": np.zeros(n, bool),
        "set_sizes": np.zeros(n, np.int32),
        "values": np.arange(n + 1.0),
        "covers": np.where(np.arange(n + 1) % 2, 1, 10**9 // n).astype(np.int32),
    }
    forest = Forest.unpack(arrays, n)
    X = np.random.default_rng(1).choice([-1.0, 1.0], (20, n), p=[0.95, 0.05])
    contributions = forest.contributions(X)
    np.testing.assert_allclose(contributions.sum(axis=1), predict(forest, X), rtol=1e-12)


# --- identities ------------------------------------------------------------------------------


def test_forests_are_predicted_together_as_alone(monkeypatch):
    """In a batch, cell by cell, and for any number of threads and division into blocks."""
    rng = np.random.default_rng(3)
    forests = [random_forest(rng, 7, n_trees, 14) for n_trees in (9, 0, 20, 1)]
    X = random_features(rng, 70 if INTERPRETED else 200, 7)
    joint = ForestPredictor(forests)
    expected = np.column_stack([predict(forest, X) for forest in forests])
    together, explained = joint.predict(X), forests[2].contributions(X)
    assert together.tobytes() == expected.tobytes()
    for size in (0, 1, 2, 63, 65):
        assert joint.predict(X[:size]).tobytes() == expected[:size].tobytes()
    assert np.stack([joint.predict_cell(x) for x in X]).tobytes() == expected.tobytes()
    for threads, cells in ((1, 7), (2, 7), (2, 64), (2, 100)):
        monkeypatch.setattr(module, "count_threads", lambda n_jobs, threads=threads: threads)
        monkeypatch.setattr(module, "CELLS_PER_BLOCK", cells)
        assert joint.predict(X).tobytes() == expected.tobytes()
        assert forests[2].contributions(X).tobytes() == explained.tobytes()


def test_single_cells_are_predicted_in_many_threads():
    rng = np.random.default_rng(4)
    joint, X = ForestPredictor([random_forest(rng, 5, 30)]), random_features(rng, 40, 5)
    expected, found = joint.predict(X), {}

    def run(name):
        found[name] = np.stack([joint.predict_cell(x) for _ in range(20) for x in X])

    threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for values in found.values():
        np.testing.assert_array_equal(values, np.tile(expected, (20, 1)))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_a_used_forest_can_be_copied(duplicate):
    rng = np.random.default_rng(5)
    forest, X = random_forest(rng, 4), random_features(rng, 30, 4)
    expected = predict(forest, X)
    ForestPredictor([forest]).predict_cell(X[0])
    np.testing.assert_array_equal(predict(duplicate(forest), X), expected)


def test_a_forest_without_trees_predicts_zero():
    empty = random_forest(np.random.default_rng(0), 3, 0)
    np.testing.assert_array_equal(predict(empty, np.ones((5, 3))), 0)
    np.testing.assert_array_equal(empty.contributions(np.ones((5, 3))), np.zeros((5, 4)))


def test_features_of_another_shape_are_refused():
    forest = random_forest(np.random.default_rng(0), 3)
    for shape in ((4,), (4, 2), (4, 4), (2, 2, 3)):
        for method in (ForestPredictor([forest]).predict, forest.contributions):
            with pytest.raises(ValueError, match=r"shape \(cells, 3\)"):
                method(np.zeros(shape))
    with pytest.raises(ValueError, match="same number of features"):
        ForestPredictor([forest, random_forest(np.random.default_rng(0), 4)])


# --- damaged arrays --------------------------------------------------------------------------


def test_packed_forests_are_equal():
    forest = random_forest(np.random.default_rng(6), 4)
    again = Forest.unpack(forest.pack(), 4)
    for name, array in forest.pack().items():
        np.testing.assert_array_equal(again.pack()[name], array)
    with pytest.raises(DamagedFileError, match="features"):
        Forest.unpack(forest.pack(), 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sizes", -1), ("sizes", 64), ("sizes", 2**31 - 1), ("left_sizes", -1), ("left_sizes", 63),
        ("left_sizes", 2**31 - 1), ("features", -1), ("features", 4), ("thresholds", np.nan),
        ("set_sizes", -1), ("set_sizes", 2**31 - 1), ("values", np.nan), ("values", np.inf),
        ("values", -1e101), ("covers", 0), ("covers", -5),
    ],
)  # fmt: skip
def test_damaged_values_are_refused(name, value):
    arrays = random_forest(np.random.default_rng(7), 4, 5).pack()
    for at in range(arrays[name].size):
        damaged = arrays | {name: arrays[name].copy()}
        damaged[name][at] = value
        with pytest.raises(DamagedFileError):
            Forest.unpack(damaged, 4)


@pytest.mark.parametrize("name", ARRAYS)
def test_damaged_arrays_are_refused(name):
    arrays = random_forest(np.random.default_rng(8), 4, 5).pack()
    array = arrays[name]
    for damaged in (array[:-1], np.append(array, array), array[:, None], array.astype("f4")):
        with pytest.raises(DamagedFileError):
            Forest.unpack(arrays | {name: damaged}, 4)
    for wrong in ({k: v for k, v in arrays.items() if k != name}, arrays | {"other": array}):
        with pytest.raises(DamagedFileError):
            Forest.unpack(wrong, 4)


# --- LightGBM --------------------------------------------------------------------------------

TRAINING = {
    "quantile": {"objective": "quantile", "alpha": 0.9},
    "leaves": {"objective": "quantile", "num_leaves": 64, "min_data_in_leaf": 3},
    "bagging": {"objective": "l2", "bagging_fraction": 0.5, "bagging_freq": 1},
    "goss": {"objective": "l2", "data_sample_strategy": "goss", "learning_rate": 0.5},
    "start": {"objective": "l1", "boost_from_average": False},
    "missing": {"objective": "huber", "use_missing": False},
    "stumps": {"objective": "l2", "num_leaves": 2, "max_cat_to_onehot": 64},
    "dart": {"objective": "l2", "boosting": "dart", "drop_rate": 0.5},
    "weights": {"objective": "quantile", "alpha": 0.3},
    "constant": {"objective": "l2"},
}


def training_data(rng, n=800):
    """Draw features: normal, with ties, tiny, constant, and categorical, some of them missing."""
    X = rng.standard_normal((n, 7))
    X[:, 1] = np.round(X[:, 1])
    X[:, 2] *= rng.choice([1, 1e-35, 1e-37, 0], n)
    X[:, 3] = 5
    X[:, 4:6] = rng.integers(0, (70, 6), (n, 2))
    X[:, [0, 3, 4]] = np.where(rng.random((n, 3)) < 0.1, np.nan, X[:, [0, 3, 4]])
    effect = rng.standard_normal((70,))
    y = (
        np.nan_to_num(X[:, 0])
        + X[:, 1] * (X[:, 6] > 0)
        + effect[np.nan_to_num(X[:, 4]).astype(int)]
    )
    return X, y + 3 * (X[:, 2] > 0) + np.isnan(X[:, 3]) + X[:, 5] + 0.3 * rng.standard_normal(n)


def train(params, X, y, rounds=12, **data):
    lightgbm = pytest.importorskip("lightgbm")
    defaults = {"num_leaves": 15, "learning_rate": 0.2, "min_data_in_leaf": 5, "cat_smooth": 1}
    defaults |= {"verbose": -1, "num_threads": 1, "min_data_per_group": 5}
    data = lightgbm.Dataset(X, y, categorical_feature=[4, 5], **data)
    return lightgbm.train(defaults | params, data, rounds)


@pytest.mark.parametrize("name", TRAINING)
def test_lightgbm_is_reproduced(name):
    rng = np.random.default_rng(10)
    X, y = training_data(rng)
    weights = rng.uniform(0.1, 3, y.size) if name == "weights" else None
    booster = train(
        TRAINING[name], X, np.full(y.size, 7.0) if name == "constant" else y, weight=weights
    )
    forest = Forest.from_lightgbm(booster)
    cells = np.vstack([X, cells_at_thresholds(forest, rng)])[:: 8 if INTERPRETED else 1]
    np.testing.assert_allclose(predict(forest, cells), booster.predict(cells), rtol=1e-12)
    some = cells[rng.permutation(cells.shape[0])[: 5 if INTERPRETED else 200]]
    expected = booster.predict(some, pred_contrib=True)
    np.testing.assert_allclose(forest.contributions(some), expected, rtol=0, atol=1e-9)


def cells_at_thresholds(forest, rng, cells=1000):
    """Draw features at thresholds and next to them, unseen categories, and odd values."""
    a = forest.pack()
    pool = np.concatenate(
        [a["thresholds"], ODD, [1e-35, 1e-36, -1e-36, 1e-300, 69.9, 70, 95, 96, 1000]]
    )
    tiny = float(np.float32(1e-35))
    pool = np.concatenate(
        [pool, [tiny, -tiny], np.nextafter(pool, np.inf), np.nextafter(pool, -np.inf)]
    )
    X = rng.choice(pool, (cells, forest.n_features))
    for f in range(forest.n_features):
        own = a["thresholds"][(a["features"] == f) & (a["set_sizes"] == 0)]
        if own.size:
            at = rng.random(cells) < 0.7
            near = rng.choice(own, cells)
            near = np.stack([near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf)])
            X[at, f] = near[rng.integers(0, 3, cells), np.arange(cells)][at]
    X[: cells // 2, 4:6] = rng.integers(-2, 75, (cells // 2, 2)) + rng.choice(
        [0, 0.5], (cells // 2, 2)
    )
    return X


def test_iterations_are_counted_as_in_lightgbm():
    X, y = training_data(np.random.default_rng(11))
    booster = train(TRAINING["quantile"], X, y)
    for count in (1, 5, 12):
        found = predict(Forest.from_lightgbm(booster, count), X)
        np.testing.assert_allclose(found, booster.predict(X, num_iteration=count), rtol=1e-12)
    booster.best_iteration = 4
    np.testing.assert_allclose(
        predict(Forest.from_lightgbm(booster), X), booster.predict(X), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"objective": "l2", "linear_tree": True}, "linear trees"),
        ({"objective": "multiclass", "num_class": 3}, "single output"),
        ({"objective": "l2", "boosting": "rf", **TRAINING["bagging"]}, "sum of trees"),
        ({"objective": "binary"}, "transform its output, got 'binary"),
        ({"objective": "l2", "reg_sqrt": True}, "transform its output, got 'regression sqrt"),
        ({"objective": "poisson"}, "transform its output"),
        ({"objective": "l2", "zero_as_missing": True}, "zero_as_missing"),
        ({"objective": "l2", "num_leaves": 99, "min_data_in_leaf": 1}, "1 to 64 leaves"),
    ],
)  # fmt: skip
def test_other_boosters_are_refused(params, message):
    X, y = training_data(np.random.default_rng(12))
    X = np.where(np.isnan(X), 0, X)
    y = np.digitize(y, [0, 2]) if params["objective"] != "l2" else y
    y = np.minimum(y, 1) if params["objective"] == "binary" else y
    booster = train(params, X, y, rounds=2)
    with pytest.raises(ValueError, match=message):
        Forest.from_lightgbm(booster)


def test_observations_that_do_not_add_up_are_refused():
    X, y = training_data(np.random.default_rng(13))
    model = train(TRAINING["quantile"], X, y, rounds=2).dump_model()

    class Booster:
        def dump_model(self, num_iteration):
            model["tree_info"][1]["tree_structure"]["internal_count"] += 1
            return model

    with pytest.raises(ValueError, match="observations"):
        Forest.from_lightgbm(Booster())
