"""Faults of the disk, for tests that builds and appends are atomic."""

import errno
import os

import pytest

from fastemf.sources.store import files


class Interrupted(BaseException):
    pass


FAULTS = {
    "interrupt": (files, "_write", Interrupted()),
    "full disk": (files, "_write", OSError(errno.ENOSPC, "No space left on device")),
    "fsync": (os, "fsync", OSError(errno.EIO, "Input/output error")),
    "rename": (os, "rename", OSError(errno.EIO, "Input/output error")),
}


class Faults:
    """Counts the calls of a function, one of which may fail; a write fails halfway."""

    def __init__(self, monkeypatch, module, name, error):
        self.calls, self.fails_at, self.error = 0, None, error
        self.is_write, self.function = name == "_write", getattr(module, name)
        monkeypatch.setattr(module, name, self.call)

    def call(self, *args):
        self.calls += 1
        if self.calls == self.fails_at:
            if self.is_write:
                self.function(args[0], args[1][: len(args[1]) // 2])
            raise self.error
        self.function(*args)

    def fail_each(self, run):
        """Run once for each call so far, which fails in its turn; yield after each failure."""
        for number in range(1, self.calls + 1):
            self.calls, self.fails_at = 0, number
            with pytest.raises(type(self.error)):
                run()
            self.fails_at = None
            yield


@pytest.fixture
def faults(request, monkeypatch):
    return Faults(monkeypatch, *FAULTS[request.param])
