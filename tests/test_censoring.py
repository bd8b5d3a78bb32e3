"""Values that are limits: what replaces them, and that every source and task agrees."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import fastemf
from fastemf.inputs.censoring import LEFT, RIGHT, Cap, codes_of_lines, left_of_limits
from fastemf.observations.memory import observe
from fastemf.solver.beyond import beyond, tail

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*of the values equal"),
]

NOISE = {"reg": "noise", "intercepts": True}


def capped(seed=0, noise=0.3, share=0.85, m=40, n=30, density=0.5):
    """Entries of a skewed matrix, its values cut at a quantile."""
    rng = np.random.default_rng(seed)
    whole = rng.gamma(2, 1, (m, 2)) @ rng.gamma(2, 1, (n, 2)).T
    whole *= np.exp(noise * rng.standard_normal((m, n)))
    i, j = np.nonzero(rng.random((m, n)) < density)
    values = whole[i, j]
    limit = float(np.quantile(values, share))
    return i, j, values, limit


def predictions(fit):
    return fit.predict(*np.indices(fit.shape).reshape(2, -1))


def same_bits(one, other):
    for name in ("X", "Y", "row_intercepts", "col_intercepts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.shift == other.shift


# --- the curve -------------------------------------------------------------------------------


def limited(seed, size):
    """Residuals, which of them are limits, and weights; the smallest is none."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal(size)
    limit = np.quantile(u, 0.7) + 0.3 * rng.standard_normal(size)
    lost = u > limit
    u = np.minimum(u, limit)
    lost[np.argmin(u)] = False
    weights = rng.uniform(0.5, 2, size)
    return u, lost, weights


def brute_force(residuals, lost, weights, omega, x):
    """E(w u | u > x) under Kaplan–Meier, written out."""
    survival, mass = 1.0, {}
    points = sorted(set(residuals[~lost].tolist()))
    for u in points:
        at_risk = weights[(residuals > u) | (residuals == u)].sum()
        died = weights[(residuals == u) & ~lost].sum()
        mass[u] = survival * died / at_risk
        survival -= mass[u]
    mass[points[-1]] += survival
    after = {u: p for u, p in mass.items() if u > x}
    slope = sum(p * u * (omega if u >= 0 else 1 - omega) for u, p in after.items())
    g = slope / sum(after.values())
    return max(g / omega if g >= 0 else g / (1 - omega), x)


@given(seeds, st.integers(5, 40), st.sampled_from([0.1, 0.5, 0.9]))
def test_the_curve_is_the_mean_slope_beyond(seed, size, omega):
    u, lost, weights = limited(seed, size)
    curve = beyond(u, lost, weights, omega)
    last = u[~lost].max()
    for x in u[u < last]:
        expected = brute_force(u, lost, weights, omega, x)
        assert float(curve(np.array([x]))[0]) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    far = np.array([last + 1.0])
    assert curve(far) == far  # nothing is known there


def test_weight_two_is_the_residual_twice():
    rng = np.random.default_rng(0)
    u, lost = rng.standard_normal(30), rng.random(30) < 0.3
    twice = beyond(np.repeat(u, 2), np.repeat(lost, 2), np.ones(60), 0.3)
    once = beyond(u, lost, np.full(30, 2.0), 0.3)
    at = np.linspace(-2, 1, 40)
    np.testing.assert_allclose(twice(at), once(at), rtol=1e-9)


@given(seeds, st.integers(5, 40))
def test_draws_follow_what_is_beyond(seed, size):
    u, lost, weights = limited(seed, size)
    found = tail(u, lost, weights)
    seen = np.sort(u[~lost])
    np.testing.assert_array_equal(found.at, seen)
    for x, share in zip(seen[:-1], found.beyond, strict=False):  # Kaplan and Meier's product
        steps = [1 - weights[(u == e)].sum() / weights[u >= e].sum() for e in seen if e <= x]
        assert share == pytest.approx(np.prod(steps), abs=1e-12)
    chance = (np.arange(1000) + 0.5) / 1000
    drawn = found.draw(np.full(1000, seen[0]), chance)
    assert (np.diff(drawn) <= 0).all()
    # As many draws lie beyond each residual as there are beyond it of those beyond the first.
    for at, share in zip(found.at[1:], found.beyond[1:], strict=True):
        assert np.mean(drawn > at) == pytest.approx(share / found.beyond[0], abs=2e-3)
    far = np.array([seen[-1] + 1.0])
    assert found.draw(far, np.array([0.5])) == far


