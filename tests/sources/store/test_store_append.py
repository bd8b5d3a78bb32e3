"""Appended stores equal stores built from all observations at once, and are atomic."""

import gc
import json
import os
import shutil
import sys
from functools import partial

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
from fastemf.sources.store import folders
from fastemf.sources.store.folders import MARK, STAGE, generations
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


def assert_no_leftovers(path):
    number = store.open(path).by_row.manifest.generation
    assert {entry.name for entry in path.iterdir()} == {"manifest.json", f"data-{number}"}


@pytest.fixture
def path(tmp_path):
    store.build(part(0), tmp_path / "store")
    return tmp_path / "store"


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
def test_any_parts_equal_memory(tmp_path_factory, data, memory_limit):
    found, weights = data
    path = tmp_path_factory.mktemp("any") / "store"
    store.build(found[0], path, weights=weights[0], memory_limit=memory_limit)
    for one, v in zip(found[1:], weights[1:], strict=True):
        digest = store.append(path, one, weights=v, memory_limit=memory_limit).digest()
    together = None if weights[0] is None else np.concatenate(weights)
    expected = observe(joined(*found), weights=together)
    assert_same(path, expected)
    assert digest == expected.digest()
    assert_no_leftovers(path)
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
def test_labels_grow_and_keep_their_positions(tmp_path, case, axis):
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
        (table(np.array([2**63], np.uint64), ["x"], [1]), "'r' must fit into 64-bit integers"),
        (table([7], [3], [1]), "column 'c' must hold labels of one kind, got str before and int64"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            store.append(tmp_path / "store", source, **NAMES)
    with pytest.raises(TypeError, match="both have labels or positions, got positions"):
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
    "another thing": (lambda: ({}, None), TypeError, "source must be a file, a list or a folder"),
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


def test_a_full_disk_is_detected_before_sorting(path, monkeypatch):
    before = state(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(OSError, match=r"needs 2,560 bytes in .*, where 100 bytes are free"):
        store.append(path, part(1))
    assert state(path) == before


# --- generations ---------------------------------------------------------------------------


def flip(file):
    """Change one bit of the last number in a file."""
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)


def test_damaged_files_are_not_written_again(path):
    store.append(path, part(1))
    flip(path / "data-2" / "cols.values.npy")
    before = state(path)
    with pytest.raises(store.StoreError, match=r"data-2.cols\.values\.npy is damaged"):
        store.append(path, part(2))
    assert state(path) == before


@POSIX
def test_readers_keep_their_state(path):
    readers = []
    for seed in range(1, 6):
        expected = observe(joined(*map(part, range(seed))))
        readers.append((store.open(path, budget=TINY), expected))
        store.append(path, part(seed))
    assert generations(path) == [1, 2, 3, 4, 5, 6]
    for opened, expected in readers:
        assert opened.digest() == expected.digest()
        assert opened.rms() == expected.rms()
    opened, expected = readers[2]
    del readers
    store.append(path, part(6))
    assert generations(path) == [3, 7]
    assert opened.digest() == expected.digest()
    del opened
    store.append(path, part(7))
    assert_no_leftovers(path)


@POSIX
def test_a_reader_that_opens_during_an_append(path):
    opened = []

    def chunks():
        opened.append(store.open(path))
        yield part(1)
        opened.append(store.open(path))

    store.append(path, chunks())
    assert [one.digest() for one in opened] == [observe(part(0)).digest()] * 2
    assert generations(path) == [1, 2]


@POSIX
def test_opening_again_when_the_generation_is_removed_meanwhile(path, monkeypatch):
    lock, appended = folders.try_lock, []

    def late(handle, *, shared=False):
        if shared and not appended:  # the manifest was read, and its generation is not locked yet
            appended.append(True)
            store.append(path, part(1))
        return lock(handle, shared=shared)

    monkeypatch.setattr(folders, "try_lock", late)
    opened = store.open(path)
    assert opened.digest() == observe(joined(part(0), part(1))).digest()
    assert_no_leftovers(path)


def test_without_locks_the_previous_generation_stays(path, monkeypatch):
    monkeypatch.setattr(file_locks, "fcntl", None)
    (path / "data-7").mkdir()
    (path / "data-7" / "notes").write_text("mine")  # the next generation is 8
    opened = store.open(path)
    store.append(path, part(1))
    assert generations(path) == [1, 7, 8]
    assert opened.digest() == observe(part(0)).digest()
    store.append(path, part(2))
    assert generations(path) == [7, 8, 9]
    assert_same(path, observe(joined(*map(part, range(3)))))


@POSIX
def test_leftovers_of_a_killed_append_are_removed(path):
    # It was killed after its generation was renamed and before the manifest was replaced.
    copy = shutil.copytree(path, path.with_name("copy"))
    store.append(copy, part(5))
    shutil.copytree(copy / "data-2", path / "data-2")
    for name in (STAGE, "scratch"):
        (path / ".append" / name).mkdir(parents=True)
    (path / ".append" / MARK).touch()
    assert store.open(path).digest() == observe(part(0)).digest()
    store.verify(path)
    with pytest.warns(UserWarning, match=r"removing .*\.append, left by an interrupted append"):
        store.append(path, part(1))
    assert_same(path, observe(joined(part(0), part(1))))
    assert_no_leftovers(path)


@POSIX
def test_other_files_are_not_removed(path, tmp_path):
    other = store.build(part(9), tmp_path / "other").path / "data-1"
    for name in ("notes", "data-1/notes", "data-02/rows.values.npy", "data-4/notes", "data-5"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("mine")
    (path / "data-6").symlink_to(other)
    kept = {file: content for file, content in state(path).items() if content == b"mine"}
    elsewhere = state(other)
    for seed in range(1, 4):
        store.append(path, part(seed))
    assert state(path).items() >= kept.items()
    assert len(kept) == 5
    assert state(other) == elsewhere
    assert_same(path, observe(joined(*map(part, range(4)))))


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_foreign_folder_in_the_way(path, kind):
    place = path / ".append"
    if kind == "file":
        place.write_text("mine")
    elif kind == "link":
        place.symlink_to("nowhere")
    else:
        place.mkdir()
        (place / "notes").write_text("mine")
    before = state(path)
    with pytest.raises(FileExistsError, match=r"\.append is in the way"):
        store.append(path, part(1))
    assert state(path) == before


# --- all or nothing ------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("faults", ["interrupt", "full disk", "fsync", "rename"], indirect=True)
def test_an_append_that_fails_at_any_step_leaves_the_store(path, faults):
    rows, cols, values = part(0)
    hours = np.arange(values.size)
    day = table(rows, cols, values).append_column("hour", pa.array(hours))
    shutil.rmtree(path)
    store.build(day, path, shape=(9, 7), columns=["hour"], **NAMES)
    copy = shutil.copytree(path, path.with_name("copy"))
    faults.calls = 0
    store.append(copy, day, memory_limit=2000)
    assert faults.calls >= 10 or os.rename == faults.call
    old, new = (observe(joined(*[part(0)] * count)).digest() for count in (1, 2))

    def append():
        shutil.rmtree(copy)
        shutil.copytree(path, copy)
        store.append(copy, day, memory_limit=2000)

    for _ in faults.fail_each(append):
        assert store.open(copy).digest() == old
        assert_no_leftovers(copy)
        assert store.append(copy, day).digest() == new
        assert sorted(store.open(copy).read_columns()["hour"].to_pylist()) == sorted([*hours] * 2)
    store.verify(copy)


def test_an_interrupt_just_after_the_manifest_was_replaced(path, monkeypatch):
    write = folders._write_manifest

    def interrupted(*args):
        write(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "_write_manifest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.append(path, part(1))
    assert_same(path, observe(joined(part(0), part(1))))
    monkeypatch.undo()
    gc.collect()  # the traceback held the previous generation
    store.append(path, part(2))
    assert_same(path, observe(joined(*map(part, range(3)))))
    assert_no_leftovers(path)


# --- several at once -------------------------------------------------------------------------


@POSIX
def test_two_appends_at_once(path):
    def chunks():
        yield part(1)
        with pytest.raises(FileExistsError, match=r"\.append is in use: another append is running"):
            store.append(path, part(2))

    store.append(path, chunks())
    assert_same(path, observe(joined(part(0), part(1))))
    assert_no_leftovers(path)


def test_without_locks_leftovers_are_an_error(path, monkeypatch):
    monkeypatch.setattr(file_locks, "fcntl", None)
    store.append(path, part(1))
    (path / ".append").mkdir()
    (path / ".append" / MARK).touch()
    before = state(path)
    with pytest.raises(FileExistsError, match="delete it if none is running"):
        store.append(path, part(2))
    assert state(path) == before
    shutil.rmtree(path / ".append")
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
