"""Checks of the API fuzzer: certificates, identities and bitwise equality, from the data."""

import contextlib
import copy
import traceback
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import row_oracle
import scipy.sparse as sp

import fastemf
from fastemf.solver.records import SweepRecord

PACKAGE = str(Path(fastemf.__file__).parent)
DOCUMENTED = (ValueError, TypeError, IndexError, FloatingPointError, MemoryError)
ROWS_SOLVED_AGAIN = 3  # by an independent solver, which is slow
RESOLVED = 1e-3  # a ratio of weights times eps above this drowns the lighter side of a row
BACKWARD = 256  # times eps and the size of the terms: allowed residual of a stable solve


def check_refusal(error, *, also="\0"):
    """An error has a documented type, a message of one line, and comes from the library itself."""
    assert isinstance(error, DOCUMENTED), f"undocumented {type(error).__name__}: {error}"
    assert not isinstance(error, np.linalg.LinAlgError), f"from inside: {error}"
    text = str(error)
    assert text.strip(), f"{type(error).__name__} without a message"
    assert "\n" not in text, f"message of several lines: {text!r}"
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    assert last.startswith(PACKAGE) or also in last, f"raised in {last}: {error!r}"


class Refused(Exception):  # noqa: N818
    """A task refused its arguments with a clear error."""


def call(function, must_work, *args, also="\0", **options):
    """Call a task; raise Refused where it refuses, which it must not do for ordinary data."""
    try:
        return function(*args, **options)
    except Exception as error:  # any type: checked below
        refusal = error
    check_refusal(refusal, also=also)
    assert not must_work, f"refused ordinary data: {refusal!r}"
    raise Refused


def call_with_threads(function, must_work, *args, **options):
    """Call a task with one thread and with two; both return, or both refuse."""
    found = []
    for jobs in (1, 2):
        with contextlib.suppress(Refused):
            found.append(call(function, must_work, *args, **({"n_jobs": jobs} | options)))
    assert len(found) != 1, "refused for one number of threads only"
    if not found:
        raise Refused
    return found


def check_warnings(caught):
    """Warnings are addressed to the user, in one line; none comes from arithmetic inside."""
    for one in caught:
        about = f"{one.category.__name__}: {one.message} ({one.filename}:{one.lineno})"
        assert issubclass(one.category, UserWarning), about
        assert "\n" not in str(one.message), about


# --- the caller's data -------------------------------------------------------------------------


@contextlib.contextmanager
def unchanged(*inputs):
    """Check that the inputs are the same afterwards, also if a task refuses them."""
    before = copy.deepcopy(inputs)
    try:
        yield
    finally:
        check_untouched(inputs, before)


def check_untouched(given, before):
    """An input is unchanged."""
    assert type(given) is type(before)
    if isinstance(given, tuple):
        for one, other in zip(given, before, strict=True):
            check_untouched(one, other)
    elif sp.issparse(given):
        assert given.dtype == before.dtype
        assert given.shape == before.shape
        for name in ("data", "indices", "indptr", "row", "col", "offsets"):
            if isinstance(getattr(given, name, None), np.ndarray):
                check_untouched(getattr(given, name), getattr(before, name))
        if given.format == "dok":
            assert dict(given.items()) == dict(before.items())
    elif isinstance(given, pd.DataFrame):
        pd.testing.assert_frame_equal(given, before)
    elif isinstance(given, np.ma.MaskedArray):
        check_untouched(given.data, before.data)
        check_untouched(np.ma.getmaskarray(given), np.ma.getmaskarray(before))
    elif isinstance(given, np.ndarray):
        assert given.dtype == before.dtype
        assert given.dtype == object or given.tobytes() == before.tobytes(), "input was changed"
    elif hasattr(given, "equals"):
        assert given.equals(before)


# --- bitwise equality --------------------------------------------------------------------------


