"""``fastemf evaluate``: what a model's predictions of held-out observations are worth."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import add_data, add_json, add_unknown, read_judged
from fastemf.commands.output import as_json
from fastemf.commands.promises import render_promises

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
        "remembers; of quantiles the share at or below and the pinball loss, beside those of the "
        "simpler predictions that fastemf quantiles has. Columns are by default those of the "
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
    if hasattr(model, "promises"):
        print_promises(model, data, args)
        return
    found = model.evaluate(data.pop("R"), unknown=args.unknown, **data)
    if args.json:
        scores = [score._asdict() for score in found.scores]
        facts = {"observations": found.observations, "left_out": found.left_out, "scores": scores}
        print(as_json(facts | {"verdict": found.verdict().splitlines()}))
    else:
        print(found)


def print_promises(model: Any, data: dict[str, Any], args: argparse.Namespace) -> None:
    """Judge quantiles, which know no newcomers here."""
    if args.unknown != "error":
        raise ValueError(f"--unknown must be error for quantiles, got {args.unknown}")
    from dataclasses import asdict

    found = [asdict(promise) for promise in model.evaluate(data.pop("R"), **data)]
    if args.json:
        print(as_json({"quantiles": found}))
        return
    for name, text in render_promises(found, "cells"):
        print(f"{name:9} {text}")
