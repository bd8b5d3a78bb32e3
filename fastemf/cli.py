"""The command line: which command, and what its user reads when something is wrong.

Nothing heavy is imported before a command needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from fastemf import __version__
from fastemf.commands import demo, fit, info, levels, predict, rank, reproduce, select, store

__all__ = ["main"]

COMMANDS = (fit, predict, rank, select, levels, info, store, demo, reproduce)

# What bad input, bad files and missing parts raise. Anything else is a mistake of ours, and its
# traceback is wanted.
USER_ERRORS = (
    TypeError, ValueError, IndexError, OSError, ModuleNotFoundError, MemoryError,
    FloatingPointError,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            args.run(args)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has had enough, as head does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except USER_ERRORS as error:
            print(f"fastemf: {_one_line(error)}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("fastemf: interrupted; nothing was written", file=sys.stderr)
            return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastemf",
        description="Expectile matrix factorization of sparse, skewed data.",
    )
    parser.add_argument("--version", action="version", version=f"fastemf {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        command.add(commands)
    return parser


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"fastemf: warning: {message}", file=sys.stderr)
