"""``fastemf rank``: the best columns of a row."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import add_json, add_out, check_free, read_data
from fastemf.commands.label_text import from_text, like
from fastemf.commands.output import write_columns

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "rank",
        help="best columns of a row by a model",
        description="List the columns with the smallest (or largest) predictions of each row. To "
        "rank by risk, rank by a high level.",
    )
    parser.add_argument("model", help="model file")
    parser.add_argument("row", nargs="*", help="labels (or positions) of rows; none for all rows")
    parser.add_argument("-n", type=int, default=10, help="columns per row (default 10)")
    parser.add_argument(
        "--order", choices=("smallest", "largest"), default="smallest", help="(default smallest)"
    )
    parser.add_argument(
        "--level", type=float, metavar="OMEGA", help="which level of a model that has several"
    )
    parser.add_argument(
        "--seen", metavar="FILE", help="observations whose pairs are left out (see fastemf fit)"
    )
    for name in ("rows", "cols", "values"):
        parser.add_argument(f"--{name}", metavar="NAME", help=f"column of --seen with the {name}")
    add_out(parser, "table to write (default: CSV to standard output)", required=False)
    add_json(parser)
    parser.set_defaults(run=run, weights=None)


def run(args: argparse.Namespace) -> None:
    """Rank, and write one line per row and place."""
    check_free(args.out, args.force)
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
    rows = from_text(fit.row_labels, args.row) if args.row else None
    found = fit.rank(rows, args.n, order=args.order, seen=seen_of(args, fit))
    if rows is None:
        rows = np.arange(fit.shape[0]) if fit.row_labels is None else fit.row_labels.values
    kept = ~np.isnan(found.values)
    place = np.broadcast_to(np.arange(1, found.values.shape[1] + 1), found.values.shape)
    names = [
        (labels and labels.name) or default
        for labels, default in ((fit.row_labels, "row"), (fit.col_labels, "col"))
    ]
    columns = {
        names[0]: np.repeat(rows, kept.sum(axis=1)),
        "place": place[kept],
        names[1]: found.cols[kept],
        "prediction": found.values[kept],
    }
    write_columns(columns, args.out, args.json)


def seen_of(args: argparse.Namespace, fit: Any) -> Any:
    """The pairs to leave out, as `Factorization.rank` takes them."""
    if args.seen is None:
        return None
    from fastemf.table_files import read

    data = read_data(args, "seen")
    if "rows" not in data:
        return data["R"]
    names = [data["rows"], data["cols"]]
    table = read(data["R"], names, []).content
    sides = (fit.row_labels, fit.col_labels)
    rows, cols = (
        like(labels, table.column(name)) for labels, name in zip(sides, names, strict=True)
    )
    return rows, cols, [1.0] * len(rows)