# --- what it is worth ------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_it_is_nearer_to_what_was_cut_than_limits_or_nothing(omega, noise):
    i, j, values, limit = capped(noise=noise, share=0.9, m=80, n=60)
    options = NOISE | {"shape": (80, 60)}
    kept = values < limit
    truth, cut, told, left_out = (
        predictions(fastemf.complete(R, omega, 2, **options, **more))
        for R, more in (
            ((i, j, values), {}),
            ((i, j, np.minimum(values, limit)), {}),
            ((i, j, np.minimum(values, limit)), {"censored": ("right", limit)}),
            ((i[kept], j[kept], values[kept]), {}),
        )
    )
    error = np.linalg.norm(told - truth)
    assert error < np.linalg.norm(cut - truth)
    assert error < np.linalg.norm(left_out - truth)


@pytest.mark.compiled
@pytest.mark.thorough
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_it_does_no_harm_where_half_is_cut(omega, noise):
    i, j, values, limit = capped(noise=noise, share=0.5, m=80, n=60)
    options = NOISE | {"shape": (80, 60)}
    truth, cut, told = (
        predictions(fastemf.complete((i, j, some), omega, 2, **options, **more))
        for some, more in (
            (values, {}),
            (np.minimum(values, limit), {}),
            (np.minimum(values, limit), {"censored": ("right", limit)}),
        )
    )
    assert np.linalg.norm(told - truth) < 1.02 * np.linalg.norm(cut - truth)


@pytest.mark.compiled
def test_nothing_is_put_on_the_wrong_side_of_its_limit():
    i, j, values, limit = capped()
    data = (i, j, np.minimum(values, limit))
    fit = fastemf.complete(data, 0.5, 2, censored=("right", limit), **NOISE)
    observed = observe(data, censored=("right", limit))
    codes = observed.by_row.censored
    predicted = predictions(fit).reshape(fit.shape)[observed.by_row.keys, observed.by_row.indices]
    found = fit.imputation.values(
        observed.by_row.values[codes > 0], codes[codes > 0], predicted[codes > 0],
        np.ones(np.count_nonzero(codes)),
    )  # fmt: skip
    assert (found >= limit).all()
    assert found.max() > limit
    assert found.max() <= fit.imputation.bounds[1]


# --- forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_every_form_marks_the_same_observations(weighted):
    i, j, values, limit = capped(m=12, n=9)
    cut = np.minimum(values, limit)
    codes = (values >= limit).astype(int)
    weights = np.random.default_rng(1).uniform(1, 2, cut.size) if weighted else None
    first = observe((i, j, cut), weights=weights, censored=("right", limit))
    dense = np.full((12, 9), np.nan)
    dense[i, j] = cut
    marks = np.zeros((12, 9), bool)
    marks[i, j] = codes
    words = np.array(["", "right"])[codes]
    forms = [
        observe((i, j, cut), weights=weights, censored=codes),
        observe((i, j, cut), weights=weights, censored=words),
        observe((i, j, cut), weights=weights, censored=codes.astype(bool).tolist()),
        observe((i, j, cut), weights=weights, censored=sp.csr_array(marks)),
        observe((i, j, cut), weights=weights, censored=marks),
    ]
    if not weighted:
        forms.append(observe(dense, censored=marks))
    for form in forms:
        for side, expected in ((form.by_row, first.by_row), (form.by_col, first.by_col)):
            np.testing.assert_array_equal(side.censored, expected.censored)
            np.testing.assert_array_equal(side.values, expected.values)
    assert np.count_nonzero(first.by_col.censored) == codes.sum()


