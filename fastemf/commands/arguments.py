"""Options that several commands share, and what is made of them."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from fastemf.support.terminal import stderr_is_terminal

__all__ = [
    "add_censored",
    "add_data",
    "add_fit",
    "add_json",
    "add_model",
    "add_out",
    "add_out_table",
    "add_unknown",
    "add_validation",
    "add_writing",
    "check_free",
    "check_free_table",
    "fit_options",
    "is_text_file",
    "number_or_rule",
    "read_data",
    "read_judged",
    "refuse_header",
    "refuse_writing",
    "rereadable",
    "utf8",
    "writing_of",
]

FORMATS = (
    "CSV or TSV (also .gz and .zst), JSON lines (.jsonl), Parquet, Matrix Market (.mtx) or scipy "
    "sparse (.npz) by its ending"
)


def add_data(parser: argparse.ArgumentParser, name: str = "data", *, stores: bool = False) -> None:
    """Add the observations: a file and the names of its columns."""
    store = ", or a store (see fastemf store)" if stores else ""
    parser.add_argument(
        name, help=f"observations: {FORMATS}{store}; - reads CSV from standard input"
    )
    group = parser.add_argument_group(
        "columns of a table",
        "Each line is one observation: who, of what, how much; the first line of a text has the "
        "names of the columns. Columns named by --rows and --cols "
        "become the rows and columns of the matrix. Not needed for a table of three columns in "
        "this order, --weights and --censored apart.",
    )
    group.add_argument(
        "--rows", metavar="NAME", type=utf8, help="column of what becomes a row, such as clients"
    )
    group.add_argument(
        "--cols",
        metavar="NAME",
        type=utf8,
        help="column of what becomes a column, such as services",
    )
    group.add_argument(
        "--values", metavar="NAME", type=utf8, help="column with the numbers observed"
    )
    group.add_argument(
        "--weights",
        metavar="NAME",
        type=utf8,
        help="column with positive weights (default: all weigh 1)",
    )

    add_writing(parser)


def add_censored(parser: argparse.ArgumentParser) -> None:
    """Add which of the observations are limits that the truth was beyond."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--censored-above", type=float, metavar="LIMIT",
        help="values at or above LIMIT say only that the truth is above, as time-outs do",
    )  # fmt: skip
    group.add_argument(
        "--censored-below", type=float, metavar="LIMIT",
        help="values at or below LIMIT say only that the truth is below, as those under what an "
        "instrument can detect do",
    )  # fmt: skip
    group.add_argument(
        "--censored", type=utf8, metavar="NAME",
        help="column that says the same line by line: right (or true) for a value that the truth "
        "is above, left for one that it is below, else empty",
    )  # fmt: skip


def censored_of(args: argparse.Namespace) -> Any:
    """Return the keyword `censored` that `add_censored` stands for."""
    for side, limit in (("right", "censored_above"), ("left", "censored_below")):
        if getattr(args, limit, None) is not None:
            return side, getattr(args, limit)
    return getattr(args, "censored", None)


def add_writing(parser: argparse.ArgumentParser) -> None:
    """Add how the text of a table is written, where that is not as its ending says."""
    parser.add_argument(
        "--sep", metavar="CHAR",
        help="what separates the columns of a text, such as ';' (default: a comma; a tab in .tsv)",
    )  # fmt: skip
    parser.add_argument(
        "--decimal", metavar="CHAR", help="decimal point of its numbers, such as , (default: .)"
    )


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Add the options of a fit, except level, rank and ridge."""
    group = parser.add_argument_group("how to fit")
    group.add_argument(
        "--no-intercepts", dest="intercepts", action="store_false",
        help="predict by the product of the factors alone, as in the paper and by default in "
        "Python's complete, without a constant, one per row and one per column beside it",
    )  # fmt: skip
    group.add_argument(
        "--max-iter", type=int, default=100, metavar="N", help="most sweeps (default 100)"
    )
    group.add_argument(
        "--tol", type=float, default=1e-5,
        help="stop when a sweep lowers the objective by less than this share (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--seed", type=int, default=0,
        help="random seed (default 0); the same seed gives the same fit",
    )  # fmt: skip
    group.add_argument(
        "--jobs", type=int, default=-1, metavar="N",
        help="threads (default: all cores); the fit does not depend on them",
    )  # fmt: skip


def add_validation(parser: argparse.ArgumentParser) -> None:
    """Add the option for early stopping."""
    parser.add_argument(
        "--validation", type=float, metavar="SHARE",
        help="hold out this share of the cells and stop when they are predicted no better",
    )  # fmt: skip


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a model file: rank, ridge, how to fit, where to write."""
    parser.add_argument(
        "-k", "--rank", type=int, default=5, metavar="K",
        help="rank: most factors of each row and column (default 5, of which a tuned fit uses "
        "what helps; Python has no default); 0 for intercepts alone",
    )  # fmt: skip
    parser.add_argument(
        "--reg", type=number_or_rule, default="auto",
        help="ridge, which keeps the fit from following noise: auto (default) tunes it on "
        "observations set aside, noise follows the size of the residuals in one fit, a number "
        "sets it",
    )  # fmt: skip
    add_fit(parser)
    add_out(parser, "model file to write (.npz)", required=True)
    add_json(parser)


