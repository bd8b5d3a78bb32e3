"""``fastemf evaluate`` and ``report``: how well a model predicts held-out observations."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from fastemf.commands import options
from fastemf.commands.input import item_features, read_model_data
from fastemf.commands.output import as_json, check_out, print_text


def add_commands(commands: Any) -> None:
    """Add the two commands."""
    parser = options.add_command(
        commands, "evaluate", run_evaluate,
        "evaluate a model on held-out observations",
        "Predict held-out observations and print the loss, skill, coverage and relative error of "
        "the model next to baselines from its training data: a constant, column effects, row and "
        "column effects, and column medians. The loss is the expectile loss, or the pinball loss "
        "of quantiles. Columns of the table, side features and the censoring limit default to "
        "those of the fit.",
    )  # fmt: skip
    options.add_model_file(parser)
    options.add_data(parser, censored=True)
    options.add_item_features(parser, "; also of labels that are not in the model")
    options.add_unknown(parser, "leave these observations out")
    options.add_json(parser)

    parser = options.add_command(
        commands, "report", run_report,
        "write an HTML report about a model",
        "Write a self-contained HTML page that evaluates a model on held-out observations: "
        "comparison with baselines, calibration, residuals, predictions of some rows, rows and "
        "columns with the largest errors, factors and tuning. Columns of the table and the "
        "censoring limit default to those of the fit.",
    )  # fmt: skip
    options.add_model_file(parser)
    options.add_data(parser, censored=True)
    text = "labels that are not in the model: error (default); nan: leave these observations out"
    parser.add_argument("--unknown", choices=("error", "nan"), default="error", help=text)
    options.add_out(parser, "page to write (.html)", required=True)


def run_evaluate(args: argparse.Namespace) -> None:
    """Print the evaluation."""
    from fastemf import load

    model = load(args.model)
    data = read_model_data(args, model)
    evaluation = model.evaluate(data.pop("R"), unknown=args.unknown, **data, **item_features(args))
    if not args.json:
        print_text(evaluation)
        return
    facts = {
        "observations": evaluation.observations,
        "left_out": evaluation.left_out,
        "censored": evaluation.censored,
        "scores": [score._asdict() for score in evaluation.scores],
        "verdict": evaluation.verdict().splitlines(),
    }
    if evaluation.coverage:
        facts["quantiles"] = [asdict(report) for report in evaluation.coverage]
    if evaluation.distribution:
        facts["distribution"] = [
            {**one._asdict(), "crps": one.crps._asdict()} for one in evaluation.distribution
        ]
    print_text(as_json(facts))


def run_report(args: argparse.Namespace) -> None:
    """Write the page."""
    check_out(args)
    from fastemf import load, report
    from fastemf.support.atomic_file import replace_file

    model = load(args.model)
    data = read_model_data(args, model)
    page = report(model, data.pop("R"), unknown=args.unknown, **data)
    with replace_file(args.out, "a report") as file:
        file.write(page.encode("utf-8", "replace"))
