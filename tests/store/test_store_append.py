"""Stores that were appended to, against stores and data of all observations at once."""

import errno
import json
import os
import shutil
import sys
import threading
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store import traced_peak
from test_store_build import assert_same

import fastemf
from fastemf import cli, store
from fastemf.observations.memory import observe
from fastemf.store import compaction, files, locks
from fastemf.store.compaction import first_to_merge
from fastemf.store.locks import APPENDING
from fastemf.store.manifest import Manifest

INTERPRETED = bool(numba.config.DISABLE_JIT)
GOLDEN = Path(__file__).parents[1] / "golden"
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
    """Every file of a store, and what it holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def numbers(path):
    return [segment.number for segment in Manifest.read(path).parts]


@pytest.fixture
def path(tmp_path):
    store.build(part(0), tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def few(monkeypatch):
    """Let segments be merged when there are three."""
    monkeypatch.setattr(compaction, "MOST", 3)


# --- the same bits -------------------------------------------------------------------------


@st.composite
def parts(draw):
    """Parts of a log, each with more rows and columns than those before, or as many."""
    count = draw(st.integers(2, 6))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    seeds = [draw(st.integers(0, 2**32 - 1)) for _ in range(count)]
    found = [part(seed, 1 + seed % 30, 1 + seed % 11, 1 + seed % 8, dtype) for seed in seeds]
    weights = [np.random.default_rng(seed).uniform(0.1, 3, one[0].size)
               for seed, one in zip(seeds, found, strict=True)]  # fmt: skip
    return found, weights if draw(st.booleans()) else [None] * count


@given(parts(), st.sampled_from([1, 150, 700, 1 << 28]))
@settings(max_examples=5 if INTERPRETED else 25)
def test_any_parts_give_what_memory_gives(tmp_path_factory, data, budget):
    found, weights = data
    path = tmp_path_factory.mktemp("any") / "store"
    store.build(found[0], path, weights=weights[0], budget=budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "MOST", 3)
        for one, v in zip(found[1:], weights[1:], strict=True):
            opened = store.append(path, one, weights=v, budget=budget)
    together = None if weights[0] is None else np.concatenate(weights)
    expected = observe(joined(*found), weights=together)
    assert_same(path, expected)
    assert opened.digest() == store.open(path, budget=budget).digest() == expected.digest()
    for budget in (TINY, 1 << 28):
        again = store.open(path, budget=budget)
        assert (again.rms(0.5), again.mass) == (expected.rms(0.5), expected.mass)


def test_sums_over_many_stretches(path, monkeypatch):
    monkeypatch.setattr("fastemf.inputs.entries.PART", 7)
    monkeypatch.setattr("fastemf.store.reading.PART", 7)
    store.append(path, part(1))
    observed = observe(joined(part(0), part(1)))
    for budget in (1, 400, 1 << 28):
        stored = store.open(path, budget=budget)
        lengths = [values.size for values, _ in stored.by_row.stretches()]
        assert set(lengths[:-1]) == {7}
        assert stored.rms(1.5) == observed.rms(1.5)
        assert stored.expectile(0.1) == observed.expectile(0.1)


def fit(R, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fastemf.complete(R, 0.2, 2, **({"max_iter": 4, "n_jobs": 1} | options))


def assert_equal_fits(one, other):
    for name in ("X", "Y", "row_intercepts", "col_intercepts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    histories = [[replace(record, seconds=0.0) for record in fit.history] for fit in (one, other)]
    assert histories[0] == histories[1]
    assert (one.mu, one.reg, one.tuning) == (other.mu, other.reg, other.tuning)


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
def test_fits_are_those_of_a_store_built_at_once(grown):
    options = {"reg": "noise", "intercepts": True}
    expected = fit(grown[1], **options)
    for budget, n_jobs in ((TINY, 1), (1 << 28, 2)):
        found = fit(store.open(grown[0], budget=budget), n_jobs=n_jobs, **options)
        assert_equal_fits(found, expected)


@pytest.mark.thorough
def test_tuned_fits_are_those_of_a_store_built_at_once(grown):
    assert_equal_fits(fit(store.open(grown[0], budget=1 << 14)), fit(grown[1]))


@pytest.mark.parametrize("options", [{"reg": "noise"}, {"reg": 0.1, "intercepts": True}])
def test_a_fit_goes_on_from_that_of_the_smaller_store(path, options):
    old = fit(path, **options)
    assert old.shape == (9, 7)
    store.append(path, part(1, m=12, n=9))
    both = joined(part(0), part(1, m=12, n=9))
    refit = fit(path, init=old, max_iter=1, tol=0, **options)
    assert_equal_fits(refit, fit(both, init=old, max_iter=1, tol=0, **options))
    assert refit.shape == (12, 9)
    assert not np.array_equal(refit.X, fit(path, max_iter=1, tol=0, **options).X)


def test_a_fit_goes_on_by_labels(tmp_path):
    pytest.importorskip("pyarrow")
    days = []
    for seed, shift in ((0, 0), (1, 4)):
        rows, cols, values = part(seed, 80)
        days.append(table([f"c{row + shift}" for row in rows], [f"s{col}" for col in cols], values))
    options = {"reg": "noise", "intercepts": True, "max_iter": 2, "tol": 0}
    old = fit(store.build(days[0], tmp_path / "store", **NAMES), **options)
    grown = store.append(tmp_path / "store", days[1], **NAMES)
    refit = fit(grown, init=old, **options)
    import pyarrow as pa

    assert_equal_fits(refit, fit(pa.concat_tables(days), init=old, **NAMES, **options))
    assert refit.row_labels.values[: old.shape[0]].tolist() == old.row_labels.values.tolist()
    assert refit.shape[0] > old.shape[0]


def test_blocks_are_within_the_budget(path):
    store.append(path, part(1, 200))
    side = store.open(path, budget=1200).by_row
    sizes = [(block.size, block.indptr.size - 1) for _, block in side.blocks()]
    assert len(sizes) > 3
    assert all(size * 20 <= 400 or groups == 1 for size, groups in sizes)
    assert sum(size for size, _ in sizes) == 240


@pytest.mark.compiled
def test_memory_is_the_budget_not_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "MOST", 2)
    size, budget = 500_000, 1_600_000
    rng = np.random.default_rng(0)

    def half():
        rows, cols = rng.integers(0, 3000, size), rng.integers(0, 800, size)
        return rows.astype(np.int32), cols.astype(np.int32), rng.random(size)

    options = {"reg": "noise", "max_iter": 1}
    fit(tuple(column[:5000] for column in half()), **options)  # all kernels are loaded
    data = 12 * 2 * size  # bytes of one side
    store.build(half(), tmp_path / "store", shape=(3000, 800), budget=budget)
    second = half()
    peak, _ = traced_peak(lambda: store.append(tmp_path / "store", second, budget=budget))
    assert peak < 2 * budget < data / 3
    stored = store.open(tmp_path / "store", budget=budget)
    assert len(stored.by_row.segments) == 2
    peak, _ = traced_peak(lambda: fit(stored, **options))
    slack = 1 << 22  # factors, the start's sketches, and stretches of 65,536 in float64
    assert peak < budget + slack < data / 2
    third = tuple(column[:9] for column in second)  # which has the halves merged
    peak, _ = traced_peak(lambda: store.append(tmp_path / "store", third, budget=budget))
    assert peak < 2 * budget


# --- labels --------------------------------------------------------------------------------


def table(rows, cols, values, v=None):
    pa = pytest.importorskip("pyarrow")
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
    pa = pytest.importorskip("pyarrow")
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
    pytest.importorskip("pyarrow")
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
    pytest.importorskip("pyarrow")
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
    with pytest.raises(TypeError, match="labels of tables or positions throughout, got both"):
        store.append(tmp_path / "store", ([0], [0], [1.0]))
    assert state(tmp_path / "store") == before


def test_tables_of_positions(path):
    pytest.importorskip("pyarrow")
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
    "not finite": (lambda: (([0], [0], [np.nan]), None), ValueError, "finite.*entry 0 of the trip"),
    "nothing": (lambda: (iter([]), None), ValueError, "at least one observation, got none"),
    "identifiers": (lambda: (([10**8], [0], [1.0]), None), ValueError, "look like identifiers"),
    "far too large": (lambda: (([2**33], [0], [1.0]), None), IndexError,
                      r"rows go up to 8589934592 \(entry 0 of the triplets\): if they are ident"),
    "a second chunk": (lambda: (iter([part(1), ([0], [-1], [1.0])]), None), IndexError,
                       r"cols must not be negative, got -1 \(entry 0 of chunk 1\)"),
    "another thing": (lambda: ({}, None), TypeError, "source must be a Parquet or CSV file"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_leaves_the_store_as_it_was(path, case):
    make, error, match = BAD[case]
    before = state(path)
    source, weights = make()
    with pytest.raises(error, match=match):
        store.append(path, source, weights=weights)
    assert state(path) == before


def test_a_weighted_store_needs_weights(tmp_path):
    store.build(part(0), tmp_path / "store", weights=np.ones(40))
    match = "all entries must have weights or none, got entries with before and without in the trip"
    with pytest.raises(ValueError, match=match):
        store.append(tmp_path / "store", part(1))


def test_what_is_no_store(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        store.append(tmp_path / "nowhere", part(0))
    with pytest.raises(store.StoreError, match=r"has no manifest\.json; build one"):
        store.append(tmp_path, part(0))
    assert list(tmp_path.iterdir()) == []


def test_a_shape_of_its_own_may_be_large(tmp_path):
    store.build(([0], [0], [1.0]), tmp_path / "store", shape=(3_000_000, 4))
    assert store.append(tmp_path / "store", ([1], [5], [1.0])).shape == (3_000_000, 6)


def test_too_small_a_disk_is_found_before_anything_is_written(path, monkeypatch):
    before = state(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(OSError, match=r"needs 1,760 bytes in .*, and 100 are free"):
        store.append(path, part(1))
    assert state(path) == before


# --- segments ------------------------------------------------------------------------------


def test_segments_are_merged_when_they_are_many(path):
    sizes = []
    for seed in range(1, 50):
        store.append(path, part(seed, 2))
        sizes.append([segment.size for segment in Manifest.read(path).parts])
    assert max(map(len, sizes)) == compaction.MOST
    assert sizes[6] == [40] + 7 * [2]
    assert sizes[7] == [40, 14, 2]
    merged = [after[-2] for before, after in pairwise(sizes) if len(after) <= len(before)]
    assert len(merged) < 12
    assert sum(merged) < 4 * sum(sizes[-1])
    assert_same(path, observe(joined(part(0), *(part(seed, 2) for seed in range(1, 50)))))
    folders = {entry.name for entry in path.iterdir() if entry.is_dir()}
    assert folders == {f"segment-{number}" for number in numbers(path) if number}


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ([100] * 7, None),
        ([100] * 8, 0),
        ([100] + 7 * [1], 1),
        ([100, 60] + 6 * [1], 2),
        ([3**power for power in range(8, 0, -1)], 4),
    ],
)
def test_what_is_merged(sizes, first):
    assert first_to_merge(sizes) == first


def test_a_merge_refuses_what_is_damaged(path, few):
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
def test_readers_go_on_with_what_they_opened(path, few):
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


def test_a_reader_that_sees_a_manifest_before_it_is_replaced(path, few, monkeypatch):
    # Two appends end between the reading of the manifest and that of the files.
    read = Manifest.read.__func__
    later = iter([lambda: [store.append(path, part(seed)) for seed in (1, 2, 3)]])

    def late(cls, folder):
        found = read(cls, folder)
        next(later, lambda: None)()
        return found

    monkeypatch.setattr(Manifest, "read", classmethod(late))
    opened = store.open(path)
    assert opened.size == 160
    store.verify(path)


def test_segments_may_lie_elsewhere(path, tmp_path):
    store.append(path, part(1))
    shutil.move(path / "segment-1", tmp_path / "elsewhere")
    (path / "segment-1").symlink_to(tmp_path / "elsewhere")
    store.append(path, part(2))
    assert_same(path, observe(joined(part(0), part(1), part(2))))


def test_what_is_not_ours_is_left_alone(path, few):
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


class Interrupted(BaseException):
    pass


@pytest.mark.thorough
@pytest.mark.parametrize("error", [Interrupted(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_append_that_fails_at_any_write_leaves_the_store(path, few, monkeypatch, error):
    store.append(path, part(1))
    store.append(path, part(2))  # the next one also merges
    write, calls, fails_at = files._write, [], [0]

    def failing(file, rest):
        calls.append(file)
        if len(calls) == fails_at[0]:
            write(file, rest[: len(rest) // 2])
            raise error
        write(file, rest)

    monkeypatch.setattr(files, "_write", failing)
    copy = shutil.copytree(path, path.with_name("copy"))
    store.append(copy, part(3), budget=2000)
    writes = len(calls)
    assert writes > 50
    old, new = (observe(joined(*map(part, range(count)))).digest() for count in (3, 4))
    for number in range(1, writes + 1):
        shutil.rmtree(copy)
        shutil.copytree(path, copy)
        calls.clear()
        fails_at[0] = number
        with pytest.raises(type(error)):
            store.append(copy, part(3), budget=2000)
        assert store.open(copy).digest() == old
        assert {entry.name for entry in copy.iterdir() if entry.is_dir()} == {
            f"segment-{number}" for number in numbers(copy) if number
        }
        fails_at[0] = 0
        assert store.append(copy, part(3)).digest() == new
    store.verify(copy)


def test_an_append_that_fails_at_any_sync_leaves_the_store(path, monkeypatch):
    fsync, calls, fails_at = os.fsync, [], [0]

    def failing(handle):
        calls.append(handle)
        if len(calls) == fails_at[0]:
            raise OSError(errno.EIO, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    store.append(shutil.copytree(path, path.with_name("copy")), part(1))
    syncs = len(calls)
    before = state(path)
    for number in range(1, syncs + 1):
        calls.clear()
        fails_at[0] = number
        with pytest.raises(OSError, match="Input/output"):
            store.append(path, part(1))
        assert state(path) == before


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs the names of open files")
def test_the_order_in_which_things_reach_the_disk(path, monkeypatch):
    seen = []
    fsync, replaced = os.fsync, os.replace

    def synced(handle):
        seen.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def renamed(*paths):
        seen.append("replace")
        replaced(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    store.append(path, part(1))
    segment = path / "segment-1"
    assert set(seen[:-5]) == set(segment.iterdir())
    assert seen[-5:-3] == [segment, path]
    assert seen[-3].name.endswith(".partial")
    assert seen[-2:] == ["replace", path]


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


@POSIX
def test_a_lock_of_a_killed_append_is_taken_over(path):
    (path / APPENDING).touch()
    store.append(path, part(1))
    assert not (path / APPENDING).exists()


def test_without_locks_what_is_left_is_the_users_to_remove(path, monkeypatch):
    monkeypatch.setattr(locks, "is_locked", lambda *_, **__: False)
    store.append(path, part(1))
    (path / APPENDING).touch()
    before = state(path)
    with pytest.raises(FileExistsError, match="delete it if none is running"):
        store.append(path, part(2))
    assert state(path) == before
    (path / APPENDING).unlink()
    store.append(path, part(2))
    assert_same(path, observe(joined(*map(part, range(3)))))


@POSIX
def test_raced_threads_lose_nothing(path, few):
    start, threads, seen = threading.Barrier(4), [], []

    def race(number):
        start.wait()
        for again in range(5):
            while True:
                try:
                    store.append(path, part(10 * number + again, 5))
                    break
                except FileExistsError:
                    continue
            seen.append(store.open(path).size)

    for number in range(1, 5):
        threads.append(threading.Thread(target=race, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    store.verify(path)
    found = store.open(path)
    assert found.size == 40 + 4 * 5 * 5
    values = np.sort(store.read_block(path, 0, 0, found.shape[0]).values)
    sources = [part(0), *(part(10 * n + again, 5) for n in range(1, 5) for again in range(5))]
    np.testing.assert_array_equal(values, np.sort(joined(*sources)[2]))


# --- damage --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store of two segments with every kind of file: weights, and labels of both sides."""
    path = tmp_path_factory.mktemp("whole") / "store"
    for seed, write in ((0, store.build), (1, store.append)):
        rows, cols, values = part(seed, m=9 + 3 * seed)
        log = table([f"é{row}" for row in rows], cols * 10, values, values / 2)
        source = (log, path) if write is store.build else (path, log)
        write(*source, **NAMES, weights="v")
    return path


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


