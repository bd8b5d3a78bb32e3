"""Stores equal the same data in memory; builds that fail leave nothing."""

import errno
import shutil
import sys

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from sources.comparisons import assert_same_side

from fastemf import store
from fastemf.sources.memory import observe

INTERPRETED = bool(numba.config.DISABLE_JIT)
ROWS = np.array([4, 0, 4, 2, 0, 5, 2, 4, 0, 1, 1])
COLS = np.array([1, 3, 1, 0, 0, 2, 3, 0, 3, 2, 0])
VALUES = np.array([7.0, -2.0, 7.5, 0.5, 1.5, 4.0, 3.0, -1.0, -2.0, 0.25, 8.0])
WEIGHTS = np.linspace(0.3, 2.1, VALUES.size)
NAMES = {"rows": "r", "cols": "c", "values": "b"}


def assert_same(path, observed):
    """Check that a store holds exactly these observations, with types and order."""
    opened = store.open(path)
    assert (opened.shape, opened.size) == (observed.shape, observed.size)
    for axis, side in enumerate((observed.by_row, observed.by_col)):
        stored = store.read_block(path, axis, 0, opened.shape[axis])
        assert_same_side(stored, side)
    store.verify(path)


def assert_nothing(folder):
    assert [path.name for path in folder.iterdir()] == []


