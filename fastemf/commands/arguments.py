"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = [
    "add_data",
    "add_fit",
    "add_json",
    "add_out",
    "check_free",
    "fit_options",
    "number_or_auto",
    "read_data",
    "show_progress",
    "source_of",
]

FORMATS = "CSV, TSV, Parquet, Matrix Market (.mtx) or scipy sparse (.npz) by its ending, or a store"


def add_data(parser: argparse.ArgumentParser, name: str = "data") -> None:
    """The observations: a file and the names of its columns."""
    parser.add_argument(name, help=f"observations: {FORMATS}; - reads CSV from standard input")
    group = parser.add_argument_group(
        "columns", "of a table; by default its three columns are rows, columns and values"
    )
    group.add_argument("--rows", metavar="NAME", help="column with the label of the row")
    group.add_argument("--cols", metavar="NAME", help="column with the label of the column")
    group.add_argument("--values", metavar="NAME", help="column with the value observed")
    group.add_argument("--weights", metavar="NAME", help="column with positive weights")


def add_fit(parser: argparse.ArgumentParser) -> None:
    """What `fastemf.complete` can be told from a shell, but level, rank and ridge."""
    group = parser.add_argument_group("fit")
    group.add_argument(
        "--no-intercepts", dest="intercepts", action="store_false",
        help="the product of the factors alone, as in the paper and by default in Python; here "
        "mu + row + column intercepts are added, which predict better",
    )  # fmt: skip
    group.add_argument("--max-iter", type=int, default=100, help="most sweeps (default 100)")
    group.add_argument(
        "--tol", type=float, default=1e-5,
        help="stop when a sweep lowers the objective by less than this share (default 1e-5)",
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=0, help="of the start (default 0)")
    group.add_argument("--jobs", type=int, default=-1, help="threads (default: all cores)")


def fit_options(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords that `add_fit` stands for."""
    return {
        "intercepts": args.intercepts, "max_iter": args.max_iter, "tol": args.tol,
        "random_state": args.seed, "n_jobs": args.jobs, "progress": show_progress(),
    }  # fmt: skip


def add_out(parser: argparse.ArgumentParser, what: str, *, required: bool) -> None:
    """Where the result goes."""
    parser.add_argument("-o", "--out", required=required, metavar="FILE", help=what)
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Output for programs."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def number_or_auto(text: str) -> float | str:
    """A ridge: what is not a number is left for the library to judge."""
    try:
        return float(text)
    except ValueError:
        return text


def check_free(path: str | None, force: bool, option: str = "--out") -> None:
    """Before any work: a result must not land on something that is there."""
    if path is None or path == "-":
        return
    if Path(path).is_dir():
        raise IsADirectoryError(f"{option} {path} is a folder")
    if Path(path).exists() and not force:
        raise FileExistsError(f"{option} {path} exists; --force replaces it")
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"{option} {path}: there is no such folder")


def source_of(path: str) -> Callable[[], Any]:
    """What to read a file from, as often as one likes: standard input too."""
    if path != "-":
        return lambda: path
    content = sys.stdin.buffer.read()

    def reopened() -> Any:
        file = io.BytesIO(content)
        file.name = "standard input"
        return file

    return reopened


def read_data(args: argparse.Namespace, name: str = "data") -> dict[str, Any]:
    """The keywords R, rows, cols, values and weights of `fastemf.complete`."""
    from fastemf.table_files import column_names

    path = getattr(args, name)
    source = source_of(path)
    present = None if Path(path).is_dir() else column_names(source())
    options = {"--rows": args.rows, "--cols": args.cols, "--values": args.values}
    missing = [option for option, column in options.items() if column is None]
    if present is None:
        if len(missing) < 3 or args.weights is not None:
            raise ValueError(f"{path} is not a table: it has no columns to name")
        return {"R": path}
    columns = list(options.values())
    if missing:
        if len(missing) < 3 or len(present) != 3:
            raise ValueError(
                f"name the columns of {path} with {', '.join(missing)}; "
                f"there are {', '.join(present)}"
            )
        columns = list(present)
    return {
        "R": source(), "rows": columns[0], "cols": columns[1], "values": columns[2],
        "weights": args.weights,
    }  # fmt: skip


def show_progress() -> bool:
    """Bars are for people."""
    return sys.stderr.isatty()
