"""``fastemf predict`` and ``rank``: predictions of pairs, and the best columns of a row."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands import options
from fastemf.commands.input import (
    feature_values,
    item_features,
    labels_like,
    observed_schema,
    parse_rows,
    read_pairs,
)
from fastemf.commands.output import check_out_table, unused_name, write_columns
from fastemf.support.display_names import quantile_name

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
    text = "clip predictions to this range, with none for an open side: --clip 0 none"
    parser.add_argument("--clip", type=_parse_bound, nargs=2, metavar=("LOW", "HIGH"), help=text)
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
    group = parser.add_mutually_exclusive_group()
    text = "quantile to rank by, of a model with quantiles"
    group.add_argument("--tau", type=float, help=text)
    text = "expectile level to rank by, of a model with several levels"
    group.add_argument("--omega", type=float, help=text)
    parser.add_argument(
        "--seen", metavar="FILE",
        help="exclude the pairs in this file, such as the training data: a table or a matrix, as "
        "for fastemf fit",
    )  # fmt: skip
    text = "side features of the cells, such as hour=20 (default: missing)"
    parser.add_argument(
        "--features", nargs="+", metavar="NAME=VALUE", type=options.parse_utf8, help=text
    )
    options.add_item_features(parser, NEW, cols=False)
    _add_pairs(parser, " of --seen", "no columns")


def _add_pairs(parser: argparse.ArgumentParser, of_file: str, unknown: str) -> None:
    """Add the label columns of a file of pairs, and the output."""
    for name, text in (("rows", "row"), ("cols", "column")):
        text = f"column{of_file} with the {text} labels (default: its name in the fit)"
        parser.add_argument(f"--{name}", metavar="NAME", type=options.parse_utf8, help=text)
    options.add_text_format(parser)
    options.add_unknown(parser, unknown)
    options.add_out_table(parser)


def run_predict(args: argparse.Namespace) -> None:
    """Read the pairs, and write them with their predictions."""
    check_out_table(args, to_json=args.json)
    from fastemf import load

    model = load(args.model)
    pairs = read_pairs(args.pairs, args, model)
    if pairs is None:
        raise ValueError(f"{args.pairs} is a matrix; pairs must be a table with two columns")
    names, rows, cols, features = pairs
    side = item_features(args)
    unknown = [args.unknown if given is None else "model" for given in side.values()]
    predicted = model.predict(
        labels_like(model.row_labels, rows, "rows", unknown[0]),
        labels_like(model.col_labels, cols, "cols", unknown[1]),
        clip=None if args.clip is None else tuple(args.clip),
        unknown=args.unknown, features=features, **side,
    )  # fmt: skip
    columns: dict[str, Any] = dict(zip(names, (rows, cols), strict=True))
    if predicted.ndim == 1:
        columns[unused_name("prediction", names)] = predicted
    else:
        for place, name in enumerate(_prediction_names(model)):
            columns[unused_name(name, columns)] = predicted[:, place]
    write_columns(columns, args.out, args.json)


def _prediction_names(model: Any) -> list[str]:
    if hasattr(model, "taus"):
        return [quantile_name(tau) for tau in model.taus]
    return [f"omega={omega:g}" for omega in model.omegas]


def _parse_bound(text: str) -> float | None:
    """Parse a bound of --clip. It can be none because argparse takes -inf for an option."""
    return None if text in ("none", "inf") else float(text)


def run_rank(args: argparse.Namespace) -> None:
    """Rank the columns, and write one line per row and place."""
    check_out_table(args, to_json=args.json)
    import numpy as np

    from fastemf import load

    model = load(args.model)
    selected = _select(args, model)
    texts = [options.parse_utf8(text) for text in args.row]
    side = {
        "features": feature_values(observed_schema(model), args.features),
        "row_features": item_features(args)["row_features"],
    }
    is_strict = args.unknown == "error" and args.row_features is None
    unknown = "error" if is_strict else "model"
    rows = parse_rows(model.row_labels, texts, unknown) if texts else None
    ranking = model.rank(
        rows, args.n, order=args.order, seen=_read_seen(args, model), unknown=args.unknown,
        **selected, **side,
    )  # fmt: skip
    if rows is None:
        rows = model.axes[0].ids()
    elif not is_strict:  # new rows have no other name
        rows = np.array(texts, object)
    kept = ~np.isnan(ranking.values)
    place = np.broadcast_to(np.arange(1, ranking.values.shape[1] + 1), ranking.values.shape)
    names = [axis.name or other for axis, other in zip(model.axes, ("row", "col"), strict=True)]
    columns = {
        names[0]: np.repeat(rows, kept.sum(axis=1)),
        unused_name("place", names): place[kept],
        names[1]: ranking.cols[kept],
        unused_name("prediction", names): ranking.values[kept],
    }
    write_columns(columns, args.out, args.json)


def _select(args: argparse.Namespace, model: Any) -> dict[str, float | None]:
    """Return the quantile or level to rank by, which a model with several requires."""
    has_taus = hasattr(model, "taus")
    name, other = ("tau", "omega") if has_taus else ("omega", "tau")
    what = "quantiles" if has_taus else "expectile levels"
    if getattr(args, other) is not None:
        raise ValueError(f"--{other} does not apply to {args.model}, a model of {what}")
    value, fitted = getattr(args, name), getattr(model, f"{name}s", ())
    if value is None and fitted:
        listed = ", ".join(f"{one:g}" for one in fitted)
        raise ValueError(
            f"{args.model} is a model of {what} ({listed}): select one with --{name}"
        )  # fmt: skip
    return {name: value}


def _read_seen(args: argparse.Namespace, model: Any) -> Any:
    """Read the pairs to exclude, as `Model.rank` takes them."""
    if args.seen is None:
        return None
    pairs = read_pairs(args.seen, args, model)
    if pairs is None:
        return args.seen
    names = pairs.names
    rows, cols = (
        labels_like(axis.labels, column, f"column {name!r} of --seen")
        for axis, column, name in zip(model.axes, pairs[1:3], names, strict=True)
    )
    return rows, cols, [1.0] * len(rows)
