"""Features of rows and columns: matched by label, or in index order; and those of a call."""

import datetime
import io
import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet

import fastemf
from fastemf import Labels
from fastemf.features.reading import encode_given, read_item_features
from fastemf.features.schema import FeatureSchema, FeatureTable, check_feature_names

LABELS = Labels(["eu-7", "us-1", "uk-2"], name="viewer")
DAYS = [datetime.date(2024, 1, 2), None, datetime.date(2024, 1, 3), datetime.date(2024, 1, 4)]
VIEWERS = {  # mars is unknown
    "viewer": ["us-1", "mars", "uk-2", "eu-7"],
    "age": [31.5, 99.0, None, 45.0],
    "plan": ["pro", "none", "free", None],
    "joined": DAYS,
    "paid": [True, False, None, False],
}
WANTED = np.array(
    [
        [45.0, np.nan, 1_704_326_400.0, 0.0],
        [31.5, 1.0, 1_704_153_600.0, 1.0],
        [np.nan, 0.0, 1_704_240_000.0, np.nan],
    ]
)
NAMES = ("age", "plan", "joined", "paid")


def write(path, kind):
    table = pa.table(VIEWERS)
    if kind == "parquet":
        parquet.write_table(table, path)
    elif kind == "jsonl":
        lines = [{**line, "joined": line["joined"] and str(line["joined"])}
                 for line in table.to_pylist()]  # fmt: skip
        path.write_text("\n".join(map(json.dumps, lines)))
    elif kind == "duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.register("given", table)
            connection.execute("CREATE TABLE viewers AS SELECT * FROM given")
    else:
        table.to_pandas().to_csv(path, index=False)
    return path


def check(table):
    assert table.schema.names == NAMES
    assert table.schema.kinds == ("number", "category", "date", "number")
    assert table.schema.categories == ((), ("free", "pro"), (), ())
    np.testing.assert_array_equal(table.values, WANTED)


@pytest.mark.parametrize(
    "form",
    [
        dict,
        pa.table,
        pl.DataFrame,
        pl.LazyFrame,
        pd.DataFrame,
        lambda data: pd.DataFrame(data).set_index("viewer"),
        lambda data: pd.DataFrame(data).astype({"viewer": "category", "plan": "category"}),
        lambda data: pa.RecordBatchReader.from_batches(
            pa.table(data).schema, pa.table(data).to_batches(2)
        ),
    ],
)
def test_tables_in_memory_are_matched_by_label(form):
    check(read_item_features(form(VIEWERS), LABELS, 3, axis=0))


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "duckdb"])
def test_files_are_matched_by_label(tmp_path, kind):
    path = write(tmp_path / f"viewers.{kind}", kind)
    check(read_item_features(path, LABELS, 3, axis=0))
    if kind in ("csv", "parquet"):
        check(read_item_features(fastemf.sql(f"SELECT * FROM read_{kind}('{path}')"), LABELS, 3, 0))
        check(read_item_features([path], LABELS, 3, axis=0))