SEGMENT = [
    f"segment-1/{side}.{part}.npy"
    for side in ("rows", "cols")
    for part in ("indptr", "indices", "values", "weights", "mass", "labels", "label_offsets")
]


@pytest.mark.parametrize("name", [name for name in SEGMENT if "cols.label_offsets" not in name])
def test_damaged_files_are_named(copy, name):
    content = (copy / name).read_bytes()
    match = str(copy / name).replace(".", r"\.")
    for damaged in (content[:-1], content + b"\0", b""):
        (copy / name).write_bytes(damaged)
        for call in (store.open, store.verify, lambda path: store.append(path, part(2))):
            with pytest.raises(store.StoreError, match=f"{match} has {len(damaged)} bytes instead"):
                call(copy)
    for place in (6, 60, len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 4
        (copy / name).write_bytes(flipped)
        with pytest.raises(store.StoreError, match=f"{match} is damaged"):
            store.verify(copy)
    (copy / name).unlink()
    for call in (store.open, store.verify, lambda path: store.read_block(path, 0, 0, 1)):
        with pytest.raises(store.StoreError, match=f"{match} is missing"):
            call(copy)


def change(folder, name, edit):
    """Edit an array of a store, and give it the checksum of what it holds."""
    array = np.load(folder / name)
    edit(array)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) - array.nbytes] + array.tobytes())
    manifest = Manifest.read(folder)
    stored = replace(manifest.files[name], crc32=files.checksum(folder / name))
    signed = replace(manifest, files=manifest.files | {name: stored})
    (folder / "manifest.json").write_text(signed.text())


