"""One cell at a time: the bits of a large request, its errors, and nothing made ready twice."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from model.test_models import CLIENTS, KINDS, SERVICES, made

import fastemf
from fastemf.kernels.threads import prepared
from fastemf.model import bilinear

TYPES = ("float64", "float32")


@cache
def numbered(dtype="float64", k=2):
    rng = np.random.default_rng(0)
    R = (rng.gamma(2, 3, (9, 1)) * rng.gamma(2, 3, 6) * rng.lognormal(0, 0.3, (9, 6))).astype(dtype)
    labels = {"index": [5, -3, 2**62, 7, 0, 1, 2, 40, 41], "columns": range(10, 16)}
    settings = {"omega": 0.3, "k": k, "reg": 0.3, "n_jobs": 1, "intercepts": True}
    return (
        fastemf.complete(R, **settings | {"intercepts": False}),
        fastemf.complete(R, **settings),
        fastemf.complete(pd.DataFrame(R, **labels), **settings),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("intercepts", [False, True])
def test_a_cell_alone_has_the_bits_of_all_cells(kind, labelled, intercepts):
    model = made(kind, intercepts, labelled)
    ids = [axis.ids().tolist() for axis in model.axes]
    rows, cols = np.meshgrid(*(np.array(side, object) for side in ids), indexing="ij")
    if not labelled:
        rows, cols = rows.astype(int), cols.astype(int)
    together = model.predict(rows, cols)
    for a, row in enumerate(ids[0]):
        for b, col in enumerate(ids[1]):
            alone = model.predict(row, col)
            assert isinstance(alone, np.ndarray)
            assert alone.dtype == together.dtype
            np.testing.assert_array_equal(alone, together[a, b], strict=True)
            np.testing.assert_array_equal(model.predict([row], col)[0], together[a, b])


@pytest.mark.parametrize("dtype", TYPES)
def test_a_cell_alone_has_the_bits_of_all_cells_in_any_type(dtype):
    for fit in numbered(dtype):
        ids = [axis.ids() for axis in fit.axes]
        together = fit.predict(*np.meshgrid(*ids, indexing="ij"))
        assert together.dtype == dtype
        for a, row in enumerate(ids[0]):
            for b, col in enumerate(ids[1]):
                for given in ((row, col), (int(row), int(col))):
                    np.testing.assert_array_equal(fit.predict(*given), together[a, b], strict=True)


def test_a_cell_beyond_the_bounds_is_set_to_them():
    _, fit, _ = numbered()
    value = float(fit.predict(3, 4))
    assert fit.predict(3, 4, clip=(value + 1, None)) == value + 1
    assert fit.predict(3, 4, clip=(None, value - 1)) == value - 1
    assert fit.predict(3, 4, clip=(value - 1, value + 1)) == value
    with pytest.raises(ValueError, match="clip must be"):
        fit.predict(3, 4, clip=3)


@pytest.mark.parametrize(
    ("at", "given", "error", "message"),
    [
        (1, (9, 0), IndexError, "rows must be below 9, got 9"),
        (1, (0, -1), IndexError, "cols must not be negative, got -1"),
        (1, (True, 0), TypeError, "rows must hold integers, got dtype bool"),
        (1, (1.0, 0), TypeError, "rows must hold integers, got dtype float64"),
        (1, ("a", 0), TypeError, "rows must hold integers"),
        (1, (2**70, 0), TypeError, "rows must hold integers, got dtype object"),
        (1, (0, None), TypeError, "cols must be given"),
        (2, (6, 10), ValueError, "unknown labels: 1 in rows (6)"),
        (2, (2**62 + 1, 10), ValueError, f"unknown labels: 1 in rows ({2**62 + 1})"),
        (2, (2**63, 10), ValueError, f"unknown labels: 1 in rows ({2**63})"),
        (2, ("a", 10), TypeError, "rows must be integers, as the labels are, got strings"),
    ],
)
def test_errors_are_those_of_many_cells(at, given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        numbered()[at].predict(*given)


def test_words_are_checked_and_unknown_labels_get_what_is_asked_for():
    fit = made("one level", True)
    with pytest.raises(ValueError, match="unseen must be one of"):
        fit.predict("eu-1", "srv1", unseen="none")
    with pytest.raises(ValueError, match="unknown must be one of"):
        fit.predict("eu-1", "srv1", unknown="none")
    with pytest.raises(TypeError, match="rows must be strings"):
        fit.predict(1, "srv1")
    assert np.isnan(fit.predict("mars", "srv1", unknown="nan"))
    assert np.isfinite(fit.predict("mars", "srv1", unknown="model"))
    for unknown in ("nan", "model"):
        known = fit.predict("eu-1", "srv1", unknown=unknown)
        np.testing.assert_array_equal(known, fit.predict("eu-1", "srv1"))


def test_cells_that_were_never_seen_are_nan_on_request():
    R = np.array([[1.0, 2.0, np.nan], [3.0, 4.0, np.nan]])
    with pytest.warns(UserWarning, match="no observations"):
        fit = fastemf.complete(R, 0.5, 1, reg=0.1)
    assert np.isfinite(fit.predict(0, 2))
    assert np.isnan(fit.predict(0, 2, unseen="nan"))


@pytest.mark.parametrize("kind", KINDS)
def test_few_cells_are_predicted_without_a_launch_and_nothing_is_made_ready_again(
    kind, monkeypatch
):
    model = made(kind, True)
    expected = model.predict("eu-1", "srv1")

    def refuse(*args):
        raise AssertionError("a few cells are not worth this")

    monkeypatch.setattr(bilinear, "launch", refuse)
    monkeypatch.setattr(bilinear, "offsets", refuse)
    many = model.predict("eu-1", SERVICES)
    np.testing.assert_array_equal(many[SERVICES.index("srv1")], expected)
    monkeypatch.setattr(bilinear, "prepared", refuse)
    np.testing.assert_array_equal(model.predict("eu-1", "srv1"), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_has_predicted_is_copied_and_pickled(kind):
    model = made(kind, True)
    expected = model.predict("eu-1", "srv1")
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict("eu-1", "srv1"), expected)
        assert other.row_labels == model.row_labels


def test_a_model_that_has_predicted_leaves_no_cycle():
    fit = replace(made("one level", True))
    fit.predict("eu-1", "srv1")
    ready = weakref.ref(fit._bilinear)
    gc.disable()
    try:
        del fit
        assert ready() is None  # its arrays are freed at once, not some time later
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_mix_their_cells_up(kind):
    model = made(kind, True)
    pairs = [(row, col) for row in CLIENTS for col in SERVICES] * 20
    expected = model.predict(*zip(*pairs, strict=True))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: model.predict(*pair), pairs))
    np.testing.assert_array_equal(np.array(found), expected)


def test_what_is_bound_runs_as_often_as_it_is_called():
    from fastemf.kernels.entries import Cells, fill_cells

    one, none = np.ones((1, 1)), np.empty(0)
    at, out = np.zeros(1, np.int64), np.zeros(1)
    X = 3 * one
    run = prepared(fill_cells, 0, 1, Cells(at, at, X, one, none, none, out))
    for factor in (3.0, 5.0):
        X[0, 0] = factor
        run()
        assert out[0] == factor
