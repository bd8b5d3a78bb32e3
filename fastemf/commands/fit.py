"""``fastemf fit``: one level, from a file of observations to a model file."""

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
        "fit",
        help="fit one level to a file of observations, write a model",
        description="Fit a low-rank model of one expectile level to the observations in a file. "
        "Row and column intercepts are on (in Python they are off by default).",
    )
    add_data(parser)
    level = parser.add_mutually_exclusive_group()
    level.add_argument(
        "--omega", type=float, default=0.5,
        help="expectile level in (0, 1): low for typical values, high for the tail; not a "
        "quantile (default 0.5, the mean)",
    )  # fmt: skip
    level.add_argument(
        "--coverage", type=float, metavar="SHARE",
        help="instead of a level: find the one whose fit leaves this share of held-out values "
        "below, such as 0.95",
    )  # fmt: skip
    parser.add_argument("-k", "--rank", type=int, default=5, help="rank (default 5)")
    parser.add_argument(
        "--reg", type=number_or_auto, default="auto", help='ridge: "auto" (default) or a number'
    )
    parser.add_argument(
        "--validation", type=float, metavar="SHARE",
        help="hold out this share of the cells and stop when they are predicted no better",
    )  # fmt: skip
    add_fit(parser)
    add_out(parser, "model file to write (.npz)", required=True)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fit, save, and say what came of it."""
    check_free(args.out, args.force)
    data = read_data(args)

    from fastemf.commands.info import describe, render

    found: dict[str, Any] = {}
    if args.coverage is None:
        from fastemf.completion import complete

        fit = complete(
            data.pop("R"), args.omega, args.rank, reg=args.reg, validation=args.validation,
            **data, **fit_options(args),
        )  # fmt: skip
    else:
        from fastemf.coverage import level_for_coverage

        if args.validation is not None:
            raise ValueError("--validation and --coverage both hold cells out: give one of them")
        covered = level_for_coverage(
            data.pop("R"), args.coverage, args.rank, reg=args.reg, **data, **fit_options(args)
        )
        fit = covered.fit
        found = {"coverage": covered.coverage, "coverage_error": covered.standard_error}
    fit.save(args.out)
    facts = {"model": args.out, **describe(fit), **found}
    print(json.dumps(facts) if args.json else render(facts))
