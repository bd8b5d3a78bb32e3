"""``fastemf evaluate``: what a model's predictions of held-out observations are worth."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from fastemf.commands.arguments import add_data, add_json, add_unknown, read_judged
from fastemf.commands.output import as_json

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "evaluate",
        help="judge a model by observations it has not seen, beside simpler predictions",
        description="Predict observations that were held out and print what the predictions are "
        "worth: expectile loss, skill over a constant, the level and the share at which they lie, "
        "pinball loss and median relative error, beside those of a constant, column levels, row + "
        "column levels and column medians of the data that the model was fitted to, which it "
        "remembers; of quantiles the pinball loss, skill, the share at or below and that error, "
        "beside those of simpler quantiles and column medians. Columns are by default those of the "
        "fit.",
    )
    parser.add_argument("model", help="model file, of fastemf fit, levels, quantiles or select")
    add_data(parser)
    add_unknown(parser, "left out")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Evaluate, and print the table and the verdict."""
    from fastemf import load

    model = load(args.model)
    data = read_judged(args, model)
    found = model.evaluate(data.pop("R"), unknown=args.unknown, **data)
    if not args.json:
        print(found)
        return
    facts = {
        "observations": found.observations,
        "left_out": found.left_out,
        "scores": [score._asdict() for score in found.scores],
        "verdict": found.verdict().splitlines(),
    }
    if found.promises:
        facts["quantiles"] = [asdict(promise) for promise in found.promises]
    print(as_json(facts))