def fit_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords that `add_fit` stands for."""
    return {
        "intercepts": args.intercepts, "max_iter": args.max_iter, "tol": args.tol,
        "random_state": args.seed, "n_jobs": args.jobs, "progress": stderr_is_terminal(),
    }  # fmt: skip


def add_out(parser: argparse.ArgumentParser, what: str, *, required: bool) -> None:
    """Add the place of the result."""
    parser.add_argument("-o", "--out", required=required, metavar="FILE", help=what)
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def add_out_table(parser: argparse.ArgumentParser) -> None:
    """Add the place of a table."""
    what = "CSV, TSV or Parquet file to write, by its ending (default: CSV to standard output)"
    add_out(parser, what, required=False)
    parser.add_argument("--json", action="store_true", help="write JSON instead")


def add_unknown(parser: argparse.ArgumentParser, what: str) -> None:
    """Add what becomes of labels that the model does not have; `what` they get as NaN."""
    parser.add_argument(
        "--unknown", choices=("error", "nan", "model"), default="error",
        help=f"labels that the model does not have: an error (default), nan for {what}, or model "
        "for what is known without them, such as the level of a column in a new row",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add output for programs."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def utf8(text: str) -> str:
    """Parse a label or the name of a column as the UTF-8 that it is, whatever the locale says."""
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError:  # text that did not come from a shell
        return text
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"labels and names of columns must be UTF-8, got {raw!r}") from None


def number_or_rule(text: str) -> float | str:
    """Parse a ridge; text that is not a number is left for the library to judge."""
    try:
        return float(text)
    except ValueError:
        return text


def check_free(path: str | None, force: bool, option: str = "--out") -> None:
    """Refuse, before any work, a place where the result cannot go or would replace a file."""
    if path is None:
        return
    if path == "-":
        raise ValueError(f"{option} must be a file, got - for standard output")
    folder = Path(path).absolute().parent
    if Path(path).is_dir():
        raise IsADirectoryError(f"{option} {path} is a folder")
    if Path(path).exists() and not Path(path).is_file():
        raise OSError(f"{option} {path} is not a regular file")
    if Path(path).exists() and not force:
        raise FileExistsError(f"{option} {path} exists; --force replaces it")
    if not folder.is_dir():
        raise FileNotFoundError(f"{option} {path}: there is no such folder")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{option} {path}: its folder cannot be written to")


def check_free_table(path: str | None, force: bool, *, as_json: bool = False) -> None:
    """Check the same for a table, whose ending is its format; standard output is always free."""
    if path is None or path == "-":
        return
    check_free(path, force)
    from fastemf.inputs.table_files import check_writable

    if not as_json:
        check_writable(path)
    elif not path.lower().endswith(".json"):
        raise ValueError(f"--out must end in .json with --json, got {path}")


def writing_of(args: argparse.Namespace) -> dict[str, str]:
    """Return what `add_writing` was told, as fields of a CSV file."""
    told = {"--sep": ("delimiter", args.sep), "--decimal": ("decimal", args.decimal)}
    for option, (_, value) in told.items():
        if value is not None and len(value) != 1:
            raise ValueError(f"{option} must be one character, got {value!r}")
    return {name: value for name, value in told.values() if value is not None}


def refuse_writing(path: str) -> NoReturn:
    """Say that a file is no text which could be written in another way."""
    from fastemf.inputs.table_files import TEXTS

    raise ValueError(f"--sep and --decimal are for texts ({', '.join(TEXTS)}), got {path}")


def rereadable(path: str, args: argparse.Namespace) -> Callable[[], Any]:
    """Return a function that opens a file, or standard input, any number of times."""
    from fastemf.inputs.table_files import name_of, text_in

    given = writing_of(args)
    if path != "-" and not given:
        return lambda: path
    if path == "-" and sys.stdin is None:
        raise ValueError("standard input is closed")
    if path == "-":
        content = sys.stdin.buffer.read()
    else:
        text = text_in(Path(path), **given) or refuse_writing(path)
        with text.opened() as opened:
            content = bytes(opened.read())
        given = {"delimiter": text.delimiter, "decimal": text.decimal}

    def reopened() -> Any:
        file = io.BytesIO(content)
        for attribute, value in ({"name": name_of(path)} | given).items():
            setattr(file, attribute, value)
        return file

    return reopened


def refuse_header(path: str, name: str, options: str) -> NoReturn:
    """Say that the first line of a text, which would be names that nobody gave, is none."""
    from fastemf.inputs.table_files import name_of

    raise ValueError(
        f"{name_of(path)}: the first line looks like data, not like column names: it would give "
        f"the name {name}; put a line of names before it, or give those it has with {options}"
    )


def is_text_file(path: str) -> bool:
    """Tell whether names of columns come from the first line of a text."""
    from fastemf.inputs.table_files import text_in

    return path == "-" or text_in(Path(path)) is not None


def _is_number(text: str, decimal: str) -> bool:
    """Tell whether a text is a number, as nan and inf are: a log may begin with them."""
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True


def read_data(args: argparse.Namespace, name: str = "data") -> dict[str, Any]:
    """Return the keywords R, rows, cols, values and weights of `fastemf.complete`."""
    from fastemf.inputs.table_files import column_names, name_of

    path = getattr(args, name)
    source = rereadable(path, args)
    present = None if Path(path).is_dir() else column_names(source())
    options = {"--rows": args.rows, "--cols": args.cols, "--values": args.values}
    missing = [option for option, column in options.items() if column is None]
    censored = censored_of(args)
    told = {} if censored is None else {"censored": censored}
    if present is None:
        if len(missing) < 3 or args.weights is not None or isinstance(censored, str):
            raise ValueError(f"{path} is not a table: it has no columns to name")
        return {"R": path, **told}
    columns = list(options.values())
    if missing:
        present = [name for name in present if name not in (args.weights, censored)]
        if len(missing) < 3 or len(present) != 3:
            raise ValueError(
                f"name the columns of {name_of(path)} with {', '.join(missing)}; "
                f"there are {', '.join(present)}"
            )
        columns = list(present)
        if is_text_file(path) and _is_number(columns[2], args.decimal or "."):
            refuse_header(path, f"{columns[2]!r} for the values", "--rows, --cols and --values")
    return {
        "R": source(), "rows": columns[0], "cols": columns[1], "values": columns[2],
        "weights": args.weights, **told,
    }  # fmt: skip


def read_judged(args: argparse.Namespace, model: Any, name: str = "data") -> dict[str, Any]:
    """Return the same keywords, where columns are by default those that a model was fitted to."""
    from fastemf.inputs.table_files import column_names

    source = rereadable(getattr(args, name), args)
    present = column_names(source())
    ours = (*(axis.name for axis in model.axes), getattr(model, "value_name", None))
    given = (args.rows, args.cols, args.values)
    columns = [told or own for told, own in zip(given, ours, strict=True)]
    if present is None or not set(columns) <= set(present):
        return read_data(args, name)
    censored = censored_of(args)
    return {
        "R": source(), "rows": columns[0], "cols": columns[1], "values": columns[2],
        "weights": args.weights, **({} if censored is None else {"censored": censored}),
    }  # fmt: skip
