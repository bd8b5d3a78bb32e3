"""Censored observations: imputation, and agreement of all sources and tasks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scenes import same_bits
from strategies import seeds

import fastemf
from fastemf.censoring.kaplan_meier import conditional_expectation, residual_distribution
from fastemf.censoring.limits import parse_codes
from fastemf.sources.memory import observe

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastemf.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*of the values equal"),
]

NOISE = {"reg": "noise", "intercepts": True}


def capped(seed=0, noise=0.3, share=0.85, m=40, n=30, density=0.5):
    """Entries of a skewed matrix, recorded up to a limit, which is a quantile of the values."""
    rng = np.random.default_rng(seed)
    whole = rng.gamma(2, 1, (m, 2)) @ rng.gamma(2, 1, (n, 2)).T
    whole *= np.exp(noise * rng.standard_normal((m, n)))
    i, j = np.nonzero(rng.random((m, n)) < density)
    values = whole[i, j]
    limit = float(np.quantile(values, share))
    cut = np.minimum(values, limit)
    entries = {"whole": whole, "i": i, "j": j, "values": values, "cut": cut, "limit": limit}
    return SimpleNamespace(**entries, data=(i, j, cut), limits={"censored": ("right", limit)})


@pytest.fixture
def c():
    return capped()


@pytest.fixture
def store(c, tmp_path):
    """Path of a store with the data of `c`."""
    fastemf.store.build(c.data, tmp_path / "store")
    return tmp_path / "store"


def predictions(fit):
    return fit.predict(*np.indices(fit.shape).reshape(2, -1))


# --- the curve -------------------------------------------------------------------------------


def censored_residuals(seed, size):
    """Residuals, which of them are censored (not the smallest), and weights."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal(size)
    limit = np.quantile(u, 0.7) + 0.3 * rng.standard_normal(size)
    lost = u > limit
    u = np.minimum(u, limit)
    lost[np.argmin(u)] = False
    weights = rng.uniform(0.5, 2, size)
    return u, lost, weights


def brute_force(residuals, lost, weights, omega, x):
    """E(w u | u > x) under the Kaplan–Meier estimate, in plain Python."""
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
def test_conditional_expectation_matches_brute_force(seed, size, omega):
    u, lost, weights = censored_residuals(seed, size)
    curve = conditional_expectation(u, lost, weights, omega)
    last = u[~lost].max()
    for x in u[u < last]:
        expected = brute_force(u, lost, weights, omega, x)
        assert float(curve(np.array([x]))[0]) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    far = np.array([last + 1.0])
    assert curve(far) == far  # nothing is known there


@given(seeds, st.integers(5, 40))
def test_draws_follow_the_kaplan_meier_distribution(seed, size):
    u, lost, weights = censored_residuals(seed, size)
    found = residual_distribution(u, lost, weights)
    seen = np.sort(u[~lost])
    np.testing.assert_array_equal(found.at, seen)
    for x, share in zip(seen[:-1], found.survival, strict=False):  # Kaplan and Meier's product
        steps = [1 - weights[(u == e)].sum() / weights[u >= e].sum() for e in seen if e <= x]
        assert share == pytest.approx(np.prod(steps), abs=1e-12)
    chance = (np.arange(1000) + 0.5) / 1000
    drawn = found.draw(np.full(1000, seen[0]), chance)
    assert (np.diff(drawn) <= 0).all()
    # As many draws lie beyond each residual as there are beyond it of those beyond the first.
    for at, share in zip(found.at[1:], found.survival[1:], strict=True):
        assert np.mean(drawn > at) == pytest.approx(share / found.survival[0], abs=2e-3)
    far = np.array([seen[-1] + 1.0])
    assert found.draw(far, np.array([0.5])) == far


