"""``fastemf select``: rank and ridge by cross-validation."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fastemf.commands.arguments import (
    add_data,
    add_fit,
    add_json,
    add_out,
    check_free,
    fit_options,
    number_or_auto,
    read_data,
)

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "select",
        help="choose rank and ridge by cross-validation",
        description="Compare ranks and ridges by the expectile loss of held-out cells, and fit the "
        "chosen setting to all data.",
    )
    add_data(parser)
    parser.add_argument("--omega", type=float, default=0.5, help="expectile level (default 0.5)")
    parser.add_argument("--ks", type=int, nargs="+", metavar="K", help="ranks to compare")
    parser.add_argument(
        "--regs", type=number_or_auto, nargs="+", metavar="REG", help='ridges: "auto" or numbers'
    )
    parser.add_argument("--folds", type=int, default=5, help="parts to hold out (default 5)")
    parser.add_argument(
        "--rule", choices=("best", "one_se"), default="best",
        help="the smallest loss, or the simplest setting within its standard error",
    )  # fmt: skip
    add_fit(parser)
    add_out(parser, "model file to write the chosen fit to (.npz)", required=False)
    parser.add_argument("--plot", metavar="PNG", help="picture of the comparison to write")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Compare, print the table, save the chosen fit."""
    check_free(args.out, args.force)
    check_free(args.plot, args.force, "--plot")
    data = read_data(args)
    from dataclasses import asdict

    from fastemf.selection import select

    grid = {name: getattr(args, name) for name in ("ks", "regs") if getattr(args, name) is not None}
    chosen = select(
        data.pop("R"), args.omega, folds=args.folds, rule=args.rule, **grid, **data,
        **fit_options(args),
    )  # fmt: skip
    if args.out is not None:
        chosen.fit.save(args.out)
    if args.plot is not None:
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        chosen.plot(ax=figure.subplots())
        figure.savefig(args.plot)
    if args.json:
        best = asdict(chosen.best)
        print(json.dumps({"table": [asdict(line) for line in chosen.table], "best": best}))
    else:
        print(chosen)
