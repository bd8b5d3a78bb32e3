"""Temporary folders of builds: cleanup, races, failures."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from fastemf import store
from fastemf.sources.store import workplace
from fastemf.sources.store.workplace import FILES, MARK, MARK_TEXT
from fastemf.support import file_locks

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
    """Create the leftovers of a killed build."""
    (partial / FILES).mkdir(parents=True)
    (partial / MARK).write_bytes(MARK_TEXT)
    (partial / FILES / "spill.rows").write_bytes(b"\0" * 99)
    (partial / FILES / "rows.values.npy").write_bytes(b"\0" * 99)


def tree(folder):
    """All paths below a folder and their content."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else path.is_symlink()
        for path in sorted(folder.rglob("*"))
    }


def assert_only_the_store(target):
    store.verify(target)
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_leftovers_of_a_killed_build_are_removed(target, partial):
    leftover(partial)
    message = r"removing .*\.store\.partial, left by an interrupted build"
    with pytest.warns(UserWarning, match=message):
        store.build(R, target)
    assert_only_the_store(target)


def test_a_warning_turned_into_an_error_removes_nothing(target, partial):
    leftover(partial)
    before = tree(partial)
    with pytest.raises(UserWarning, match="left by"):
        store.build(R, target)
    assert tree(partial) == before
    assert not target.exists()


def marked(path, *, file="", link=""):
    """The leftovers of a killed build, with another file, folder or link among them."""
    leftover(path)
    if file:
        (path / file).write_text("mine")
    if link:
        (path / link).unlink(missing_ok=True)
        (path / link).symlink_to("/etc/hostname")


def of(path, make, *names):
    """A folder with such files."""
    path.mkdir()
    for name in names:
        make(path / name)


FOREIGN = {
    "empty": lambda path: path.mkdir(),
    "with files": lambda path: of(path, Path.touch, "thesis.tex"),
    "with an empty lock": lambda path: of(path, Path.touch, MARK),
    "with another lock": lambda path: of(path, lambda at: at.write_text("pid 17"), MARK, "x.npy"),
    "marked by a pipe": lambda path: of(path, os.mkfifo, MARK),
    "marked by a link": lambda path: marked(path, link=MARK),
    "marked, with a file more": lambda path: marked(path, file="notes"),
    "marked, with a file more inside": lambda path: marked(path, file=f"{FILES}/notes"),
    "marked, with a link inside": lambda path: marked(path, link=f"{FILES}/manifest.json"),
    "marked, with a folder inside": lambda path: (
        leftover(path), (path / FILES / "rows.mass.npy").mkdir(),
    ),
    "a file": lambda path: path.write_bytes(MARK_TEXT),
    "a link to a leftover": lambda path: (
        leftover(path.with_name("elsewhere")), path.symlink_to(path.with_name("elsewhere")),
    ),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_folders_are_not_removed(target, partial, kind):
    FOREIGN[kind](partial)
    before = tree(target.parent)
    store.build(R, target)
    store.verify(target)
    after = tree(target.parent)
    assert {path: after[path] for path in after if path.parts[0] != target.name} == before


def test_a_file_put_into_a_running_build_is_kept(target, partial):
    def chunks():
        yield R
        (partial / "notes").write_text("mine")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.build(chunks(), target)
    assert list(target.parent.rglob("*")) == [partial, partial / "notes"]


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("x")])
def test_a_target_that_appears_meanwhile_is_not_replaced(target, make):
    def chunks():
        yield R
        make(target)

    with pytest.raises(FileExistsError, match=f"{target} exists"):
        store.build(chunks(), target)
    assert list(target.parent.iterdir()) == [target]
    assert target.is_symlink() or list(target.iterdir()) == []


def test_two_builds_in_two_places_have_one_winner(target, partial):
    # The second build sees the folder of the first before it is marked.
    def chunks():
        yield R
        mark = (partial / MARK).read_bytes()
        (partial / MARK).write_bytes(b"")
        store.build(R, target)
        (partial / MARK).write_bytes(mark)

    with pytest.raises(FileExistsError, match=f"{target} exists"):
        store.build(chunks(), target)
    assert_only_the_store(target)


def test_without_locks_leftovers_are_an_error(target, partial, monkeypatch):
    monkeypatch.setattr(file_locks, "fcntl", None)
    leftover(partial)
    before = tree(target.parent)
    with pytest.raises(FileExistsError, match="delete it if none is running"):
        store.build(R, target)
    assert tree(target.parent) == before
    workplace._clear(partial)
    workplace._remove_mark(partial)
    store.build(R, target)
    assert_only_the_store(target)


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