# --- accuracy --------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:.*have no observations")  # if all values of a row are left out
@pytest.mark.parametrize("omega", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(
    ("noise", "share"),
    [(0.1, 0.9), (0.5, 0.9), *(pytest.param(x, 0.5, marks=pytest.mark.thorough) for x in (0.1, 1))],
)
def test_imputation_beats_recorded_limits_and_omission(omega, noise, share):
    c = capped(noise=noise, share=share, m=80, n=60)
    kept = c.values < c.limit
    given = [((c.i, c.j, c.values), {}), (c.data, c.limits), (c.data, {})]
    given.append(((c.i[kept], c.j[kept], c.values[kept]), {}))
    truth, *others = (
        predictions(fastemf.complete(R, omega, 2, shape=(80, 60), **NOISE, **more))
        for R, more in given
    )
    imputed, recorded, left_out = (np.linalg.norm(other - truth) for other in others)
    if share > 0.5:
        assert imputed < min(recorded, left_out)
    else:  # it is safe even if half of the values are censored
        assert imputed < 1.02 * recorded


@pytest.mark.compiled
def test_imputed_values_respect_the_limits_and_are_updated(c):
    fit = fastemf.complete(c.data, 0.5, 2, **c.limits, **NOISE)
    side = observe(c.data, **c.limits).by_row
    predicted = predictions(fit).reshape(fit.shape)[side.keys, side.indices]
    lost = side.censored > 0
    found = fit.imputation.impute(
        side.values[lost], side.censored[lost], predicted[lost], np.ones(np.count_nonzero(lost))
    )
    assert (found >= c.limit).all()
    assert c.limit < found.max() <= fit.imputation.bounds[1]
    renewals = [record.renewals for record in fit.history]
    assert renewals == sorted(renewals)
    assert renewals[0] == 0 < renewals[-1]


# --- forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_all_forms_of_censored_are_equivalent(weighted):
    c = capped(m=12, n=9)
    codes = (c.values >= c.limit).astype(int)
    marks = np.zeros((12, 9), bool)
    marks[c.i, c.j] = codes
    words, flags = np.array(["", "right"])[codes], (codes == 1).tolist()
    weights = np.random.default_rng(1).uniform(1, 2, codes.size) if weighted else None
    first = observe(c.data, weights=weights, **c.limits)
    given = (codes, words, flags, sp.csr_array(marks), marks)
    forms = [observe(c.data, weights=weights, censored=form) for form in given]
    if not weighted:
        dense = np.full((12, 9), np.nan)
        dense[c.i, c.j] = c.cut
        forms.append(observe(dense, censored=marks))
    for form in forms:
        for side, expected in ((form.by_row, first.by_row), (form.by_col, first.by_col)):
            np.testing.assert_array_equal(side.censored, expected.censored)
            np.testing.assert_array_equal(side.values, expected.values)
    assert np.count_nonzero(first.by_col.censored) == codes.sum()


@pytest.mark.compiled
def test_censored_may_be_a_column(tmp_path):
    pa, csv = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    c = capped(m=12, n=9)
    flag = c.values >= c.limit
    words = [("right" if one else None) for one in flag]
    table = pa.table({"row": c.i, "col": c.j, "ms": c.cut, "word": words, "flag": flag})
    path = tmp_path / "log.csv"
    csv.write_csv(table, path)
    first, *others = (
        fastemf.complete(R, 0.5, 1, reg="noise", censored=name, rows="row", cols="col", values="ms")
        for R, name in (
            (table, c.limits["censored"]), (table, "word"), (table, "flag"), (path, "word"),
            (table.to_pandas(), "flag"),
        )
    )  # fmt: skip
    for fit in others:
        np.testing.assert_array_equal(fit.X, first.X)
    assert first.history[-1].renewals > 0


def test_missing_marks_mean_uncensored():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    marks = ["right", None, "left", None]
    for column in (
        pd.Series(["right", np.nan, "left", None], dtype=object),
        pd.Series(marks, dtype="string"), pd.Series(marks, dtype="category"),
        pl.Series(marks), np.array(marks, object), pd.Series([1.0, np.nan, -1.0, np.nan]),
        pl.Series([1.0, None, -1.0, None]), ["1.0", "", "-1.0", "nan"],
    ):  # fmt: skip
        assert parse_codes(column).tolist() == [1, 0, -1, 0]
    for column in (
        pd.Series([True, np.nan, False, None], dtype=object),
        pd.Series([True, None, False, None], dtype="boolean"), pl.Series([True, None, False, None]),
    ):  # fmt: skip
        assert parse_codes(column).tolist() == [1, 0, 0, 0]


def test_a_data_frame_of_marks_must_match_the_labels():
    pd = pytest.importorskip("pandas")
    R = pd.DataFrame([[1.0, 2.0, np.nan], [4.0, np.nan, 6.0]], ["b", "a"], ["x", "y", "z"])
    marks = pd.DataFrame([[True, False, None], [False, False, True]], R.index, R.columns)
    labels = fastemf.Labels(["a", "b"]), fastemf.Labels(["z", "y", "x"])
    for observed in (observe(R, censored=marks), observe(R, censored=marks, labels=labels)):
        side = observed.by_row
        assert sorted(side.values[side.censored == 1].tolist()) == [1.0, 6.0]
    with pytest.raises(ValueError, match="the index and the columns of R"):
        observe(R, censored=marks.loc[["a", "b"]])
    with pytest.raises(ValueError, match="if R has labels, got a matrix"):
        observe((["a"], ["x"], [1.0]), labels=(None, None), censored=np.ones((1, 1)))


def test_censored_column_of_a_stream():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"r": ["a", "b"], "c": ["x", "y"], "v": [1.0, 2.0], "m": [True, False]})
    names = {"rows": "r", "cols": "c", "values": "v"}
    for marks in ("m", [True, False]):
        observed = observe(table.to_reader(), censored=marks, **names)
        assert observed.by_row.censored.tolist() == [1, 0]


