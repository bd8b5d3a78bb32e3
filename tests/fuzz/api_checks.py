"""What the API's fuzzer asserts of a fit: certificates, identities and promises, from the data."""

from __future__ import annotations

import copy
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import row_oracle
import scipy.sparse as sp

import fastemf

PACKAGE = str(Path(fastemf.__file__).parent)
DOCUMENTED = (ValueError, TypeError, IndexError, FloatingPointError, MemoryError)
ROWS_SOLVED_AGAIN = 3  # by an independent solver, which is slow
RESOLVED = 1e-3  # a ratio of weights times eps above this drowns the lighter side of a row
BACKWARD = 256  # times eps and the terms' size: what a stable solve may leave of an equation


def check_refusal(error: Exception, *, also: str = "\0") -> None:
    """An error is one that the documentation has, in one line, from the library itself."""
    assert isinstance(error, DOCUMENTED), f"undocumented {type(error).__name__}: {error}"
    assert not isinstance(error, np.linalg.LinAlgError), f"from inside: {error}"
    text = str(error)
    assert text.strip(), f"{type(error).__name__} without a message"
    assert "\n" not in text, f"message of several lines: {text!r}"
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    assert last.startswith(PACKAGE) or also in last, f"raised in {last}: {error!r}"


def called(function: Any, must_work: bool, *args: Any, also: str = "\0", **options: Any) -> Any:
    """Call a task; None where it refuses, which it must not do for everyday data."""
    try:
        return function(*args, **options)
    except Exception as error:  # whatever it is, it is judged
        refusal = error
    check_refusal(refusal, also=also)
    assert not must_work, f"refused everyday data: {refusal!r}"
    return None


def check_warnings(caught: list[Any]) -> None:
    """Warnings are meant for the user, in one line; none comes from arithmetic inside."""
    for one in caught:
        about = f"{one.category.__name__}: {one.message} ({one.filename}:{one.lineno})"
        assert issubclass(one.category, UserWarning), about
        assert "\n" not in str(one.message), about


# --- the caller's data -------------------------------------------------------------------------


def kept(given: Any) -> Any:
    """A copy of what is handed over, to compare with."""
    return given if isinstance(given, str) or given is None else copy.deepcopy(given)


def check_untouched(given: Any, before: Any) -> None:
    """What was handed over is as it was."""
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


# --- promises of bitwise identity --------------------------------------------------------------


def check_identical(one: Any, two: Any, why: str) -> None:
    """Two fits are bitwise identical, but for the time they took."""
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
        for name in fastemf.SweepRecord.__slots__:
            x, y = getattr(a, name), getattr(b, name)
            assert name == "seconds" or x == y or (x != x and y != y), f"{why}: {name} {x} {y}"


def check_file(model: Any, path: Path) -> None:
    """A model that is saved and loaded is bitwise identical."""
    model.save(path)
    loaded = fastemf.load(path)
    assert type(loaded) is type(model)
    fits = zip(getattr(model, "fits", (model,)), getattr(loaded, "fits", (loaded,)), strict=True)
    for one, two in fits:
        check_identical(one, two, "saved and loaded")
    everywhere = np.ogrid[: model.shape[0], : model.shape[1]]
    if model_labels(model) is None:
        assert model.predict(*everywhere).tobytes() == loaded.predict(*everywhere).tobytes()


def model_labels(model: Any) -> Any:
    """Row labels of a fit or of levels."""
    return getattr(model, "fits", (model,))[0].row_labels


# --- the fit -----------------------------------------------------------------------------------


def check_fit(fit: Any, data: Any, *, exact: bool, whole: bool) -> None:
    """A fit is finite, descended, and certified where rows were solved exactly.

    `whole`: all entries were fitted, none held out.
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
        assert not axis.factor[absent].any(), "factors of what was never seen are zero"
    # The start may be better than what any sweep led to; and the oracle knows no noise scales.
    if not accepted(fit) or fit.rows.noise is not None:
        return
    with np.errstate(all="ignore"):
        F, room = row_oracle.objective(fit, data)
        told = accepted(fit)[-1].objective
    # Residuals are carried along from the start's, with its rounding, which the data bound only
    # where they are not all zero.
    if np.isfinite([F, room]).all() and fit.scale > 0:
        assert abs(told - F) <= room, f"objective {told!r} in history, {F!r} from the data"
    if exact:
        check_rows(fit, data)


def accepted(fit: Any) -> list[Any]:
    """The records of sweeps that were kept."""
    return [record for record in fit.history if record.accepted]


def check_descent(fit: Any, data: Any) -> None:
    """F never rises over sweeps that are kept, at one ridge, but for rounding."""
    if fit.scale == 0:  # nothing but zeros, to which no rounding is relative
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


def check_rows(fit: Any, data: Any) -> None:
    """Each row's normal equations vanish, and an independent solver finds nothing better."""
    if fit.scale == 0:
        return
    solved_again = 0
    for row in row_oracle.rows_of(fit, data):
        left, terms = np.abs(row.gradient()), row.terms()
        allowed = BACKWARD * row.x.size * row.eps * terms
        if (left > allowed).any():
            gain, room = row.decrement(), row.room()
            assert gain <= room, (
                f"row {row.i}: equations leave {np.max(left / terms):.3g} of their terms; a step "
                f"would gain {gain:.3g} of f = {row.f(row.x):.3g}, of which rounding is {room:.3g}"
            )
        if solved_again < ROWS_SOLVED_AGAIN:
            solved_again += 1
            least, f, room = row_oracle.minimum(row), row.f(row.x), row.room()
            if row.kappa * row.eps > RESOLVED:
                continue
            assert f <= least + room, f"row {row.i}: f = {f!r}, while {least!r} can be reached"


