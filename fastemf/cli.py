"""The command line: it finds the command, and says in one line when something is wrong.

Nothing heavy is imported before a command needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fastemf import __version__
from fastemf.commands import (
    demo,
    evaluate,
    fit,
    info,
    levels,
    predict,
    quantiles,
    rank,
    report,
    reproduce,
    select,
    store,
    update,
)

__all__ = ["main"]

COMMANDS = (
    quantiles, fit, predict, rank, evaluate, report, update, select, levels, info, store, demo,
    reproduce,
)  # fmt: skip

EXAMPLE = """\
example:
  fastemf demo --out log.csv
  fastemf quantiles log.csv --at 0.5 0.95 -o q.npz
  fastemf predict q.npz log.csv -o predicted.csv
  fastemf rank q.npz eu-7 -n 3 --order smallest --at 0.95
  fastemf fit log.csv --omega 0.9 -o model.npz

What begins with - like an option, such as a label or a file, goes last, after --:
  fastemf rank model.npz -n 3 --order largest -- --x
and the name of a column after =, as in --rows=-x.
"""

MARK = "\0"  # which no argument of a process holds

# What bad input, bad files and missing parts raise. Anything else is a mistake of ours, and its
# traceback is wanted.
USER_ERRORS = (
    TypeError, ValueError, IndexError, OSError, ModuleNotFoundError, MemoryError,
    FloatingPointError,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    _open_streams()
    args = _arguments(sys.argv[1:] if argv is None else argv)
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
            _tell(_one_line(error))
            return 2
        except KeyboardInterrupt:
            _tell("interrupted")
            return 130
    return 0


def _open_streams() -> None:
    """Put nothing in the place of a closed standard stream, as by ``>&-``.

    Else the next file that is opened, be it the model, would have that stream's number, and
    whatever a library writes to the stream would go into the file.
    """
    if sys.stdin is None:  # and stays so: reading it is an error
        os.open(os.devnull, os.O_RDONLY)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse arguments. What follows ``--`` is marked, so that no part of it passes for an option.

    argparse leaves over what follows an option where rows could have been before it, as in
    `rank model -n 3 eu-7`.
    """
    given = list(argv)
    if "--" in given:
        at = given.index("--") + 1
        given[at:] = [MARK + text for text in given[at:]]
    if given[:1] == ["rank"]:
        given = _with_rows_marked(given)
    parser = _parser()
    args, left = parser.parse_known_args(given)
    left = [text for text in left if text != "--"]
    if hasattr(args, "row") and not any(_is_option(text) for text in left):
        args.row += left
    elif left:
        parser.error(f"unrecognized arguments: {' '.join(left).replace(MARK, '')}")
    for name, value in vars(args).items():
        if isinstance(value, str):
            setattr(args, name, value.removeprefix(MARK))
        elif isinstance(value, list):
            unmarked = [x.removeprefix(MARK) if isinstance(x, str) else x for x in value]
            setattr(args, name, unmarked)
    return args


def _with_rows_marked(given: list[str]) -> list[str]:
    """Mark what may be a row of `fastemf rank` though it begins with one -, in any position."""
    marked, is_value = [], False
    for text in given:
        is_long = text.startswith("--")
        is_row = _is_option(text) and not is_long and not re.fullmatch(rank.SHORT, text)
        marked.append(MARK + text if is_row and not is_value else text)
        takes_one = is_long and text not in rank.FLAGS and "=" not in text
        is_value = not is_value and (takes_one or text in ("-n", "-o"))
    return marked


def _is_option(text: str) -> bool:
    """Tell whether argparse takes a text for an option: not a negative number, nor - alone."""
    return len(text) > 1 and text[0] == "-" and not re.fullmatch(r"-\d+|-\d*\.\d+", text)


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
    _tell(f"warning: {' '.join(str(message).split())}")


def _tell(text: str) -> None:
    """Write a line to standard error; where nobody reads it, the work goes on."""
    with suppress(OSError):
        print(f"fastemf: {text}", file=sys.stderr, flush=True)
