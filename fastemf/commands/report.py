"""``fastemf report``: one page about a model and the observations that judge it."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import add_data, add_out, check_free, read_judged

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "report",
        help="write one page about a model and the observations that judge it",
        description="Write one HTML page that says in two minutes what a model is worth, by "
        "observations that were held out: verdict beside simpler predictions, calibration, "
        "residuals, the levels of some rows, the rows and columns predicted and served worst, "
        "factors and tuning. It needs nothing but a browser. Columns are by default those of the "
        "fit.",
    )
    parser.add_argument("model", help="model file, of fastemf fit, levels, quantiles or select")
    add_data(parser)
    parser.add_argument(
        "--unknown", choices=("error", "nan"), default="error",
        help="labels that the model does not have: an error (default), or nan for left out",
    )  # fmt: skip
    add_out(parser, "page to write (.html)", required=True)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the page."""
    check_free(args.out, args.force)
    from fastemf import load, report
    from fastemf.support.whole_file import replacing

    model = load(args.model)
    data = read_judged(args, model)
    page = report(model, data.pop("R"), unknown=args.unknown, **data)
    with replacing(args.out, "a report") as file:
        file.write(page.encode("utf-8", "replace"))