def check_folded(fit: Any, data: Any, **given: Any) -> None:
    """Folding in the training rows gives back X, as far as the data determine it."""
    folded = fit.fold_in(data.R, **given)
    same = folded
    if data.labels is not None and folded.row_labels is not None:
        order = {label: i for i, label in enumerate(folded.row_labels.values.tolist())}
        at = [order[label] for label in fit.row_labels.values.tolist()]
        same = _Reordered(folded, np.array(at))
    placed = data.placed(fit)
    # New rows find noise scales of their own, which need not be those of the fit.
    if fit.scale == 0 or not accepted(fit) or fit.rows.noise is not None:
        return
    pairs = zip(row_oracle.rows_of(fit, placed), row_oracle.rows_of(same, placed), strict=True)
    for before, after in pairs:
        determined = before.seen()[0].size == before.x.size
        if before.kappa * before.eps > RESOLVED or not determined:
            continue
        room = before.room() + after.room()
        assert abs(after.f(after.x) - before.f(before.x)) <= room, f"row {before.i} folded in: f"
        H, apart = before.hessian(before.x), after.x - before.x
        rounding = 64 * before.eps**2 * float(before.x @ H @ before.x)
        # Away from its minimum f grows with the lighter side's curvature at least.
        grown = float(apart @ H @ apart) / before.kappa
        assert grown <= 4 * (room + rounding), f"row {before.i} folded in: x"


class _Reordered:
    """A fit with its rows in another order."""

    def __init__(self, fit: Any, at: np.ndarray) -> None:
        self._fit = fit
        self.X = fit.X[at]
        self.row_intercepts = None if fit.row_intercepts is None else fit.row_intercepts[at]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fit, name)


# --- questions ---------------------------------------------------------------------------------


def ids(fit: Any) -> tuple[np.ndarray, np.ndarray]:
    """What rows and columns go by."""
    return fit.rows.ids(), fit.cols.ids()


def _steepest(tables):
    """By how much at most what tables add changes, for a change of the product by one."""
    total = 0.0
    for table in tables.each:
        for side, (name, knots) in enumerate(zip(table.over, table.knots, strict=True)):
            if name == "product" and knots.size > 1:
                rise = np.abs(np.diff(table.values, axis=side)).max(axis=1 - side)
                total += float((rise / np.diff(knots)).max())
    return total


def check_questions(fit: Any, data: Any, rng: np.random.Generator) -> None:
    """Predictions of all kinds agree, and questions are answered as sorting them would."""
    rows, cols = ids(fit)
    by_cell = fit.predict(rows[:, None], cols)
    dense, eps = fit.to_dense(), float(np.finfo(fit.X.dtype).eps)
    X, Y = (np.abs(F.astype(np.float64)) for F in (fit.X, fit.Y))
    size = X @ Y.T
    if fit.row_intercepts is not None:
        size = size + abs(fit.mu) + np.abs(fit.row_intercepts[:, None]) + np.abs(fit.col_intercepts)
    whole = size + abs(fit.shift)
    if fit.rows.levels is not None:  # tables have sizes of their own, and slopes
        tables = fit.rows.levels.tables
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
    for axis, item in ((0, one), (1, int(rng.integers(0, cols.size)))):
        check_similar(fit, axis, item, int(rng.integers(1, 5)), size)


def check_rank(fit: Any, by_cell: np.ndarray, row: int, order: str, n: int) -> None:
    """The best columns are those that a stable sort of the predictions puts first."""
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


