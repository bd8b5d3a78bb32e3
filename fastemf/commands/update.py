"""``fastemf update``: a model that takes in what was observed since it was fitted."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import (
    add_censored,
    add_data,
    add_json,
    add_out,
    censored_of,
    check_free,
    read_data,
    read_judged,
)
from fastemf.commands.info import describe, print_facts
from fastemf.commands.label_text import like
from fastemf.support.terminal import stderr_is_terminal

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "update",
        help="take new observations into a model: new rows, or with --all a refit",
        description="Solve for the rows of a log that a model does not have, with its columns as "
        "they are, and write one model with the old rows and the new. What the log has of old rows "
        "and of new columns is left out, and counted. With --all the file holds all data, old and "
        "new: the model is fitted to them again, starting from what it was. Columns are by "
        "default those of the fit.",
    )
    parser.add_argument(
        "model", help="model file, of fastemf quantiles, fit, levels, select or update"
    )
    add_data(parser, stores=True)
    add_censored(parser)
    parser.add_argument(
        "--all", action="store_true", dest="everything",
        help="the data are all there are, old and new: refit, from the old model",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=int, default=-1, metavar="N",
        help="threads (default: all cores); the model does not depend on them",
    )  # fmt: skip
    add_out(parser, "model file to write (.npz)", required=True)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fold in or fit again, save, and say what was done."""
    check_free(args.out, args.force)
    from fastemf import load

    model = load(args.model)
    _ask_for_limits(args, model)
    found: dict[str, Any]
    if args.everything:
        updated = _refitted(args, model)
        how = "fitted anew" if hasattr(model, "taus") else "refit from the old model"
        found = {"update": how, "gone": _gone(model, updated)}
    else:
        updated, found = _extended(args, model)
    updated.save(args.out)
    print_facts(args.out, updated, to_json=args.json, **found)


def _ask_for_limits(args: argparse.Namespace, model: Any) -> None:
    """Warn where limits were declared for the model, and are not for the new data."""
    from fastemf.support.warn import warn

    if describe(model)["censored"] and censored_of(args) is None:
        warn(
            f"{args.model} was fitted with censored values, and those of {args.data} are taken as "
            "they are: say which are limits as for the fit, by --censored-above, --censored-below "
            "or --censored"
        )


def _refitted(args: argparse.Namespace, model: Any) -> Any:
    """Fit all data as the model was fitted, starting from it."""
    from pathlib import Path

    from fastemf import complete, complete_levels, complete_quantiles

    data = read_data(args) if Path(args.data).is_dir() else read_judged(args, model)
    if hasattr(model, "taus"):
        first = model.fits[0][0]
        return complete_quantiles(
            data.pop("R"), model.taus, first.k, intercepts=first.rows.has_intercepts,
            n_jobs=args.jobs, progress=stderr_is_terminal(), **data,
        )  # fmt: skip
    fits = list(getattr(model, "fits", [model]))
    first = fits[0]
    settings = {
        "k": first.k, "intercepts": first.rows.has_intercepts, "reg_scaling": first.reg_scaling,
        "reg": first.reg if first.tuning is None else "auto", "init": first, "n_jobs": args.jobs,
        "progress": stderr_is_terminal(),
    }  # fmt: skip
    if len(fits) == 1:
        return complete(data.pop("R"), first.omega, **data, **settings)
    return complete_levels(data.pop("R"), model.omegas, **data, **settings)


def _gone(model: Any, updated: Any) -> dict[str, int]:
    """Count the labels of a model that the data of its refit do not have."""
    if model.row_labels is None or updated.row_labels is None:
        return {}
    counts = (
        int((new.positions(old.labels.values, what) < 0).sum())
        for old, new, what in zip(model.axes, updated.axes, ("rows", "columns"), strict=True)
    )
    return dict(zip(("rows", "columns"), counts, strict=True))


def _extended(args: argparse.Namespace, model: Any) -> tuple[Any, dict[str, Any]]:
    """Fold in the new rows, and count what is left out."""
    from pathlib import Path

    import numpy as np

    from fastemf.inputs.table_files import read_file

    if model.row_labels is None or Path(args.data).is_dir():
        raise ValueError(
            f"{args.data}: new rows are told from old ones by labels in a table; a model or data "
            "without them are refitted, with --all"
        )
    data = read_judged(args, model)
    if "rows" not in data:
        raise ValueError(f"{args.data} is a matrix; new rows come as a table")
    labels, numbers = [data["rows"], data["cols"]], [data["values"]]
    numbers += [] if args.weights is None else [args.weights]
    marks = [args.censored] if args.censored is not None else []
    texts = [
        name
        for name, axis in zip(labels, model.axes, strict=True)
        if axis.labels.kind == "str"
    ]  # fmt: skip
    table = read_file(data.pop("R"), labels + marks, numbers, texts).content
    rows, cols = (
        axis.positions(like(axis.labels, table.column(name), name, "nan"), name)
        for axis, name in zip(model.axes, labels, strict=True)
    )
    is_new, has_column = rows < 0, cols >= 0
    kept = is_new & has_column
    facts: dict[str, Any] = {
        "update": "new rows folded in",
        "observations": int(np.count_nonzero(kept)),
        "left_out": {
            "of old rows": int(np.count_nonzero(~is_new)),
            "of new columns": int(np.count_nonzero(is_new & ~has_column)),
        },
    }
    if not kept.any():
        raise ValueError(
            f"{args.data} has no observation of a new row in a column of the model; with all data, "
            "old and new, --all refits"
        )
    updated = model.extend(table.filter(kept), n_jobs=args.jobs, **data)
    return updated, {"new_rows": updated.shape[0] - model.shape[0], **facts}