@pytest.mark.compiled
def test_left_censoring_mirrors_right_censoring(c):
    right = fastemf.complete(c.data, 0.3, 2, **c.limits, **NOISE)
    left = fastemf.complete((c.i, c.j, -c.cut), 0.7, 2, censored=("left", -c.limit), **NOISE)
    np.testing.assert_allclose(predictions(left), -predictions(right), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.compiled
def test_censored_fits_are_scale_equivariant():
    c = capped(m=60, n=50)
    one, big = (
        fastemf.complete(
            (c.i, c.j, unit * c.cut), 0.7, 2, censored=("right", unit * c.limit), intercepts=True
        )
        for unit in (1, 1024)
    )
    np.testing.assert_array_equal(predictions(big), 1024 * predictions(one))


@pytest.mark.compiled
def test_an_unreached_limit_has_no_effect(c, store):
    plain = fastemf.complete(c.data, 0.5, 2, **NOISE)
    for data in (c.data, store):
        with pytest.warns(UserWarning, match=r"no value is at or beyond the limit 1e\+09"):
            limited = fastemf.complete(data, 0.5, 2, censored=("right", 1e9), **NOISE)
        same_bits(plain, limited)


@pytest.mark.compiled
def test_weight_two_equals_repetition():
    c = capped(m=20, n=15)
    settings = {**NOISE, **c.limits, "tol": 1e-9, "max_iter": 300}
    once = fastemf.complete(c.data, 0.7, 1, weights=np.full(c.cut.size, 2.0), **settings)
    twice = fastemf.complete(tuple(np.repeat(part, 2) for part in c.data), 0.7, 1, **settings)
    np.testing.assert_allclose(predictions(once), predictions(twice), rtol=1e-6)


@pytest.mark.compiled
def test_patience_stops_before_imputed_values_are_updated():
    c, validation = capped(noise=1.0), fastemf.Validation(0.2, patience=2)
    fit = fastemf.complete(c.data, 0.5, 8, reg=1e-6, validation=validation, **c.limits)
    losses = [record.validation_loss for record in fit.history]
    assert len(losses) - 1 - int(np.argmin(losses)) <= 2
    assert fit.converged


# --- sources ---------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("reg", ["noise", pytest.param("auto", marks=pytest.mark.thorough)])
def test_threads_and_stores_are_bitwise_identical(reg, c, store):
    options = {"reg": reg, "intercepts": True, **c.limits}
    one = fastemf.complete(c.data, 0.9, 2, n_jobs=1, **options)
    same_bits(one, fastemf.complete(c.data, 0.9, 2, n_jobs=2, **options))
    blocks = fastemf.store.open(store, budget=4096 if reg == "noise" else 16384)
    assert len(blocks.by_row.cuts()) > 2  # several blocks
    same_bits(one, fastemf.complete(blocks, 0.9, 2, **options))


@pytest.mark.compiled
@pytest.mark.cluster
def test_a_cluster_is_bitwise_identical(c, store):
    distributed = pytest.importorskip("distributed")
    options = {**NOISE, **c.limits}
    here = fastemf.complete(c.data, 0.9, 2, **options)
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster) as client:
        same_bits(here, fastemf.complete(store, 0.9, 2, client=client, **options))