@pytest.mark.compiled
def test_a_column_of_a_table_says_it(tmp_path):
    pa = pytest.importorskip("pyarrow")
    i, j, values, limit = capped(m=12, n=9)
    cut = np.minimum(values, limit)
    table = pa.table({
        "row": i, "col": j, "ms": cut,
        "word": [None if value < limit else "right" for value in values],
        "flag": values >= limit,
    })  # fmt: skip
    lines = [f"{a},{b},{float(c)!r},{'right' if d >= limit else ''}"
             for a, b, c, d in zip(i, j, cut, values, strict=True)]  # fmt: skip
    path = tmp_path / "log.csv"
    path.write_text("row,col,ms,word\n" + "\n".join(lines) + "\n")
    names = {"rows": "row", "cols": "col", "values": "ms"}
    fits = [
        fastemf.complete(R, 0.5, 1, reg="noise", censored=censored, **names)
        for R, censored in (
            (table, ("right", limit)), (table, "word"), (table, "flag"), (path, "word"),
            (table.to_pandas(), "flag"),
        )
    ]  # fmt: skip
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.X, fits[0].X)
    assert fits[0].history[-1].renewals > 0


def test_missing_marks_are_none_in_any_library():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    marks = ["right", None, "left", None]
    for column in (
        pd.Series(["right", np.nan, "left", None], dtype=object),
        pd.Series(marks, dtype="string"), pd.Series(marks, dtype="category"),
        pl.Series(marks), np.array(marks, object), pd.Series([1.0, np.nan, -1.0, np.nan]),
        pl.Series([1.0, None, -1.0, None]), ["1.0", "", "-1.0", "nan"],
    ):  # fmt: skip
        assert codes_of_lines(column).tolist() == [1, 0, -1, 0]
    for column in (
        pd.Series([True, np.nan, False, None], dtype=object),
        pd.Series([True, None, False, None], dtype="boolean"), pl.Series([True, None, False, None]),
    ):  # fmt: skip
        assert codes_of_lines(column).tolist() == [1, 0, 0, 0]


def test_a_matrix_of_marks_goes_by_its_labels():
    pd = pytest.importorskip("pandas")
    R = pd.DataFrame([[1.0, 2.0, np.nan], [4.0, np.nan, 6.0]], ["b", "a"], ["x", "y", "z"])
    marks = pd.DataFrame([[True, False, None], [False, False, True]], R.index, R.columns)
    labels = fastemf.Labels(["a", "b"]), fastemf.Labels(["z", "y", "x"])
    for observed in (observe(R, censored=marks), observe(R, censored=marks, labels=labels)):
        side = observed.by_row
        assert sorted(side.values[side.censored == 1].tolist()) == [1.0, 6.0]
    with pytest.raises(ValueError, match="the index and the columns of R"):
        observe(R, censored=marks.loc[["a", "b"]])
    with pytest.raises(ValueError, match="where R has labels, got a matrix"):
        observe((["a"], ["x"], [1.0]), labels=(None, None), censored=np.ones((1, 1)))


def test_a_stream_is_read_once():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"r": ["a", "b"], "c": ["x", "y"], "v": [1.0, 2.0], "m": [True, False]})
    names = {"rows": "r", "cols": "c", "values": "v"}
    for marks in ("m", [True, False]):
        observed = observe(table.to_reader(), censored=marks, **names)
        assert observed.by_row.censored.tolist() == [1, 0]


@pytest.mark.compiled
def test_left_is_right_in_the_mirror():
    i, j, values, limit = capped()
    cut = np.minimum(values, limit)
    right = fastemf.complete((i, j, cut), 0.3, 2, censored=("right", limit), **NOISE)
    left = fastemf.complete((i, j, -cut), 0.7, 2, censored=("left", -limit), **NOISE)
    np.testing.assert_allclose(predictions(left), -predictions(right), rtol=1e-6)


@pytest.mark.compiled
def test_another_unit_scales_exactly():
    i, j, values, limit = capped(m=60, n=50)
    cut = np.minimum(values, limit)
    one = fastemf.complete((i, j, cut), 0.7, 2, censored=("right", limit), intercepts=True)
    big = fastemf.complete(
        (i, j, 1024 * cut), 0.7, 2, censored=("right", 1024 * limit), intercepts=True
    )
    np.testing.assert_array_equal(predictions(big), 1024 * predictions(one))


