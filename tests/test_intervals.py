"""Fits of observations that are only known to lie in intervals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scenes import same_bits

import fastemf
from fastemf.sources.memory import observe

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*of the values equal"),
]

NOISE = {"reg": "noise", "intercepts": True}
BOUNDS = np.array([1.0, 2.5, 5.0, 10.0, 25.0, 50.0])


def bucketed(seed=0, noise=0.3, m=40, n=30, density=0.5):
    """Entries of a skewed matrix, and the buckets that contain them."""
    rng = np.random.default_rng(seed)
    whole = rng.gamma(2, 1, (m, 2)) @ rng.gamma(2, 1, (n, 2)).T
    whole *= np.exp(noise * rng.standard_normal((m, n)))
    i, j = np.nonzero(rng.random((m, n)) < density)
    at = np.searchsorted(BOUNDS, whole[i, j])
    lower, upper = np.append(0, BOUNDS)[at], np.append(BOUNDS, np.inf)[at]
    middles = np.where(np.isinf(upper), lower, np.sqrt(lower * upper))
    middles = np.where(lower == 0, upper / 2, middles)
    return SimpleNamespace(
        i=i, j=j, values=whole[i, j], lower=lower, upper=upper, middles=middles,
        data=(i, j, (lower, upper)), shape=(m, n),
    )  # fmt: skip


@pytest.fixture
def b():
    return bucketed()


def predictions(fit):
    return fit.predict(*np.indices(fit.shape).reshape(2, -1))


# --- identities ------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_half_infinite_intervals_are_censored_values(b, end):
    exact = b.values < 10
    limited = np.where(exact, b.values, 10.0)
    sign, side = (1, "right") if end == "upper" else (-1, "left")
    other = np.where(exact, limited, np.inf)
    ends = tuple(np.sort(np.stack([sign * limited, sign * other]), axis=0))
    marked = np.where(exact, "", side)
    expected = fastemf.complete((b.i, b.j, sign * limited), 0.3, 2, censored=marked, **NOISE)
    same_bits(expected, fastemf.complete((b.i, b.j, ends), 0.3, 2, **NOISE))


@pytest.mark.compiled
def test_intervals_of_width_zero_are_exact_values(b):
    expected = fastemf.complete((b.i, b.j, b.values), 0.3, 2, **NOISE)
    same_bits(expected, fastemf.complete((b.i, b.j, (b.values, b.values)), 0.3, 2, **NOISE))


@pytest.mark.compiled
def test_missing_ends_are_infinite(b):
    lower, upper = np.where(b.lower == 0, -np.inf, b.lower), b.upper
    missing = np.where(np.isinf(lower), np.nan, lower), np.where(np.isinf(upper), np.nan, upper)
    same_bits(*(
        fastemf.complete((b.i, b.j, ends), 0.5, 2, **NOISE) for ends in ((lower, upper), missing)
    ))  # fmt: skip


@pytest.mark.compiled
def test_negation_mirrors_a_fit(b):
    one = fastemf.complete(b.data, 0.3, 2, **NOISE)
    mirrored = fastemf.complete((b.i, b.j, (-b.upper, -b.lower)), 0.7, 2, **NOISE)
    np.testing.assert_allclose(predictions(mirrored), -predictions(one), rtol=1e-3)


@pytest.mark.compiled
def test_weight_two_equals_repetition(b):
    settings = {**NOISE, "tol": 1e-9, "max_iter": 300}
    once = fastemf.complete(b.data, 0.7, 1, weights=np.full(b.i.size, 2.0), **settings)
    lower, upper = np.repeat(b.lower, 2), np.repeat(b.upper, 2)
    repeated = np.repeat(b.i, 2), np.repeat(b.j, 2), (lower, upper)
    twice = fastemf.complete(repeated, 0.7, 1, **settings)
    # Residuals are rounded to bins, which magnifies differences from rounding.
    np.testing.assert_allclose(predictions(once), predictions(twice), rtol=2e-3, atol=0.01)


# --- forms -----------------------------------------------------------------------------------


def test_all_forms_of_intervals_are_equivalent(b, tmp_path):
    pa, pl, csv = (pytest.importorskip(name) for name in ("pyarrow", "polars", "pyarrow.csv"))
    order = np.random.default_rng(0).permutation(b.i.size)
    weights = np.random.default_rng(1).integers(1, 9, b.i.size).astype(float)
    table = pa.table({
        "r": b.i[order], "c": b.j[order], "lower": b.lower[order],
        "upper": pa.array(b.upper[order], mask=np.isinf(b.upper[order])), "n": weights[order],
    })  # fmt: skip
    text = table.set_column(3, "upper", pa.array(np.where(
        np.isinf(b.upper[order]), "+Inf", b.upper[order].astype(str)
    )))  # fmt: skip
    csv.write_csv(table, tmp_path / "nulls.csv")
    csv.write_csv(text, tmp_path / "text.csv")
    columns = {"rows": "r", "cols": "c", "values": ("lower", "upper"), "weights": "n"}
    labels = fastemf.Labels(np.arange(40)), fastemf.Labels(np.arange(30))
    first = observe(b.data, weights=weights, shape=(40, 30), takes_intervals=True)
    for form in (
        table, table.to_pandas(), pl.from_arrow(table), table.to_reader(), text,
        tmp_path / "nulls.csv", tmp_path / "text.csv",
    ):  # fmt: skip
        found = observe(form, labels=labels, takes_intervals=True, **columns)
        for side, expected in ((found.by_row, first.by_row), (found.by_col, first.by_col)):
            # Each cell occurs once, so the order within rows is the only difference.
            ours, theirs = (np.lexsort((one.indices, one.keys)) for one in (side, expected))
            for name in ("values", "weights", "censored", "half_widths"):
                np.testing.assert_array_equal(
                    getattr(side, name)[ours], getattr(expected, name)[theirs]
                )


def test_subsets_keep_intervals(b):
    observed = observe(b.data, takes_intervals=True)
    mask = np.random.default_rng(0).random(observed.size) < 0.5
    rows, cols = observed.by_row.keys[mask], observed.by_row.indices[mask]
    order = np.lexsort((b.j, b.i))
    ends = b.lower[order][mask], b.upper[order][mask]
    expected = observe((rows, cols, ends), shape=observed.shape, takes_intervals=True)
    found = observed.subset(mask)
    assert found.digest() == expected.digest() != observed.digest()
    for side, other in ((found.by_row, expected.by_row), (found.by_col, expected.by_col)):
        np.testing.assert_array_equal(side.half_widths, other.half_widths)
        np.testing.assert_array_equal(side.censored, other.censored)


# --- accuracy --------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_intervals_are_closer_to_the_exact_fit_than_midpoints(omega, noise):
    b = bucketed(noise=noise, m=80, n=60)
    exact, intervals, middles = (
        predictions(fastemf.complete((b.i, b.j, values), omega, 2, shape=b.shape, **NOISE))
        for values in (b.values, (b.lower, b.upper), b.middles)
    )
    assert np.linalg.norm(intervals - exact) < np.linalg.norm(middles - exact)


@pytest.mark.compiled
@pytest.mark.thorough
def test_quantiles_of_intervals_are_better_than_those_of_midpoints():
    b = bucketed(noise=0.1, m=100, n=80, density=0.6)
    held_out = np.random.default_rng(0).random(b.i.size) < 0.3
    kept, losses = ~held_out, []
    for values in ((b.lower[kept], b.upper[kept]), b.middles[kept]):
        data = b.i[kept], b.j[kept], values
        quantiles = fastemf.complete_quantiles(data, (0.5, 0.95), 2, shape=b.shape, reg="noise")
        predicted = quantiles.predict(b.i[held_out], b.j[held_out])
        losses.append([
            fastemf.metrics.pinball_loss(b.values[held_out], predicted[:, t], tau)
            for t, tau in enumerate((0.5, 0.95))
        ])  # fmt: skip
    assert (np.array(losses[0]) < losses[1]).all()


# --- runs and tasks --------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("reg", ["noise", pytest.param("auto", marks=pytest.mark.thorough)])
def test_threads_are_bitwise_identical(reg, b):
    options = {"reg": reg, "intercepts": True}
    one, two = (fastemf.complete(b.data, 0.9, 2, n_jobs=jobs, **options) for jobs in (1, 2))
    same_bits(one, two)


@pytest.mark.compiled
def test_a_resumed_fit_is_bitwise_identical(b, tmp_path):
    whole = fastemf.complete(b.data, 0.5, 2, **NOISE)
    path = tmp_path / "state.npz"
    for sweeps in (4, 9, 100):
        state = fastemf.Checkpoint(path, every=1, resume=path.exists())
        fit = fastemf.complete(b.data, 0.5, 2, max_iter=sweeps, checkpoint=state, **NOISE)
    same_bits(whole, fit)
    other = (b.i, b.j, (b.lower, np.where(b.upper == 50, 51, b.upper)))
    with pytest.raises(fastemf.CheckpointError, match="other data"):
        fastemf.complete(other, 0.5, 2, checkpoint=state, **NOISE)


@pytest.mark.compiled
def test_validation_cells_of_intervals(b):
    new = b.i[:50], b.j[:50], (b.lower[:50], b.upper[:50])
    for validation in (0.2, new):
        fit = fastemf.complete(b.data, 0.5, 2, validation=validation, **NOISE)
        assert np.isfinite([record.validation_loss for record in fit.history]).all()


@pytest.mark.compiled
def test_a_saved_fit_of_a_table_predicts_the_same(b, tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"r": b.i, "c": b.j, "lower": b.lower, "upper": b.upper})
    columns = {"rows": "r", "cols": "c", "values": ("lower", "upper")}
    fit = fastemf.complete(table, 0.5, 2, **columns, **NOISE)
    assert fit.value_name is None
    fit.save(tmp_path / "fit.npz")
    same_bits(fit, fastemf.load(tmp_path / "fit.npz"))


@pytest.mark.compiled
@pytest.mark.thorough
def test_coverage_counts_cells_not_calls():
    b = bucketed(m=60, n=50)
    rng = np.random.default_rng(0)
    calls = rng.integers(1, 4, b.i.size)
    # Each cell has a bucket of its own and, for half of them, a second one.
    extra = rng.random(b.i.size) < 0.5
    i, j, weights = (np.append(one, one[extra]) for one in (b.i, b.j, calls.astype(float)))
    lower, upper = np.append(b.lower, b.lower[extra] / 2), np.append(b.upper, b.upper[extra])
    few, many = (
        fastemf.complete_quantiles(
            (i, j, (lower, upper)), (0.5, 0.8), 1, weights=scale * weights, reg="noise"
        )
        for scale in (1, 1000)
    )
    mass = np.bincount(np.ravel_multi_index((i, j), (60, 50)), weights)
    for one, other in zip(few.coverage, many.coverage, strict=True):
        assert other.cells == pytest.approx(one.cells, abs=1)
        assert one.cells <= mass.sum() ** 2 / np.sum(mass**2) + 1 < np.count_nonzero(mass)
        widths = [high - low for low, high in (one.interval, other.interval)]
        assert widths[1] == pytest.approx(widths[0], rel=0.1)
        assert max(one.dense_cells, other.dense_cells) <= np.bincount(b.i).max()


@pytest.mark.compiled
@pytest.mark.thorough
@pytest.mark.parametrize("boost", [False, True])
def test_levels_of_intervals(boost):
    b = bucketed(m=60, n=50)
    exact, intervals, middles = (
        predictions(fastemf.complete_levels(
            (b.i, b.j, values), (0.1, 0.9), 2, reg="noise", intercepts=True, boost=boost
        ))[:, 1]
        for values in (b.values, (b.lower, b.upper), b.middles)
    )  # fmt: skip
    assert np.abs(intervals / exact - 1).mean() < np.abs(middles / exact - 1).mean()


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (([1.0, 3.0], [2.0, 2.0]), "lower <= upper, .* got 3 and 2 at position 1"),
        (([1.0, np.nan], [2.0, np.nan]), "one of them finite, got -inf and inf at position 1"),
        (([1.0, np.inf], [2.0, np.inf]), "one of them finite, got inf and inf at position 1"),
        (([1.0, 2.0], [2.0, 3.0, 4.0]), "of equal length, got shapes"),
        (([1.0], [2.0]), "of equal length, got shapes"),
    ],
)
def test_wrong_intervals_are_refused(ends, message):
    with pytest.raises(ValueError, match=message):
        fastemf.complete(([0, 1], [1, 0], tuple(map(np.array, ends))), 0.5, 1)


@pytest.mark.compiled
def test_wrong_uses_of_intervals_are_refused(b, tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"r": b.i, "c": b.j, "lower": b.lower, "upper": b.upper})
    columns = {"rows": "r", "cols": "c", "values": ("lower", "upper")}
    with pytest.raises(ValueError, match="censored must be None for intervals"):
        fastemf.complete(b.data, 0.5, 1, censored=("right", 50.0))
    with pytest.raises(ValueError, match="values must name two columns of a table, got"):
        fastemf.complete(np.ones((3, 3)), 0.5, 1, values=("lower", "upper"))
    with pytest.raises(ValueError, match="no column 'bound'"):
        fastemf.complete(table, 0.5, 1, **{**columns, "values": ("lower", "bound")})
    with pytest.raises(ValueError, match="must name two columns, got"):
        fastemf.complete(table, 0.5, 1, **{**columns, "values": ("lower", "upper", "r")})
    with pytest.raises(ValueError, match="names of their own, got 'lower'"):
        fastemf.complete_quantiles(table, 0.5, 1, **columns, features=["lower"])
    with pytest.raises(ValueError, match="must be exact here, got intervals, which only complete"):
        fastemf.select(b.data, 0.5, [1], ["noise"])
    with pytest.raises(ValueError, match="must be exact on a cluster"):
        fastemf.complete(b.data, 0.5, 1, client=object())
    fit = fastemf.complete(table, 0.5, 1, **columns, **NOISE)
    for method in (fit.evaluate, fit.fold_in, fit.summary):
        with pytest.raises(ValueError, match="must be exact here, got intervals"):
            method(table, **columns)
    with pytest.raises(ValueError, match="must be exact"):
        fastemf.store.build(b.data, tmp_path / "store")
    with pytest.raises(ValueError, match="must be exact"):
        fastemf.store.build(table, tmp_path / "store", **columns)