def put(at, value):
    def edit(array):
        array[at] = value

    return edit


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("rows.indptr.npy", put(0, -1)),
        ("rows.indptr.npy", put(-1, 39)),
        ("cols.indptr.npy", put(3, 2**62)),
        ("rows.mass.npy", put(2, np.nan)),
        ("cols.mass.npy", put(2, 1e9)),
        ("rows.labels.npy", put(0, 255)),
        ("rows.label_offsets.npy", put(-1, 1)),
        ("cols.labels.npy", put(slice(None), 0)),
        ("cols.indices.npy", put(5, 12)),
        ("rows.indices.npy", put(5, -1)),
        ("rows.values.npy", put(5, np.nan)),
        ("cols.values.npy", put(5, 1e150)),
        ("rows.weights.npy", put(5, 0.0)),
        ("cols.weights.npy", put(5, 1e9)),
    ],
)
def test_hostile_content(copy, name, edit):
    if name == "cols.labels.npy":  # it has none of its own: those of the build are the new ones
        log = table(["new", "newer"], [5, 15], [1.0, 2.0], [1.0, 1.0])
        store.append(copy, log, **NAMES, weights="v")
        name = f"segment-2/{name}"
    else:
        name = f"segment-1/{name}"
    change(copy, name, edit)
    shown = name.replace("label_offsets", "labels").replace(".", r"\.")
    for call in (store.verify, lambda path: fit(store.open(path, budget=TINY), reg="noise")):
        with pytest.raises(store.StoreError, match=shown):
            call(copy)


