"""``fastemf predict``: values of the pairs in a file."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import add_out_table, check_free_table, source_of
from fastemf.commands.label_text import like
from fastemf.commands.output import unused, write_columns

__all__ = ["add", "pair_columns", "run"]


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
        "--rows", metavar="NAME", help="column of the rows (default: the name it had in the fit)"
    )
    parser.add_argument(
        "--cols", metavar="NAME", help="column of the columns (default: the name it had in the fit)"
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
    from fastemf.inputs.table_files import column_names, read

    model = load(args.model)
    source = source_of(args.pairs)
    present = column_names(source())
    if present is None:
        raise ValueError(f"{args.pairs} is a matrix; pairs are a table with two columns")
    first = getattr(model, "fits", [model])[0]
    names = pair_columns(args.pairs, present, args, first)
    sides = zip(names, (first.row_labels, first.col_labels), strict=True)
    texts = [name for name, labels in sides if labels is not None and labels.kind == "str"]
    table = read(source(), names, [], texts).content
    rows, cols = (table.column(name) for name in names)
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
    """A bound of `--clip`; argparse would take -inf for an option."""
    return None if text in ("none", "inf") else float(text)


def pair_columns(
    path: str, present: list[str], args: argparse.Namespace, fit: Any
) -> tuple[str, str]:
    """Names of the two label columns: as told, as at the fit, or the only two there are."""
    given = (args.rows, args.cols)
    names = [told or axis.name for told, axis in zip(given, fit.axes, strict=True)]
    if not all(name in present for name in names) and not any(given) and len(present) == 2:
        names = present
    for option, name in zip(("--rows", "--cols"), names, strict=True):
        if name not in present:
            what = f"there is no column {name!r}" if name else f"name a column with {option}"
            raise ValueError(f"{path}: {what}; there are {', '.join(present)}")
    return names[0], names[1]