@pytest.mark.compiled
def test_a_limit_that_nothing_reaches_changes_nothing(tmp_path):
    i, j, values, _ = capped()
    plain = fastemf.complete((i, j, values), 0.5, 2, **NOISE)
    fastemf.store.build((i, j, values), tmp_path / "store")
    for data in ((i, j, values), tmp_path / "store"):
        with pytest.warns(UserWarning, match=r"no value is at or beyond the limit 1e\+09"):
            told = fastemf.complete(data, 0.5, 2, censored=("right", 1e9), **NOISE)
        same_bits(plain, told)


@pytest.mark.compiled
def test_weight_two_is_the_observation_twice():
    i, j, values, limit = capped(m=20, n=15)
    cut = np.minimum(values, limit)
    told = {**NOISE, "censored": ("right", limit), "tol": 1e-9, "max_iter": 300}
    once = fastemf.complete((i, j, cut), 0.7, 1, weights=np.full(cut.size, 2.0), **told)
    twice = fastemf.complete(tuple(np.repeat(part, 2) for part in (i, j, cut)), 0.7, 1, **told)
    np.testing.assert_allclose(predictions(once), predictions(twice), rtol=1e-6)


@pytest.mark.compiled
def test_patience_ends_a_fit_whose_values_could_still_be_renewed():
    i, j, values, limit = capped(noise=1.0)
    fit = fastemf.complete(
        (i, j, np.minimum(values, limit)), 0.5, 8, reg=1e-6, validation=0.2, patience=2,
        censored=("right", limit),
    )  # fmt: skip
    losses = [record.validation_loss for record in fit.history]
    assert len(losses) - 1 - int(np.argmin(losses)) <= 2
    assert fit.converged


# --- sources ---------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("reg", ["noise", pytest.param("auto", marks=pytest.mark.thorough)])
def test_threads_and_stores_give_the_same_bits(reg, tmp_path):
    i, j, values, limit = capped()
    cut = np.minimum(values, limit)
    fastemf.store.build((i, j, cut), tmp_path / "store")
    options = {"reg": reg, "intercepts": True, "censored": ("right", limit)}
    one = fastemf.complete((i, j, cut), 0.9, 2, n_jobs=1, **options)
    same_bits(one, fastemf.complete((i, j, cut), 0.9, 2, n_jobs=2, **options))
    same_bits(
        one,
        fastemf.complete(fastemf.store.open(tmp_path / "store", budget=4096), 0.9, 2, **options),
    )


@pytest.mark.compiled
@pytest.mark.cluster
def test_a_cluster_gives_the_same_bits(tmp_path):
    distributed = pytest.importorskip("distributed")
    i, j, values, limit = capped()
    cut = np.minimum(values, limit)
    fastemf.store.build((i, j, cut), tmp_path / "store")
    options = {"intercepts": True, "censored": ("right", limit)}
    here = fastemf.complete((i, j, cut), 0.9, 2, **options)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        same_bits(here, fastemf.complete(tmp_path / "store", 0.9, 2, client=client, **options))


@pytest.mark.compiled
@pytest.mark.thorough
@pytest.mark.parametrize("form", ["limit", "marks"])
def test_what_quantiles_promise_is_true_of_cells_short_of_the_limit(form):
    rng = np.random.default_rng(0)
    m, n = 160, 120
    whole = rng.gamma(2, 1, (m, 2)) @ rng.gamma(2, 1, (n, 2)).T
    whole *= np.exp(0.5 * rng.standard_normal((m, n)))
    seen = rng.random((m, n)) < 0.4
    limit = float(np.quantile(whole[seen], 0.85))
    R = np.where(seen, np.minimum(whole, limit), np.nan)
    told = ("right", limit) if form == "limit" else limit == R
    quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), 2, reg="noise", censored=told)
    predicted = predictions(quantiles).reshape(m, n, 2)
    for t, promise in enumerate(quantiles.promises):
        short = ~seen & (predicted[..., t] < limit)
        share = np.mean((whole <= predicted[..., t])[short])
        assert promise.checked == pytest.approx(np.mean(short[~seen]), abs=0.03)
        assert share == pytest.approx(promise.coverage, abs=0.02)


