"""``fastemf rank``: the best columns of a row."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import (
    add_out_table,
    add_unknown,
    add_writing,
    check_free_table,
    utf8,
)
from fastemf.commands.label_text import from_text, like
from fastemf.commands.output import unused, write_columns
from fastemf.commands.pairs import read_pairs

__all__ = ["FLAGS", "SHORT", "add", "run"]

SHORT = r"-n(-?\d+)?|-o.*|-h"  # short options, which are no rows unless they follow --
FLAGS = ("--force", "--json", "--help")  # long options that are followed by no value


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "rank",
        help="list the best columns of a row",
        description="List the columns with the smallest (or largest) predictions of each row, the "
        "best first. To rank by risk, rank by a high quantile: --at 0.95.",
    )
    parser.add_argument("model", help="model file, of fastemf fit, levels, quantiles or select")
    parser.add_argument(
        "row", nargs="*",
        help="labels of rows, or positions from 0 of a model without; none for all rows. Those "
        "that look like options (--x, -n1, -ox) go last, after --",
    )  # fmt: skip
    parser.add_argument("-n", type=int, default=10, help="columns per row (default 10)")
    parser.add_argument(
        "--order", choices=("smallest", "largest"), required=True,
        help="smallest if small values are good, largest if large ones are; as in Python there is "
        "no default, because the wrong one lists the worst",
    )  # fmt: skip
    parser.add_argument(
        "--at", "--level", dest="level", type=float, metavar="LEVEL",
        help="which quantile or level of a model that has several to rank by",
    )  # fmt: skip
    parser.add_argument(
        "--seen", metavar="FILE",
        help="leave out the pairs in this file, such as the one fitted: a table or a matrix, as "
        "fastemf fit takes them",
    )  # fmt: skip
    for name, what in (("rows", "rows"), ("cols", "columns")):
        parser.add_argument(
            f"--{name}", metavar="NAME", type=utf8,
            help=f"column of --seen with the {what} (default: the name it had in the fit)",
        )  # fmt: skip
    add_writing(parser)
    add_unknown(parser, "no columns")
    add_out_table(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Rank, and write one line per row and place."""
    check_free_table(args.out, args.force, as_json=args.json)
    import numpy as np

    from fastemf import load

    model = load(args.model)
    if args.level is None:
        check_one_level(args.model, model)
    texts = [utf8(text) for text in args.row]
    rows = from_text(model.row_labels, texts, args.unknown) if texts else None
    found = model.rank(
        rows, args.n, order=args.order, level=args.level, seen=seen_of(args, model),
        unknown=args.unknown,
    )  # fmt: skip
    if rows is None:
        rows = model.axes[0].ids()
    elif args.unknown != "error":  # and those that are new have no other name
        rows = np.array(texts, object)
    kept = ~np.isnan(found.values)
    place = np.broadcast_to(np.arange(1, found.values.shape[1] + 1), found.values.shape)
    names = [axis.name or other for axis, other in zip(model.axes, ("row", "col"), strict=True)]
    columns = {
        names[0]: np.repeat(rows, kept.sum(axis=1)),
        unused("place", names): place[kept],
        names[1]: found.cols[kept],
        unused("prediction", names): found.values[kept],
    }
    write_columns(columns, args.out, args.json)


def check_one_level(path: str, model: Any) -> None:
    """Refuse a model of which one must be told what to rank by."""
    for option, several in (("--at", "taus"), ("--level", "omegas")):
        if hasattr(model, several):
            listed = ", ".join(f"{level:g}" for level in getattr(model, several))
            what = "quantiles" if option == "--at" else "several levels"
            raise ValueError(f"{path} has {what} ({listed}): choose one with {option}")


def seen_of(args: argparse.Namespace, model: Any) -> Any:
    """Read the pairs to leave out, as `Model.rank` takes them."""
    if args.seen is None:
        return None
    pairs = read_pairs(args.seen, args, model)
    if pairs is None:
        return args.seen
    names, *columns = pairs
    rows, cols = (
        like(axis.labels, column, f"column {name!r} of --seen")
        for axis, column, name in zip(model.axes, columns, names, strict=True)
    )
    return rows, cols, [1.0] * len(rows)
