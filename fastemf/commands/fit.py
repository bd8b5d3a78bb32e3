"""``fastemf fit``, ``levels`` and ``quantiles``: from a file of observations to a model file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fastemf.commands.info import print_model
from fastemf.commands.input import item_features, read_data
from fastemf.commands.options import (
    add_command,
    add_data,
    add_item_features,
    add_model,
    add_time,
    fit_options,
    parse_utf8,
)
from fastemf.commands.output import check_out


def add_commands(commands: Any) -> None:
    """Add the three commands."""
    parser = _add_fit(
        commands, "quantiles", run_quantiles,
        "fit quantiles such as p50 and p95 of every cell",
        "Fit quantiles of every cell to the observations in a file, and print their out-of-fold "
        "coverage and pinball loss next to baselines. fastemf predict returns one column for each "
        "quantile; they never cross. fastemf rank --tau 0.95 ranks by p95.",
        "--at", nargs="+", default=[0.5, 0.95, 0.99], metavar="TAU",
        validation="report coverage and loss on them",
        help="quantiles in (0, 1), after the data or before another option (default 0.5 0.95 0.99)",
    )  # fmt: skip
    group = _add_side_features(parser)
    text = "categorical side feature; the coverage report has a line for each of its categories"
    group.add_argument("--groups", metavar="NAME", type=parse_utf8, help=text)
    group.add_argument(
        "--calibrate", action="store_const", const="groups",
        help="shift each category of --groups with at least 500 out-of-fold cells to its coverage",
    )  # fmt: skip
    group = parser.add_argument_group("checkpoints")
    text = "save the state of each fit, in one file per fit whose name starts with that of FILE"
    group.add_argument("--checkpoint", metavar="FILE", help=text)
    group.add_argument("--resume", action="store_true", help="continue from the checkpoints")
    parser.set_defaults(tol=1e-4)

    _add_fit(
        commands, "fit", run_fit,
        "fit one expectile level",
        "Fit a low-rank model of one expectile level to the observations in a file, and print how "
        "well it predicts validation cells. Use it with fastemf predict, rank and evaluate.",
        "--omega", default=0.5,
        help="expectile level in (0, 1): 0.5 for the mean (default), larger for the upper tail, "
        "smaller for the lower tail. It is not a quantile",
    )  # fmt: skip

    parser = _add_fit(
        commands, "levels", run_levels,
        "fit several expectile levels",
        "Fit a low-rank model at several expectile levels to the observations in a file. fastemf "
        "predict returns one column for each level; they never cross.",
        "--omegas", nargs="+", default=[0.1, 0.5, 0.9], metavar="OMEGA",
        help="two or more expectile levels in (0, 1), after the data or before another option "
        "(default 0.1 0.5 0.9). They are not quantiles",
    )  # fmt: skip
    text = "combine cross-fitted models with boosted trees, as for quantiles"
    parser.add_argument("--boost", action="store_true", help=text)
    _add_side_features(parser)


def _add_side_features(parser: argparse.ArgumentParser) -> Any:
    """Add side features, and return their group of options."""
    group = parser.add_argument_group("side features")
    text = "further columns of the data that predict the values, such as the hour"
    group.add_argument("--features", nargs="+", metavar="NAME", type=parse_utf8, help=text)
    add_item_features(group)
    return group


def _add_fit(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], help_: str,
    description: str, option: str, *,
    validation: str = "stop when their loss no longer decreases", **settings: Any,
) -> argparse.ArgumentParser:  # fmt: skip
    """Add a command that fits levels or quantiles, given as `option`."""
    parser = add_command(commands, name, run, help_, description)
    add_data(parser, stores=True, censored=True, histograms=True)
    parser.add_argument(option, type=float, **settings)
    add_time(parser)
    add_model(parser, validation)
    return parser


def run_quantiles(args: argparse.Namespace) -> None:
    """Fit quantiles."""
    if args.resume and args.checkpoint is None:
        raise ValueError("--resume requires --checkpoint, the files to continue from")
    from fastemf import Checkpoint

    checkpoint = args.checkpoint and Checkpoint(args.checkpoint, resume=args.resume)
    side = {"features": args.features, **item_features(args)}
    groups = {"groups": args.groups, "calibrate": args.calibrate}
    options = {"checkpoint": checkpoint, **side, **groups}
    _fit(args, "complete_quantiles", args.at, **options)


def run_fit(args: argparse.Namespace) -> None:
    """Fit one level."""
    _fit(args, "complete", args.omega)


def run_levels(args: argparse.Namespace) -> None:
    """Fit several levels."""
    side = {"features": args.features, **item_features(args)}
    _fit(args, "complete_levels", args.omegas, boost=args.boost, **side)


def _fit(args: argparse.Namespace, task: str, at: Any, **options: Any) -> None:
    """Fit the data at one or several levels or quantiles, save the model and print it."""
    check_out(args)
    data = read_data(args)
    import fastemf

    rank = "auto" if args.rank is None else args.rank
    options |= {"time": args.time, "half_life": args.half_life, "validation": args.validation}
    model = getattr(fastemf, task)(
        data.pop("R"), at, rank, reg=args.reg, **options, **data, **fit_options(args)
    )
    model.save(args.out)
    print_model(args.out, model, to_json=args.json)