@pytest.mark.compiled
@pytest.mark.thorough
def test_reported_coverage_of_quantiles_holds_within_the_limit():
    c = capped(noise=0.5, m=160, n=120, density=0.4)
    new = np.ones(c.whole.shape, bool)
    new[c.i, c.j] = False
    quantiles = fastemf.complete_quantiles(c.data, (0.5, 0.9), 2, reg="noise", **c.limits)
    predicted = predictions(quantiles).reshape(160, 120, 2)
    for t, report in enumerate(quantiles.coverage):
        short = new & (predicted[..., t] < c.limit)
        share = np.mean((c.whole <= predicted[..., t])[short])
        assert report.verifiable == pytest.approx(np.mean(short[new]), abs=0.03)
        assert share == pytest.approx(report.coverage, abs=0.02)


@pytest.mark.compiled
@pytest.mark.thorough
def test_quantiles_of_a_store_equal_those_in_memory_and_fold_in_new_rows(tmp_path):
    c = capped(m=60, n=50)
    fastemf.store.build(c.data, tmp_path / "store")
    here, marked, there = (
        fastemf.complete_quantiles(data, (0.5, 0.7), 1, reg="noise", **given)
        for data, given in (
            (c.data, c.limits), (c.data, {"censored": c.cut == c.limit}),
            (tmp_path / "store", c.limits),
        )
    )  # fmt: skip
    for other in (marked, there):
        np.testing.assert_array_equal(predictions(here), predictions(other))
        assert here.coverage == other.coverage
    here.save(tmp_path / "q.npz")
    new = np.full((1, 50), np.nan)
    new[0, :8] = c.limit
    grown = fastemf.load(tmp_path / "q.npz").extend(new, **c.limits)
    assert (grown.predict(60, 0) > here.extend(new, censored=False).predict(60, 0)).all()


@pytest.mark.compiled
def test_a_resumed_fit_is_bitwise_identical(c, store, tmp_path):
    options = {**NOISE, **c.limits}
    whole = fastemf.complete(c.data, 0.5, 2, **options)
    path = tmp_path / "state.npz"
    for data, sweeps in ((c.data, 4), (c.data, 9), (store, 100)):
        state = fastemf.Checkpoint(path, every=1, resume=path.exists())
        fit = fastemf.complete(data, 0.5, 2, max_iter=sweeps, checkpoint=state, **options)
    same_bits(whole, fit)
    with pytest.raises(fastemf.CheckpointError, match="other data"):
        fastemf.complete(c.data, 0.5, 2, checkpoint=state, **NOISE)


# --- tasks -----------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.thorough
def test_levels_quantiles_and_select_take_censored():
    c = capped(m=60, n=50)
    tasks = {fastemf.complete_levels: (0.5, 0.9), fastemf.complete_quantiles: (0.5, 0.95)}
    for task, levels in tasks.items():
        plain, aware = (
            predictions(task(c.data, levels, 2, reg="noise", **more)) for more in ({}, c.limits)
        )
        assert aware[:, 1].mean() > plain[:, 1].mean()
    chosen = fastemf.select(c.data, 0.5, [1, 2], ["noise"], folds=2, **c.limits)
    assert chosen.fit.imputation is not None


@pytest.mark.compiled
def test_estimators_take_censored():
    pytest.importorskip("sklearn")
    c = capped(m=20, n=15)
    pairs, weights = np.column_stack([c.i, c.j]), np.ones(c.cut.size)
    weights[3] = 0.0
    by_limit, by_mark = (
        fastemf.ExpectilePairRegressor(0.5, 1, reg="noise").fit(pairs, c.cut, weights, censored)
        for censored in (c.limits["censored"], c.cut >= c.limit)
    )
    np.testing.assert_array_equal(by_limit.predict(pairs), by_mark.predict(pairs))
    assert by_limit.factorization_.imputation is not None
    R = np.full((20, 15), np.nan)
    R[c.i, c.j] = c.cut
    factors = fastemf.ExpectileFactorization(0.5, 1, **NOISE).fit(R, censored=c.limit <= R)
    same_bits(factors.factorization_, fastemf.complete(R, 0.5, 1, **NOISE, **c.limits))


