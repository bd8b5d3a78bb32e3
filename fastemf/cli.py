"""The command line: parses arguments, runs a command, and reports errors in one line.

Heavy modules are imported by the commands that need them, so that ``--help`` is fast.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from fastemf import __version__
from fastemf.commands import demo, evaluate, explain, fit, info, predict, select, store, update
from fastemf.commands.options import name_options, take_sql
from fastemf.support.progress import show_bars
from fastemf.support.terminal import (
    escape_control,
    one_line,
    open_closed_streams,
    stderr_is_terminal,
    write_error,
    write_output,
)

COMMANDS = (fit, predict, explain, evaluate, update, select, info, store, demo)

EXAMPLE = """\
example:
  fastemf demo --out log.csv
  fastemf quantiles log.csv --at 0.5 0.95 -o q.npz
  fastemf predict q.npz log.csv -o predicted.csv
  fastemf predict q.npz --missing log.csv -o unobserved.csv
  fastemf rank q.npz eu-7 -n 3 --order smallest --tau 0.95
  fastemf explain q.npz eu-7 images-6 --tau 0.95
  fastemf fit log.csv --omega 0.9 -o model.npz

Labels and files that begin with - go last, after --:
  fastemf rank model.npz -n 3 --order largest -- --x
Column names that begin with - follow an equals sign: --rows=-x
"""

ENDED_BY_PIPE = 128 + 13  # the exit code of programs that SIGPIPE ends, such as cat
MARK = "\0"  # prefix of arguments that are not options; no argument of a process contains it

# Errors caused by input, files or missing packages. Any other exception is a bug and keeps its
# traceback.
USER_ERRORS = (
    TypeError, ValueError, IndexError, OSError, ModuleNotFoundError, MemoryError,
    FloatingPointError,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack ×
        sys.stdout.reconfigure(errors="replace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            args = _parse_arguments(sys.argv[1:] if argv is None else argv)
            take_sql(args)
            with show_bars(stderr_is_terminal()):
                args.run(args)
        except BrokenPipeError:  # the reader stopped, as head does
            return ENDED_BY_PIPE
        except USER_ERRORS as error:
            _print_error(name_options(_describe(error)))
            return 2
        except KeyboardInterrupt:
            _print_error("interrupted")
            return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser that writes help completely, and names in errors without control characters."""

    def _print_message(self, message: str, file: Any = None) -> None:
        write = write_output if file is sys.stdout else write_error
        write(message)

    def error(self, message: str) -> NoReturn:
        super().error(escape_control(message))


def _parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse arguments. Those after ``--`` are marked, so that none is taken for an option.

    argparse does not accept rows after an option, as in `rank model -n 3 eu-7`; they are added
    here.
    """
    given = list(argv)
    if "--" in given:
        at = given.index("--") + 1
        given[at:] = [MARK + text for text in given[at:]]
    if given[:1] == ["rank"]:
        given = _mark_rows(given)
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


def _mark_rows(given: list[str]) -> list[str]:
    """Mark possible rows of `fastemf rank` that begin with a single -."""
    marked, is_value = [], False
    for text in given:
        is_long = text.startswith("--")
        is_short = re.fullmatch(predict.RANK_SHORT_OPTIONS, text) is not None
        is_row = _is_option(text) and not is_long and not is_short
        marked.append(MARK + text if is_row and not is_value else text)
        takes_value = is_long and text not in predict.RANK_FLAGS and "=" not in text
        is_value = not is_value and (takes_value or text in ("-n", "-o"))
    return marked


def _is_option(text: str) -> bool:
    """Return whether argparse takes a text for an option: not a negative number, nor - alone."""
    return len(text) > 1 and text[0] == "-" and not re.fullmatch(r"-\d+|-\d*\.\d+", text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fastemf",
        description="Expectile matrix factorization: predict the unobserved cells of a sparse "
        "matrix of skewed data, their quantiles, mean or expectiles.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastemf {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for module in COMMANDS:
        module.add_commands(commands)
    return parser


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _print_error(f"warning: {message}")


def _print_error(text: str) -> None:
    write_error(f"fastemf: {one_line(text)}\n")
