"""Further columns of a store, and the column names that it remembers."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_append import state
from test_store_build import INTERPRETED, assert_same

from fastemf import store
from fastemf.sources.memory import observe

NAMES = {"rows": "r", "cols": "c", "values": "b"}


def log(seed, size=30, m=7, **others):
    """Labelled observations, whose columns `at` and `word` follow from the value."""
    rng = np.random.default_rng(seed)
    values = rng.permutation(size) + 100.0 * seed + 1
    columns = {"r": [f"r{i}" for i in rng.integers(0, m, size)], "c": rng.integers(0, 5, size)}
    columns |= {"b": values, "v": rng.uniform(0.5, 2, size), "at": values.astype(int) * 3}
    return pa.table(columns | {"word": [f"w{value:.0f}" for value in values]} | others)


def assert_columns(path):
    """Check that the further columns are in the order of the values."""
    opened = store.open(path)
    values = store.read_block(path, 0, 0, opened.shape[0]).values
    found = opened.read_columns()
    assert found.column_names == ["word", "at"]
    assert found["at"].to_pylist() == (values.astype(int) * 3).tolist()
    assert found["word"].to_pylist() == [f"w{value:.0f}" for value in values]


@pytest.fixture
def path(tmp_path):
    store.build(log(0), tmp_path / "store", columns=["word", "at"], weights="v", **NAMES)
    return tmp_path / "store"


sizes = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=4)


@given(sizes, st.sampled_from([1, 700, 1 << 28]), st.booleans())
@settings(max_examples=5 if INTERPRETED else 20, deadline=None)
def test_columns_have_the_order_of_the_observations(
    tmp_path_factory, sizes, memory_limit, weighted
):
    path = tmp_path_factory.mktemp("any") / "store"
    parts = [log(seed, *size) for seed, size in enumerate(sizes)]
    names = NAMES | ({"weights": "v"} if weighted else {})
    built = {"columns": ["word", "at"], "memory_limit": memory_limit}
    store.build(iter(parts[0].to_batches(max_chunksize=7)), path, **built, **names)
    for part in parts[1:]:
        store.append(path, part, memory_limit=memory_limit)
    assert_columns(path)
    assert_same(path, observe(pa.concat_tables(parts), **names))


def test_readers_keep_their_columns(path):
    opened = store.open(path)  # keeps its generation
    for seed in (1, 2):
        store.append(path, log(seed))
    assert_columns(path)
    assert opened.read_columns().num_rows == 30
    del opened
    store.append(path, log(3))  # removes the first generation
    assert_columns(path)
    store.verify(path)


def test_positions_and_columns(tmp_path):
    table = pa.table({"r": [3, 0, 3], "c": [1, 1, 0], "b": [1.0, 2.0, 3.0], "hour": [7, None, 9]})
    store.build(table, tmp_path / "store", shape=(5, 2), columns=["hour", "r"], **NAMES)
    grown = store.append(tmp_path / "store", table.set_column(0, "r", pa.array([0, 6, 3])))
    assert grown.shape == (7, 2)
    assert grown.info["columns"] == ["hour", "r"]
    expected = {"hour": [None, 7, 7, 9, 9, None], "r": [0, 0, 3, 3, 3, 6]}
    assert grown.read_columns().to_pydict() == expected
    assert grown.read_columns(["r"]).to_pydict() == {"r": expected["r"]}
    with pytest.raises(ValueError, match="columns names a column of a table, but source has trip"):
        store.append(tmp_path / "store", ([0], [0], [1.0]))


def test_types_of_columns(path):
    before = state(path)
    word = log(1).column_names.index("word")
    numbers = log(1).set_column(word, "word", pa.array(range(30)))
    with pytest.raises(TypeError, match=r"columns must have the types of the store.* word has"):
        store.append(path, numbers)
    assert state(path) == before
    halves = log(1).set_column(word - 1, "at", pa.array(np.arange(30) + 0.5))
    found = store.append(path, halves).read_columns()["at"]
    assert found.type == pa.float64()
    assert sorted(found.to_pylist())[0] == 0.5


def test_wrong_names_of_columns(path, tmp_path):
    opened = store.open(path)
    for names, error, match in (
        ("word", TypeError, "names must be a list of column names, got 'word'"),
        (["hour"], ValueError, r"distinct columns of the store, .*, got \['hour'\]"),
        ([], ValueError, "one or more distinct columns"),
        (["at", "at"], ValueError, "one or more distinct columns"),
    ):
        with pytest.raises(error, match=match):
            opened.read_columns(names)
    without = store.build(([0], [0], [1.0]), tmp_path / "without")
    assert without.info["columns"] == []
    with pytest.raises(ValueError, match="one or more distinct columns"):
        without.read_columns()
    for columns, error, match in (
        ("word", TypeError, "columns must be a list of column names, got 'word'"),
        ([1], TypeError, "columns must be a list"),
        (["at", "at"], ValueError, "columns must be distinct"),
    ):
        with pytest.raises(error, match=match):
            store.build(log(0), tmp_path / "other", columns=columns, **NAMES)
    with pytest.raises(ValueError, match="columns names a column of a table"):
        store.build(([0], [0], [1.0]), tmp_path / "other", columns=["at"])
    assert not (tmp_path / "other").exists()


def test_damaged_columns_are_named(path):
    opened, file = store.open(path), path / "data-1" / "columns.parquet"
    content = bytearray(file.read_bytes())
    content[-12:] = bytes(12)
    file.write_bytes(content)
    with pytest.raises(store.StoreError, match=r"columns\.parquet (is damaged|cannot be read)"):
        opened.read_columns()
    before = state(path)
    for check in (store.verify, lambda path: store.append(path, log(1))):
        with pytest.raises(store.StoreError, match=r"columns\.parquet is damaged: its checksum"):
            check(path)
    assert state(path) == before
    file.unlink()
    with pytest.raises(store.StoreError, match=r"columns\.parquet is missing"):
        opened.read_columns()


# --- names ---------------------------------------------------------------------------------


def test_the_store_remembers_the_names_of_columns(path):
    renamed = log(1).rename_columns(["row", "c", "b", "v", "at", "word"])
    store.append(path, renamed, rows="row")
    store.append(path, log(2))  # the names of the build
    both = [log(0), log(1), log(2)]
    assert_same(path, observe(pa.concat_tables(both), weights="v", **NAMES))
    assert_columns(path)


def test_names_that_the_store_does_not_have(tmp_path):
    path = store.build(([0, 1], [0, 1], [1.0, 2.0]), tmp_path / "store").path
    table = pa.table({"r": [2], "c": [0], "b": [3.0]})
    with pytest.raises(ValueError, match="must name columns of the table; it has 'r', 'c', 'b'"):
        store.append(path, table)
    assert store.append(path, table, **NAMES).size == 3
    with pytest.raises(
        ValueError, match="must name columns of the table"
    ):  # only a build sets them
        store.append(path, table)
    with pytest.raises(TypeError, match=r"weights must name a column of the table, got array"):
        store.append(path, table, weights=np.ones(1), **NAMES)
    chunks = iter([([0], [0], [1.0])])
    with pytest.raises(ValueError, match="weights names a column of a table, but source has chu"):
        store.append(path, chunks, weights=np.ones(1))


def test_a_full_disk_includes_columns(path, monkeypatch):
    # 60 entries of two sides of 20 bytes and positions of 8; 30 new ones with keys.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(OSError, match=f"needs {60 * 48 + 30 * 32:,} bytes"):
        store.append(path, log(1))