def sides_that_differ(array):
    array[[0, -1]] = array[[-1, 0]]


def test_sides_that_differ_are_found(copy):
    change(copy, "segment-1/rows.values.npy", sides_that_differ)
    with pytest.raises(store.StoreError, match="entries by column are not those by row"):
        store.verify(copy)


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda fields: fields.pop("segments"), "segments must be a number, a shape and a size"),
        (lambda fields: fields.update(segments=[]), "segments must be a number, a shape"),
        (lambda fields: fields.update(segments=fields["segments"] * 501), "segments must be a num"),
        (lambda fields: fields["segments"].reverse(), "segments must grow up to shape"),
        (lambda fields: fields["segments"].pop(), "segments must"),
        (lambda fields: fields["segments"][1].update(size=39), "must add up to 80 entries"),
        (lambda fields: fields["segments"][1].update(number=0), "segments must grow up"),
        (lambda fields: fields["segments"][1].update(number="../x"), "segments must be a number"),
        (lambda fields: fields["segments"][0].update(shape=[99, 1]), "segments must grow up"),
        (lambda fields: fields["segments"][1].update(number=2), "does not belong"),
        (lambda fields: fields.update(version=2), "'segments' does not belong"),
        (lambda fields: fields.update(crc32=1), "its checksum is not"),
    ],
)
def test_edited_manifests(copy, edit, match):
    fields = json.loads((copy / "manifest.json").read_text())
    edit(fields)
    (copy / "manifest.json").write_text(json.dumps(fields))
    for call in (store.open, store.verify, lambda path: store.append(path, part(2))):
        with pytest.raises(store.StoreError, match=rf"manifest\.json is damaged: .*{match}"):
            call(copy)