def check_identical(one, two, why):
    """Two fits are bitwise identical, except for the seconds of each sweep."""
    for name in ("X", "Y", "row_intercepts", "col_intercepts", "unseen_rows", "unseen_cols"):
        a, b = getattr(one, name), getattr(two, name)
        assert (a is None) == (b is None), f"{why}: {name}"
        assert a is None or (a.dtype == b.dtype and a.tobytes() == b.tobytes()), f"{why}: {name}"
    for name in ("omega", "mu", "reg", "reg_scaling", "intercept_reg", "scale", "converged"):
        assert getattr(one, name) == getattr(two, name), f"{why}: {name}"
    for a, b in zip(one.axes, two.axes, strict=True):
        assert a.labels == b.labels, f"{why}: labels"
    assert len(one.history) == len(two.history), f"{why}: sweeps"
    for a, b in zip(one.history, two.history, strict=True):
        for name in SweepRecord.__slots__:
            x, y = getattr(a, name), getattr(b, name)
            assert name == "seconds" or x == y or (x != x and y != y), f"{why}: {name} {x} {y}"


def check_file(model, path):
    """A model that was saved and loaded is bitwise identical."""
    model.save(path)
    loaded = fastemf.load(path)
    assert type(loaded) is type(model)
    fits = zip(getattr(model, "fits", (model,)), getattr(loaded, "fits", (loaded,)), strict=True)
    for one, two in fits:
        check_identical(one, two, "saved and loaded")
    rows, cols = ids(getattr(model, "fits", (model,))[0])
    predictions = (each.predict(rows[:, None], cols).tobytes() for each in (model, loaded))
    assert next(predictions) == next(predictions)


# --- the fit -----------------------------------------------------------------------------------


def check_fit(fit, data, *, exact, whole):
    """A fit is finite, its objective descended, and its rows are optimal where solved exactly.

    `whole` means that no entries were held out.
    """
    for F in (fit.X, fit.Y, fit.row_intercepts, fit.col_intercepts, fit.mu, fit.reg, fit.scale):
        assert F is None or np.isfinite(F).all(), "the fit must be finite"
    assert fit.X.dtype == fit.Y.dtype == data.computed
    assert np.isfinite(fit.to_dense()).all(), "predictions must be finite"
    check_descent(fit, data)
    if not whole:
        return
    seen = [np.unique(side) for side in (data.rows, data.cols)]
    for axis, there in zip(fit.axes, seen, strict=True):
        absent = np.setdiff1d(np.arange(axis.size), there)
        np.testing.assert_array_equal(axis.unseen, absent)
        assert not axis.factor[absent].any(), "factors of unobserved rows and columns are zero"
    # The start may be better than the result of any sweep; the oracle has no noise scales.
    if not accepted(fit) or fit.rows.noise is not None:
        return
    with np.errstate(all="ignore"):
        F, room = row_oracle.objective(fit, data)
        recorded = accepted(fit)[-1].objective
    # Residuals are updated from those of the start and keep its rounding error, which is relative
    # to the data unless all of them are zero.
    if np.isfinite([F, room]).all() and fit.scale > 0:
        assert abs(recorded - F) <= room, f"objective {recorded!r} in history, {F!r} from the data"
    if exact:
        check_rows(fit, data)


def accepted(fit):
    """The records of accepted sweeps."""
    return [record for record in fit.history if record.accepted]


def check_descent(fit, data):
    """F never increases over accepted sweeps at one ridge, up to rounding."""
    if fit.scale == 0:  # all zeros: no scale for rounding
        return
    eps = float(np.finfo(fit.X.dtype).eps)
    with np.errstate(over="ignore"):
        X, Y = (np.abs(F.astype(np.float64)) for F in (fit.X, fit.Y))
        size = np.abs(data.values) + (X @ Y.T)[data.rows, data.cols]
        noise = eps**2 * max(fit.omega, 1 - fit.omega) * float(data.mass() @ size**2)
    records = accepted(fit)
    for before, after in pairwise(records):
        assert np.isfinite([after.objective, after.loss, after.penalty]).all()
        if (before.reg, before.intercept_reg) == (after.reg, after.intercept_reg):
            room = 32 * eps * before.objective + 64 * noise + 16 * np.sqrt(before.loss * noise)
            rise = after.objective - before.objective
            assert rise <= room, (
                f"F rose by {rise:.3g} in sweep {after.sweep}, from {before.objective!r} to "
                f"{after.objective!r}; rounding is {room:.3g}"
            )


