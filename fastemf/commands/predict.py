"""``fastemf predict``: values of the pairs in a file."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import (
    add_out_table,
    add_unknown,
    add_writing,
    check_free_table,
    utf8,
)
from fastemf.commands.label_text import like
from fastemf.commands.output import unused, write_columns
from fastemf.commands.pairs import read_pairs
from fastemf.support.level_names import quantile_name

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "predict",
        help="predict the pairs in a file",
        description="Predict every line of a table of (row, column) pairs, in its order. The "
        "answer has the pairs and their predictions; a model of several levels or quantiles gives "
        "one column for each, and they never cross.",
    )
    parser.add_argument("model", help="model file, of fastemf fit, levels, quantiles or select")
    parser.add_argument(
        "pairs",
        help="CSV or TSV (also .gz and .zst), JSON lines (.jsonl) or Parquet by its ending; - "
        "reads CSV from standard input",
    )
    parser.add_argument(
        "--rows",
        metavar="NAME",
        type=utf8,
        help="column of the rows (default: the name it had in the fit)",
    )
    parser.add_argument(
        "--cols",
        metavar="NAME",
        type=utf8,
        help="column of the columns (default: the name it had in the fit)",
    )
    parser.add_argument(
        "--clip", type=bound, nargs=2, metavar=("LOW", "HIGH"),
        help="set predictions beyond to these bounds, none for an open side: --clip 0 none",
    )  # fmt: skip
    add_writing(parser)
    add_unknown(parser, "NaN")
    add_out_table(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read the pairs, predict them, write them with their predictions."""
    check_free_table(args.out, args.force, as_json=args.json)
    from fastemf import load

    model = load(args.model)
    pairs = read_pairs(args.pairs, args, model)
    if pairs is None:
        raise ValueError(f"{args.pairs} is a matrix; pairs are a table with two columns")
    names, rows, cols = pairs
    predicted = model.predict(
        like(model.row_labels, rows, "rows", args.unknown),
        like(model.col_labels, cols, "cols", args.unknown),
        clip=None if args.clip is None else tuple(args.clip),
        unknown=args.unknown,
    )
    columns: dict[str, Any] = dict(zip(names, (rows, cols), strict=True))
    if predicted.ndim == 1:
        columns[unused("prediction", names)] = predicted
    else:
        for place, name in enumerate(level_names(model)):
            columns[unused(name, columns)] = predicted[:, place]
    write_columns(columns, args.out, args.json)


def level_names(model: Any) -> list[str]:
    """Name the columns that a model of several levels or quantiles predicts."""
    if hasattr(model, "taus"):
        return [quantile_name(tau) for tau in model.taus]
    return [f"omega={omega:g}" for omega in model.omegas]


def bound(text: str) -> float | None:
    """Parse a bound of `--clip`; argparse would take -inf for an option."""
    return None if text in ("none", "inf") else float(text)
