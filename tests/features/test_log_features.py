"""Features of observations: every input gives them in the order of the observations by row."""

import io
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet

import fastemf
from fastemf import Labels
from fastemf.features.schema import FeatureSchema
from fastemf.inputs.file_lists import TextSource
from fastemf.models.entities import Entities
from fastemf.models.reading import GivenFeatures, pair_columns, read_cells
from fastemf.sources.memory import observe
from fastemf.sources.open_source import open_source

RNG = np.random.default_rng(3)
SIZE = 300
I, J = (
    RNG.permutation(np.r_[np.arange(20), RNG.integers(0, 20, SIZE - 20)]),
    RNG.integers(0, 7, SIZE),
)
S = RNG.permutation(SIZE) + 0.5  # distinct, so that it identifies the observation
PLACES = np.array(["car", "home", "bus"])
NAMES = {"rows": "viewer", "cols": "video", "values": "s"}
FEATURES = ["hour", "place"]
LOG = {
    "viewer": [f"v{i}" for i in I],
    "video": [int(j) + 70 for j in J],
    "s": S,
    "hour": S % 24,
    "place": PLACES[S.astype(int) % 3],
}
CODES = np.array([1.0, 2.0, 0.0])  # of PLACES, sorted
FORMS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table, "lazy": pl.LazyFrame}


def wanted(values):
    """Return the features that belong to the values."""
    return np.column_stack([values % 24, CODES[values.astype(int) % 3]])


def check(source, values=None):
    values = source.by_row.values if values is None else values
    np.testing.assert_allclose(source.features.values, wanted(values))


def write(path):
    table = pa.table(LOG)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, table.to_pylist())))
    else:
        table.to_pandas().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_tables_in_memory(form):
    observed = observe(FORMS[form](LOG), **NAMES, features=FEATURES)
    check(observed)
    assert observed.features.schema.names == ("hour", "place")
    assert observed.features.schema.categories == ((), ("bus", "car", "home"))
    check(observe(FORMS[form](LOG), **NAMES, features=FEATURES, n_threads=2))


def test_a_stream_is_read_once():
    table = pa.table(LOG)
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(70))
    check(observe(stream, **NAMES, features=FEATURES))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_files(tmp_path, suffix):
    path = write(tmp_path / f"log{suffix}")
    check(observe(path, **NAMES, features=FEATURES))
    check(observe(str(path), **NAMES, features=FEATURES, censored=("right", S.max())))
    if suffix == ".csv":
        check(observe(io.StringIO(path.read_text()), **NAMES, features=FEATURES, progress=True))


@pytest.mark.parametrize("order", ["", "ORDER BY s"])
def test_sql(tmp_path, order):
    path = write(tmp_path / "log.parquet")
    check(observe(fastemf.sql(f"SELECT * FROM '{path}' {order}"), **NAMES, features=FEATURES))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", ["triplets", "coo", "csr", "csc", "array"])
def test_arrays_in_the_stored_order(form, dtype):
    R = (I, J, S.astype(dtype))
    if form not in ("triplets", "array"):
        R = sp.coo_array((S.astype(dtype), (I, J)), shape=(20, 7)).asformat(form)
    values = R[2] if isinstance(R, tuple) else R.data  # repeated cells were summed in CSR and CSC
    features = {"hour": values % 24, "place": PLACES[values.astype(int) % 3]}
    if form == "array":
        features = np.array([features["hour"], features["place"]], object).T
        assert observe(R, features=features).features.schema.names == ("feature_0", "feature_1")
    check(observe(R, features=features))
    check(observe(R, features=features, n_threads=2))
    assert observe(R, features=values).features.schema.names == ("feature_0",)


def test_subsets_keep_features_aligned():
    observed = observe(pd.DataFrame(LOG), **NAMES, features=FEATURES)
    kept = RNG.random(SIZE) < 0.4
    check(observed.subset(kept))
    check(observed.astype(np.dtype(np.float32)))
    check(observed.map_values(lambda values: values + 1), observed.by_row.values)
    assert observe(observed).features is observed.features
    assert observe(pd.DataFrame(LOG), **NAMES).features is None


