"""Methods of a fit: ranking, similarity, clipped predictions and summaries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from models.test_ranking import by_sorting, random_fit
from scenes import refuses
from strategies import levels, seeds

from fastemf.inputs.labels import Labels
from fastemf.models import ranking, summary
from fastemf.models.entities import Entities
from fastemf.sources.memory import observe

NAN, INF = float("nan"), float("inf")


def made(m, n, k=2, *, seed=0, omega=0.3, **options):
    """Return a fit with random factors, without intercepts unless asked for."""
    rng, options = np.random.default_rng(seed), {"intercepts": False, "mu": 3.0} | options
    return replace(random_fit(rng, m, n, k, **options), omega=omega)


def without(fit, rows=(), cols=()):
    """Return the fit as if some rows and columns had no observations."""

    def hide(axis, unseen):
        unseen, extended = np.array(unseen, np.int64), axis.extended_factor().copy()
        extended[unseen] = 0
        return Entities.from_extended(extended, fit.k, axis.labels, unseen)

    return replace(fit, rows=hide(fit.rows, rows), cols=hide(fit.cols, cols))


@pytest.fixture(params=[False, True], ids=["plain", "intercepts"])
def fit(request):
    return made(7, 9, intercepts=request.param)


# --- ranking --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["smallest", "largest"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_ranks_the_same_alone_among_others_and_in_blocks(fit, order, dtype, monkeypatch):
    fit = made(11, 23, 5, intercepts=fit.row_intercepts is not None, dtype=dtype)
    seen = np.where(np.random.default_rng(1).random((11, 23)) < 0.3, 1.0, NAN)
    whole = fit.rank(None, 4, order=order, seen=seen)
    assert fit.rank([], 3, order=order).cols.shape == (0, 3)
    monkeypatch.setattr(ranking, "CELLS_PER_BLOCK", 3 * 23 + 1)
    for rows in (None, [8, 2, 8], *range(11)):
        found = fit.rank(rows, 4, order=order, seen=seen)
        for part, expected in zip(found, whole, strict=True):
            np.testing.assert_array_equal(part, expected if rows is None else expected[rows])
        if isinstance(rows, int):
            np.testing.assert_array_equal(found.values, fit.predict(rows, found.cols))


def test_seen_cells_are_left_out_in_every_form_of_data(fit):
    rows, cols = [0, 0, 3, 3, 6], [1, 8, 0, 0, 4]  # one cell twice, one value zero
    values = [1.0, 0.0, 2.0, 5.0, 3.0]
    dense = np.full(fit.shape, NAN)
    dense[rows, cols] = values
    coo = sp.coo_array((values, (rows, cols)), shape=fit.shape)
    forms = {
        "triplets": (rows, cols, values), "dense": dense, "masked": np.ma.masked_invalid(dense),
        "coo": coo, "csr": coo.tocsr(), "csc": coo.tocsc(),
        "lil": sp.csr_array((np.ones(4), ([0, 0, 3, 6], [1, 8, 0, 4])), shape=fit.shape).tolil(),
        "flags": coo.tocsr().astype(bool),
        "observations": observe((rows, cols, values), shape=fit.shape),
    }  # fmt: skip
    expected = by_sorting(fit, 9, False, ~np.isnan(dense))[0]
    for name, R in forms.items():
        found = fit.rank(None, 9, order="smallest", seen=R).cols
        np.testing.assert_array_equal(found, expected, err_msg=name)


# --- similarity -----------------------------------------------------------------------------


@given(
    st.integers(2, 7), st.integers(1, 7), st.integers(1, 4), st.booleans(),
    st.sampled_from([np.float32, np.float64]), seeds,
)  # fmt: skip
def test_distances_are_those_of_the_dense_rows(m, cols, k, both, dtype, seed):
    fit = made(m, cols, k, intercepts=both, dtype=dtype, seed=seed)
    rows, columns = (
        Entities.from_extended(axis.extended_factor().astype(float), k) for axis in fit.axes
    )
    wide = replace(fit, rows=rows, cols=columns)
    others, distances = fit.similar_rows(m // 2, m - 1)
    assert sorted(others.tolist()) == [i for i in range(m) if i != m // 2]
    assert distances.dtype == np.float64
    assert (np.diff(distances) >= 0).all()
    dense = wide.to_dense()
    expected = np.sqrt(np.mean((dense - dense[m // 2]) ** 2, axis=1))
    np.testing.assert_allclose(distances, expected[others], atol=1e-12)


def test_similarity_does_not_depend_on_the_basis(fit):
    G = np.array([[3.0, 1.0], [-2.0, 0.01]])
    rows, cols, mu = Entities(fit.X @ G), Entities(fit.Y @ np.linalg.inv(G).T), fit.mu
    if fit.row_intercepts is not None:  # a level may sit on either side, too
        rows = replace(rows, intercepts=fit.row_intercepts + 5)
        cols = replace(cols, intercepts=fit.col_intercepts - 2)
        mu -= 3
    turned = replace(fit, rows=rows, cols=cols, mu=mu)
    np.testing.assert_allclose(turned.to_dense(), fit.to_dense(), atol=1e-12)
    for ask, size in (("similar_rows", 7), ("similar_cols", 9)):
        for item in range(size):
            here, there = (getattr(f, ask)(item, size - 1) for f in (fit, turned))
            np.testing.assert_array_equal(there.others, here.others)
            np.testing.assert_allclose(there.distances, here.distances, atol=1e-12)


@pytest.mark.parametrize("exponent", [-300, 300])
def test_distances_follow_the_unit(fit, exponent):
    # Their squares would overflow or vanish.
    root, axes = 2.0**exponent, []
    for axis in fit.axes:
        extended = root * axis.extended_factor()
        extended[:, fit.k :] *= root  # intercepts
        axes.append(Entities.from_extended(extended, fit.k))
    unit = root**2
    scaled = replace(fit, rows=axes[0], cols=axes[1], mu=unit * fit.mu, scale=unit * fit.scale)
    here, there = (f.similar_rows(0, 3) for f in (fit, scaled))
    np.testing.assert_array_equal(there.others, here.others)
    np.testing.assert_allclose(there.distances / root**2, here.distances, rtol=1e-9)


def test_equal_rows_have_distance_zero(fit):
    rows = Entities.from_extended(fit.rows.extended_factor()[[0, 1, 0, 0, 1]], fit.k)
    got = replace(fit, rows=rows).similar_rows(2, 3)
    assert got.others.tolist() == [0, 3, 1]
    assert got.distances[:2].tolist() == [0.0, 0.0]


def test_rows_without_observations_are_similar_to_none(fit):
    bare = without(fit, rows=[1, 5], cols=[3])
    assert set(bare.similar_rows(0, 9).others.tolist()) == {2, 3, 4, 6, -1}
    assert np.isnan(bare.similar_rows(0, 7).distances).tolist() == [False] * 4 + [True] * 3
    assert bare.similar_rows(5, 2).others.tolist() == [-1, -1]
    assert np.isnan(bare.similar_cols(3, 2).distances).all()


@pytest.mark.parametrize("n", [9, 10, 10**12])
def test_n_is_at_most_the_number_of_items(fit, n):
    assert fit.similar_rows(0, n).others.tolist() == [*fit.similar_rows(0, 6).others, -1]
    assert fit.similar_cols(0, n).others.tolist() == [*fit.similar_cols(0, 8).others, -1]


# --- clipped predictions --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [(0, None), (None, 0.5), (-0.25, 0.5), (1, 1), (None, None)])
def test_predictions_are_clipped(clip, dtype, fit):
    fit = made(7, 9, intercepts=fit.row_intercepts is not None, dtype=dtype)
    low, high = (-INF if clip[0] is None else clip[0]), (INF if clip[1] is None else clip[1])
    i, j = np.indices(fit.shape)
    free_ranks, ranks = (fit.rank(None, 9, order="largest", clip=one) for one in (None, clip))
    np.testing.assert_array_equal(ranks.cols, free_ranks.cols)
    for free, clipped in (
        (fit.predict(i, j), fit.predict(i, j, clip=clip)),
        (fit.predict_block([4, 2]), fit.predict_block([4, 2], clip=clip)),
        (fit.to_dense(), fit.to_dense(clip=clip)),
        (free_ranks.values, ranks.values),
    ):
        expected = [dtype(min(max(value, low), high)) for value in free.ravel()]
        np.testing.assert_array_equal(clipped.ravel(), expected)
        assert clipped.dtype == dtype
    np.testing.assert_array_equal(fit.predict(0, 0, clip=clip), fit.predict(i, j, clip=clip)[0, 0])
    unseen = without(fit, rows=[1]).predict([1, 0], 0, unseen="nan", clip=clip)
    assert np.isnan(unseen).tolist() == [True, False]


# --- summaries ------------------------------------------------------------------------------


def summary_by_hand(fit, rows, cols, b, v, axis):
    r = b - fit.to_dense().astype(float)[rows, cols]
    own = np.arange(fit.shape[axis])[:, None] == (rows, cols)[axis]  # (groups, entries)
    with np.errstate(invalid="ignore"):
        mass = own @ v
        return {
            "observations": own.sum(axis=1),
            "weight": mass,
            "mean": own @ (v * b) / mass,
            "rms": np.sqrt(own @ (v * r**2) / mass),
            "loss": own @ (v * np.where(r >= 0, fit.omega, 1 - fit.omega) * r**2) / mass,
            "effective_omega": own @ (v * np.maximum(-r, 0)) / (own @ (v * np.abs(r))),
        }


@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(1, 30), st.booleans(),
    st.sampled_from([np.float32, np.float64]), levels, st.sampled_from([0, 1]), st.booleans(),
    seeds,
)  # fmt: skip
def test_summary_entry_by_entry(m, n, size, both, dtype, omega, axis, weighted, seed):
    rng = np.random.default_rng(seed)
    fit = made(m, n, intercepts=both, dtype=dtype, seed=seed, whole=True, omega=omega)
    rows, cols = rng.integers(0, m, size), rng.integers(0, n, size)
    b = rng.integers(1, 6, size).astype(dtype)
    v = rng.integers(1, 4, size) if weighted else None
    got = fit.summary((rows, cols, b), axis=axis, weights=v)
    expected = summary_by_hand(fit, rows, cols, b, np.ones(size) if v is None else v, axis)
    assert (got.weight is None) == (not weighted)
    assert next(iter(got.columns())) == ("row", "column")[axis]
    for name, array in list(got.columns().items())[1:]:
        np.testing.assert_allclose(array, expected[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_summary_does_not_depend_on_blocks(axis, fit, monkeypatch):
    rng = np.random.default_rng(2)
    R = np.where(rng.random(fit.shape) < 0.6, rng.uniform(1, 5, fit.shape), NAN)
    R[3] = R[:, 0] = NAN
    weights = rng.uniform(1, 2, fit.shape)
    whole = fit.summary(R, axis=axis, weights=weights)
    monkeypatch.setattr(summary, "parts", lambda n: (slice(a, a + 5) for a in range(0, n, 5)))
    in_parts = fit.summary(R, axis=axis, weights=weights)
    for name, array in whole.columns().items():
        np.testing.assert_allclose(in_parts.columns()[name], array, rtol=1e-12, err_msg=name)
    assert np.isnan(whole.rms[3 if axis == 0 else 0])


def test_summaries_add_up_to_the_whole(fit):
    rng = np.random.default_rng(3)
    R, weights = rng.uniform(1, 5, fit.shape), rng.uniform(1, 2, fit.shape)
    for axis in (0, 1):
        got = fit.summary(R, axis=axis, weights=weights)
        assert got.loss @ got.weight == pytest.approx(fit.objective(R, weights=weights), rel=1e-12)
        assert got.observations.sum() == R.size
    for row in range(7):
        alone = np.where(np.arange(7)[:, None] == row, R, NAN)
        assert fit.summary(R).effective_omega[row] == pytest.approx(
            fit.effective_omega(alone), rel=1e-12
        )


def test_a_summary_prints_the_worst_first():
    fit = made(30, 4, whole=True)
    R = fit.to_dense() + np.arange(30)[:, None]
    R[29] = NAN
    assert np.isnan(fit.summary(R).effective_omega[[0, 29]]).all()  # no residuals, no observations
    lines = str(fit.summary(R)).splitlines()
    assert lines[0].startswith("30 rows, 1 without observations; the 10 with the largest mean loss")
    assert lines[1].split() == list(fit.summary(R).columns())
    assert [line.split()[0] for line in lines[2:]] == [str(i) for i in range(28, 18, -1)]
    assert len({len(line) for line in lines[1:]}) == 1


# --- errors ---------------------------------------------------------------------------------

REFUSED = [
    ("rank", {"row": 7}, IndexError, "rows must be below 7", 7),
    ("rank", {"row": 1.0}, TypeError, "rows must hold integers", "float64"),
    ("rank", {"row": [[0, 1]]}, ValueError, "row must be one row, a one-dimensional", (1, 2)),
    ("rank", {"order": None}, ValueError, "order must be one of 'smallest', 'largest'", None),
    ("rank", {"seen": np.ones((4, 9))}, ValueError, "seen is", "the fit's shape (7, 9)", (4, 9)),
    ("rank", {"seen": ([7], [8], [1.0])}, IndexError, "seen is", "rows must be below 7", 7),
    ("rank", {"seen": np.ones((7, 9), bool)}, TypeError, "seen must be the data", "mask", "bool"),
    ("rank", {"seen": [["a"]]}, TypeError, "seen is", "must hold real numbers"),
    ("rank", {"seen": sp.csr_array((7, 9))}, ValueError, "seen is", "at least one observation"),
    ("similar_rows", {"row": [0, 1]}, ValueError, "row must be a single one", "(2,)"),
    ("summary", {"axis": 2}, ValueError, "axis must be 0 (rows) or 1 (columns)", 2),
    ("summary", {"R": np.ones((9, 7))}, ValueError, "R must have the fit's shape (7, 9)", (9, 7)),
    *(
        (name, {"clip": clip}, error, *parts)
        for name in ("predict", "predict_block", "to_dense")
        for clip, error, *parts in [
            ((3, 1), ValueError, "clip must be (low, high) with low <= high", "(3, 1)"),
            ((NAN, 1), ValueError, "clip[0] must be finite", "nan"),
            ((0, INF), ValueError, "clip[1] must be finite", "or None", "inf"),
            ((0, 1e200), ValueError, "clip[1] must be finite in float32", "1e+200"),
            (0, ValueError, "clip must be (low, high)", "0"),
            (("0", None), TypeError, "clip[0] must be a number or None", "'0'"),
            ((None, True), TypeError, "clip[1] must be a number or None", "True"),
        ]
    ),
]
VALID = {
    "rank": {"row": 0, "n": 3, "order": "smallest"}, "similar_rows": {"row": 0, "n": 1},
    "similar_cols": {"col": 0, "n": 1}, "summary": {"R": np.ones((7, 9))},
    "predict": {"rows": 0, "cols": 0}, "predict_block": {"rows": 0}, "to_dense": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "error", "parts"), [(n, o, e, p) for n, o, e, *p in REFUSED]
)
def test_invalid_arguments_are_refused(name, options, error, parts):
    method = getattr(made(7, 9, dtype=np.float32), name)
    method(**VALID[name])
    with refuses(error, *parts):
        method(**VALID[name] | options)


# --- labels ---------------------------------------------------------------------------------

CLIENTS = ["de", "fr", "it", "es", "pl", "se", "uk"]
LABELS = {
    "strings": [f"s{j}" for j in range(9)],
    "integers": [70, 3, 11, 0, 8, 9, 4, 5, 6],
    "dates": np.arange("2026-01-01", "2026-01-10", dtype="M8[D]").astype("M8[ns]"),
}


@pytest.fixture(params=LABELS)
def services(request):
    return Labels(LABELS[request.param], name="service")


@pytest.fixture
def named(fit, services):
    rows = replace(fit.rows, labels=Labels(CLIENTS, name="client"))
    return replace(fit, rows=rows, cols=replace(fit.cols, labels=services))


def called(labels, places):
    """Return the expected labels, with padding for -1."""
    padding = np.datetime64("NaT") if labels.values.dtype.kind == "M" else None
    return [labels.values[p] if p >= 0 else padding for p in places]


def test_labelled_fits_take_and_return_labels(fit, named, services):
    dtype = services.values.dtype if services.values.dtype.kind == "M" else object
    assert named.rank("de", 9, order="largest").cols.dtype == dtype
    bare, named = without(fit, cols=[2, 5]), without(named, cols=[2, 5])
    plain, whole = (one.rank(None, 9, order="largest") for one in (bare, named))
    some = named.rank(["uk", "de"], 2, order="largest")
    for row, client in enumerate(CLIENTS):
        alone, expected = named.rank(client, 9, order="largest"), called(services, plain.cols[row])
        assert alone.cols.dtype == dtype
        for cols in (alone.cols, whole.cols[row]):
            np.testing.assert_array_equal(cols, expected)
        np.testing.assert_array_equal(alone.values, plain.values[row])
    for row, cols in zip((6, 0), some.cols, strict=True):
        np.testing.assert_array_equal(cols, called(services, plain.cols[row, :2]))
    near, there = fit.similar_rows(3, 8), named.similar_rows("es", 8)
    assert there.others.tolist() == called(named.row_labels, near.others)
    got = named.similar_cols(services.values[4], 9)
    np.testing.assert_array_equal(got.others, called(services, bare.similar_cols(4, 9).others))


def test_seen_cells_are_matched_by_label(fit, named, services, tmp_path):
    rows, cols = np.array([0, 0, 3, 6]), np.array([1, 8, 0, 4])
    expected = fit.rank(None, 9, order="smallest", seen=(rows, cols, np.ones(4)))
    clients, names = np.array(CLIENTS, object)[rows], services.values[cols]
    dense = np.full((7, 9), NAN)
    dense[rows, cols] = 1.0
    log = pd.DataFrame({"client": clients, "ms": [1.0, NAN, 2.0, 0.0], "service": names})
    path, matrix = tmp_path / "log.parquet", pd.DataFrame(dense, CLIENTS, services.values)
    log.to_parquet(path)
    entries = (clients, names, np.ones(4))
    for seen in (entries, dense, sp.csr_array(np.nan_to_num(dense)), log, path, matrix):
        got = named.rank(None, 9, order="smallest", seen=seen).cols
        for row in range(7):
            np.testing.assert_array_equal(got[row], called(services, expected.cols[row]))
    with refuses(TypeError, "seen must be the data", "mask"):
        named.rank("de", 3, order="smallest", seen=matrix.notna())
    every = named.rank("de", 9, order="smallest").cols
    elsewhere = (["xx"], names[:1], [1.0])  # an unknown label
    np.testing.assert_array_equal(named.rank("de", 9, order="smallest", seen=elsewhere).cols, every)
