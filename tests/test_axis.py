"""One side of a model: its factor with intercepts beside it, and what its items are called."""

from __future__ import annotations

import numpy as np
import pytest

import fastemf
from fastemf.solver.axis import Axis
from fastemf.solver.start import EarlierModel, grown_factors

FACTOR = np.arange(6.0).reshape(3, 2)
INTERCEPTS = np.array([10.0, 20.0, 30.0])
NAMES = fastemf.Labels(["a", "b", "c"], "client")
DATES = fastemf.Labels(np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "M8[D]"))


@pytest.mark.parametrize("intercepts", [None, INTERCEPTS], ids=["plain", "intercepts"])
def test_splitting_undoes_extending(intercepts):
    axis = Axis(FACTOR, intercepts, NAMES, np.array([1]))
    again = Axis.split(axis.extended(), axis.k, NAMES, np.array([1]))
    np.testing.assert_array_equal(again.factor, FACTOR)
    assert again.factor.flags.c_contiguous
    assert again.has_intercepts == axis.has_intercepts == (intercepts is not None)
    if intercepts is not None:
        np.testing.assert_array_equal(again.intercepts, INTERCEPTS)
        assert axis.extended().shape == (3, 3)
    assert (again.size, again.k, again.name) == (3, 2, "client")
    assert again.unseen.tolist() == [1]


def test_items_go_by_number_or_by_label():
    plain, named = Axis(FACTOR), Axis(FACTOR, labels=NAMES)
    assert plain.ids().tolist() == plain.positions([0, 1, 2], "rows").tolist() == [0, 1, 2]
    assert plain.name is None
    assert plain.unseen.size == 0
    with pytest.raises(IndexError, match="rows must be below 3, got 3"):
        plain.positions([3], "rows")
    assert named.ids().tolist() == ["a", "b", "c"]
    assert named.positions(["c", "z"], "rows").tolist() == [2, -1]
    with pytest.raises(ValueError, match=r"unknown labels: 1 in rows \('z'\)"):
        named.known_positions(["c", "z"], "rows")
    assert named.known_positions("b", "rows") == 1


def test_places_that_are_none_have_no_name():
    places = np.array([2, -1, 0])
    assert Axis(FACTOR).called(places).tolist() == [2, -1, 0]
    assert Axis(FACTOR, labels=NAMES).called(places).tolist() == ["c", None, "a"]
    assert Axis(FACTOR, labels=fastemf.Labels([7, 8, 9])).called(places).tolist() == [9, None, 7]
    dates = Axis(FACTOR, labels=DATES).called(places)
    assert np.isnat(dates).tolist() == [False, True, False]


def test_a_fit_shows_its_axes_by_their_old_names():
    R = np.outer([1.0, 2.0, 3.0], [1.0, 4.0]) + 1
    fit = fastemf.complete(R, 0.5, 1, intercepts=True)
    assert fit.axes == (fit.rows, fit.cols)
    assert fit.X is fit.rows.factor
    assert fit.Y is fit.cols.factor
    assert fit.row_intercepts is fit.rows.intercepts
    assert fit.col_intercepts is fit.cols.intercepts
    assert fit.unseen_rows is fit.rows.unseen
    assert fit.unseen_cols is fit.cols.unseen
    assert fit.row_labels is fit.rows.labels is None
    assert fit.col_labels is fit.cols.labels is None
    for name in ("X", "Y", "row_intercepts", "unseen_cols", "row_labels", "mu", "rows"):
        with pytest.raises(AttributeError):
            setattr(fit, name, None)


def test_an_earlier_model_gives_its_rows_to_the_start():
    rows = Axis(FACTOR, INTERCEPTS, NAMES, np.array([2]))
    cols = Axis(FACTOR[:2] + 1, INTERCEPTS[:2], fastemf.Labels([1, 2]))
    earlier = EarlierModel((rows, cols), mu=5.0)
    labels = (fastemf.Labels(["c", "new", "a"]), fastemf.Labels([2, 1]))
    X, Y, a, c = grown_factors(earlier, (3, 2), 2, 4.0, np.random.default_rng(0), labels)
    np.testing.assert_array_equal(X[2], FACTOR[0])
    np.testing.assert_array_equal(Y, FACTOR[[1, 0]] + 1)
    assert (X[:2] != 0).all()  # the unseen one and the new one
    assert np.abs(X[:2]).max() < 0.2
    np.testing.assert_array_equal(a[:, 0], [31, 0, 11])  # and what was mu before
    np.testing.assert_array_equal(c[:, 0], [20, 10])