@pytest.mark.compiled
@pytest.mark.thorough
def test_quantiles_of_a_store_are_those_of_memory_and_take_newcomers(tmp_path):
    i, j, values, limit = capped(m=60, n=50)
    cut = np.minimum(values, limit)
    fastemf.store.build((i, j, cut), tmp_path / "store")
    told = {"censored": ("right", limit), "reg": "noise"}
    here, there = (
        fastemf.complete_quantiles(data, (0.5, 0.7), 1, **told)
        for data in ((i, j, cut), tmp_path / "store")
    )
    np.testing.assert_array_equal(predictions(here), predictions(there))
    here.save(tmp_path / "q.npz")
    new = np.full((1, 50), np.nan)
    new[0, :8] = limit
    grown, as_values = (
        model.extend(new, **more).predict(60, 0)
        for model, more in (
            (fastemf.load(tmp_path / "q.npz"), {"censored": ("right", limit)}), (here, {}),
        )
    )  # fmt: skip
    assert (grown > as_values).all()


@pytest.mark.compiled
def test_a_checkpoint_goes_from_memory_to_a_store(tmp_path):
    i, j, values, limit = capped()
    cut = np.minimum(values, limit)
    fastemf.store.build((i, j, cut), tmp_path / "store")
    options = {**NOISE, "censored": ("right", limit), "checkpoint": tmp_path / "state.npz"}
    fastemf.complete((i, j, cut), 0.5, 2, max_iter=5, **options)
    resumed = fastemf.complete(tmp_path / "store", 0.5, 2, resume=True, **options)
    del options["checkpoint"]
    same_bits(resumed, fastemf.complete((i, j, cut), 0.5, 2, **options))


@pytest.mark.compiled
def test_an_interrupted_fit_ends_at_the_same_bits(tmp_path):
    i, j, values, limit = capped()
    data = (i, j, np.minimum(values, limit))
    options = {**NOISE, "censored": ("right", limit)}
    whole = fastemf.complete(data, 0.5, 2, **options)
    path = tmp_path / "state.npz"
    for sweeps in (4, 9, 100):
        fit = fastemf.complete(
            data, 0.5, 2, max_iter=sweeps, checkpoint=path, checkpoint_every=1,
            resume=path.exists(), **options,
        )  # fmt: skip
    same_bits(whole, fit)
    assert [record.renewals for record in fit.history] == [
        record.renewals for record in whole.history
    ]
    with pytest.raises(fastemf.CheckpointError, match="other data"):
        fastemf.complete(data, 0.5, 2, checkpoint=path, resume=True, **NOISE)


# --- tasks -----------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.thorough
def test_levels_quantiles_coverage_and_select_know_of_limits():
    i, j, values, limit = capped(m=60, n=50)
    data, told = (i, j, np.minimum(values, limit)), {"censored": ("right", limit)}
    plain, aware = (
        fastemf.complete_levels(data, (0.5, 0.9), 2, reg="noise", **more) for more in ({}, told)
    )
    assert predictions(aware)[:, 1].mean() > predictions(plain)[:, 1].mean()
    low, high = (
        fastemf.complete_quantiles(data, (0.5, 0.95), 2, reg="noise", **more) for more in ({}, told)
    )
    assert predictions(high)[:, 1].mean() > predictions(low)[:, 1].mean()
    assert fastemf.level_for_coverage(data, 0.5, 2, reg="noise", **told).fit.imputation is not None
    chosen = fastemf.select(data, 0.5, [1, 2], ["noise"], folds=2, **told)
    assert chosen.fit.imputation is not None