def test_fits_ignore_features():
    plain, featured = (
        fastemf.complete(observe(pd.DataFrame(LOG), **NAMES, features=features), 0.5, 1, reg=1)
        for features in (None, FEATURES)
    )
    assert plain.X.tobytes() == featured.X.tobytes()


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ""])
def test_stores(tmp_path, suffix):
    source = write(tmp_path / f"log{suffix}") if suffix else pd.DataFrame(LOG)
    names = {**NAMES, "columns": ["place", "hour"]}
    fastemf.store.build(source, tmp_path / "store", **names)
    given = None, None, (None, None, None), None, 1
    with open_source(tmp_path / "store", *given, features=FEATURES) as store:
        [(_, block)] = store.by_row.blocks()
        check(store, block.values)
        assert store.features.schema.kinds == ("number", "category")
    fastemf.store.append(tmp_path / "store", source)
    with open_source(tmp_path / "store", *given, features=FEATURES) as store:
        [(_, block)] = store.by_row.blocks()
        check(store, block.values)
    match = "must be one or more distinct columns of the store"
    with (
        pytest.raises(ValueError, match=match),
        open_source(tmp_path / "store", *given, features=["nothing"]),
    ):
        pass


def test_strings_of_typed_stores_stay_strings(tmp_path):
    log = pd.DataFrame(LOG).assign(place=[str(one) for one in range(SIZE)])
    fastemf.store.build(log, tmp_path / "store", **NAMES, columns=["place"])
    given = None, None, (None, None, None), None, 1
    with open_source(tmp_path / "store", *given, features=["place"]) as store:
        assert store.features.schema.kinds == ("category",)


@pytest.mark.parametrize(
    ("R", "features", "error", "wanted"),
    [
        (pd.DataFrame(LOG), "hour", TypeError, "must be a list of column names .* got 'hour'"),
        (pd.DataFrame(LOG), [], TypeError, "must be a list of column names"),
        (pd.DataFrame(LOG), ["hour", "hour"], ValueError, "must be distinct columns"),
        (pd.DataFrame(LOG), ["hour", "s"], ValueError, "got 's', which is in rows, cols or values"),
        (pd.DataFrame(LOG), ["day"], ValueError, "no column 'day'"),
        (pa.table(LOG), np.ones(SIZE), TypeError, "must be a list of column names"),
        (pd.DataFrame(LOG).assign(hour=np.inf), ["hour"], ValueError, "inf at row 0 of the table"),
        (pa.table({**LOG, "hour": [[1]] * SIZE}), ["hour"], TypeError, "'hour' must .* list<"),
    ],
)
def test_errors_of_tables(R, features, error, wanted):
    with pytest.raises(error, match=wanted):
        observe(R, **NAMES, features=features)


@pytest.mark.parametrize(
    ("R", "features", "error", "wanted"),
    [
        (
            (I, J, S),
            np.ones(5),
            ValueError,
            r"one value per observation, shape \(300,\), got \(5,\)",
        ),
        ((I, J, S), ["hour"], ValueError, r"one value per observation, .* got \(1,\)"),
        ((I, J, S), {"a": S, "b": S[:5]}, ValueError, "feature 'b' must have one value per"),
        (np.ones((3, 3)), np.ones(9), TypeError, "features must be given with a table, triplets"),
        (np.ma.masked_equal(np.eye(3), 0), np.ones(3), TypeError, r"got (MaskedArray|lil_array)"),
        (sp.eye_array(3).tolil(), np.ones(3), TypeError, r"got (MaskedArray|lil_array)"),
        (pd.DataFrame(np.ones((3, 3))), ["a"], TypeError, "got a data frame that is a matrix"),
        (observe((I, J, S)), np.ones(SIZE), ValueError, "must not be given with observations"),
    ],
)
def test_errors_of_arrays(R, features, error, wanted):
    with pytest.raises(error, match=wanted):
        observe(R, features=features)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("r,c,s,x\na,b,1,2\na,c,2,inf\n")
    with pytest.raises(ValueError, match=r"'x' must be finite.* line 3 of .*log.csv"):
        observe(path, rows="r", cols="c", values="s", features=["x"])


# --- evaluation and prediction ------------------------------------------------------------------

KNOWN = Labels([f"v{i}" for i in range(1, 20)], "viewer"), Labels(range(70, 77), "video")
AXES = tuple(Entities(np.ones((len(labels), 1)), labels=labels) for labels in KNOWN)
SCHEMA = observe(pd.DataFrame(LOG), **NAMES, features=FEATURES).features.schema
TABLE = tuple(NAMES.values())


