"""``fastemf select``: rank and ridge by cross-validation."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastemf.commands.arguments import (
    add_censored,
    add_data,
    add_fit,
    add_json,
    add_out,
    check_free,
    fit_options,
    number_or_rule,
    read_data,
)
from fastemf.commands.output import as_json

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "select",
        help="choose rank and ridge by cross-validation",
        description="Compare ranks and ridges by how well they predict held-out cells (their "
        "expectile loss), print the comparison, and fit the chosen setting to all data.",
    )
    add_data(parser)
    add_censored(parser)
    parser.add_argument(
        "--omega", type=float, default=0.5, help="expectile level in (0, 1) (default 0.5, the mean)"
    )
    parser.add_argument(
        "--ks", type=int, nargs="+", metavar="K",
        help="ranks to compare, after the data or before another option (default 0 1 2 5 10)",
    )  # fmt: skip
    parser.add_argument(
        "--regs", type=number_or_rule, nargs="+", metavar="REG",
        help="ridges to compare: auto, noise or numbers (default auto, tuned in every fit)",
    )  # fmt: skip
    parser.add_argument(
        "--folds", type=int, default=5, metavar="N",
        help="parts of the cells, each held out once (default 5)",
    )  # fmt: skip
    parser.add_argument(
        "--rule", choices=("best", "one_se"), default="best",
        help="best (default): the smallest loss; one_se: the simplest setting within one standard "
        "error of it",
    )  # fmt: skip
    add_fit(parser)
    add_out(parser, "model file to write the chosen fit to (.npz)", required=False)
    parser.add_argument(
        "--plot", metavar="FILE", help="picture of the comparison to write: .png, .svg or .pdf"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Compare, print the table, save the chosen fit."""
    check_free(args.out, args.force)
    check_free(args.plot, args.force, "--plot")
    figure = None if args.plot is None else _figure(args.plot)
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
    if figure is not None:
        from fastemf.support.whole_file import replacing

        chosen.plot(ax=figure.subplots())
        with replacing(args.plot, "a picture") as file:
            figure.savefig(file, format=Path(args.plot).suffix[1:].lower())
    if args.json:
        best = asdict(chosen.best)
        print(as_json({"table": [asdict(line) for line in chosen.table], "best": best}))
    else:
        print(chosen)


def _figure(path: str) -> Any:
    """Return a figure that can be saved there, or refuse before the work."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'fastemf[plot]'") from None
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot must end in .png, .svg or .pdf, got {path}")
    return Figure(layout="constrained")
