"""Atomic writes: permissions, partial files, concurrent writers."""

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastemf.support import file_locks
from fastemf.support.atomic_file import replace_file

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX permissions and locks")


def write(path, content=b"new"):
    with replace_file(path) as file:
        file.write(content)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@POSIX
@pytest.mark.parametrize("before", [0o600, 0o640, 0o644, 0o666, 0o400])
def test_a_file_keeps_its_permissions(before, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"old")
    path.chmod(before)
    with replace_file(path) as file:
        assert {mode(found) for found in tmp_path.iterdir()} == {before, 0o600}  # partial: private
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert mode(path) == before


@POSIX
def test_the_umask_is_not_set(tmp_path, monkeypatch):
    """The umask belongs to the process: setting it to read it would affect other threads."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
    write(tmp_path / "model.npz")
    write(tmp_path / "model.npz")


@POSIX
def test_links_are_followed_and_loops_raise(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"/a: its symbolic links form a loop"):
        write(tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


KILLED = """
import os, signal, sys
from fastemf.support.atomic_file import replace_file
with replace_file(sys.argv[1]) as file:
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def partial_file_of_killed_writer(path):
    before = set(path.parent.iterdir())
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = set(path.parent.iterdir()) - before
    return left


@POSIX
@pytest.mark.subprocess
@pytest.mark.parametrize("name", ["model.npz", "é" * 127, "a-b.partial"])
def test_the_next_write_removes_partial_files_of_killed_writers(name, tmp_path):
    path = tmp_path / name
    write(path, b"old")
    other = partial_file_of_killed_writer(tmp_path / "other.npz")
    for _ in range(2):
        partial_file_of_killed_writer(path)
    assert path.read_bytes() == b"old"
    write(path)
    assert path.read_bytes() == b"new"
    assert set(tmp_path.iterdir()) == {path, other}  # the partial file of another target remains


@pytest.mark.parametrize("locks", [pytest.param(True, marks=POSIX), False])
def test_partial_files_of_running_writers_remain(locks, tmp_path, monkeypatch):
    if not locks:
        monkeypatch.setattr(file_locks, "fcntl", None)
    path, old = tmp_path / "model.npz", tmp_path / ".fastemf-abc_12xy.partial"
    old.touch()
    with replace_file(path) as one:
        one.write(b"one")
        write(path, b"two")
        assert path.read_bytes() == b"two"
    assert path.read_bytes() == b"one"
    assert set(tmp_path.iterdir()) == {path, old}


@POSIX
def test_pipes_folders_and_links_of_that_name_remain(tmp_path):
    path = tmp_path / "model.npz"
    with replace_file(path):
        (name,) = os.listdir(tmp_path)
    stem = name[: name.rindex("-") + 1]
    os.mkfifo(tmp_path / f"{stem}pipe.partial")
    (tmp_path / f"{stem}folder.partial").mkdir()
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / f"{stem}link.partial").symlink_to("precious")
    write(path)
    assert len(list(tmp_path.iterdir())) == 5
    assert (tmp_path / "precious").read_bytes() == b"mine"


@POSIX
def test_concurrent_writers_of_one_file(tmp_path):
    path = tmp_path / "model.npz"
    contents = [bytes([letter]) * 5000 for letter in range(65, 73)]

    def work(content):
        for _ in range(40):
            write(path, content)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(work, contents))  # raises errors
    assert list(tmp_path.iterdir()) == [path]
