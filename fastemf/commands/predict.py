"""``fastemf predict``: values of the pairs in a file."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import add_out_table, check_free_table, utf8
from fastemf.commands.label_text import like
from fastemf.commands.output import unused, write_columns
from fastemf.commands.pairs import read_pairs

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "predict",
        help="predict the pairs in a file",
        description="Predict every line of a table of (row, column) pairs, in its order. The "
        "answer has the pairs and their predictions; a model of several levels gives one column "
        "for each, and they never cross.",
    )
    parser.add_argument("model", help="model file, of fastemf fit, levels or select")
    parser.add_argument(
        "pairs", help="CSV, TSV or Parquet by its ending; - reads CSV from standard input"
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
    parser.add_argument(
        "--unknown", choices=("error", "nan"), default="error",
        help="labels that the model does not have are an error (default), or predicted as NaN",
    )  # fmt: skip
    add_out_table(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read the pairs, predict them, write them with their predictions."""
    check_free_table(args.out, args.force, as_json=args.json)
    from fastemf import load

    model = load(args.model)
    first = getattr(model, "fits", [model])[0]
    pairs = read_pairs(args.pairs, args, first)
    if pairs is None:
        raise ValueError(f"{args.pairs} is a matrix; pairs are a table with two columns")
    names, rows, cols = pairs
    predicted = model.predict(
        like(first.row_labels, rows, "rows", args.unknown),
        like(first.col_labels, cols, "cols", args.unknown),
        clip=None if args.clip is None else tuple(args.clip),
        unknown=args.unknown,
    )
    columns: dict[str, Any] = dict(zip(names, (rows, cols), strict=True))
    if predicted.ndim == 1:
        columns[unused("prediction", names)] = predicted
    else:
        columns |= {
            unused(f"omega={w:g}", names): predicted[:, i] for i, w in enumerate(model.omegas)
        }
    write_columns(columns, args.out, args.json)


def bound(text: str) -> float | None:
    """Parse a bound of `--clip`; argparse would take -inf for an option."""
    return None if text in ("none", "inf") else float(text)
