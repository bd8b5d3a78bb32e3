"""``fastemf explain`` and ``similar``: parts of a prediction, and rows or columns like one."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands import options
from fastemf.commands.input import (
    feature_values,
    item_features,
    observed_schema,
    parse_rows,
    select_level,
)
from fastemf.commands.output import (
    as_json,
    check_digits,
    check_out_table,
    print_text,
    write_columns,
)


def add_commands(commands: Any) -> None:
    """Add the two commands."""
    parser = options.add_command(
        commands, "explain", run_explain,
        "split a prediction into its parts",
        "Print the contributions to the prediction of one pair, in the units of the data: "
        "intercepts, factors and, for quantiles, side features.",
    )  # fmt: skip
    options.add_model_file(parser)
    for name in ("row", "column"):
        text = f"{name} label, or position from 0 if the model has no labels"
        parser.add_argument(f"{name}_label", metavar=name, type=options.parse_utf8, help=text)
    options.add_level(parser, "explain")
    options.add_cell_features(parser)
    options.add_item_features(parser, "; also of labels that are not in the model")
    options.add_text_format(parser)
    text = "labels that are not in the model: error (default); model: as in fastemf predict"
    parser.add_argument("--unknown", choices=("error", "model"), default="error", help=text)
    options.add_json(parser)

    parser = options.add_command(
        commands, "similar", run_similar,
        "list the rows or columns most similar to one",
        "List the rows with predictions closest to those of a row, nearest first, with the root "
        "mean square difference of the predictions; or columns with --columns.",
    )  # fmt: skip
    options.add_model_file(parser)
    text = "label of a row (or column), or position from 0 if the model has no labels"
    parser.add_argument("label", type=options.parse_utf8, help=text)
    parser.add_argument("--columns", action="store_true", help="compare columns instead of rows")
    parser.add_argument("-n", type=int, default=10, help="number to list (default 10)")
    options.add_digits(parser)
    options.add_out_table(parser)


def run_explain(args: argparse.Namespace) -> None:
    """Print the parts of the prediction."""
    from fastemf import load

    model = load(args.model)
    selected = select_level(args, model)
    given = {
        "features": feature_values(observed_schema(model), args.features), **item_features(args)
    }  # fmt: skip
    if hasattr(model, "combination"):
        selected |= {"unknown": args.unknown, **given}
    elif args.unknown != "error" or any(one is not None for one in given.values()):
        raise ValueError(
            "--unknown, --features, --row-features and --col-features do not apply to "
            f"{args.model}, a model without boosted trees"
        )
    else:
        model._select(selected.get("omega"), None)  # checks it
        model = model.level(selected["omega"]) if hasattr(model, "level") else model
        selected = {}
    sides = (
        (args.row_label, args.row_features, "row"),
        (args.column_label, args.col_features, "column"),
    )
    row, col = (
        parse_rows(axis.labels, [text], args.unknown if table is None else "model", what)[0]
        for axis, (text, table, what) in zip(model.axes, sides, strict=True)
    )
    found = model.explain(row, col, **selected)
    facts = {"level": found.level, "value": found.value, "parts": found.parts}
    print_text(as_json(facts | {"notes": found.notes}) if args.json else found)


def run_similar(args: argparse.Namespace) -> None:
    """Write the similar rows or columns."""
    check_out_table(args, to_json=args.json)
    check_digits(args.digits)
    from fastemf import load

    model = load(args.model)
    axis = model.axes[args.columns]
    what = "column" if args.columns else "row"
    [item] = parse_rows(axis.labels, [args.label], what=what)
    find = model.similar_cols if args.columns else model.similar_rows
    write_columns(find(item, args.n).columns(), args.out, args.json, args.digits)
