"""``fastemf select``: rank and ridge by cross-validation."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastemf.commands import options
from fastemf.commands.input import read_data
from fastemf.commands.output import as_json, check_out, print_text


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = options.add_command(
        commands, "select", run,
        "choose rank and ridge by cross-validation",
        "Compare ranks and ridges by their expectile loss on held-out cells, print the comparison, "
        "and fit the best setting to all data.",
    )  # fmt: skip
    options.add_data(parser, censored=True)
    text = "expectile level in (0, 1) (default 0.5, the mean)"
    parser.add_argument("--omega", type=float, default=0.5, help=text)
    text = "ranks to compare, after the data or before another option (default 0 1 2 5 10)"
    parser.add_argument("--ks", type=int, nargs="+", metavar="K", help=text)
    text = "ridges to compare: auto, noise or numbers (default auto, tuned in every fit)"
    parser.add_argument("--regs", type=options.parse_number, nargs="+", metavar="REG", help=text)
    text = "number of folds (default 5)"
    parser.add_argument("--folds", type=int, default=5, metavar="N", help=text)
    parser.add_argument(
        "--rule", choices=("best", "one_se"), default="best",
        help="best (default): the smallest loss; one_se: the simplest setting within one standard "
        "error of it",
    )  # fmt: skip
    options.add_fit(parser)
    options.add_out(parser, "model file to write the selected fit to (.npz)", required=False)
    text = "plot of the comparison to write: .png, .svg or .pdf"
    parser.add_argument("--plot", metavar="FILE", help=text)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Compare settings, print the comparison and save the selected fit."""
    check_out(args)
    check_out(args, "plot")
    figure = None if args.plot is None else _figure(args.plot)
    data = read_data(args)
    from dataclasses import asdict

    from fastemf.selection import select

    grid = {name: getattr(args, name) for name in ("ks", "regs") if getattr(args, name) is not None}
    selection = select(
        data.pop("R"), args.omega, folds=args.folds, rule=args.rule, **grid, **data,
        **options.fit_options(args),
    )  # fmt: skip
    if args.out is not None:
        selection.fit.save(args.out)
    if figure is not None:
        from fastemf.support.atomic_file import replace_file

        selection.plot(ax=figure.subplots())
        with replace_file(args.plot, "a plot") as file:
            figure.savefig(file, format=Path(args.plot).suffix[1:].lower())
    if args.json:
        best = asdict(selection.best)
        print_text(as_json({"table": [asdict(line) for line in selection.table], "best": best}))
    else:
        print_text(selection)


def _figure(path: str) -> Any:
    """Create a figure, after checking that it can be saved to the path."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'fastemf[plot]'") from None
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot must end in .png, .svg or .pdf, got {path}")
    return Figure(layout="constrained")
