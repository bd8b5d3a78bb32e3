"""Globs, folders, lists, databases and SQL: order, labels, and what a query may do."""

import datetime as dt
import gzip
import json
import os
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fastemf
from fastemf import cli
from fastemf.inputs.database import connect
from fastemf.sources.memory import observe

NAMES = {"rows": "client", "cols": "service", "values": "ms"}
PARTS = [
    {"client": ["b", "a"], "service": ["x", "y"], "ms": [1.5, 2.5]},
    {"client": ["a", "c"], "service": ["x", "z"], "ms": [0.5, 4.5]},
    {"client": ["b", "b"], "service": ["x", "x"], "ms": [9.5, 8.5]},
]


def joined(parts):
    return {name: [item for part in parts for item in part[name]] for name in parts[0]}


WHOLE = joined(PARTS)


def write(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
        return
    lines = [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
    if ".jsonl" in path.name:
        text = "".join(json.dumps(line) + "\n" for line in lines)
    else:
        rows = [columns, *(line.values() for line in lines)]
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def assert_same(source, columns=WHOLE, **names):
    """Assert that a source is read as a table in memory, with the order of its lines."""
    ours, expected = observe(source, **NAMES | names), observe(pa.table(columns), **NAMES | names)
    assert ours.row_labels == expected.row_labels
    assert ours.col_labels == expected.col_labels
    for side in ("by_row", "by_col"):
        for part in ("indptr", "indices", "values"):
            one, other = (getattr(getattr(data, side), part) for data in (ours, expected))
            np.testing.assert_array_equal(one, other)


# --- several files ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet"])
def test_globs_lists_and_folders_are_read_in_order(suffix, tmp_path, monkeypatch):
    paths = [tmp_path / "logs" / f"{name}{suffix}" for name in ("day-1", "day-2", "day-3")]
    for path, columns in reversed(list(zip(paths, PARTS, strict=True))):  # not by age
        write(path, columns)
    (tmp_path / "logs" / "_SUCCESS.csv").write_text("ignored")
    (tmp_path / "logs" / "notes.txt").write_text("ignored")
    assert_same(str(tmp_path / "logs" / f"*-?{suffix}"))
    assert_same(tmp_path / "logs")
    assert_same(paths)
    monkeypatch.chdir(tmp_path)
    assert_same(f"logs/day-*{suffix}")
    assert_same(paths[::-1], joined(PARTS[::-1]))


def test_a_file_whose_name_looks_like_a_glob(tmp_path):
    write(tmp_path / "log[1].csv", WHOLE)
    write(tmp_path / "log1.csv", PARTS[0])
    assert_same(tmp_path / "log[1].csv")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_folders_with_keys_in_their_names(suffix, tmp_path):
    for part, region in zip(PARTS, ("ap", "eu", "us"), strict=True):
        columns = {name: part[name] for name in ("client", "ms")}
        write(tmp_path / f"service={region}" / f"part{suffix}", columns)
    keys = ["ap", "ap", "eu", "eu", "us", "us"]
    assert_same(tmp_path, WHOLE | {"service": keys})
    assert_same(str(tmp_path / "*" / f"*{suffix}"), WHOLE | {"service": keys})


def test_several_csv_files_may_have_columns_in_any_order(tmp_path):
    write(tmp_path / "a.csv", PARTS[0])
    write(tmp_path / "b.csv", {"ms": PARTS[1]["ms"], "other": [0, 0], **PARTS[1]})
    write(tmp_path / "c.csv", dict(reversed(PARTS[2].items())))
    assert_same(tmp_path)


def test_errors_name_the_file_among_several(tmp_path):
    write(tmp_path / "a.csv", PARTS[0])
    write(tmp_path / "b.csv", PARTS[1] | {"ms": ["1.5", "fast"]})
    match = r"column 'ms' must hold numbers, got 'fast' at line 3 of .*b\.csv"
    with pytest.raises(ValueError, match=match):
        observe(tmp_path, **NAMES)
    write(tmp_path / "b.csv", {"client": ["a"], "service": ["x"]})
    with pytest.raises(ValueError, match=r"b\.csv has no column 'ms'"):
        observe(tmp_path, **NAMES)
    with pytest.raises(FileNotFoundError, match=r"z\*\.csv: no file matches"):
        observe(str(tmp_path / "z*.csv"), **NAMES)


def test_only_the_needed_columns_are_read(tmp_path):
    path = tmp_path / "log.parquet"
    texts = pa.array([os.urandom(500).hex() for _ in WHOLE["ms"]])
    parquet.write_table(pa.table({"junk": texts, **WHOLE}), path, use_dictionary=False)
    column = parquet.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    start = column.data_page_offset
    content[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(content)
    assert_same(path)


# --- labels ----------------------------------------------------------------------------------


def test_json_strings_that_look_like_dates_are_distinct(tmp_path):
    columns = {
        "client": ["2020-01-01", "2020-01-01T00:00:00", "007", "7"],
        "service": [1, 2, 1, 2],
        "ms": [1.0, 2.0, 3.0, 4.0],
    }
    write(tmp_path / "log.jsonl", columns)
    assert_same(tmp_path / "log.jsonl", columns)


@pytest.mark.parametrize(
    ("label", "kind", "match"),
    [
        ("1.5", TypeError, "'client' must hold strings or integers, all of one type, got 1.5"),
        ('"x"', TypeError, "'client' must hold strings or integers, all of one type, got 'x'"),
        ("1" + 30 * "0", ValueError, "'client' must fit into 64-bit integers, got 1000"),
    ],
)
def test_json_labels_are_strings_or_integers_of_64_bits(label, kind, match, tmp_path):
    line = '{{"client": {}, "service": 1, "ms": 2.5}}\n'
    path = tmp_path / "log.jsonl"
    path.write_text(line.format(3) + line.format(label))
    with pytest.raises(kind, match=rf"{match}.* at line 2 of .*log\.jsonl"):
        observe(path, **NAMES)


def test_times_with_and_without_a_time_zone():
    time = dt.datetime(2020, 1, 1)
    aware = pa.array([time], pa.timestamp("us", "Europe/Zurich"))
    labels = observe(pa.table(WHOLE | {"client": pa.concat_arrays([aware] * 6)}), **NAMES)
    [utc] = (time.replace(tzinfo=dt.UTC),)
    assert labels.row_labels.positions([utc]).tolist() == [0]
    with pytest.raises(TypeError, match="time zone"):
        labels.row_labels.positions([time])


# --- databases and SQL -----------------------------------------------------------------------


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "calls.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("whole", pa.table(WHOLE))
        connection.execute("CREATE TABLE log AS SELECT * FROM whole")
    return path


def test_tables_of_a_database(database):
    assert_same(database)
    assert_same(f"{database}::log")
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE VIEW slow AS SELECT * FROM log WHERE ms > 2")
    with pytest.raises(ValueError, match=r"name one of its tables by .*::TABLE; it has log, slow"):
        observe(database, **NAMES)
    kept = [at for at, ms in enumerate(WHOLE["ms"]) if ms > 2]
    assert_same(f"{database}::slow", {name: [WHOLE[name][at] for at in kept] for name in WHOLE})
    before = database.read_bytes()
    database.write_bytes(before[:5000])
    with pytest.raises(ValueError, match=r"calls\.duckdb: expected a DuckDB database"):
        observe(f"{database}::log", **NAMES)
    with pytest.raises(FileNotFoundError, match=r"none\.duckdb: no such file"):
        observe("none.duckdb", **NAMES)


def test_sql_is_sorted_unless_it_has_an_order(database, tmp_path):
    lines = sorted(zip(*WHOLE.values(), strict=True))
    in_order = dict(zip(WHOLE, map(list, zip(*lines, strict=True)), strict=True))
    write(tmp_path / "log.parquet", WHOLE)
    for query in (
        fastemf.sql(f"SELECT * FROM '{tmp_path}/log.parquet'"),
        fastemf.sql("SELECT * FROM log;", database),
        fastemf.sql("SELECT * FROM (SELECT * FROM log ORDER BY ms) AS t -- ORDER BY", database),
    ):
        assert_same(query, in_order)
    lines = sorted(zip(*WHOLE.values(), strict=True), key=lambda line: -line[2])
    by_value = dict(zip(WHOLE, map(list, zip(*lines, strict=True)), strict=True))
    assert_same(fastemf.sql("SELECT * FROM log ORDER BY ms DESC", database), by_value)


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ("SELEC 1", "expected one SELECT statement"),
        ("SELECT 1 AS client; SELECT 2", "expected one SELECT statement"),
        ("DROP TABLE log", "expected one SELECT statement"),
        ("COPY log TO 'out.csv'", "expected one SELECT statement"),
        ("SELECT * FROM nothing", "the SQL query: expected a valid query: .*nothing"),
        ("SELECT client, ms FROM log", "the SQL query has no column 'service'"),
        ("SELECT client, service, ms FROM log WHERE ms > 100", "expected rows, got none"),
    ],
)
def test_invalid_queries(query, match, database):
    with pytest.raises(ValueError, match=match):
        observe(fastemf.sql(query, database), **NAMES)
    assert_same(database)


def test_a_query_is_a_string():
    with pytest.raises(TypeError, match="query must be a string, got int"):
        fastemf.sql(3)


def test_python_variables_are_not_tables():
    secret = pa.table(WHOLE)
    assert len(secret) == 6
    with pytest.raises(ValueError, match="secret"):
        observe(fastemf.sql("SELECT * FROM secret"), **NAMES)


def test_relations_and_lazy_frames():
    polars = pytest.importorskip("polars")
    with duckdb.connect() as connection:
        connection.register("whole", pa.table(WHOLE))
        assert_same(connection.sql("SELECT * FROM whole"))
    assert_same(polars.LazyFrame(WHOLE))


def test_no_extension_no_network_no_settings():
    connection = connect(n_threads=1)
    settings = "('autoinstall_known_extensions', 'autoload_known_extensions', 'lock_configuration')"
    found = connection.execute(
        f"SELECT name, value FROM duckdb_settings() WHERE name IN {settings} ORDER BY name"
    ).fetchall()
    assert [value for _, value in found] == ["false", "false", "true"]
    assert connection.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
    with pytest.raises(duckdb.Error, match="locked"):
        connection.execute("SET autoload_known_extensions = true")
    connection.close()
    for url in ("http://localhost:9/log.parquet", "s3://bucket/log.parquet"):
        with pytest.raises(ValueError, match=r"the SQL query: expected a valid query: .*extension"):
            observe(fastemf.sql(f"SELECT * FROM '{url}'"), **NAMES)


def test_without_duckdb_the_extra_is_named(monkeypatch, tmp_path):
    write(tmp_path / "log.csv", WHOLE)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fastemf\[table\]'"):
        observe(tmp_path / "log.csv", **NAMES)
    assert fastemf.complete(np.array([[1.0, 2.0], [2.0, np.nan]]), 0.5, 1).shape == (2, 2)


# --- shell -----------------------------------------------------------------------------------


def test_sql_in_the_shell(database, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--out", "log.csv"]) == 0
    names = ["--rows", "client", "--cols", "service", "--values", "ms"]
    sql = "SELECT client, service, ms FROM 'log.csv' WHERE ms < 5000"
    fit = ["--omega", "0.5", "-k", "1", *names]
    assert cli.main(["fit", "--sql", sql, *fit, "-o", "model.npz"]) == 0
    assert cli.main(["predict", "model.npz", "--sql", sql + " ORDER BY ms LIMIT 3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines[-4:]) == 4
    assert lines[-4] == '"client","service","prediction"'
    assert cli.main(["store", "build", "--sql", sql, "-o", "log.store", *names]) == 0
    assert cli.main(["store", "append", "log.store", "--sql", sql]) == 0
    capsys.readouterr()
    assert cli.main(["fit", "log.csv", "--sql", sql, *fit, "-o", "other.npz"]) == 2
    assert "--sql" in capsys.readouterr().err
    assert cli.main(["fit", "--sql", "SELECT", *fit, "-o", "other.npz"]) == 2
    assert "expected one SELECT statement" in capsys.readouterr().err


def test_a_progress_bar_while_files_are_read(tmp_path, capsys):
    write(tmp_path / "log.csv", WHOLE)
    expected = observe(tmp_path / "log.csv", **NAMES)
    assert capsys.readouterr().err == ""
    shown = observe(tmp_path / "log.csv", **NAMES, progress=True)
    assert "reading: " in capsys.readouterr().err
    np.testing.assert_array_equal(shown.by_row.values, expected.by_row.values)
    assert shown.row_labels == expected.row_labels
    fastemf.complete(tmp_path / "log.csv", 0.5, 1, **NAMES, reg=0.1, progress=True)
    assert "reading: " in capsys.readouterr().err
