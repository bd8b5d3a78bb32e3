"""``fastemf predict`` and ``rank``: predictions of pairs, and the best columns of a row."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from fastemf.commands import options
from fastemf.commands.input import (
    Pairs,
    feature_values,
    item_features,
    labels_like,
    observed_schema,
    parse_rows,
    read_pairs,
    select_level,
)
from fastemf.commands.output import check_digits, check_out_table, write_columns

NEW = "; also of labels that are not in the model"
RANK_SHORT_OPTIONS = r"-n(-?\d+)?|-o.*|-h"  # these are not rows, except after --
RANK_FLAGS = ("--force", "--json", "--help")  # long options without a value


def add_commands(commands: Any) -> None:
    """Add the two commands."""
    parser = options.add_command(
        commands, "predict", run_predict,
        "predict the pairs in a file",
        "Predict every line of a table of (row, column) pairs, in the same order. The output has "
        "the pairs and their predictions. A model of several levels or quantiles returns one "
        "column for each; they never cross. Side features of the observations are columns of the "
        "file; absent ones are missing.",
    )  # fmt: skip
    options.add_model_file(parser)
    text = "table of pairs: a file, a folder or a glob, as for fastemf fit; - reads standard input"
    options.add_source(parser, "pairs", text)
    parser.add_argument(
        "--missing", metavar="LOG",
        help="instead of pairs: predict all pairs of a row and a column of the model that have no "
        "line in LOG, such as the training data: a table or a matrix, as for fastemf fit",
    )  # fmt: skip
    text = "clip predictions to this range, with none for an open side: --clip 0 none"
    parser.add_argument("--clip", type=_parse_bound, nargs=2, metavar=("LOW", "HIGH"), help=text)
    parser.add_argument(
        "--above", type=float, nargs="+", default=[], metavar="VALUE",
        help="for a model of quantiles: add the probability of a value above each of these",
    )  # fmt: skip
    options.add_item_features(parser, NEW)
    _add_pairs(parser, "", "NaN")

    parser = options.add_command(
        commands, "rank", run_rank,
        "list the best columns of a row",
        "List the columns with the smallest or largest predictions of each row, best first. To "
        "rank by risk, rank by a high quantile: --tau 0.95.",
    )  # fmt: skip
    options.add_model_file(parser)
    parser.add_argument(
        "row", nargs="*",
        help="row labels, or positions from 0 if the model has no labels (default: all rows). "
        "Labels that look like options (--x, -n1, -ox) go last, after --",
    )  # fmt: skip
    parser.add_argument("-n", type=int, default=10, help="columns per row (default 10)")
    text = "smallest if small values are good, largest if large values are good"
    parser.add_argument("--order", choices=("smallest", "largest"), required=True, help=text)
    text = "for a model of quantiles: rank by the probability of a value above VALUE"
    options.add_level(parser, "rank by").add_argument(
        "--above", type=float, metavar="VALUE", help=text
    )
    parser.add_argument(
        "--seen", metavar="FILE",
        help="exclude the pairs in this file, such as the training data: a table or a matrix, as "
        "for fastemf fit",
    )  # fmt: skip
    options.add_cell_features(parser)
    options.add_item_features(parser, NEW, cols=False)
    _add_pairs(parser, " of --seen", "no columns")


def _add_pairs(parser: argparse.ArgumentParser, of_file: str, unknown: str) -> None:
    """Add the label columns of a file of pairs, and the output."""
    for name, text in (("rows", "row"), ("cols", "column")):
        text = f"column{of_file} with the {text} labels (default: its name in the fit)"
        parser.add_argument(f"--{name}", metavar="NAME", type=options.parse_utf8, help=text)
    options.add_text_format(parser)
    options.add_unknown(parser, unknown)
    options.add_digits(parser)
    options.add_out_table(parser)


def run_predict(args: argparse.Namespace) -> None:
    """Read the pairs, and write them with their predictions."""
    check_out_table(args, to_json=args.json)
    check_digits(args.digits)
    from fastemf import load
    from fastemf.models.tabular import unused_name
    from fastemf.support.validation import check_clip

    model = load(args.model)
    side = tuple(item_features(args).values())
    (names, rows, cols, features), labels = _read_pairs(args, model, side)
    bounds = None if args.clip is None else check_clip(tuple(args.clip), model._dtype)
    predicted = model._predict_columns(*labels, "model", args.unknown, bounds, (features, *side))
    if args.above:
        predicted = _add_above(args.above, model, predicted)
    columns: dict[str, Any] = dict(zip(names, (rows, cols), strict=True))
    columns |= {unused_name(name, names): values for name, values in predicted.items()}
    write_columns(columns, args.out, args.json, args.digits)


def _add_above(thresholds: list[float], model: Any, predicted: dict[str, Any]) -> dict[str, Any]:
    """Add probabilities of values above thresholds to predicted quantiles, before the notes."""
    import numpy as np

    for threshold in thresholds:
        model._predict_above(threshold)  # checks it
    names = model._prediction_names
    distribution = model._distribution(np.stack([predicted[name] for name in names], axis=-1))
    added = {f"above {threshold:g}": distribution.above(threshold) for threshold in thresholds}
    notes = {name: values for name, values in predicted.items() if name not in names}
    return {name: predicted[name] for name in names} | added | notes


def _read_pairs(args: argparse.Namespace, model: Any, side: Any) -> tuple[Pairs, tuple[Any, ...]]:
    """Read the pairs of a file, or list those without a line in a log; also return the labels."""
    if args.missing is not None:
        if args.pairs is not None:
            raise ValueError(f"give either pairs or --missing, got {args.pairs} and {args.missing}")
        labels = model.missing_pairs(_read_seen(args.missing, "--missing", args, model))
        return Pairs(model._names, labels[0], labels[1], None), labels
    pairs = read_pairs(args.pairs, args, model)
    if pairs is None:
        raise ValueError(f"{args.pairs} is a matrix; pairs must be a table with two columns")
    return pairs, tuple(
        labels_like(axis.labels, column, what, args.unknown if given is None else "model")
        for axis, column, what, given in zip(
            model.axes, pairs[1:3], ("rows", "cols"), side, strict=True
        )
    )


def _parse_bound(text: str) -> float | None:
    """Parse a bound of --clip. It can be none because argparse takes -inf for an option."""
    return None if text in ("none", "inf") else float(text)


def run_rank(args: argparse.Namespace) -> None:
    """Rank the columns, and write one line per row and place."""
    check_out_table(args, to_json=args.json)
    check_digits(args.digits)
    import numpy as np

    from fastemf import load

    model = load(args.model)
    selected = {"above": args.above} if args.above is not None else select_level(args, model)
    texts = [options.parse_utf8(text) for text in args.row]
    side = {
        "features": feature_values(observed_schema(model), args.features),
        "row_features": item_features(args)["row_features"],
    }
    is_strict = args.unknown == "error" and args.row_features is None
    unknown = "error" if is_strict else "model"
    rows = parse_rows(model.row_labels, texts, unknown) if texts else None
    seen = None if args.seen is None else _read_seen(args.seen, "--seen", args, model)
    ranking = model.rank(
        rows, args.n, order=args.order, seen=seen, unknown=args.unknown, **selected, **side
    )
    if rows is not None and not is_strict:  # new rows have no other name
        ranking = replace(ranking, rows=np.array(texts, object))
    write_columns(ranking.columns(), args.out, args.json, args.digits)


def _read_seen(path: str, option: str, args: argparse.Namespace, model: Any) -> Any:
    """Read the pairs of a log, as `Model.rank` takes them."""
    pairs = read_pairs(path, args, model)
    if pairs is None:
        return path
    names = pairs.names
    rows, cols = (
        labels_like(axis.labels, column, f"column {name!r} of {option}", "nan")
        for axis, column, name in zip(model.axes, pairs[1:3], names, strict=True)
    )
    return rows, cols, [1.0] * len(rows)
