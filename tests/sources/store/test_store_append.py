"""Appended stores equal stores built from all observations at once, and are atomic."""

import json
import shutil
import sys
from functools import partial
from itertools import pairwise

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources.comparisons import assert_equal_fits
from test_store import quietly
from test_store_build import assert_same

from fastemf import cli, store
from fastemf.sources.memory import observe
from fastemf.sources.store import appending
from fastemf.sources.store.locks import APPENDING
from fastemf.sources.store.manifest import Manifest
from fastemf.support import file_locks

INTERPRETED = bool(numba.config.DISABLE_JIT)
NAMES = {"rows": "r", "cols": "c", "values": "b"}
TINY = 300  # bytes: every block has few rows
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs locks of POSIX")


def part(seed, size=40, m=9, n=7, dtype=np.float64):
    rng = np.random.default_rng(seed)
    rows = np.minimum(rng.geometric(0.3, size) - 1, m - 1)
    return rows, rng.integers(0, n, size), (rng.chisquare(3, size) + 0.5).astype(dtype)


def joined(*parts):
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def state(folder):
    """All files of a store and their content."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def numbers(path):
    return [segment.number for segment in Manifest.read(path).segments]


def assert_only_used_folders(path):
    folders = {entry.name for entry in path.iterdir() if entry.is_dir()}
    assert folders == {f"segment-{number}" for number in numbers(path) if number}


@pytest.fixture
def path(tmp_path):
    store.build(part(0), tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def few(monkeypatch):
    """Merge segments when there are three."""
    monkeypatch.setattr(appending, "MOST_SEGMENTS", 3)


# --- the same bits -------------------------------------------------------------------------


@st.composite
def parts(draw):
    """Parts of a log, with a growing number of rows and columns."""
    count = draw(st.integers(2, 6))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    seeds = [draw(st.integers(0, 2**32 - 1)) for _ in range(count)]
    found = [part(seed, 1 + seed % 30, 1 + seed % 11, 1 + seed % 8, dtype) for seed in seeds]
    weights = [np.random.default_rng(seed).uniform(0.1, 3, one[0].size)
               for seed, one in zip(seeds, found, strict=True)]  # fmt: skip
    return found, weights if draw(st.booleans()) else [None] * count


@given(parts(), st.sampled_from([1, 150, 700, 1 << 28]))
@settings(max_examples=5 if INTERPRETED else 25)
def test_any_parts_equal_memory(tmp_path_factory, data, budget):
    found, weights = data
    path = tmp_path_factory.mktemp("any") / "store"
    store.build(found[0], path, weights=weights[0], budget=budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appending, "MOST_SEGMENTS", 3)
        for one, v in zip(found[1:], weights[1:], strict=True):
            opened = store.append(path, one, weights=v, budget=budget)
    together = None if weights[0] is None else np.concatenate(weights)
    expected = observe(joined(*found), weights=together)
    assert_same(path, expected)
    assert opened.digest() == store.open(path, budget=budget).digest() == expected.digest()
    for budget in (TINY, 1 << 28):
        again = store.open(path, budget=budget)
        assert (again.rms(0.5), again.mass) == (expected.rms(0.5), expected.mass)


fit = partial(quietly, max_iter=4)


@pytest.fixture
def grown(tmp_path, request):
    """A store of four days, one of all of them, built at once."""
    weighted = getattr(request, "param", False)
    days = [part(seed, 150, 20 + seed, 12) for seed in range(4)]
    v = [np.linspace(0.5, 2, 150) + seed if weighted else None for seed in range(4)]
    store.build(days[0], tmp_path / "grown", weights=v[0])
    for day, weights in zip(days[1:], v[1:], strict=True):
        store.append(tmp_path / "grown", day, weights=weights)
    store.build(joined(*days), tmp_path / "whole", weights=np.concatenate(v) if weighted else None)
    return tmp_path / "grown", tmp_path / "whole"


@pytest.mark.parametrize("grown", [False, True], indirect=True)
def test_fits_equal_those_of_a_store_built_at_once(grown):
    options = {"reg": "noise", "intercepts": True}
    expected = fit(grown[1], **options)
    for budget, n_jobs in ((TINY, 1), (1 << 28, 2)):
        found = fit(store.open(grown[0], budget=budget), n_jobs=n_jobs, **options)
        assert_equal_fits(found, expected)


@pytest.mark.thorough
def test_tuned_fits_equal_those_of_a_store_built_at_once(grown):
    assert_equal_fits(fit(store.open(grown[0], budget=1 << 14)), fit(grown[1]))


@pytest.mark.parametrize("options", [{"reg": "noise"}, {"reg": 0.1, "intercepts": True}])
def test_warm_start_from_the_smaller_store(path, options):
    old = fit(path, **options)
    assert old.shape == (9, 7)
    store.append(path, part(1, m=12, n=9))
    both = joined(part(0), part(1, m=12, n=9))
    refit = fit(path, init=old, max_iter=1, tol=0, **options)
    assert_equal_fits(refit, fit(both, init=old, max_iter=1, tol=0, **options))
    assert refit.shape == (12, 9)
    assert not np.array_equal(refit.X, fit(path, max_iter=1, tol=0, **options).X)


def test_warm_start_matches_labels(tmp_path):
    days = []
    for seed, shift in ((0, 0), (1, 4)):
        rows, cols, values = part(seed, 80)
        days.append(table([f"c{row + shift}" for row in rows], [f"s{col}" for col in cols], values))
    options = {"reg": "noise", "intercepts": True, "max_iter": 2, "tol": 0}
    old = fit(store.build(days[0], tmp_path / "store", **NAMES), **options)
    grown = store.append(tmp_path / "store", days[1], **NAMES)
    refit = fit(grown, init=old, **options)
    assert_equal_fits(refit, fit(pa.concat_tables(days), init=old, **NAMES, **options))
    assert refit.row_labels.values[: old.shape[0]].tolist() == old.row_labels.values.tolist()
    assert refit.shape[0] > old.shape[0]


# --- labels --------------------------------------------------------------------------------


def table(rows, cols, values, v=None):
    columns = {"r": rows, "c": cols, "b": np.asarray(values, float)}
    return pa.table(columns if v is None else columns | {"v": v})


DAYS = np.array(["2026-11-16", "2026-11-18", "2026-11-17"], "M8[D]")
LABELS = {
    "strings": (["b", "é", "b"], ["é", "", "7"]),
    "integers": ([30, -4, 30], [7, 30, 8]),
    "dates": (DAYS, DAYS + np.array([0, 1, 9])),
    "large": (np.array([2**63 + 1, 5], np.uint64), np.array([5, 9, 2**64 - 1], np.uint64)),
    "turned large": (np.array([3, 5]), np.array([5, 9, 2**64 - 1], np.uint64)),
    "nothing new": (["a", "b"], ["b", "a"]),
}


@pytest.mark.parametrize("case", LABELS)
@pytest.mark.parametrize("axis", [0, 1])
def test_labels_grow_and_keep_their_positions(tmp_path, few, case, axis):
    first, second = LABELS[case]
    tables = []
    for labels, others in ((first, ["x", "y", "x"]), (second, ["y", "z", "w"])):
        columns = (labels, others[: len(labels)])
        tables.append(table(*columns[:: 1 - 2 * axis], np.arange(len(labels)) + 1.0))
    old = store.build(tables[0], tmp_path / "store", **NAMES)
    new = store.append(tmp_path / "store", tables[1], **NAMES)
    kinds = [field.type for field in tables[1].schema]
    both = pa.concat_tables([one.cast(pa.schema(dict(zip("rcb", kinds, strict=True))))
                             for one in tables])  # fmt: skip
    expected = observe(both, **NAMES)
    for found in (new, store.append(tmp_path / "store", tables[0], **NAMES)):
        assert found.row_labels == expected.row_labels
        assert found.col_labels == expected.col_labels
    for before, after in ((old.row_labels, new.row_labels), (old.col_labels, new.col_labels)):
        assert after.values[: len(before)].tolist() == before.values.tolist()
        assert after.name == before.name
    assert_same(tmp_path / "store", observe(pa.concat_tables([both, both[: len(first)]]), **NAMES))


@pytest.mark.parametrize(
    ("first", "second"), [(["7", "-12"], ["8", "7"]), (["a", "7"], ["8", "007"])]
)
def test_labels_of_csv(tmp_path, first, second):
    texts = ["".join(f"{label},x,{at}.5\n" for at, label in enumerate(part))
             for part in (first, second)]  # fmt: skip
    for name, text in (("one", texts[0]), ("two", texts[1]), ("all", "".join(texts))):
        (tmp_path / f"{name}.csv").write_text("r,c,b\n" + text)
    store.build(tmp_path / "one.csv", tmp_path / "store", **NAMES)
    grown = store.append(tmp_path / "store", tmp_path / "two.csv", **NAMES)
    expected = observe(tmp_path / "all.csv", **NAMES)
    assert grown.row_labels == expected.row_labels
    assert_same(grown.path, expected)


def test_labels_of_another_kind(tmp_path):
    store.build(table([7, -8], ["x", "y"], [1, 2]), tmp_path / "store", **NAMES)
    before = state(tmp_path / "store")
    (tmp_path / "log.csv").write_text(f"r,c,b\n{2**64},x,1.5\n")
    for source, match in (
        (table(["a"], ["x"], [1]), "column 'r' must hold labels of one kind, got int64 before and"),
        (tmp_path / "log.csv", r"got int64 before and str \(.*log.csv\)"),
        (table(np.array([2**63], np.uint64), ["x"], [1]), "got int64 before and uint64"),
        (table([7], [3], [1]), "column 'c' must hold labels of one kind, got str before and int64"),
    ):
        with pytest.raises(TypeError, match=match):
            store.append(tmp_path / "store", source, **NAMES)
    with pytest.raises(TypeError, match="labels or positions throughout, got both"):
        store.append(tmp_path / "store", ([0], [0], [1.0]))
    assert state(tmp_path / "store") == before


def test_tables_of_positions(path):
    rows, cols, values = part(1, m=12)
    grown = store.append(path, table(rows, cols, values), **NAMES)
    assert grown.row_labels is None
    assert_same(path, observe(joined(part(0), part(1, m=12))))


# --- what cannot be appended -----------------------------------------------------------------


BAD = {
    "another type": (lambda: (([0], [0], np.array([1], np.float32)), None), ValueError,
                     "values must have one type throughout, got float64 before and float32"),
    "weights": (lambda: (([0], [0], [1.0]), [2.0]), ValueError,
                "all entries must have weights or none, got entries without before and with in"),
    "no weights": (lambda: (part(1), None), ValueError,
                   "all entries must have weights or none, got entries with before and without in"),
    "not finite": (lambda: (([0], [0], [np.nan]), None), ValueError, "finite.*entry 0 of the trip"),
    "nothing": (lambda: (iter([]), None), ValueError, "at least one observation, got none"),
    "identifiers": (lambda: (([10**8], [0], [1.0]), None), ValueError, "look like identifiers"),
    "far too large": (lambda: (([2**33], [0], [1.0]), None), IndexError,
                      r"rows go up to 8589934592 \(entry 0 of the triplets\): identifiers must"),
    "a second chunk": (lambda: (iter([part(1), ([0], [-1], [1.0])]), None), IndexError,
                       r"cols must not be negative, got -1 \(entry 0 of chunk 1\)"),
    "another thing": (lambda: ({}, None), TypeError, "source must be a Parquet or CSV file"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_the_store_as_it_was(path, case):
    make, error, match = BAD[case]
    if case == "no weights":
        path = path.with_name("weighted")
        store.build(part(0), path, weights=np.ones(40))
    before = state(path)
    source, weights = make()
    with pytest.raises(error, match=match):
        store.append(path, source, weights=weights)
    assert state(path) == before


def test_append_needs_a_store(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        store.append(tmp_path / "nowhere", part(0))
    with pytest.raises(store.StoreError, match=r"has no manifest\.json; build one"):
        store.append(tmp_path, part(0))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_detected_before_writing(path, monkeypatch):
    before = state(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(OSError, match=r"needs 1,760 bytes in .*, where 100 bytes are free"):
        store.append(path, part(1))
    assert state(path) == before


# --- segments ------------------------------------------------------------------------------


def test_many_segments_are_merged(path):
    sizes = []
    for seed in range(1, 50):
        store.append(path, part(seed, 2))
        sizes.append([segment.size for segment in Manifest.read(path).segments])
    assert max(map(len, sizes)) == appending.MOST_SEGMENTS
    assert sizes[6] == [40] + 7 * [2]
    assert sizes[7] == [40, 14, 2]
    merged = [after[-2] for before, after in pairwise(sizes) if len(after) <= len(before)]
    assert len(merged) < 12
    assert sum(merged) < 4 * sum(sizes[-1])
    assert_same(path, observe(joined(part(0), *(part(seed, 2) for seed in range(1, 50)))))
    assert_only_used_folders(path)


def test_a_merge_refuses_damaged_files(path, few):
    for seed in (1, 2):
        store.append(path, part(seed))
    damaged = path / "segment-2" / "cols.values.npy"
    content = bytearray(damaged.read_bytes())
    content[-8] ^= 1
    damaged.write_bytes(content)
    before = state(path)
    with pytest.raises(store.StoreError, match=r"segment-2/cols\.values\.npy is damaged"):
        store.append(path, part(3))
    assert state(path) == before


@POSIX
def test_readers_keep_their_state(path, few):
    readers = []
    for seed in range(1, 8):
        opened = store.open(path, budget=TINY)
        expected = observe(joined(*(part(before) for before in range(seed))))
        readers.append((opened, expected))
        store.append(path, part(seed))
    for opened, expected in readers:
        assert opened.digest() == expected.digest()
        assert opened.rms() == expected.rms()
    assert len(list(path.glob("segment-*"))) > len(numbers(path))
    del opened, readers
    store.append(path, part(8))
    assert len(list(path.glob("segment-*"))) == len(numbers(path))
    assert not (path / "rows.values.npy").exists()


def test_other_files_are_not_removed(path, few):
    (path / "notes").write_text("mine")
    (path / "segment-1").mkdir()
    (path / "segment-1" / "notes").write_text("mine")
    (path / "segment-02").mkdir()
    for seed in range(1, 6):
        store.append(path, part(seed))
    assert (path / "notes").read_text() == (path / "segment-1" / "notes").read_text() == "mine"
    assert (path / "segment-02").is_dir()
    assert_same(path, observe(joined(*map(part, range(6)))))


# --- all or nothing ------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("faults", ["interrupt", "full disk", "fsync"], indirect=True)
def test_an_append_that_fails_at_any_step_leaves_the_store(path, few, faults):
    store.append(path, part(1))
    store.append(path, part(2))  # the next append also merges
    copy = shutil.copytree(path, path.with_name("copy"))
    faults.calls = 0
    store.append(copy, part(3), budget=2000)
    assert faults.calls >= 20
    old, new = (observe(joined(*map(part, range(count)))).digest() for count in (3, 4))

    def append():
        shutil.rmtree(copy)
        shutil.copytree(path, copy)
        store.append(copy, part(3), budget=2000)

    for _ in faults.fail_each(append):
        assert store.open(copy).digest() == old
        assert_only_used_folders(copy)
        assert store.append(copy, part(3)).digest() == new
    store.verify(copy)


# --- several at once -------------------------------------------------------------------------


@POSIX
def test_two_appends_at_once(path):
    def chunks():
        yield part(1)
        with pytest.raises(FileExistsError, match=r"append\.lock is in use: another append is run"):
            store.append(path, part(2))

    store.append(path, chunks())
    assert_same(path, observe(joined(part(0), part(1))))
    assert not (path / APPENDING).exists()


def test_without_locks_leftovers_are_an_error(path, monkeypatch):
    monkeypatch.setattr(file_locks, "fcntl", None)
    store.append(path, part(1))
    (path / APPENDING).touch()
    before = state(path)
    with pytest.raises(FileExistsError, match="delete it if none is running"):
        store.append(path, part(2))
    assert state(path) == before
    (path / APPENDING).unlink()
    store.append(path, part(2))
    assert_same(path, observe(joined(*map(part, range(3)))))


# --- shell ---------------------------------------------------------------------------------


def test_a_shell_appends(tmp_path, capsys):
    for name, lines in (("one", "a,x,1.5\nb,y,2.5\n"), ("two", "c,x,3.5\na,z,4.5\n")):
        (tmp_path / f"{name}.csv").write_text("r,c,b\n" + lines)
    columns = ["--rows", "r", "--cols", "c", "--values", "b"]
    path, one, two = (str(tmp_path / name) for name in ("store", "one.csv", "two.csv"))
    assert cli.main(["store", "build", one, "-o", path, *columns]) == 0
    capsys.readouterr()
    assert cli.main(["store", "append", path, two, one, *columns, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"store": path, **store.open(path).info,
                                                   "shape": [3, 3]}  # fmt: skip
    assert cli.main(["store", "append", path, two, *columns]) == 0
    out = capsys.readouterr().out
    assert "3 rows × 3 columns (r × c)" in out
    assert "8 observations" in out
    assert cli.main(["store", "verify", path]) == 0
    capsys.readouterr()
    assert cli.main(["store", "append", str(tmp_path), two, *columns]) == 2
    assert "is not a store" in capsys.readouterr().err