@pytest.fixture
def target(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "store"


# --- against memory ------------------------------------------------------------------------


@st.composite
def triplets(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n, size = draw(st.integers(1, 12)), draw(st.integers(1, 9)), draw(st.integers(1, 60))
    rows = np.minimum(rng.geometric(0.4, size) - 1, m - 1)  # long rows, and empty ones
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    values = rng.standard_normal(size).astype(dtype)
    weights = rng.uniform(0.1, 3, size) if draw(st.booleans()) else None
    return (rows, rng.integers(0, n, size), values), weights, (m, n)


@given(triplets(), st.sampled_from([1, 150, 700, 1 << 28]))
@settings(max_examples=10 if INTERPRETED else 25)
def test_any_memory_limit_equals_memory(tmp_path_factory, data, memory_limit):
    R, weights, shape = data
    path = tmp_path_factory.mktemp("any") / "store"
    store.build(R, path, weights=weights, shape=shape, memory_limit=memory_limit)
    assert_same(path, observe(R, weights=weights, shape=shape))


def arrow_table(first=0, last=None, **kinds):
    columns = {"r": ROWS, "c": COLS, "b": VALUES, "v": WEIGHTS}
    for name, column in columns.items():
        columns[name] = pa.array(column[first:last], kinds.get(name))
    return pa.table(columns)


def parquet_file(folder):
    parquet.write_table(arrow_table(), folder / "log.parquet", row_group_size=4)
    return folder / "log.parquet"


def parquet_files(folder):
    paths = [folder / f"{name}.parquet" for name in ("a", "b", "c")]
    for path, (first, last) in zip(paths, ((0, 5), (5, 5), (5, None)), strict=True):
        parquet.write_table(arrow_table(first, last), path)  # the middle one is empty
    return paths


def parquet_folder(folder):
    (folder / "log" / "_meta").mkdir(parents=True)
    (folder / "log" / "_meta" / "x.parquet").write_bytes(b"not a table")
    parquet_files(folder / "log")
    return str(folder / "log")


def csv_file(folder):
    columns = (array.tolist() for array in (ROWS, COLS, WEIGHTS, VALUES))
    lines = [",".join(map(repr, line)) for line in zip(*columns, strict=True)]
    path = folder / "log.csv"
    path.write_text("r,c,v,b\n" + "\n".join(lines) + "\n")
    return path


def batches(folder):
    return iter(arrow_table().to_batches(max_chunksize=3))


FILES = [
    parquet_file, parquet_files, parquet_folder, csv_file, batches, lambda folder: arrow_table(),
]  # fmt: skip


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("weighted", [False, True])
def test_tables(tmp_path, target, make, weighted):
    source = make(tmp_path)
    names = NAMES | ({"weights": "v"} if weighted else {})
    built = store.build(source, target, shape=(7, 5), memory_limit=300, **names)
    assert built.info["weighted"] == weighted
    weights = WEIGHTS if weighted else None
    assert_same(target, observe((ROWS, COLS, VALUES), weights=weights, shape=(7, 5)))


@pytest.mark.parametrize("weighted", [False, True])
def test_an_iterator_of_arrays_is_read_once(target, weighted):
    columns = (ROWS, COLS, VALUES) + ((WEIGHTS,) if weighted else ())
    chunks = (tuple(column[i : i + 4] for column in columns) for i in range(0, 12, 4))
    store.build(chunks, target)
    assert_same(target, observe((ROWS, COLS, VALUES), weights=WEIGHTS if weighted else None))


# --- labels --------------------------------------------------------------------------------

WORDS = np.array(["eu-7", "us-1", "naïve", "", "北", "7"], object)[ROWS]
DAYS = (np.datetime64("2026-11-16", "D") + 10 * COLS).astype("datetime64[D]")
HASHES = (2**64 - 1 - ROWS.astype(np.uint64) ** 9).astype(np.uint64)
LABELS = {
    "strings and dates": (WORDS, DAYS),
    "integers": (1000 - 7 * ROWS, COLS * 10**12 - 5),
    "times": (
        pa.array(DAYS, pa.timestamp("us", "Asia/Tokyo")),
        pa.array(DAYS.astype("datetime64[ns]") + 10**9 * ROWS),
    ),
    "large and signed": (HASHES, COLS.astype(np.int8) - 3),
}


def assert_labels(built, expected):
    assert built.row_labels == expected.row_labels
    assert built.col_labels == expected.col_labels
    assert_same(built.path, expected)


@pytest.mark.parametrize("case", LABELS)
@pytest.mark.parametrize("memory_limit", [300, 1 << 28])
def test_labels_equal_those_in_memory(tmp_path, target, case, memory_limit):
    rows, cols = LABELS[case]
    table = pa.table({"r": pa.array(rows), "c": pa.array(cols), "b": VALUES, "v": WEIGHTS})
    names = NAMES | {"weights": "v"}
    expected = observe(table, **names)
    parquet.write_table(table, tmp_path / "log.parquet", row_group_size=3)
    sources = table, iter(table.to_batches(max_chunksize=2)), tmp_path / "log.parquet"
    for number, source in enumerate(sources):
        path = target.with_name(f"{number}")
        assert_labels(store.build(source, path, memory_limit=memory_limit, **names), expected)
    assert store.open(path).info["labels"] == ["r", "c"]


def test_categorical_labels(target):
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2, 1]), ["x", "y", "z", "unused"])
    table = pa.table({"r": column, "c": [5, 5, 6, 5], "b": [1.0, 2.0, 3.0, 4.0]})
    built = store.build(iter([table[:2], table[2:]]), target, **NAMES)
    assert built.row_labels.values.tolist() == ["z", "x", "y"]
    assert_labels(built, observe(table, **NAMES))


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ([2**70, 1], r"'c' must fit into 64-bit integers, such as 1180591620717411303424 at row 0"),
        (np.array([1, 2], complex), "'c' must hold integers, strings or dates as labels, .*row 0"),
        (["a", 3], r"'c' must hold .* all of one type, got int, str, such as 3 at row 1"),
        (["a", "\ud800"], r"'c' must be Unicode text, such as '.ud800' at row 1"),
    ],
)
def test_labels_of_pandas_that_are_no_labels(target, labels, match):
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(labels, dtype=None if hasattr(labels, "dtype") else object)
    table = pandas.DataFrame({"r": ["x", "y"], "c": column, "b": [1.0, 2.0], "other": [{}, 1]})
    with pytest.raises((TypeError, ValueError), match=match):
        store.build(table, target, **NAMES)