# --- versions ------------------------------------------------------------------------------


def test_a_store_as_built_is_for_older_readers_too(path):
    assert json.loads((path / "manifest.json").read_text())["version"] == 2
    store.append(path, part(1))
    assert json.loads((path / "manifest.json").read_text())["version"] == 3  # which they refuse


def test_stores_of_the_first_version_are_appended_to(tmp_path):
    path = shutil.copytree(GOLDEN / "store-v1", tmp_path / "store")
    names = {"rows": "r", "cols": "c", "values": "b", "weights": "v"}
    log = table(["ü", "new"], [9, 7], [16.0, 32.0], [2.0, 1.0])
    grown = store.append(path, log, **names)
    assert grown.row_labels.values.tolist() == ["a", "b", "ü", "new"]
    assert grown.col_labels.values.tolist() == [7, 3, 9]
    assert grown.by_row.mass.tolist() == [1.0, 3.0, 5.0, 1.0]
    store.verify(path)


def test_stores_with_segments_open():
    # The store of the first version, appended to as above, then by one more of "a".
    stored = store.open(GOLDEN / "store-v3")
    store.verify(stored.path)
    assert stored.row_labels.values.tolist() == ["a", "b", "ü", "new"]
    assert stored.col_labels.values.tolist() == [7, 3, 9]
    assert stored.by_row.mass.tolist() == [1.5, 3.0, 5.0, 1.0]
    assert stored.by_col.mass.sum() == 10.5
    assert store.read_block(stored.path, 0, 0, 4).values.tolist()[-1] == 32.0


# --- shell ---------------------------------------------------------------------------------


def test_a_shell_appends(tmp_path, capsys):
    pytest.importorskip("pyarrow")
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
