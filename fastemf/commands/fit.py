"""``fastemf fit``: one level, from a file of observations to a model file."""

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
        "fit",
        help="fit one level to a file of observations, write a model",
        description="Fit a low-rank model of one expectile level to the observations in a file, "
        "write it to another, and say what came of it and what its predictions are worth. Ask it "
        "with fastemf predict and rank.",
    )
    add_data(parser, stores=True)
    add_censored(parser)
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "--omega", type=float, default=0.5,
        help="expectile level in (0, 1): 0.5 for the mean (default), high for the upper tail, low "
        "for the lower end; it is not a quantile",
    )  # fmt: skip
    level.add_argument(
        "--coverage", type=float, metavar="SHARE",
        help="instead of a level: the one that has this share of the values at or below the fit, "
        "such as 0.95, found on a fifth of the cells that is held out; fastemf quantiles is "
        "sharper",
    )  # fmt: skip
    add_validation(parser)
    add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fit, save, and say what came of it."""
    check_free(args.out, args.force)
    if args.validation is not None and args.coverage is not None:
        raise ValueError("--validation and --coverage both hold cells out: give one of them")
    data = read_data(args)
    if args.coverage is None:
        from fastemf.completion import complete

        fit = complete(
            data.pop("R"), args.omega, args.rank, reg=args.reg, validation=args.validation,
            **data, **fit_options(args),
        )  # fmt: skip
    else:
        from fastemf.coverage import level_for_coverage

        fit = level_for_coverage(
            data.pop("R"), args.coverage, args.rank, reg=args.reg, **data, **fit_options(args)
        ).fit
    fit.save(args.out)
    print_facts(args.out, fit, to_json=args.json)
