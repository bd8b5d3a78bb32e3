"""``fastemf rank``: the best columns of a row."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import add_out_table, check_free_table, utf8
from fastemf.commands.label_text import from_text, like
from fastemf.commands.output import unused, write_columns
from fastemf.commands.pairs import read_pairs

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "rank",
        help="list the best columns of a row",
        description="List the columns with the smallest (or largest) predictions of each row, the "
        "best first. To rank by risk, rank by a high level.",
    )
    parser.add_argument("model", help="model file, of fastemf fit, levels or select")
    parser.add_argument(
        "row", nargs="*",
        help="labels of rows, or positions from 0 of a model without; none for all rows. Those "
        "that begin with - go last, after --",
    )  # fmt: skip
    parser.add_argument("-n", type=int, default=10, help="columns per row (default 10)")
    parser.add_argument(
        "--order", choices=("smallest", "largest"), default="smallest",
        help="smallest (default) if small values are good, largest if large ones are",
    )  # fmt: skip
    parser.add_argument(
        "--level", type=float, metavar="OMEGA",
        help="which level of a model that has several; taken alone, while predict sorts them",
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
    add_out_table(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Rank, and write one line per row and place."""
    check_free_table(args.out, args.force, as_json=args.json)
    import numpy as np

    from fastemf import load

    model = load(args.model)
    if hasattr(model, "fits"):
        if args.level is None:
            levels = ", ".join(f"{omega:g}" for omega in model.omegas)
            raise ValueError(f"{args.model} has several levels ({levels}): choose one with --level")
        fit = model.level(args.level)
    elif args.level is None:
        fit = model
    else:
        raise ValueError(f"--level is for models of several levels; {args.model} has one")
    rows = from_text(fit.rows.labels, [utf8(text) for text in args.row]) if args.row else None
    found = fit.rank(rows, args.n, order=args.order, seen=seen_of(args, fit))
    if rows is None:
        rows = fit.rows.ids()
    kept = ~np.isnan(found.values)
    place = np.broadcast_to(np.arange(1, found.values.shape[1] + 1), found.values.shape)
    names = [fit.rows.name or "row", fit.cols.name or "col"]
    columns = {
        names[0]: np.repeat(rows, kept.sum(axis=1)),
        unused("place", names): place[kept],
        names[1]: found.cols[kept],
        unused("prediction", names): found.values[kept],
    }
    write_columns(columns, args.out, args.json)


def seen_of(args: argparse.Namespace, fit: Any) -> Any:
    """Read the pairs to leave out, as `Factorization.rank` takes them."""
    if args.seen is None:
        return None
    pairs = read_pairs(args.seen, args, fit)
    if pairs is None:
        return args.seen
    names, *columns = pairs
    rows, cols = (
        like(axis.labels, column, f"column {name!r} of --seen")
        for axis, column, name in zip(fit.axes, columns, names, strict=True)
    )
    return rows, cols, [1.0] * len(rows)
