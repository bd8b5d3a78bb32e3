"""The command line: it finds the command, and says in one line when something is wrong.

Nothing heavy is imported before a command needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from fastemf import __version__
from fastemf.commands import demo, fit, info, levels, predict, rank, reproduce, select, store

__all__ = ["main"]

COMMANDS = (fit, predict, rank, select, levels, info, store, demo, reproduce)

EXAMPLE = """\
example:
  fastemf demo --out log.csv
  fastemf fit log.csv --omega 0.9 -o model.npz
  fastemf rank model.npz eu-7 -n 3
  fastemf predict model.npz log.csv -o predicted.csv
"""

# What bad input, bad files and missing parts raise. Anything else is a mistake of ours, and its
# traceback is wanted.
USER_ERRORS = (
    TypeError, ValueError, IndexError, OSError, ModuleNotFoundError, MemoryError,
    FloatingPointError,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    args = _arguments(argv)
    if sys.stdout is None:  # closed, as by >&-
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # whose encoding may know no ×
        sys.stdout.reconfigure(errors="replace")
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
            print("fastemf: interrupted", file=sys.stderr)
            return 130
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    args, left = parser.parse_known_args(argv)
    # Rows that follow an option, as in `rank model -n 3 eu-7`, may be left over by argparse.
    if hasattr(args, "row") and not any(text.startswith("-") for text in left):
        args.row += left
    elif left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return args


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastemf",
        description="Expectile matrix factorization: predict what was not observed of a sparse "
        "matrix of skewed data, its mean or any level of its tails.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastemf {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        command.add(commands)
    return parser


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"fastemf: warning: {' '.join(str(message).split())}", file=sys.stderr)
