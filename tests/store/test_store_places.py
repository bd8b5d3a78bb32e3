"""Where stores are built: whose folders are removed, who wins a race, what a failure leaves."""

import errno
import os
import sys
import threading

import numpy as np
import pytest

from fastemf import store
from fastemf.store import workplace
from fastemf.store.workplace import FILES, MARK, MARK_TEXT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs locks of POSIX")
R = (np.array([0, 1, 1, 2]), np.array([0, 2, 0, 1]), np.array([1.5, 2.0, 4.0, 3.0]))


@pytest.fixture
def target(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "store"


@pytest.fixture
def partial(target):
    return target.with_name(".store.partial")


def leftover(partial):
    """What a killed build leaves."""
    (partial / FILES).mkdir(parents=True)
    (partial / MARK).write_bytes(MARK_TEXT)
    (partial / FILES / "spill.rows").write_bytes(b"\0" * 99)
    (partial / FILES / "rows.values.npy").write_bytes(b"\0" * 99)


def tree(folder):
    """Every path below a folder, and what it holds."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else path.is_symlink()
        for path in sorted(folder.rglob("*"))
    }


def assert_only_the_store(target):
    store.verify(target)
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_what_a_killed_build_left_is_removed(target, partial):
    leftover(partial)
    with pytest.warns(UserWarning, match=r"removing .*\.store\.partial, left behind by a build"):
        store.build(R, target)
    assert_only_the_store(target)


def test_a_warning_made_an_error_removes_nothing(target, partial):
    leftover(partial)
    before = tree(partial)
    with pytest.raises(UserWarning, match="left behind"):
        store.build(R, target)
    assert tree(partial) == before
    assert not target.exists()


def empty(partial):
    partial.mkdir()


def with_files(partial):
    partial.mkdir()
    (partial / "thesis.tex").write_text("mine")


def with_an_empty_lock(partial):
    partial.mkdir()
    (partial / MARK).touch()


def with_another_lock(partial):
    partial.mkdir()
    (partial / MARK).write_text("pid 17")
    (partial / "rows.values.npy").write_bytes(b"mine")


def marked_with_a_file_more(partial):
    leftover(partial)
    (partial / "notes").write_text("mine")


def marked_with_a_file_more_inside(partial):
    leftover(partial)
    (partial / FILES / "notes").write_text("mine")


def marked_with_a_folder_inside(partial):
    leftover(partial)
    (partial / FILES / "rows.mass.npy").mkdir()


def marked_with_a_link_inside(partial):
    leftover(partial)
    (partial / FILES / "manifest.json").symlink_to("/etc/hostname")


def marked_by_a_link(partial):
    leftover(partial)
    (partial / MARK).rename(partial.with_name("marks"))
    (partial / MARK).symlink_to(partial.with_name("marks"))


def marked_by_a_pipe(partial):
    partial.mkdir()
    os.mkfifo(partial / MARK)


def a_file(partial):
    partial.write_bytes(MARK_TEXT)


def a_link_to_a_leftover(partial):
    leftover(partial.with_name("elsewhere"))
    partial.symlink_to(partial.with_name("elsewhere"))


def a_dangling_link(partial):
    partial.symlink_to("nowhere")


FOREIGN = [
    empty, with_files, with_an_empty_lock, with_another_lock, marked_with_a_file_more,
    marked_with_a_file_more_inside, marked_with_a_folder_inside, marked_with_a_link_inside,
    marked_by_a_link, marked_by_a_pipe, a_file, a_link_to_a_leftover, a_dangling_link,
]  # fmt: skip


@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
def test_what_is_not_ours_is_left_alone(target, partial, make):
    make(partial)
    before = tree(target.parent)
    store.build(R, target)
    store.verify(target)
    after = tree(target.parent)
    assert {path: after[path] for path in after if path.parts[0] != target.name} == before


@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
def test_a_failed_build_leaves_what_is_not_ours_alone(target, partial, make):
    make(partial)
    before = tree(target.parent)
    with pytest.raises(ValueError, match="finite"):
        store.build((R[0], R[1], R[2] * np.nan), target)
    assert tree(target.parent) == before


def test_a_file_put_into_a_running_build_is_kept(target, partial):
    def chunks():
        yield R
        (partial / "notes").write_text("mine")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.build(chunks(), target)
    assert tree(target.parent).keys() == {partial.relative_to(target.parent)} | {
        (partial / "notes").relative_to(target.parent)
    }


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("x")])
def test_a_target_that_appears_meanwhile_is_left_alone(target, make):
    def chunks():
        yield R
        make(target)

    with pytest.raises(FileExistsError, match=f"{target} exists"):
        store.build(chunks(), target)
    assert list(target.parent.iterdir()) == [target]
    assert target.is_symlink() or list(target.iterdir()) == []


def test_a_build_that_ends_before_another_has_its_place(target, monkeypatch):
    made = workplace._made

    def late(folder):
        monkeypatch.setattr(workplace, "_made", made)
        store.build(R, target)
        return made(folder)

    monkeypatch.setattr(workplace, "_made", late)
    with pytest.raises(FileExistsError, match=f"{target} exists"):
        store.build(R, target)
    assert_only_the_store(target)


def test_a_lock_of_a_build_that_has_ended_is_worth_nothing(target, partial, monkeypatch):
    # Another build ends between the opening of its mark and the locking.
    lock = workplace._lock_leftover

    def late(folder, mark):
        monkeypatch.setattr(workplace, "_lock_leftover", lock)
        (folder / MARK).unlink()
        workplace._clear(folder)
        folder.rmdir()
        store.build(R, target)
        lock(folder, mark)

    leftover(partial)
    monkeypatch.setattr(workplace, "_lock_leftover", late)
    with pytest.raises(FileExistsError, match=f"{target} exists"):
        store.build(R, target)
    assert_only_the_store(target)


def test_two_builds_in_two_places_have_one_winner(target, partial):
    # The second one sees the place of the first when it is not marked yet.
    def chunks():
        yield R
        mark = (partial / MARK).read_bytes()
        (partial / MARK).write_bytes(b"")
        store.build(R, target)
        (partial / MARK).write_bytes(mark)

    with pytest.raises(FileExistsError, match=f"{target} exists"):
        store.build(chunks(), target)
    assert_only_the_store(target)


def test_without_locks_leftovers_are_the_users_to_remove(target, partial, monkeypatch):
    monkeypatch.setattr(workplace, "is_locked", lambda _: False)
    leftover(partial)
    before = tree(target.parent)
    with pytest.raises(FileExistsError, match="delete it if none is running"):
        store.build(R, target)
    assert tree(target.parent) == before
    workplace._clear(partial)
    workplace._remove_mark(partial)
    store.build(R, target)
    assert_only_the_store(target)


@pytest.mark.filterwarnings("ignore:removing")
def test_raced_threads_have_one_winner(target, partial):
    for number in range(20):
        path = target.with_name(f"store{number}")
        if number % 2:
            leftover(path.with_name(f".{path.name}.partial"))
        ends = []
        start = threading.Barrier(4)

        def race(path=path, ends=ends, start=start):
            start.wait()
            try:
                store.build(R, path)
                ends.append("won")
            except FileExistsError:
                ends.append("lost")

        threads = [threading.Thread(target=race) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ends) == ["lost", "lost", "lost", "won"]
        store.verify(path)
    assert not [path for path in target.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs the names of open files")
def test_the_order_in_which_things_reach_the_disk(target, monkeypatch):
    seen = []
    fsync, rename = os.fsync, os.rename

    def synced(handle):
        seen.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def renamed(*paths):
        seen.append("rename")
        rename(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    store.build(R, target)
    files = target.with_name(".store.partial") / FILES
    wanted = {str(files / path.name) for path in target.iterdir()}
    assert set(seen[1:-3]) == wanted  # the mark, every file, the folder, the rename, the parent
    assert seen[-3:] == [str(files), "rename", str(target.parent)]


def test_a_build_that_fails_at_any_sync_leaves_nothing(target, monkeypatch):
    fsync, calls, fails_at = os.fsync, [], [0]

    def failing(handle):
        calls.append(handle)
        if len(calls) == fails_at[0]:
            raise OSError(errno.EIO, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    store.build(R, target.with_name("other"))
    syncs = len(calls)
    for number in range(1, syncs + 1):
        calls.clear()
        fails_at[0] = number
        with pytest.raises(OSError, match="Input/output"):
            store.build(R, target)
        assert [path.name for path in target.parent.iterdir()] == ["other"]