def test_types_of_files_are_those_in_memory(tmp_path):
    times = pd.to_datetime(["2024-01-01 12:00", None, "2024-07-01 12:00"])
    table = pa.table(
        {
            "viewer": LABELS.values.tolist(),
            "zoned": pa.array(times.tz_localize("Europe/Berlin")),
            "naive": pa.array(times),
            "decimal": pa.array([1, None, 3]).cast(pa.decimal128(30, 2)),
            "small": pa.array([1, None, 255], pa.uint8()),
            "half": pa.array(
                np.array([0.5, 0, 2], np.float16), mask=np.array([False, True, False])
            ),
            "plan": pa.array(["b", None, "a"]).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "viewers.parquet")
    found = read_item_features(tmp_path / "viewers.parquet", LABELS, 3, axis=0)
    wanted = read_item_features(table, LABELS, 3, axis=0)
    assert found.schema == wanted.schema
    np.testing.assert_array_equal(found.values, wanted.values)
    assert wanted.schema.kinds[:2] == ("date with a time zone", "date")
    assert (wanted.values[:, 1] - wanted.values[:, 0])[[0, 2]].tolist() == [3600.0, 7200.0]
    with duckdb.connect(str(tmp_path / "viewers.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE v AS SELECT 'us-1' AS viewer, 'x'::ENUM('y', 'x') AS plan, "
            "7::HUGEINT AS large, TIME '12:00' AS time"
        )
    with pytest.raises(TypeError, match=r"feature 'time' must hold .* time64"):
        read_item_features(tmp_path / "viewers.duckdb", LABELS, 3, axis=0)
    query = fastemf.sql("SELECT * EXCLUDE time FROM v", tmp_path / "viewers.duckdb")
    with pytest.warns(UserWarning, match="no line for 2 of 3 rows"):
        found = read_item_features(query, LABELS, 3, axis=0)
    assert found.values[1].tolist() == [0.0, 7.0]


def test_an_open_file_is_read_once(tmp_path):
    text = write(tmp_path / "viewers.csv", "csv").read_text()
    check(read_item_features(io.StringIO(text), LABELS, 3, axis=0))


def test_labels_of_text_files_may_be_integers_or_their_text():
    text = "song,year\n7,1999\n8,2001\n"
    for labels in (Labels([8, 7], "song"), Labels(["8", "7"], "song")):
        found = read_item_features(io.StringIO(text), labels, 2, axis=1)
        assert found.values.ravel().tolist() == [2001.0, 1999.0]


def test_labels_with_a_time_zone():
    times = pd.to_datetime(["2024-01-01", "2024-01-02"], utc=True)
    labels = Labels(times, "start")
    table = pd.DataFrame({"start": times[::-1], "x": [1.0, 2.0]})
    assert read_item_features(table, labels, 2, 0).values.ravel().tolist() == [2.0, 1.0]
    with pytest.raises(TypeError, match="labels of row_features must be dates with a time zone"):
        read_item_features(table.assign(start=table.start.dt.tz_localize(None)), labels, 2, 0)


def test_an_unnamed_index_belongs_to_labels_without_a_name():
    labels = Labels(["b", "a"])
    frame = pd.DataFrame({"x": [1, 2]}, index=["a", "b"])
    assert read_item_features(frame, labels, 2, 0).values.ravel().tolist() == [2.0, 1.0]
    series = pd.Series([1, 2], index=["a", "b"], name="x")
    assert read_item_features(series, labels, 2, 0).values.ravel().tolist() == [2.0, 1.0]
    with pytest.raises(TypeError, match="labels of the rows in the index, got a dict"):
        read_item_features({"x": [1, 2]}, labels, 2, 0)
    with pytest.raises(TypeError, match="must be in memory if the labels have no column name"):
        read_item_features("viewers.csv", labels, 2, 0)


def test_labels_without_a_line_warn_once():
    with pytest.warns(UserWarning, match="no line for 2 of 3 columns, such as 'us-1'; ") as caught:
        found = read_item_features({"viewer": ["eu-7"], "age": [3]}, LABELS, 3, axis=1)
    assert len(caught) == 1
    np.testing.assert_array_equal(found.values, [[3], [np.nan], [np.nan]])


@pytest.mark.parametrize(
    ("given", "error", "wanted"),
    [
        ({"viewer": ["us-1", "us-1"], "x": [1, 2]}, ValueError, "got 'us-1' 2 times"),
        ({"viewer": ["us-1", None], "x": [1, 2]}, ValueError, "no nulls.*row 1 of row_features"),
        ({"viewer": [1, 2], "x": [1, 2]}, TypeError, "must be strings, as the labels are"),
        ({"viewer": ["us-1", "eu-7"], "x": [1]}, ValueError, "one value per line of row_features"),
        ({"viewer": ["us-1"], "x": [np.inf]}, ValueError, "'x'.* got inf at row 0 of row_features"),
        ({"viewer": ["us-1"], "x": [b"a"]}, TypeError, "feature 'x' must hold"),
        ({"viewer": ["us-1"], 3: [1]}, TypeError, "strings as names, got 3"),
        ({"x": [1]}, TypeError, "in column 'viewer', got a dict with columns x"),
        (pd.DataFrame({"x": [1]}, index=["us-1"]), TypeError, "column 'viewer', got a DataFrame"),
        (np.ones((3, 2)), TypeError, "must be a table with labels, got ndarray"),
        (sp.eye_array(3), TypeError, "must be a table with labels"),
        (pd.DataFrame([[1, 2, 3]], columns=["x", "x", "viewer"]), ValueError, "more than one"),
        (io.StringIO("x,y\n1,2\n"), ValueError, "no column 'viewer'"),
        ("missing.csv", FileNotFoundError, "no such file"),
    ],
)
def test_errors_of_labelled_features(given, error, wanted):
    with pytest.raises(error, match=wanted):
        read_item_features(given, LABELS, 3, axis=0)


def test_items_without_labels_are_in_index_order(tmp_path):
    values = np.array([[1.0, np.nan], [3.0, 4.0]])
    found = read_item_features(values, None, 2, axis=0)
    assert found.schema.names == ("row_feature_0", "row_feature_1")
    np.testing.assert_array_equal(found.values, values)
    assert read_item_features(values[:, 0], None, 2, axis=1).schema.names == ("col_feature_0",)
    data = {"x": [1.0, 3.0], "y": ["b", "a"]}
    forms = [data, pd.DataFrame(data), pl.DataFrame(data), pa.table(data)]
    parquet.write_table(pa.table(data), tmp_path / "items.parquet")
    for given in (*forms, tmp_path / "items.parquet"):
        found = read_item_features(given, None, 2, axis=0)
        assert found.values.tolist() == [[1.0, 1.0], [3.0, 0.0]]
    with pytest.raises(ValueError, match=r"'x' must have one value per row of R, shape \(3,\)"):
        read_item_features(data, None, 3, axis=0)
    with pytest.raises(TypeError, match="in index order, which SQL does not define"):
        read_item_features(fastemf.sql("SELECT 1 AS x"), None, 1, axis=0)
    with pytest.raises(TypeError, match="a table, a dict or an array"):
        read_item_features(sp.eye_array(2), None, 2, axis=0)
    with pytest.raises(ValueError, match="one or two dimensions"):
        read_item_features(np.ones((2, 1, 1)), None, 2, axis=0)
    sp.save_npz(tmp_path / "R.npz", sp.eye_array(2).tocsr())
    with pytest.raises(TypeError, match="col_features must be a table, got a matrix in"):
        read_item_features(tmp_path / "R.npz", None, 2, axis=1)


# --- features of a call -----------------------------------------------------------------------

SCHEMA = FeatureSchema(("age", "plan"), ("number", "category"), ((), ("free", "pro")))


def test_features_of_a_call_are_broadcast():
    def encoded(given, shape):
        return encode_given(SCHEMA, given, shape, "row_features").tolist()

    assert encoded({"age": 20, "plan": ["pro", "free"]}, (2,)) == [[20, 1], [20, 0]]
    assert encoded(pd.DataFrame({"plan": ["pro"], "age": [3]}), (2,)) == [[3, 1], [3, 1]]
    assert encoded({"age": [[1], [2]], "plan": "free"}, (2, 2)) == [[1, 0], [1, 0], [2, 0], [2, 0]]
    assert encoded(pl.DataFrame({"age": [3], "plan": ["pro"]}), ()) == [[3, 1]]
    assert encoded(np.array([[3, None], [4, None]], object), (2,))[1][0] == 4
    np.testing.assert_array_equal(encoded({"plan": ["mars"]}, (1,)), [[np.nan, np.nan]])
    np.testing.assert_array_equal(encoded(None, (2,)), np.full((2, 2), np.nan))
    np.testing.assert_array_equal(encoded({"age": None}, (1,)), [[np.nan, np.nan]])


@pytest.mark.parametrize(
    ("given", "error", "wanted"),
    [
        ({"agee": 1}, ValueError, r"those of the model \(age, plan\), got 'agee'"),
        ({"age": [1, 2, 3]}, ValueError, r"'age' must have one value per prediction, shape \(2,\)"),
        ({"age": "1"}, TypeError, "'age' must hold numbers"),
        ({"age": [1, np.inf]}, ValueError, "got inf at position 1"),
        (np.ones((2, 3)), ValueError, "must have 2 columns as an array, got 3"),
        (3, ValueError, "one or two dimensions"),
    ],
)
def test_errors_of_features_of_a_call(given, error, wanted):
    with pytest.raises(error, match=wanted):
        encode_given(SCHEMA, given, (2,), "row_features")


def test_given_features_replace_stored_ones():
    table = FeatureTable(SCHEMA, np.array([[1.0, 0.0], [2.0, np.nan]]))
    given = np.array([[np.nan, 1.0], [7.0, np.nan]])
    np.testing.assert_array_equal(table.at(np.array([1, -1])), [[2, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(table.at(np.array([1, -1]), given), [[2, 1], [7, np.nan]])


def test_names_are_distinct():
    check_feature_names(["hour"], ["age"], ["length"], ("viewer", "video", "s"))
    for given, wanted in (
        ((["age"], ["age"], [], ()), "row_features .* got 'age', which is in features too"),
        (([], ["age"], ["age"], ()), "col_features .* got 'age', which is in row_features too"),
        (
            (["s"], [], [], ("r", None, "s")),
            "features .* got 's', which is in rows, cols or values",
        ),
    ):
        with pytest.raises(ValueError, match=wanted):
            check_feature_names(*given)
