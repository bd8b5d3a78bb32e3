"""Standard streams and terminals: complete writes, and text without control characters."""

from __future__ import annotations

import io
import os
import re
import select
import sys
from contextlib import suppress
from typing import Any

# Control characters, separators of lines and paragraphs, marks that reverse the direction of text,
# and surrogates, which stand for bytes of file names that are not UTF-8.
CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_control(text: str) -> str:
    r"""Return text on one line: control characters become escape sequences, as in Python source.

    All names and labels from data are passed through this function before they are shown.

    Examples
    --------
    >>> from fastemf.support.terminal import escape_control
    >>> print(escape_control("eu-7\r\nfastemf: all is well\x1b[2J"))
    eu-7\r\nfastemf: all is well\x1b[2J
    """
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return a message on one line: white space becomes a space, control characters are escaped."""
    return escape_control(" ".join(text.split()))


def write_output(content: str | bytes) -> None:
    """Write all of a text, or of encoded data, to standard output.

    Raises
    ------
    BrokenPipeError
        If the reader has closed the pipe.
    OSError
        If anything else prevents a complete write, such as a full disk or a closed stream.
    """
    try:
        _write(sys.stdout, content)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), "standard output") from None


def write_error(text: str) -> None:
    """Write a text to standard error, if it can be written."""
    with suppress(OSError, ValueError):  # full or closed
        _write(sys.stderr, text)


def _write(stream: Any, content: str | bytes) -> None:
    """Write everything. Text streams without a buffer ignore that a system call writes a part."""
    buffer = getattr(stream, "buffer", None)
    if buffer is None:  # replaced by a text stream in memory, for example in a notebook
        stream.write(content if isinstance(content, str) else content.decode())
        stream.flush()
        return
    stream.flush()
    if isinstance(content, str):
        content = content.encode(stream.encoding, stream.errors)
    raw, left = getattr(buffer, "raw", buffer), memoryview(content)
    while left:
        written = raw.write(left)
        if written is None:  # a pipe that does not block is full
            select.select([], [raw], [])
        else:
            left = left[written:]
    buffer.flush()


def output_is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return _is_terminal(sys.stdout)


def stderr_is_terminal() -> bool:
    """Return whether standard error is a terminal; it may also be closed or missing."""
    return _is_terminal(sys.stderr)


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # None under pythonw; a closed stream
        return False


def open_closed_streams() -> None:
    """Open the null device in place of standard streams that are closed, as by ``>&-``.

    Otherwise the next file opened, such as the model, would get the number of that stream, and
    output of a library to the stream would be written into the file. Standard output is opened for
    reading only, so that writing to it is an error, as it was before.
    """
    if sys.stdin is None:  # it stays None, so that reading it is an error
        os.open(os.devnull, os.O_RDONLY)
    for name, flags in (("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            raw = io.FileIO(os.open(os.devnull, flags), "w")
            setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), "utf-8"))
