"""``fastemf predict``: values of the pairs in a file."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import add_json, add_out, check_free, source_of
from fastemf.commands.label_text import like
from fastemf.commands.output import write_columns

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "predict",
        help="predict the pairs in a file",
        description="Predict every (row, column) pair of a table; a model of several levels gives "
        "one column for each, which never cross.",
    )
    parser.add_argument("model", help="model file")
    parser.add_argument("pairs", help="CSV, TSV or Parquet; - reads CSV from standard input")
    parser.add_argument(
        "--rows",
        metavar="NAME",
        help="column with the rows (default: as when the model was fitted)",
    )
    parser.add_argument(
        "--cols", metavar="NAME", help="column with the columns (default: likewise)"
    )
    parser.add_argument(
        "--clip", type=float, nargs=2, metavar=("LOW", "HIGH"),
        help="bounds of the predictions: 0 inf for none below zero",
    )  # fmt: skip
    parser.add_argument(
        "--unknown", choices=("error", "nan"), default="error",
        help="labels that the model has never seen are an error (default) or predicted as NaN",
    )  # fmt: skip
    add_out(parser, "table to write (default: CSV to standard output)", required=False)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read the pairs, predict them, write them with their predictions."""
    check_free(args.out, args.force)
    from fastemf import load
    from fastemf.table_files import column_names, read

    model = load(args.model)
    source = source_of(args.pairs)
    present = column_names(source())
    if present is None:
        raise ValueError(f"{args.pairs} is a matrix; pairs are a table with two columns")
    first = getattr(model, "fits", [model])[0]
    names = pair_columns(present, args, first)
    table = read(source(), names, []).content
    rows, cols = (table.column(name) for name in names)
    clip = None if args.clip is None else finite(args.clip)
    predicted = model.predict(
        like(first.row_labels, rows), like(first.col_labels, cols), clip=clip, unknown=args.unknown
    )
    columns: dict[str, Any] = dict(zip(names, (rows, cols), strict=True))
    if predicted.ndim == 1:
        columns["prediction"] = predicted
    else:
        columns |= {f"omega={w:g}": predicted[:, i] for i, w in enumerate(model.omegas)}
    write_columns(columns, args.out, args.json)


def finite(clip: list[float]) -> tuple[float | None, float | None]:
    """Bounds as the library takes them: infinity is no bound."""
    low, high = clip
    return (None if low == float("-inf") else low, None if high == float("inf") else high)


def pair_columns(present: list[str], args: argparse.Namespace, fit: Any) -> tuple[str, str]:
    """Names of the two label columns: as told, as at the fit, or the only two there are."""
    given = (args.rows, args.cols)
    fitted = tuple(labels and labels.name for labels in (fit.row_labels, fit.col_labels))
    names = [told or known for told, known in zip(given, fitted, strict=True)]
    if not all(name in present for name in names) and not any(given) and len(present) == 2:
        names = present
    for option, name in zip(("--rows", "--cols"), names, strict=True):
        if name not in present:
            what = f"there is no column {name!r}" if name else f"name a column with {option}"
            raise ValueError(f"{args.pairs}: {what}; there are {', '.join(present)}")
    return names[0], names[1]