def check_gradient(row, name):
    """The normal equations vanish, or a step would gain no more than rounding."""
    left, terms = np.abs(row.gradient()), row.terms()
    if (left > BACKWARD * row.x.size * row.eps * terms).any():
        gain, room = row.decrement(), row.room()
        assert gain <= room, (
            f"{name}: gradient {np.max(left / terms):.3g} relative to its terms; a step would "
            f"gain {gain:.3g} of f = {row.f(row.x):.3g}; rounding is {room:.3g}"
        )


def check_rows(fit, data):
    """The normal equations of each row vanish, and an independent solver finds nothing better."""
    if fit.scale == 0:
        return
    solved_again = 0
    for row in row_oracle.rows_of(fit, data):
        check_gradient(row, f"row {row.i}")
        if solved_again < ROWS_SOLVED_AGAIN:
            solved_again += 1
            least, f, room = row_oracle.minimum(row), row.f(row.x), row.room()
            if row.kappa * row.eps > RESOLVED:
                continue
            assert f <= least + room, f"row {row.i}: f = {f!r}, but the minimum is {least!r}"


def excess(row):
    """How far f may exceed its minimum at a gradient that `check_gradient` takes for rounding."""
    left = BACKWARD * row.x.size * row.eps * row.terms()
    return float(left @ np.abs(np.linalg.pinv(row.hessian(row.x))) @ left)


def check_fold_in(fit, data):
    """Folding in the training rows reproduces X where the data determine it."""
    folded = fit.fold_in(data.R, **data.given)
    if data.labels is not None and folded.row_labels is not None:
        order = {label: i for i, label in enumerate(folded.row_labels.values.tolist())}
        at = np.array([order[label] for label in fit.row_labels.values.tolist()])
        own = None if folded.row_intercepts is None else folded.row_intercepts[at]
        rows = replace(folded.rows, factor=folded.X[at], intercepts=own)
        folded = replace(folded, rows=rows)
    placed = data.placed(fit)
    # New rows have noise scales of their own, which may differ from those of the fit.
    if fit.scale == 0 or not accepted(fit) or fit.rows.noise is not None:
        return
    pairs = zip(row_oracle.rows_of(fit, placed), row_oracle.rows_of(folded, placed), strict=True)
    for before, after in pairs:
        determined = before.seen()[0].size == before.x.size
        if before.kappa * before.eps > RESOLVED or not determined:
            continue
        room = before.room() + after.room() + excess(before) + excess(after)
        assert abs(after.f(after.x) - before.f(before.x)) <= room, f"row {before.i} folded in: f"
        H, apart = before.hessian(before.x), after.x - before.x
        rounding = 64 * before.eps**2 * float(before.x @ H @ before.x)
        # Away from its minimum f grows at least with the curvature of the lighter side.
        grown = float(apart @ H @ apart) / before.kappa
        assert grown <= 4 * (room + rounding), f"row {before.i} folded in: x"


# --- methods of a fit --------------------------------------------------------------------------


def ids(fit):
    """Labels, or positions, of rows and columns."""
    return fit.rows.ids(), fit.cols.ids()


def _steepest(tables):
    """The largest change of the corrections per unit change of the product."""
    total = 0.0
    for table in tables.each:
        for side, (name, knots) in enumerate(zip(table.over, table.knots, strict=True)):
            if name == "product" and knots.size > 1:
                rise = np.abs(np.diff(table.values, axis=side)).max(axis=1 - side)
                total += float((rise / np.diff(knots)).max())
    return total


