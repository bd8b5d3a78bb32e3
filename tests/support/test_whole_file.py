"""Files that are written whole: what is left behind, who may read them, who else is writing."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from fastemf.support import whole_file
from fastemf.support.whole_file import replacing

POSIX = pytest.mark.skipif(os.name == "nt", reason="POSIX permissions and locks")


def write(path, content=b"new"):
    with replacing(path) as file:
        file.write(content)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@POSIX
@pytest.mark.parametrize("before", [0o600, 0o640, 0o644, 0o666, 0o400])
def test_a_file_keeps_its_permissions(before, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"old")
    path.chmod(before)
    write(path)
    assert path.read_bytes() == b"new"
    assert mode(path) == before


@POSIX
def test_what_replaces_a_secret_is_never_readable_by_others(tmp_path):
    path = tmp_path / "model.npz"
    path.touch(0o600)
    with replacing(path):
        assert [mode(found) for found in tmp_path.iterdir()] == [0o600, 0o600]


@POSIX
def test_the_umask_of_other_threads_is_left_alone(tmp_path, monkeypatch):
    """It belongs to the whole process: whoever sets it to read it changes others' files."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
    write(tmp_path / "model.npz")
    write(tmp_path / "model.npz")


@POSIX
def test_links_are_followed_but_not_in_a_circle(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"/a: its links lead in a circle"):
        write(tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


KILLED = """
import os, signal, sys
from fastemf.support.whole_file import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_kill(path):
    before = set(path.parent.iterdir())
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = set(path.parent.iterdir()) - before
    return left


@POSIX
@pytest.mark.subprocess
@pytest.mark.parametrize("name", ["model.npz", "é" * 127, "a-b.partial"])
def test_what_a_kill_leaves_is_removed_by_the_next_write(name, tmp_path):
    path = tmp_path / name
    write(path, b"old")
    other = left_by_a_kill(tmp_path / "other.npz")
    for _ in range(2):
        left_by_a_kill(path)
    assert path.read_bytes() == b"old"
    write(path)
    assert path.read_bytes() == b"new"
    assert set(tmp_path.iterdir()) == {path, other}  # of another file: its next write removes it


@POSIX
def test_what_a_living_writer_or_an_older_version_wrote_stays(tmp_path):
    path, old = tmp_path / "model.npz", tmp_path / ".fastemf-abc_12xy.partial"
    old.touch()
    with replacing(path) as one:
        one.write(b"one")
        with replacing(path) as two:
            two.write(b"two")
        assert path.read_bytes() == b"two"
    assert path.read_bytes() == b"one"
    assert set(tmp_path.iterdir()) == {path, old}


@POSIX
def test_other_things_of_such_a_name_are_neither_opened_nor_removed(tmp_path):
    path = tmp_path / "model.npz"
    with replacing(path):
        (name,) = os.listdir(tmp_path)
    stem = name[: name.rindex("-") + 1]
    os.mkfifo(tmp_path / f"{stem}pipe.partial")
    (tmp_path / f"{stem}folder.partial").mkdir()
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / f"{stem}link.partial").symlink_to("precious")
    write(path)
    assert len(list(tmp_path.iterdir())) == 5
    assert (tmp_path / "precious").read_bytes() == b"mine"


def test_without_locks_nothing_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(whole_file, "fcntl", None)
    path = tmp_path / "model.npz"
    with replacing(path) as file:
        file.write(b"one")
        write(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


@POSIX
def test_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "model.npz"
    contents = [bytes([letter]) * 5000 for letter in range(65, 73)]
    errors = []

    def work(content):
        try:
            for _ in range(40):
                write(path, content)
                assert path.read_bytes() in contents
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert list(tmp_path.iterdir()) == [path]
