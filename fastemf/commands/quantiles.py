"""``fastemf quantiles``: p50, p95, p99 of every cell in one model."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import (
    add_censored,
    add_data,
    add_model,
    check_free,
    fit_options,
    read_data,
)
from fastemf.commands.info import print_facts

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "quantiles",
        help="fit quantiles such as p50 and p95 to a file of observations, write one model",
        description="Fit what a value usually is and how bad it gets: quantiles of every cell, "
        "built from expectile fits of the observations in a file. Print what they were worth on "
        "cells that had no part in them: the share at or below, and the pinball loss beside those "
        "of simpler predictions. fastemf predict then gives one column for each quantile; they "
        "never cross. fastemf rank --at 0.95 ranks by risk.",
    )
    add_data(parser, stores=True)
    add_censored(parser)
    parser.add_argument(
        "--at", type=float, nargs="+", default=[0.5, 0.95, 0.99], metavar="SHARE",
        help="shares of the values at or below, in (0, 1), after the data or before another "
        "option (default 0.5 0.95 0.99)",
    )  # fmt: skip
    add_model(parser)
    group = parser.add_argument_group("fits that may be interrupted")
    group.add_argument(
        "--checkpoint", metavar="FILE",
        help="keep the state of every fit, in files whose names begin like this one",
    )  # fmt: skip
    group.add_argument("--resume", action="store_true", help="go on from the files of --checkpoint")
    parser.set_defaults(run=run, tol=1e-4)


def run(args: argparse.Namespace) -> None:
    """Fit, save, and say what the quantiles are worth."""
    check_free(args.out, args.force)
    data = read_data(args)
    from fastemf.quantiles import complete_quantiles

    quantiles = complete_quantiles(
        data.pop("R"), args.at, args.rank, reg=args.reg, checkpoint=args.checkpoint,
        resume=args.resume, **data, **fit_options(args),
    )  # fmt: skip
    quantiles.save(args.out)
    print_facts(args.out, quantiles, to_json=args.json)