def check_predictions(fit, rng):
    """All ways to predict agree, and rankings are those of the predictions."""
    rows, cols = ids(fit)
    by_cell = fit.predict(rows[:, None], cols)
    dense, eps = fit.to_dense(), float(np.finfo(fit.X.dtype).eps)
    X, Y = (np.abs(F.astype(np.float64)) for F in (fit.X, fit.Y))
    size = X @ Y.T
    if fit.row_intercepts is not None:
        size = size + abs(fit.mu) + np.abs(fit.row_intercepts[:, None]) + np.abs(fit.col_intercepts)
    whole = size + abs(fit.shift)
    if fit.rows.effects is not None:  # correction tables amplify rounding
        tables = fit.rows.effects.corrections
        whole = (1 + _steepest(tables)) * whole + tables.largest
    room = 8 * (fit.k + 2) * eps * whole + np.finfo(fit.X.dtype).tiny
    assert (np.abs(by_cell.astype(np.float64) - dense) <= room).all(), "to_dense and predict"
    some = rng.integers(0, rows.size, 3)
    block = fit.predict_block(rows[some])
    assert (np.abs(block.astype(np.float64) - by_cell[some]) <= room[some]).all(), "predict_block"
    one = int(some[0])
    alone = np.array([fit.predict(rows[one], col) for col in cols])
    np.testing.assert_array_equal(alone, by_cell[one])
    low, high = np.sort(by_cell.ravel().astype(np.float64)[[0, -1]])
    clipped = fit.predict(rows[:, None], cols, clip=(low, high))
    np.testing.assert_array_equal(clipped, np.clip(by_cell, *clipped.dtype.type([low, high])))
    for order in ("smallest", "largest"):
        check_rank(fit, by_cell, one, order, int(rng.integers(1, cols.size + 2)))


def check_rank(fit, by_cell, row, order, n):
    """The ranked columns are the first ones of a stable sort of the predictions."""
    _, cols = ids(fit)
    found = fit.rank(ids(fit)[0][row], n, order=order)
    keys = by_cell[row] if order == "smallest" else -by_cell[row]
    listed = np.argsort(keys, kind="stable")
    listed = listed[~np.isin(listed, fit.unseen_cols)]
    if row in fit.unseen_rows and fit.row_intercepts is None:
        listed = listed[:0]
    n = min(n, cols.size)
    listed = listed[:n]
    assert found.cols.shape == found.values.shape == (n,)
    assert found.cols[: listed.size].tolist() == cols[listed].tolist(), "rank's columns"
    np.testing.assert_array_equal(found.values[: listed.size], by_cell[row, listed])
    assert np.isnan(found.values[listed.size :]).all()


def check_methods_with_data(fit, data, rng):
    """Methods that take the training data: objective, level, summary, fold-in, ranking."""
    placed, everywhere = data.placed(fit), ids(fit)
    with np.errstate(all="ignore"):
        F, room = row_oracle.objective(fit, placed)
    if np.isfinite([F, room]).all() and fit.rows.noise is None:
        assert abs(fit.objective(data.R, **data.given) - F) <= room, "objective"
    r = placed.values - fit.predict(everywhere[0][placed.rows], everywhere[1][placed.cols])
    below, total = placed.mass() @ np.maximum(-r, 0), placed.mass() @ np.abs(r)
    level = fit.effective_omega(data.R, **data.given)
    assert np.isnan(level) if total == 0 else abs(level - below / total) <= 1e-6, "effective level"
    for axis, group in enumerate((placed.rows, placed.cols)):
        found = fit.summary(data.R, axis, **data.given)
        counts = np.bincount(group, minlength=fit.shape[axis])
        np.testing.assert_array_equal(found.observations, counts)
        assert np.isfinite(found.loss[counts > 0]).all(), "summary"
    hidden = fit.predict(everywhere[0][:, None], everywhere[1], unseen="nan")
    absent = np.zeros(fit.shape, bool)
    absent[fit.unseen_rows] = absent[:, fit.unseen_cols] = True
    np.testing.assert_array_equal(np.isnan(hidden), absent)
    columns = fit.fold_in(data.R, axis=1, **data.given)
    assert np.isfinite(columns.to_dense()).all(), "fold_in of columns"
    if data.form == "dense" and data.dtype.kind == "b":  # refused: could be a mask
        return
    listed = fit.rank(None, int(rng.integers(1, 5)), order="smallest", seen=data.R)
    place = {label: i for i, label in enumerate(everywhere[1])}
    known = {*zip(placed.rows.tolist(), placed.cols.tolist(), strict=True)}
    found = np.isfinite(listed.values)
    for row, rank in zip(*np.nonzero(found), strict=True):
        assert (int(row), place[listed.cols[row, rank]]) not in known, "rank: observed column"
    free = fit.shape[1] - fit.unseen_cols.size
    for row in range(fit.shape[0]):
        left = free - sum(i == row for i, _ in known)
        if row in fit.unseen_rows and fit.row_intercepts is None:
            left = 0
        assert found[row].sum() == min(left, listed.cols.shape[1]), "rank omits columns"