def test_a_saved_model_keeps_its_imputation_for_fold_in(tmp_path):
    c = capped(m=12, n=6, density=0.8)
    first = c.i < 8
    data = tuple(part[first] for part in c.data)
    new = (c.i[~first] - 8, c.j[~first], c.cut[~first])
    fit = fastemf.complete(data, 0.7, 1, max_iter=8, shape=(8, 6), **c.limits, **NOISE)
    assert fit.history[-1].renewals == 2
    fit.save(tmp_path / "model.npz")
    loaded = fastemf.load(tmp_path / "model.npz")
    folded, again = (model.fold_in(new, shape=(4, 6), **c.limits) for model in (fit, loaded))
    np.testing.assert_array_equal(folded.X, again.X)
    assert (
        predictions(folded).mean()
        > predictions(fit.fold_in(new, shape=(4, 6), censored=False)).mean()
    )
    np.testing.assert_array_equal(loaded.fold_in(new, shape=(4, 6)).X, folded.X)  # the default
    grown = loaded.extend(new, shape=(4, 6), **c.limits)
    np.testing.assert_array_equal(grown.X[8:], folded.X)
    assert [scale.size for scale in grown.imputation.scales] == [12, 6]
    np.testing.assert_array_equal(grown.imputation.scales[0][:8], fit.imputation.scales[0])
    objective = loaded.objective(data, shape=(8, 6), **c.limits)
    assert objective == pytest.approx(fit.history[-1].objective, rel=0.05)


# --- errors and warnings ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("censored", "message"),
    [
        (("above", 3.0), r'must be \("right", limit\)'),
        (("right", np.inf), "must be a finite number, got inf"),
        (("right", "20"), "must be a finite number, got '20'"),
        ([1, 2, 0], "as numbers 1, -1 and 0"),
        ([True, False], "each of the 3 observations, got 2"),
        (np.zeros((2, 2)), r"R's shape \(2, 3\), got \(2, 2\)"),
        ("ms", "can name a column of a table only, got 'ms'"),
        (3.0, r'a time-out is \("right", 3.0\)'),
        (([1, 0, 0], [0, 0, 1]), r'must be \("right", limit\)'),
        (sp.csr_array([[0, 0, 1], [0, 5, 0]]), "as numbers 1, -1 and 0, got 5"),
        (("right", 0.0), "must leave some observations"),
    ],
)
def test_bad_marks_are_refused(censored, message):
    R = ([0, 0, 1], [0, 1, 2], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=message):
        fastemf.complete(R, 0.5, 1, censored=censored)


def test_marks_of_a_dense_matrix_must_be_a_matrix():
    with pytest.raises(ValueError, match="censored must be a matrix of R's shape"):
        fastemf.complete(np.ones((2, 3)), 0.5, 1, censored=[True] * 6)
    masked = np.ma.array(np.ones((1, 2)), mask=[[True, False]])
    assert observe(np.ones((1, 2)), censored=masked).by_row.censored.tolist() == [0, 1]


def test_marks_of_stores_and_of_rows_without_a_censored_fit_are_refused(store):
    with pytest.raises(ValueError, match="if R is not in memory, got list"):
        fastemf.complete(store, 0.5, 1, censored=[True, False, False])
    fit = fastemf.complete(np.ones((2, 3)), 0.5, 1, reg=0)
    with pytest.raises(ValueError, match="a model that was fitted to some censored values"):
        fit.fold_in(np.ones((1, 3)), censored=("right", 1.0))


@pytest.mark.compiled
@pytest.mark.filterwarnings("default:.*of the values equal")
def test_undeclared_limits_cause_one_warning(c, store):
    for data in (c.data, store):
        message = r"of the values equal the largest, .*censored="
        with pytest.warns(UserWarning, match=message) as caught:
            fastemf.complete(data, 0.5, 2, reg="noise")
        assert len(caught) == 1
    with pytest.warns(UserWarning, match="of the values equal the smallest") as caught:
        fastemf.complete_levels((c.i, c.j, -c.cut), (0.4, 0.5), 2, reg="noise")
    # As an option it can be pasted: exact, and a negative number is not taken for an option.
    assert f"(in a shell, --censored-below={-c.limit!r})" in str(caught[0].message)
    ratings = np.random.default_rng(0).integers(1, 6, (40, 30)).astype(float)
    fastemf.complete(ratings, 0.5, 2, reg="noise")  # they pile up everywhere: no warning
