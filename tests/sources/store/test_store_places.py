"""Temporary folders of builds: cleanup, races, failures."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from fastemf import store
from fastemf.sources.store import folders
from fastemf.sources.store.folders import MARK, SCRATCH, STAGE
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
    for folder in (SCRATCH, f"{STAGE}/data-1"):
        (partial / folder).mkdir(parents=True)
    (partial / MARK).touch()
    (partial / SCRATCH / "spill.rows").write_bytes(b"\0" * 99)
    (partial / STAGE / "data-1" / "rows.values.npy").write_bytes(b"\0" * 99)


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
    "with files": lambda path: of(path, Path.touch, "thesis.tex"),
    "without a lock": lambda path: of(path, Path.mkdir, STAGE, SCRATCH),
    "with another lock": lambda path: of(path, lambda at: at.write_text("pid 17"), MARK, "x.npy"),
    "marked by a folder": lambda path: of(path, Path.mkdir, MARK),
    "marked by a pipe": lambda path: of(path, os.mkfifo, MARK),
    "marked by a link": lambda path: marked(path, link=MARK),
    "marked, with a file more": lambda path: marked(path, file="notes"),
    "marked, with a link more": lambda path: marked(path, link="notes"),
    "a file": lambda path: path.touch(),
    "a link to a leftover": lambda path: (
        leftover(path.with_name("elsewhere")), path.symlink_to(path.with_name("elsewhere")),
    ),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_folders_are_not_removed(target, partial, kind):
    FOREIGN[kind](partial)
    before = tree(target.parent)
    with pytest.raises(FileExistsError, match=r"\.store\.partial is in the way"):
        store.build(R, target)
    assert tree(target.parent) == before


def test_links_in_leftovers_are_not_followed(target, partial):
    leftover(partial)
    for folder in (STAGE, SCRATCH):
        shutil.copytree(partial / STAGE, target.parent / "kept" / folder)
        (partial / folder / "link").symlink_to(target.parent / "kept" / folder)
    before = tree(target.parent / "kept")
    with pytest.warns(UserWarning, match="left by an interrupted build"):
        store.build(R, target)
    assert tree(target.parent / "kept") == before
    assert not partial.exists()


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


def test_a_build_that_ends_just_before_the_next_one_starts(target, monkeypatch):
    # The second build has checked that there is no store, and waits for the folder of the first.
    claim, ended = folders._claim, []

    def late(*args):
        if not ended:
            ended.append(True)
            store.build(R, target)
        return claim(*args)

    monkeypatch.setattr(folders, "_claim", late)
    with pytest.raises(FileExistsError, match=f"{target} exists"):
        store.build(R, target)
    assert_only_the_store(target)


@pytest.mark.parametrize("removed", ["the marker", "the folder"])
def test_a_place_that_is_removed_while_it_is_claimed(target, partial, monkeypatch, removed):
    leftover(partial)
    lock, calls = folders.try_lock, []

    def late(handle, **options):
        if not calls:  # the process that held it removes it now
            (partial / MARK).unlink()
            if removed == "the folder":
                shutil.rmtree(partial)
        calls.append(handle)
        return lock(handle, **options)

    monkeypatch.setattr(folders, "try_lock", late)
    if removed == "the folder":
        store.build(R, target)
        assert_only_the_store(target)
    else:
        with pytest.raises(FileExistsError, match="is in the way"):
            store.build(R, target)


def test_without_locks_leftovers_are_an_error(target, partial, monkeypatch):
    monkeypatch.setattr(file_locks, "fcntl", None)
    leftover(partial)
    before = tree(target.parent)
    with pytest.raises(FileExistsError, match="delete it if none is running"):
        store.build(R, target)
    assert tree(target.parent) == before
    shutil.rmtree(partial)
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
    stage = target.with_name(".store.partial") / STAGE
    written = {str(stage / "data-1" / path.name) for path in (target / "data-1").iterdir()}
    *files, manifest, data, folder, moved, parent = seen
    assert set(files) == written
    assert Path(manifest).parent == stage
    last = [str(stage / "data-1"), str(stage), "rename", str(target.parent)]
    assert [data, folder, moved, parent] == last
    seen.clear()
    store.append(target, R)
    stage = target / ".append" / STAGE / "data-2"
    *files, data, moved, before, manifest, after = seen
    assert set(files) == {str(stage / path.name) for path in (target / "data-2").iterdir()}
    assert [data, moved, before, after] == [str(stage), "rename", str(target), str(target)]
    assert Path(manifest).parent == target
