"""``fastemf levels``: several levels in one model."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import (
    add_censored,
    add_data,
    add_model,
    add_validation,
    check_free,
    fit_options,
    read_data,
)
from fastemf.commands.info import print_facts

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "levels",
        help="fit several levels to a file of observations, write one model",
        description="Fit a low-rank model at each of several expectile levels to the observations "
        "in a file. fastemf predict then gives one column for each; they never cross.",
    )
    add_data(parser, stores=True)
    add_censored(parser)
    parser.add_argument(
        "--omegas", "--at", type=float, nargs="+", default=[0.1, 0.5, 0.9], metavar="OMEGA",
        help="two levels or more in (0, 1), after the data or before another option (default "
        "0.1 0.5 0.9); high for the upper tail, not quantiles",
    )  # fmt: skip
    add_validation(parser)
    add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fit, save, and say what came of it."""
    check_free(args.out, args.force)
    data = read_data(args)
    from fastemf.levels import complete_levels

    levels = complete_levels(
        data.pop("R"), args.omegas, args.rank, reg=args.reg, validation=args.validation,
        **data, **fit_options(args),
    )  # fmt: skip
    levels.save(args.out)
    print_facts(args.out, levels, to_json=args.json)
