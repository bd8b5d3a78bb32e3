"""Command-line options that several commands share."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import Any

from fastemf.support.terminal import stderr_is_terminal

FORMATS = (
    "CSV, TSV or JSON lines (.jsonl), also .gz and .zst, Parquet, a folder or a glob of these, a "
    "DuckDB file (.duckdb), Matrix Market (.mtx) or scipy sparse (.npz), by extension"
)
COLUMNS = {
    "rows": "column with the row labels, such as clients",
    "cols": "column with the column labels, such as services",
    "values": "column with the observed numbers",
    "weights": "column with positive weights (default: all 1)",
}


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], help: str, description: str
) -> argparse.ArgumentParser:
    """Add a command that calls `run`, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    parser.set_defaults(run=run)
    return parser


def add_model_file(parser: argparse.ArgumentParser) -> None:
    """Add the model to read."""
    text = "model file written by fastemf fit, levels, quantiles, select or update"
    parser.add_argument("model", help=text)


def add_data(
    parser: argparse.ArgumentParser, *, stores: bool = False, censored: bool = False,
    histograms: bool = False,
) -> None:  # fmt: skip
    """Add the observations: a file, the names of its columns, and which values are censored."""
    store = ", or a store (see fastemf store)" if stores else ""
    text = f"observations: {FORMATS}{store}; - reads CSV from standard input"
    add_source(parser, "data", text)
    group = parser.add_argument_group(
        "columns of a table",
        "Each line is one observation: a row label, a column label and a value. The first line of "
        "a text file has the column names. A table with exactly these three columns, in this "
        "order and apart from --weights, --censored, --features and --time, needs no names.",
    )
    for name, text in COLUMNS.items():
        group.add_argument(f"--{name}", metavar="NAME", type=parse_utf8, help=text)
    add_text_format(parser)
    if histograms:
        _add_histograms(parser)
    if censored:
        _add_censored(parser)


def add_source(parser: argparse.ArgumentParser, name: str, text: str, many: bool = False) -> None:
    """Add an argument for files, and --sql, which takes its place."""
    parser.add_argument(name, nargs="*" if many else "?", help=text)
    text = (
        f'read the result of this query of DuckDB instead of {name}, such as "SELECT client, '
        "service, ms FROM 'logs/*.parquet'\""
    )
    parser.add_argument("--sql", metavar="QUERY", type=parse_utf8, help=text)
    parser.set_defaults(source_argument=name)


def take_sql(args: argparse.Namespace) -> None:
    """Put the query of --sql into the place of the files; one of the two must be given."""
    name = getattr(args, "source_argument", None)
    if name is None:
        return
    given = bool(getattr(args, name)) + (args.sql is not None)
    if given == 0 and getattr(args, "missing", None) is not None:
        return
    if given != 1:
        raise ValueError(f"give either {name} or --sql, got {'both' if given else 'neither'}")
    if args.sql is not None:
        from fastemf.inputs.query import sql

        setattr(args, name, sql(args.sql))


def add_item_features(parser: Any, text: str = "", *, cols: bool = True) -> None:
    """Add files with side features of rows and, if `cols`, of columns; `text` says more."""
    for option, what in {"row": "row", "col": "column"}.items() if cols else [("row", "row")]:
        parser.add_argument(
            f"--{option}-features", metavar="FILE",
            help=f"table with one line per {what} label, in a column named as in the data, and "
            f"side features in all other columns{text}",
        )  # fmt: skip


def add_text_format(parser: argparse.ArgumentParser) -> None:
    """Add the format of text tables that differ from the default of their extension."""
    text = "column separator of a text file, such as ';' (default: a comma, or a tab in .tsv)"
    parser.add_argument("--sep", metavar="CHAR", help=text)
    text = "decimal separator of a text file (default: .)"
    parser.add_argument("--decimal", metavar="CHAR", help=text)


def _add_histograms(parser: argparse.ArgumentParser) -> None:
    """Add the columns of histograms."""
    group = parser.add_argument_group(
        "histograms",
        "Each line is a bucket of a cumulative histogram, as in Prometheus, instead of a value.",
    )
    text = "column with the upper bounds of the buckets (+Inf for the last one)"
    group.add_argument("--le", metavar="NAME", type=parse_utf8, help=text)
    text = "column with the counts of values up to these bounds"
    group.add_argument("--count", metavar="NAME", type=parse_utf8, help=text)