@pytest.mark.compiled
def test_estimators_know_of_limits():
    pytest.importorskip("sklearn")
    i, j, values, limit = capped(m=20, n=15)
    cut = np.minimum(values, limit)
    pairs = np.column_stack([i, j])
    weights = np.ones(cut.size)
    weights[3] = 0.0
    by_limit, by_mark = (
        fastemf.ExpectilePairRegressor(0.5, 1, reg="noise").fit(pairs, cut, weights, censored)
        for censored in (("right", limit), cut >= limit)
    )
    np.testing.assert_array_equal(by_limit.predict(pairs), by_mark.predict(pairs))
    assert by_limit.factorization_.imputation is not None
    R = np.full((20, 15), np.nan)
    R[i, j] = cut
    factors = fastemf.ExpectileFactorization(0.5, 1, reg="noise", intercepts=True)
    factors.fit(R, censored=limit <= R)
    told = fastemf.complete(R, 0.5, 1, reg="noise", intercepts=True, censored=("right", limit))
    same_bits(factors.factorization_, told)


@pytest.mark.compiled
def test_a_model_keeps_what_replaces_limits_and_new_rows_use_it(tmp_path):
    i, j, values, limit = capped(m=60, n=30)
    first = i < 50
    data = (i[first], j[first], np.minimum(values, limit)[first])
    fit = fastemf.complete(data, 0.5, 2, censored=("right", limit), shape=(50, 30), **NOISE)
    fit.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    new = (i[~first] - 50, j[~first], np.minimum(values, limit)[~first])
    told, again = (
        model.fold_in(new, censored=("right", limit), shape=(10, 30)) for model in (fit, loaded)
    )
    np.testing.assert_array_equal(told.X, again.X)
    assert predictions(told).mean() > predictions(fit.fold_in(new, shape=(10, 30))).mean()
    more = fit.extend(new, censored=("right", limit), shape=(10, 30))
    assert [scale.size for scale in more.imputation.scales] == [60, 30]
    np.testing.assert_array_equal(more.imputation.scales[0][:50], fit.imputation.scales[0])
    assert loaded.objective(data, censored=("right", limit), shape=(50, 30)) == pytest.approx(
        fit.history[-1].objective, rel=0.05
    )


def test_a_limit_beyond_which_a_fit_lies_does_not_contradict_it():
    r = np.array([-1.0, -1.0, 2.0, 2.0, -3.0])
    codes = np.array([RIGHT, LEFT, RIGHT, LEFT, 0], np.int8)
    assert left_of_limits(r, codes).tolist() == [0.0, -1.0, 2.0, 0.0, -3.0]
    fit = fastemf.complete(np.full((2, 3), 5.0), 0.5, 1, reg=0)
    R = np.array([[4.0, 4.0, 4.0], [6.0, 6.0, 6.0]])
    assert fit.summary(R, censored=("right", 0.0)).rms.round(6).tolist() == [0.0, 1.0]


def test_a_small_fit_goes_all_the_way(tmp_path):
    i, j, values, limit = capped(m=8, n=6, density=0.8)
    data, told = (i, j, np.minimum(values, limit)), {"censored": ("right", limit), "shape": (8, 6)}
    fit = fastemf.complete(data, 0.7, 1, max_iter=8, **NOISE, **told)
    assert fit.history[-1].renewals == 2
    assert fit.objective(data, **told) > 0
    fit.save(tmp_path / "model.npz")
    new = limit * np.array([[1.0, 1.0, np.nan, 0.9, np.nan, 0.95]])
    models = fit, fastemf.load(tmp_path / "model.npz")
    grown, loaded = (model.extend(new, censored=("right", limit)) for model in models)
    np.testing.assert_array_equal(grown.X, loaded.X)
    assert grown.predict(8, 2) > fit.extend(new).predict(8, 2)


