"""Times of observations: every input gives them in the order of the observations by row."""

from datetime import timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet
from scenes import refuses

import fastemf
from fastemf.features.times import Times, check_half_life, format_seconds, parse_half_life
from fastemf.sources.open_source import open_source

RNG = np.random.default_rng(3)
SIZE = 200
I, J = RNG.permutation(np.arange(SIZE) % 20), RNG.integers(0, 7, SIZE)
S = RNG.permutation(SIZE) + 0.5  # distinct, so that it identifies the observation
START = np.datetime64("2024-03-01", "ms")
LOG = {
    "viewer": [f"v{i}" for i in I],
    "video": [int(j) + 70 for j in J],
    "s": S,
    "hour": 3 * S,
    "day": START + (86_400_000 * S).astype("timedelta64[ms]"),
    "place": np.array(["car", "home"])[S.astype(int) % 2],
}
NAMES = ("viewer", "video", "s")
SECONDS = START.astype(int) / 1000 + 86_400 * S
FORMS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table, "lazy": pl.LazyFrame}


def opened(R, names=NAMES, **more):
    with open_source(R, None, None, names, None, 1, **more) as source:
        return source


def check(source, *, days=False):
    values = source.by_row.values
    expected = START.astype(int) / 1000 + 86_400 * values if days else 3 * values
    np.testing.assert_allclose(source.times.values, expected, rtol=1e-12)
    assert source.times.is_date == days


@pytest.mark.parametrize("form", FORMS)
def test_tables_in_memory(form):
    check(opened(FORMS[form](LOG), time="hour"))
    check(opened(FORMS[form](LOG), time="day"), days=True)
    check(opened(FORMS[form](LOG), time="hour", censored=("right", S.max())))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files(tmp_path, suffix):
    table, path = pa.table(LOG), tmp_path / f"log.{suffix}"
    if suffix == "csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        parquet.write_table(table, path)
    check(opened(path, time="hour"))
    check(opened(path, time="day"), days=True)
    check(opened(fastemf.sql(f"SELECT * FROM '{path}'"), time="day"), days=True)


def test_dates_with_a_time_zone_are_seconds_as_well():
    zoned = pd.DataFrame(LOG).assign(day=lambda log: log.day.dt.tz_localize("Asia/Tokyo"))
    moved = (
        opened(zoned, time="day").times.values - opened(pd.DataFrame(LOG), time="day").times.values
    )
    np.testing.assert_allclose(moved, -9 * 3600)


@pytest.mark.parametrize("form", ["triplets", "coo", "csr", "csc"])
def test_arrays_in_the_stored_order(form):
    R = (I, J, S)
    if form != "triplets":
        R = sp.coo_array((S, (I, J)), shape=(20, 7)).asformat(form)
    values = R[2] if isinstance(R, tuple) else R.data  # repeated cells were summed in CSR and CSC
    found = opened(R, (None, None, None), time=3 * values)
    check(found)
    assert found.features is None
    assert found.times.name == ""
    featured = opened(R, (None, None, None), time=3 * values, features={"time": values})
    check(featured)
    np.testing.assert_array_equal(featured.features.values[:, 0], featured.by_row.values)
    assert featured.features.schema.names == ("time",)


def test_a_matrix_of_times():
    R = sp.coo_array((S, (I, J)), shape=(20, 7)).tocsr()
    dense = np.where(R.toarray() > 0, R.toarray(), np.nan)
    for form in (R, R.tocsc(), dense):
        check(opened(form, (None, None, None), time=3 * dense))
    days = START + np.nan_to_num(86_400_000 * dense).astype("timedelta64[ms]")
    check(opened(dense, (None, None, None), time=days), days=True)


def test_a_time_may_be_a_feature_too():
    log = pd.DataFrame(LOG)
    apart = opened(log, time="hour", features=["place"])
    check(apart)
    assert apart.features.schema.names == ("place",)
    both = opened(log, time="hour", features=["hour", "place"])
    check(both)
    assert both.features.schema.names == ("hour", "place")
    np.testing.assert_array_equal(both.features.values[:, 0], both.times.values)


def test_subsets_keep_times_aligned():
    source = opened(pd.DataFrame(LOG), time="hour")
    check(source.subset(RNG.random(SIZE) < 0.4))


REFUSED = {
    "text": (LOG, {"time": "place"}, TypeError, ("time must hold numbers", "strings")),
    "values": (LOG, {"time": "s"}, ValueError, ("time must be a further column", "'s'")),
    "array": (LOG, {"time": S}, TypeError, ("time must be the name of a column", "ndarray")),
    "missing": (
        LOG | {"hour": np.where(S > 3, S, np.nan)}, {"time": "hour"}, ValueError,
        ("time must be known for every observation", "3 missing of 200"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_columns(case):
    log, given, error, message = REFUSED[case]
    with refuses(error, *message):
        opened(pd.DataFrame(log), **given)


def test_refused_sources(tmp_path):
    none = (None, None, None)
    with refuses(ValueError, "time can name a column of a table only", "'hour'"):
        opened((I, J, S), none, time="hour")
    with refuses(ValueError, "must have one value per observation", "(200,)", "(199,)"):
        opened((I, J, S), none, time=S[:-1])
    with refuses(TypeError, "time must be a matrix of the shape of R", "ndarray"):
        opened(np.ones((3, 3)), none, time=np.ones(9))
    with refuses(ValueError, "time must have the shape of R, (3, 3)", "(3, 2)"):
        opened(np.ones((3, 3)), none, time=np.ones((3, 2)))
    columns = {"rows": "viewer", "cols": "video", "values": "s", "columns": ["hour"]}
    store = fastemf.store.build(pd.DataFrame(LOG), tmp_path / "store", **columns)
    with refuses(ValueError, "time must be given with data in memory", "Store"):
        opened(store, none, time="hour")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604_800), ("12h", 43_200), ("30min", 1800), ("45s", 45), ("2w", 1_209_600),
     ("1.5 d", 129_600)],
)  # fmt: skip
def test_durations(text, seconds):
    check_half_life(text, "day")
    assert parse_half_life(text, Times(S, is_date=True, name="day")) == seconds
    assert parse_half_life(timedelta(seconds=seconds), Times(S, is_date=True, name="")) == seconds
    with refuses(ValueError, "half_life must be a number unless time has dates", text):
        parse_half_life(text, Times(S, is_date=False, name="hour"))
    with refuses(ValueError, 'half_life must be a duration such as "7d" if time has dates', "30"):
        parse_half_life(30, Times(S, is_date=True, name="day"))
    with refuses(ValueError, "half_life must be positive", "0:00:00"):
        check_half_life(timedelta(0), "day")


def test_half_lives_that_are_not_durations():
    times = Times(S, is_date=False, name="hour")
    assert parse_half_life(3, times) == 3
    assert parse_half_life(None, times) == np.inf
    for wrong in ("7 days", "7", "d", "0d", "-1d", "Auto"):
        with refuses(ValueError, 'half_life must be a number, "auto" or a duration', wrong):
            check_half_life(wrong, "day")
    for wrong, error in ((0, ValueError), (-1, ValueError), ([7], TypeError), (True, TypeError)):
        with refuses(error, "half_life must be", wrong):
            check_half_life(wrong, "day")
    with refuses(ValueError, "half_life must be given with time", 3):
        check_half_life(3, None)
    check_half_life(None, None)


def test_formatted_durations():
    assert [*map(format_seconds, (86_400 * 7, 7200, 90, 2))] == ["7 d", "2 h", "1.5 min", "2 s"]