@pytest.mark.parametrize(
    "cells", [["12", "-3", "0"], ["12", "007", "12"], ["1", "x", "9" * 20], ['"7\n"', "8", "9"]]
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_labels_of_csv(tmp_path, target, cells, suffix):
    path = tmp_path / f"log{suffix}"
    lines = [f'{cell},"N\nA",{number}.5' for number, cell in enumerate(cells)]
    text = "\n".join(["r,c,b", *lines]) + "\n"
    path.write_text(text if suffix == ".csv" else text.replace(",", "\t"))
    assert_labels(store.build(path, target, **NAMES), observe(path, **NAMES))


def test_labels_of_mixed_kinds(target):
    def chunks(*columns):
        for column in columns:
            yield pa.table({"r": column, "c": ["x"], "b": [1.0]})

    for columns, match in (
        (
            (pa.array([1]), pa.array(["1"])),
            r"column 'r' must hold labels of one kind, got int64 before and str \(chunk 1\)",
        ),
        (
            (pa.array([-1]), pa.array([2**63], pa.uint64())),
            "column 'r' must fit into 64-bit integers, such as 9223372036854775808",
        ),
        ((pa.array([1.5]),), "column 'r' must hold integers, strings or dates"),
        (
            (pa.array([None], "int64"),),
            r"column 'r' must have no nulls, got 1 null, first at .*\b0\b",
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            store.build(chunks(*columns), target, **NAMES)
    mixed = iter([pa.table({"r": ["a"], "c": ["x"], "b": [1.0]}), (ROWS, COLS, VALUES)])
    with pytest.raises(TypeError, match="chunk 1 must be a table, as chunk 0, got tuple"):
        store.build(mixed, target, **NAMES)
    assert_nothing(target.parent)


# --- bad input -----------------------------------------------------------------------------


def chunk(**changes):
    """A second chunk that differs from the first."""
    columns = {"rows": ROWS, "cols": COLS, "values": VALUES} | changes
    return iter([(ROWS, COLS, VALUES), tuple(columns.values())])


def with_one(array, at, value):
    array = array.astype(float if isinstance(value, float) else array.dtype)
    array[at] = value
    return array


BAD = {
    "not finite": (lambda: chunk(values=with_one(VALUES, 3, np.nan)), ValueError,
                   r"got nan at row 2, column 0 \(entry 3 of chunk 1\)"),
    "negative row": (lambda: chunk(rows=with_one(ROWS, 2, -1)), IndexError,
                     r"rows must not be negative, got -1 \(entry 2 of chunk 1\)"),
    "column out of range": (lambda: chunk(cols=with_one(COLS, 7, 5)), IndexError,
                            r"cols must be below 5, got 5 \(entry 7 of chunk 1\)"),
    "float rows": (lambda: chunk(rows=ROWS.astype(float)), TypeError, r"integers.*chunk 1"),
    "another dtype": (lambda: chunk(values=VALUES.astype(np.float32)), ValueError,
                      "float64 before and float32 in chunk 1"),
    "objects": (lambda: chunk(values=VALUES.astype(object)), TypeError, "values of chunk 1 must"),
    "weight of zero": (lambda: iter([(ROWS, COLS, VALUES, with_one(WEIGHTS, 5, 0.0))]), ValueError,
                       r"positive.*got 0.0 at row 5, column 2 \(entry 5 of chunk 0\)"),
    "weights in some": (lambda: chunk(weights=WEIGHTS), ValueError, "with in chunk 1"),
    "too large": (lambda: iter([([0], [0], [1e200])]), ValueError, "too large"),
    "unequal lengths": (lambda: chunk(rows=ROWS[1:]), ValueError, r"chunk 1.*\(10,\), \(11,\)"),
    "two arrays": (lambda: iter([(ROWS, COLS)]), TypeError, "chunk 0.*got 2 items"),
    "another thing": (lambda: iter([ROWS]), TypeError, "chunk 0 must be a tuple"),
    "nothing at all": (lambda: iter([]), ValueError, "at least one observation"),
    "empty chunks": (lambda: iter([([], [], [])]), ValueError, "at least one observation"),
    "a dictionary": (lambda: {}, TypeError, "source must be a file, .* got dict"),
    "a pair": (lambda: (ROWS, COLS), ValueError, "got 2 items"),
    "beyond 32 bits": (lambda: ([0, 1, 0], [2**31 + 5, 3, 7], [1.0, 2.0, 3.0]), IndexError,
                       r"need shape=.*identifiers"),
    "identifiers": (lambda: ([0, 10**8], [0, 1], [1.0, 2.0]), ValueError, "look like identifiers"),
    "no file": (lambda: "no/such.parquet", FileNotFoundError, "no/such.parquet"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_nothing(target, case):
    make, error, match = BAD[case]
    names = NAMES if case == "no file" else {}
    shape = None if case in ("beyond 32 bits", "identifiers") else (6, 5)
    with pytest.raises(error, match=match):
        store.build(make(), target, shape=shape, **names)
    assert_nothing(target.parent)


def test_mostly_zeros_cause_a_warning(target):
    with pytest.warns(UserWarning, match="2 of 3 observations are zero"):
        store.build(([0, 1, 1], [0, 1, 0], [0.0, 0.0, 1.0]), target)


def test_names_and_arguments(tmp_path, target):
    source = parquet_file(tmp_path)
    for names, error, match in (
        (
            {},
            ValueError,
            "rows=, cols= and values= must name columns of .*log.parquet; it has 'r', ",
        ),
        (NAMES | {"cols": "nope"}, ValueError, "no column 'nope'; it has 'r', 'c', 'b', 'v'"),
        (NAMES | {"weights": WEIGHTS}, TypeError, "weights must name a column"),
        (NAMES | {"memory_limit": 0}, ValueError, "memory_limit must be at least 1"),
        (NAMES | {"shape": (3,)}, ValueError, "shape must be"),
        (NAMES | {"shape": (5, 5)}, IndexError, r"rows must be below 5.*log.parquet"),
    ):
        with pytest.raises(error, match=match):
            store.build(source, target, **names)
    with pytest.raises(ValueError, match="rows names a column of a table, but source has triplets"):
        store.build((ROWS, COLS, VALUES), target, rows="r")
    assert_nothing(target.parent)


def test_partitions_must_agree(tmp_path, target):
    parquet.write_table(arrow_table(), tmp_path / "a.parquet")
    parquet.write_table(arrow_table(b=pa.float32()), tmp_path / "b.parquet")
    parquet.write_table(arrow_table().drop(["b"]), tmp_path / "c.parquet")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 nothing of the kind PAR1")
    for other, match in (
        ("b", r"'b' must have one type in all files, got DOUBLE in .*a.parquet and FLOAT in .*b"),
        ("c", r'c\.parquet": schema mismatch .* column "b"'),
        ("d", r"a.parquet and 1 more file: expected a Parquet file: .*d.parquet"),
    ):
        with pytest.raises(ValueError, match=match):
            store.build([tmp_path / "a.parquet", tmp_path / f"{other}.parquet"], target, **NAMES)
    assert_nothing(target.parent)
    with pytest.raises(FileNotFoundError, match="neither a store nor a folder of"):
        store.build(target.parent, target, **NAMES)
    csv_file(tmp_path)
    with pytest.raises(
        ValueError, match=r"files of different kinds, such as d\.parquet and log\.csv"
    ):
        store.build(tmp_path, target, **NAMES)


def test_a_file_with_a_damaged_row_group_is_named(tmp_path, target):
    path = parquet_file(tmp_path)
    start = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 12] = b"\xff" * 12
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"log\.parquet: expected a Parquet file"):
        store.build(path, target, **NAMES)
    assert_nothing(target.parent)


def test_invalid_csv_files(tmp_path, target):
    path = tmp_path / "log.csv"
    for text, match in (
        ("r,c\n1,2\n", "log.csv has no column 'b'; it has 'r', 'c'$"),
        ("r,c,b\n1,2,three\n", r"column 'b' must hold numbers, got 'three' at line 2 of .*log.csv"),
        (
            "[id],r,c,b\n1,2,3,foo\n",
            "column 'b' must hold numbers, got 'foo' at line 2 of .*log.csv$",
        ),  # no JSON
        ("[id],r,c\n1,2,3\n", "log.csv has no column 'b'; .*; it looks like JSON$"),
        ("", "log.csv: expected a table: it is empty"),
        ("r;c;b\n1;2;3.5\n", "no column 'r'.*its header seems to be separated by ';'.*--sep ';'"),
        ("r;c;b\n1;2;3,5\n", "no column 'r'.*its header seems to be separated by ';'.*--decimal ,"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=match):
            store.build(path, target, **NAMES)
    assert_nothing(target.parent)


# --- all or nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("faults", ["interrupt", "full disk", "fsync", "rename"], indirect=True)
def test_a_build_that_fails_at_any_step_leaves_nothing(target, faults):
    store.build((ROWS, COLS, VALUES), target, memory_limit=400)
    assert faults.calls > 30 or not faults.is_write
    path = target.with_name("other")
    for _ in faults.fail_each(lambda: store.build((ROWS, COLS, VALUES), path, memory_limit=400)):
        assert [found.name for found in target.parent.iterdir()] == [target.name]


def test_a_full_disk_is_detected_before_sorting(target, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(OSError, match=r"needs 440 bytes in .*, where 100 bytes are free") as caught:
        store.build((ROWS, COLS, VALUES), target)  # 11 entries: two sides of 12 bytes, keys of 16
    assert caught.value.errno != errno.ENOSPC
    assert_nothing(target.parent)


def test_an_existing_target_is_left_alone(target):
    target.mkdir()
    (target / "mine").write_text("kept")
    with pytest.raises(FileExistsError, match=f"{target} exists"):
        store.build((ROWS, COLS, VALUES), target)
    assert (target / "mine").read_text() == "kept"
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        store.build((ROWS, COLS, VALUES), target.parent / "nowhere" / "store")


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks of POSIX")
def test_two_builds_of_one_store(target):
    def chunks():
        yield ROWS, COLS, VALUES
        with pytest.raises(FileExistsError, match="another build is running"):
            store.build((ROWS, COLS, VALUES), target)

    store.build(chunks(), target)
    assert_same(target, observe((ROWS, COLS, VALUES)))