def _add_censored(parser: argparse.ArgumentParser) -> None:
    """Add which observations are censored."""
    group = parser.add_mutually_exclusive_group()
    text = "values at or above LIMIT are right-censored, such as time-outs"
    group.add_argument("--censored-above", type=float, metavar="LIMIT", help=text)
    text = "values at or below LIMIT are left-censored, such as values below a detection limit"
    group.add_argument("--censored-below", type=float, metavar="LIMIT", help=text)
    group.add_argument(
        "--censored", type=parse_utf8, metavar="NAME",
        help="column that marks censored values: right (or true) if the true value is larger, left "
        "if it is smaller, empty if the value is exact",
    )  # fmt: skip


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Add the options of a fit except level, rank and ridge."""
    group = parser.add_argument_group("fit")
    group.add_argument(
        "--no-intercepts", dest="intercepts", action="store_false",
        help="fit only the product of factors, without row and column intercepts: the model of "
        "the paper, and the default of complete in Python",
    )  # fmt: skip
    text = "maximum number of sweeps (default 100)"
    group.add_argument("--max-iter", type=int, default=100, metavar="N", help=text)
    group.add_argument(
        "--tol", type=float, default=1e-5,
        help="stop when a sweep decreases the objective by less than this proportion (default "
        "%(default)g)",
    )  # fmt: skip
    text = "random seed (default 0); equal seeds give equal fits"
    group.add_argument("--seed", type=int, default=0, help=text)
    add_jobs(group)


def add_time(parser: argparse.ArgumentParser) -> None:
    """Add the time of the observations, and weights that decrease with age."""
    group = parser.add_argument_group("time")
    group.add_argument(
        "--time", metavar="NAME", type=parse_utf8,
        help="column with the time of each observation, numbers or dates: reports how a second "
        "fit, to the earlier part, predicts the latest tenth",
    )  # fmt: skip
    group.add_argument(
        "--half-life", metavar="AGE", type=parse_number,
        help="age at which the weight of an observation is halved: a number in the unit of --time, "
        "or for dates 7d, 12h, 30min, 45s or 2w; auto chooses it",
    )  # fmt: skip


def add_jobs(parser: Any) -> None:
    """Add the number of threads."""
    text = "threads (default: all cores); the result does not depend on it"
    parser.add_argument("--jobs", type=int, default=-1, metavar="N", help=text)


def add_model(parser: argparse.ArgumentParser, validation: str) -> None:
    """Add the options of a fit that writes a model file; `validation` is what held out cells do."""
    text = f"hold out this proportion of the cells, and {validation}"
    parser.add_argument("--validation", type=float, metavar="PROPORTION", help=text)
    parser.add_argument(
        "-k", "--rank", type=int, metavar="K",
        help="rank: maximum number of factors (default 5, or the number of rows or columns if that "
        "is smaller); 0 fits intercepts only. A tuned fit uses as many factors as help",
    )  # fmt: skip
    parser.add_argument(
        "--reg", type=parse_number, default="auto",
        help="ridge: auto (default) tunes it on validation cells, noise adapts it to the residual "
        "variance in a single fit, a number sets it",
    )  # fmt: skip
    add_fit(parser)
    add_out(parser, "model file to write (.npz)", required=True)
    add_json(parser)


def fit_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments for the options of `add_fit`."""
    return {
        "intercepts": args.intercepts, "max_iter": args.max_iter, "tol": args.tol,
        "random_state": args.seed, "n_jobs": args.jobs, "progress": stderr_is_terminal(),
    }  # fmt: skip


def add_out(parser: argparse.ArgumentParser, text: str, *, required: bool) -> None:
    """Add the output file."""
    parser.add_argument("-o", "--out", required=required, metavar="FILE", help=text)
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def add_out_table(parser: argparse.ArgumentParser) -> None:
    """Add the output file of a table."""
    text = "CSV, TSV or Parquet file to write, by extension (default: CSV to standard output)"
    add_out(parser, text, required=False)
    parser.add_argument("--json", action="store_true", help="write JSON instead")


def add_digits(parser: argparse.ArgumentParser) -> None:
    """Add the number of digits of predictions."""
    text = "round predictions to this number of significant digits (default: exact)"
    parser.add_argument("--digits", type=int, metavar="N", help=text)


def add_level(parser: argparse.ArgumentParser, purpose: str) -> Any:
    """Add the quantile or the expectile level that a model with several requires.

    Returns
    -------
    The group of options, of which one may be given.
    """
    group = parser.add_mutually_exclusive_group()
    text = f"quantile to {purpose}, of a model with quantiles"
    group.add_argument("--tau", type=float, help=text)
    text = f"expectile level to {purpose}, of a model with several levels"
    group.add_argument("--omega", type=float, help=text)
    return group


def add_cell_features(parser: argparse.ArgumentParser) -> None:
    """Add the side features of cells that are not in a file."""
    text = "side features of the cells, such as hour=20 (default: missing)"
    parser.add_argument("--features", nargs="+", metavar="NAME=VALUE", type=parse_utf8, help=text)


def add_unknown(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the treatment of unknown labels; `text` describes the result of nan."""
    parser.add_argument(
        "--unknown", choices=("error", "nan", "model"), default="error",
        help=f"labels that are not in the model: error (default); nan: {text}; model: predict from "
        "the known label of the pair, such as the column effect for a new row",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add machine-readable output."""
    parser.add_argument("--json", action="store_true", help="print JSON")


PARAMETERS = {"taus": "--at", "k": "-k", "n_jobs": "--jobs", "random_state": "--seed"}
SAME_NAME = ("clip", "folds", "half_life", "ks", "max_iter", "omega", "omegas", "reg", "regs",
             "tau", "time", "tol", "validation")  # fmt: skip


def name_options(message: str) -> str:
    """Replace the parameter that an error message begins with by the option it came from.

    Examples
    --------
    >>> from fastemf.commands.options import name_options
    >>> name_options("taus must be numbers in (0, 1), got 95")
    '--at must be numbers in (0, 1), got 95'
    """

    def option(found: re.Match[str]) -> str:
        name = found[0]
        return f"--{name.replace('_', '-')}" if name in SAME_NAME else PARAMETERS.get(name, name)

    return re.sub(r"(?<![^ ])\w+(?= must )", option, message, count=1)


def parse_utf8(text: str) -> str:
    """Decode a label or column name as UTF-8, independently of the locale."""
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError:  # text that did not come from a shell
        return text
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"labels and column names must be UTF-8, got {raw!r}") from None


def parse_number(text: str) -> float | str:
    """Parse a number; the library checks other text."""
    try:
        return float(text)
    except ValueError:
        return text