def check_similar(fit: Any, axis: int, item: int, n: int, size: np.ndarray) -> None:
    """Distances are those of the predictions, and no item left out is nearer."""
    found = (fit.similar_rows, fit.similar_cols)[axis](ids(fit)[axis][item], n)
    factors, other = (
        np.asarray(a.factor, np.float64) for a in (fit.axes[axis], fit.axes[1 - axis])
    )
    apart = (factors - factors[item]) @ other.T
    own = fit.axes[axis].intercepts
    if own is not None:
        apart = apart + (own.astype(np.float64) - float(own[item]))[:, None]
    scale = float(np.max(np.abs(apart), initial=0)) or 1.0
    distances = scale * np.sqrt(np.mean((apart / scale) ** 2, axis=1))
    others = np.setdiff1d(np.arange(len(factors)), [item, *fit.axes[axis].unseen])
    if item in fit.axes[axis].unseen:
        others = others[:0]
    room = 1e-9 * max(scale, float(size.max()))
    count = min(n, others.size)
    where = {label: i for i, label in enumerate(ids(fit)[axis].tolist())}
    listed = [where[label] for label in found.others[:count].tolist()]
    assert np.abs(found.distances[:count] - distances[listed]).max(initial=0) <= room, "distances"
    nearest = np.sort(distances[others])[:count]
    assert np.abs(found.distances[:count] - nearest).max(initial=0) <= room, "the nearest"
    assert np.isnan(found.distances[count:]).all()


def check_summary(fit: Any, data: Any, axis: int, **given: Any) -> None:
    """A summary's columns are the sums over each row's (column's) entries."""
    found, placed = fit.summary(data.R, axis, **given), data.placed(fit)
    group, v = (placed.rows, placed.cols)[axis], placed.mass()
    n = fit.axes[axis].size
    r = placed.values - fit.predict(ids(fit)[0][placed.rows], ids(fit)[1][placed.cols])
    assert found.observations.tolist() == np.bincount(group, minlength=n).tolist()
    with np.errstate(all="ignore"):
        mass = np.bincount(group, v, n)
        size = np.bincount(group, v * np.abs(placed.values), n) / mass
        mean = np.bincount(group, v * placed.values, n) / mass
        top = float(np.max(np.abs(r), initial=0)) or 1.0
        rms = top * np.sqrt(np.bincount(group, v * (r / top) ** 2, n) / mass)
        below = np.bincount(group, v * np.maximum(-r, 0), n) / np.bincount(group, v * abs(r), n)
        room = 1e-9 * (size + rms) + 1e-150  # squares below that vanish
        assert not (np.abs(found.mean - mean) > room).any(), "mean of a row"
        assert not (np.abs(found.rms - rms) > room).any(), "rms of a row"
        assert not (np.abs(found.w_eff - below) > 1e-6).any(), "w_eff of a row"
    assert np.isfinite(found.loss[found.observations > 0]).all()
    assert str(found)


def check_data_questions(fit: Any, data: Any, rng: np.random.Generator, **given: Any) -> None:
    """What is asked with the training data at hand: F, the level, what is new to a row."""
    placed, everywhere = data.placed(fit), ids(fit)
    with np.errstate(all="ignore"):
        F, room = row_oracle.objective(fit, placed)
    if np.isfinite([F, room]).all() and fit.rows.noise is None:
        assert abs(fit.objective(data.R, **given) - F) <= room, "objective"
    r = placed.values - fit.predict(everywhere[0][placed.rows], everywhere[1][placed.cols])
    below, total = placed.mass() @ np.maximum(-r, 0), placed.mass() @ np.abs(r)
    level = fit.effective_omega(data.R, **given)
    assert np.isnan(level) if total == 0 else abs(level - below / total) <= 1e-6, "effective level"
    hidden = fit.predict(everywhere[0][:, None], everywhere[1], unseen="nan")
    absent = np.zeros(fit.shape, bool)
    absent[fit.unseen_rows] = absent[:, fit.unseen_cols] = True
    np.testing.assert_array_equal(np.isnan(hidden), absent)
    columns = fit.fold_in(data.R, axis=1, **given)
    assert np.isfinite(columns.to_dense()).all(), "columns folded in"
    if data.form == "dense" and data.dtype.kind == "b":  # refused: it looks like a mask
        return
    listed = fit.rank(None, int(rng.integers(1, 5)), order="smallest", seen=data.R)
    place = {label: i for i, label in enumerate(everywhere[1].tolist())}
    known = {*zip(placed.rows.tolist(), placed.cols.tolist(), strict=True)}
    found = np.isfinite(listed.values)
    for row, rank in zip(*np.nonzero(found), strict=True):
        assert (int(row), place[listed.cols[row, rank]]) not in known, "rank lists what was seen"
    free = fit.shape[1] - fit.unseen_cols.size
    for row in range(fit.shape[0]):
        left = free - sum(i == row for i, _ in known)
        if row in fit.unseen_rows and fit.row_intercepts is None:
            left = 0
        assert found[row].sum() == min(left, listed.cols.shape[1]), "rank leaves columns out"
