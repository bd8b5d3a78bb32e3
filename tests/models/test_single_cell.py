"""Predictions of single cells: bitwise those of many cells, with the same errors."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from models.test_models import CLIENTS, KINDS, SERVICES, made

import fastemf


@cache
def numbered(dtype="float64"):
    rng = np.random.default_rng(0)
    R = (rng.gamma(2, 3, (9, 1)) * rng.gamma(2, 3, 6) * rng.lognormal(0, 0.3, (9, 6))).astype(dtype)
    labels = {"index": [5, -3, 2**62, 7, 0, 1, 2, 40, 41], "columns": range(10, 16)}
    cases = (R, False), (R, True), (pd.DataFrame(R, **labels), True)
    return [
        fastemf.complete(data, 0.3, 2, reg=0.3, intercepts=intercepts, n_jobs=1)
        for data, intercepts in cases
    ]


def assert_equal_cells(model):
    """Check that each cell alone is bitwise equal to the cell among all others."""
    ids = [axis.ids() for axis in model.axes]
    together = model.predict(*np.meshgrid(*ids, indexing="ij"))
    for (a, row), (b, col) in product(*(enumerate(side) for side in ids)):
        plain = tuple(one.item() if hasattr(one, "item") else one for one in (row, col))
        for given in ((row, col), plain):
            alone = model.predict(*given)
            assert isinstance(alone, np.ndarray)
            np.testing.assert_array_equal(alone, together[a, b], strict=True)
        np.testing.assert_array_equal(model.predict([row], col)[0], together[a, b])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("intercepts", [False, True])
def test_a_single_cell_is_bitwise_equal_to_many(kind, labelled, intercepts):
    assert_equal_cells(made(kind, intercepts, labelled))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_single_cell_is_bitwise_equal_for_any_dtype(dtype):
    for fit in numbered(dtype):
        assert fit.to_dense().dtype == dtype
        assert_equal_cells(fit)


@pytest.mark.parametrize(
    ("at", "given", "error", "message"),
    [
        (1, (2**70, 0), TypeError, "rows must hold integers, got dtype object"),
        (2, (6, 10), ValueError, "unknown labels: 1 in rows (6)"),
        (2, (2**62 + 1, 10), ValueError, f"unknown labels: 1 in rows ({2**62 + 1})"),
        (2, (2**63, 10), ValueError, f"unknown labels: 1 in rows ({2**63})"),
        (2, ("a", 10), TypeError, "rows must be integers, as the labels are, got strings"),
    ],
)
def test_errors_are_those_of_many_cells(at, given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        numbered()[at].predict(*given)


def test_prepared_predictions_leave_no_reference_cycle():
    fit = replace(made("one level", True))
    fit.predict("eu-1", "srv1")
    state = weakref.ref(fit._bilinear)
    gc.disable()
    try:
        del fit
        assert state() is None  # freed without the garbage collector
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", KINDS)
def test_single_cells_are_thread_safe_and_models_can_be_copied(kind):
    model = made(kind, True)
    pairs = list(product(CLIENTS, SERVICES)) * 20
    expected = model.predict(*zip(*pairs, strict=True))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: model.predict(*pair), pairs))
    np.testing.assert_array_equal(np.array(found), expected)
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(*pairs[0]), expected[0])
        assert other.row_labels == model.row_labels