# --- what is refused, and said ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("censored", "message"),
    [
        (("above", 3.0), r'must be \("right", limit\)'),
        (("right", np.inf), "must be a finite number, got inf"),
        (("right", "20"), "must be a finite number, got '20'"),
        (["right", "up", ""], "got 'up'"),
        ([1, 2, 0], "as numbers 1, -1 and 0"),
        ([True, False], "each of the 3 observations, got 2"),
        (np.zeros((2, 2)), r"R's shape \(2, 3\), got \(2, 2\)"),
        ("ms", "R is no table; got 'ms'"),
        (3.0, r'a time-out is \("right", 3.0\)'),
        (([1, 0, 0], [0, 0, 1]), r'must be \("right", limit\)'),
        ([[0, 2, 1], [0, 0, 0]], "as numbers 1, -1 and 0, got 2"),
        (sp.csr_array([[0, 0, 1], [0, 5, 0]]), "as numbers 1, -1 and 0, got 5"),
        (("right", 0.0), "must leave some observations"),
    ],
)
def test_bad_marks_are_refused(censored, message):
    R = ([0, 0, 1], [0, 1, 2], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=message):
        fastemf.complete(R, 0.5, 1, censored=censored)


def test_marks_of_a_dense_matrix_are_a_matrix():
    with pytest.raises(ValueError, match="censored must be a matrix of R's shape"):
        fastemf.complete(np.ones((2, 3)), 0.5, 1, censored=[True] * 6)
    masked = np.ma.array(np.ones((1, 2)), mask=[[True, False]])
    assert observe(np.ones((1, 2)), censored=masked).by_row.censored.tolist() == [0, 1]


def test_a_store_takes_a_limit_only(tmp_path):
    fastemf.store.build(([0, 0, 1], [0, 1, 2], [1.0, 2.0, 3.0]), tmp_path / "store")
    with pytest.raises(ValueError, match="where R is not in memory, got list"):
        fastemf.complete(tmp_path / "store", 0.5, 1, censored=[True, False, False])


def test_a_fit_that_was_not_told_of_limits_cannot_replace_them():
    fit = fastemf.complete(np.ones((2, 3)), 0.5, 1, reg=0)
    with pytest.raises(ValueError, match="a fit some of whose own values were censored"):
        fit.fold_in(np.ones((1, 3)), censored=("right", 1.0))


@pytest.mark.compiled
@pytest.mark.filterwarnings("default:.*of the values equal")
def test_values_that_look_like_limits_are_told_of_once(tmp_path):
    i, j, values, limit = capped()
    cut = np.minimum(values, limit)
    with pytest.warns(UserWarning, match=r"of the values equal the largest, .*censored=") as told:
        fastemf.complete((i, j, cut), 0.5, 2, reg="noise")
    assert len(told) == 1
    with pytest.warns(UserWarning, match="of the values equal the smallest") as told:
        fastemf.complete_levels((i, j, -cut), (0.4, 0.5), 2, reg="noise")
    # As an option it can be pasted: exact, and a negative number is not taken for an option.
    assert f"(in a shell, --censored-below={-limit!r})" in str(told[0].message)
    fastemf.store.build((i, j, cut), tmp_path / "store")
    with pytest.warns(UserWarning, match=r"of the values equal the largest, .*censored=") as told:
        fastemf.complete(tmp_path / "store", 0.5, 2, reg="noise")
    assert len(told) == 1
    ratings = np.random.default_rng(0).integers(1, 6, (40, 30)).astype(float)
    fastemf.complete(ratings, 0.5, 2, reg="noise")  # they pile up everywhere: no warning


def test_limits_follow_the_type_of_the_values():
    limit = 0.1
    values = np.array([limit], np.float32)
    assert Cap(RIGHT, limit).codes(values).tolist() == [RIGHT]
    assert Cap(LEFT, limit).codes(values).tolist() == [LEFT]


def test_words_and_codes():
    assert codes_of_lines(["Right", " left ", None, "", "true", "False"]).tolist() == [
        1, -1, 0, 0, 1, 0,
    ]  # fmt: skip
    assert codes_of_lines(np.array([np.nan, 1.0, -1.0])).tolist() == [0, 1, -1]


@pytest.mark.compiled
def test_values_are_made_anew_on_the_way():
    i, j, values, limit = capped()
    fit = fastemf.complete(
        (i, j, np.minimum(values, limit)), 0.5, 2, censored=("right", limit), **NOISE
    )
    renewals = [record.renewals for record in fit.history]
    assert renewals == sorted(renewals)
    assert renewals[0] == 0 < renewals[-1]
