"""``fastemf levels``: several levels in one model."""

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
        "levels",
        help="fit several levels to a file of observations, write one model",
        description="Fit several expectile levels that never cross; `fastemf predict` then gives "
        "one column for each.",
    )
    add_data(parser)
    parser.add_argument(
        "--omegas", type=float, nargs="+", default=[0.1, 0.5, 0.9], metavar="OMEGA",
        help="levels in (0, 1) (default 0.1 0.5 0.9)",
    )  # fmt: skip
    parser.add_argument("-k", "--rank", type=int, default=5, help="rank (default 5)")
    parser.add_argument(
        "--reg", type=number_or_auto, default="auto", help='ridge: "auto" (default) or a number'
    )
    add_fit(parser)
    add_out(parser, "model file to write (.npz)", required=True)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fit, save, and say what came of it."""
    check_free(args.out, args.force)
    data = read_data(args)
    from fastemf.commands.info import describe, render
    from fastemf.levels import complete_levels

    levels = complete_levels(
        data.pop("R"), args.omegas, args.rank, reg=args.reg, **data, **fit_options(args)
    )
    levels.save(args.out)
    facts = {"model": args.out, **describe(levels)}
    print(json.dumps(facts) if args.json else render(facts))