def read(R, names=TABLE, axes=AXES, given=None, **settings):
    asked = GivenFeatures(SCHEMA, given)
    return read_cells(axes, R, names, None, None, strict=False, features=asked, **settings)


@pytest.mark.parametrize("form", FORMS)
def test_cells_of_tables(form):
    cells = read(FORMS[form](LOG))
    np.testing.assert_allclose(cells.features, wanted(S))
    known = cells.select_known()
    assert known.values.size < SIZE
    np.testing.assert_allclose(known.features, wanted(known.values))


def test_cells_of_files(tmp_path):
    for suffix in (".csv", ".parquet", ".jsonl"):
        path = write(tmp_path / f"log{suffix}")
        np.testing.assert_allclose(read(path).features, wanted(S))
    text = (tmp_path / "log.csv").read_text()
    np.testing.assert_allclose(read(io.StringIO(text)).features, wanted(S))
    source = TextSource(str(tmp_path / "log.csv"))
    np.testing.assert_allclose(read(source).features, wanted(S))
    pd.DataFrame(LOG).drop(columns="hour").to_csv(tmp_path / "less.csv")
    found = read(tmp_path / "less.csv").features
    assert np.isnan(found[:, 0]).all()
    np.testing.assert_array_equal(found[:, 1], wanted(S)[:, 1])


def test_categories_of_files_stay_text(tmp_path):
    # The type of a text column depends on the model, not on the lines of the file.
    schema = FeatureSchema(("place", "day"), ("category", "number"), (("1", "2", "x"), ()))
    path = tmp_path / "log.csv"
    path.write_text("viewer,video,s,place\nv1,70,5,2\nv1,71,6,3\n")
    wanted = [[1.0, np.nan], [np.nan, np.nan]]
    cells = read_cells(AXES, path, TABLE, None, None, strict=True, features=GivenFeatures(schema))
    np.testing.assert_array_equal(cells.features, wanted)
    for R in (path, io.StringIO(path.read_text()), pd.read_csv(path, dtype={"place": str})):
        observed = observe(R, **NAMES, features=schema)
        assert observed.features.schema is schema
        np.testing.assert_array_equal(observed.features.values, wanted)


def test_columns_that_are_absent_are_missing():
    found = read(pd.DataFrame(LOG).drop(columns=["hour"])).features
    assert np.isnan(found[:, 0]).all()
    np.testing.assert_array_equal(found[:, 1], wanted(S)[:, 1])
    matrix = pd.DataFrame(np.ones((2, 2)), index=["v1", "v2"], columns=[70, 71])
    assert np.isnan(read(matrix, (None,) * 3).features).all()
    with pytest.raises(ValueError, match="must be columns of the table"):
        read(pd.DataFrame(LOG), given={"hour": S})


def test_data_without_features_are_missing():
    frame = pd.DataFrame(np.ones((3, 2)), columns=["hour", "place"])
    for R in (frame, np.ones((3, 2)), (I, J, S), sp.eye_array(3).tolil()):
        observed = observe(R, features=SCHEMA)
        assert observed.features.values.shape == (observed.size, 2)
        assert np.isnan(observed.features.values).all()


def test_cells_of_arrays():
    given = {"place": LOG["place"], "hour": S % 24}
    labelled = read((LOG["viewer"], LOG["video"], S), (None,) * 3, given=given)
    np.testing.assert_allclose(labelled.features, wanted(S))
    plain = tuple(Entities(np.ones((size, 1))) for size in (20, 7))
    for R in ((I, J, S), sp.coo_array((S, (I, J)), shape=(20, 7))):
        cells = read(R, (None,) * 3, plain, given)
        np.testing.assert_allclose(cells.features, wanted(cells.values))
        assert np.isnan(read(R, (None,) * 3, plain).features).all()
    cells = read(observe((I, J, S), features=given), (None,) * 3, plain)
    np.testing.assert_allclose(cells.features, wanted(cells.values))
    with pytest.raises(ValueError, match=r"those of the model \(hour, place\), got 'feature_0'"):
        read((I, J, S), (None,) * 3, plain, np.ones(SIZE))


def test_pairs_of_a_table():
    table = pa.table(LOG)
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    for pairs in (table, pd.DataFrame(LOG), stream):
        rows, cols, features = pair_columns(AXES, pairs, SCHEMA)
        assert list(np.asarray(rows)) == LOG["viewer"]
        assert list(np.asarray(cols)) == LOG["video"]
        np.testing.assert_allclose(features, wanted(S))
