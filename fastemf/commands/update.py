"""``fastemf update``: a model with observations made after the fit."""

from __future__ import annotations

import argparse
import math
from datetime import timedelta
from typing import Any

from fastemf.commands import options
from fastemf.commands.info import print_model
from fastemf.commands.input import (
    item_features,
    labels_like,
    read_data,
    read_model_data,
)
from fastemf.commands.output import check_out
from fastemf.support.terminal import stderr_is_terminal


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = options.add_command(
        commands, "update", run,
        "add new data to a model, or refit it with --all",
        "Update quantiles and boosted levels with the observations of a log: the factors of known "
        "rows and columns, with the old ones as a prior, and those of new ones. Other models only "
        "take new rows: observations of old rows and of new columns are left out and counted. With "
        "--all the file must contain all data, old and new, and the model is refitted, starting "
        "from the old one. Columns of the table default to those of the fit.",
    )  # fmt: skip
    options.add_model_file(parser)
    options.add_data(parser, stores=True, censored=True)
    text = "the data are complete, old and new: refit the model"
    parser.add_argument("--all", action="store_true", dest="everything", help=text)
    options.add_item_features(parser, "; for models that were fitted with some")
    options.add_jobs(parser)
    options.add_out(parser, "model file to write (.npz)", required=True)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Update or refit a model, save it and print it."""
    check_out(args, replaces_model=True)
    from fastemf import load

    model = load(args.model)
    facts: dict[str, Any]
    if args.everything:
        updated = _refit(args, model)
        how = "refitted, starting from the old model"
        facts = {"update": how, "gone": _count_gone(model, updated)}
    elif _is_boosted(model):
        updated, facts = _update(args, model), {"update": "updated with new observations"}
    else:
        updated, facts = _extend(args, model)
    updated.save(args.out)
    print_model(args.out, updated, to_json=args.json, **facts)


def _refit(args: argparse.Namespace, model: Any) -> Any:
    """Fit all data with the settings of the model, starting from it."""
    from fastemf import Solver, complete, complete_levels, complete_quantiles
    from fastemf.sources.open_source import is_store

    data = read_data(args) if is_store(args.data) else read_model_data(args, model)
    data["censored"] = model._find_censored(data["R"], data.get("censored"))
    fits = list(model.fits[0] if _is_boosted(model) else getattr(model, "fits", [model]))
    first = fits[0]
    if first.weighted and args.weights is None and not is_store(args.data):
        raise ValueError(
            f"--weights must be given for a refit of {args.model}, which was fitted with weights"
        )
    settings: dict[str, Any] = {
        "k": first.k, "intercepts": first.rows.has_intercepts, "n_jobs": args.jobs,
        "progress": stderr_is_terminal(),
    }  # fmt: skip
    drift = model.drift
    if drift is not None and drift.time:
        half_life: Any = None if math.isinf(drift.half_life) else drift.half_life
        if drift.is_date and half_life is not None:
            half_life = timedelta(seconds=half_life)
        settings |= {"time": drift.time, "half_life": half_life}
    if _is_boosted(model):
        settings |= data | _features(args, model) | {"init": model}
        if not hasattr(model, "taus"):
            return complete_levels(omegas=model.omegas, boost=True, **settings)
        calibrate = None if model.combination.shifts is None else "groups"
        return complete_quantiles(
            taus=model.taus, groups=model.groups, calibrate=calibrate, **settings
        )
    if any(item_features(args).values()):
        raise ValueError(
            f"--row-features and --col-features are for models with side features, got {args.model}"
        )
    settings |= {
        "reg": first.reg if first.tuning is None else "auto", "init": first,
        "solver": Solver(reg_scaling=first.reg_scaling),
    }  # fmt: skip
    if len(fits) == 1:
        return complete(data.pop("R"), first.omega, **data, **settings)
    return complete_levels(data.pop("R"), model.omegas, **data, **settings)


def _is_boosted(model: Any) -> bool:
    return hasattr(model, "combination")


def _features(args: argparse.Namespace, model: Any) -> dict[str, Any]:
    """Return the side features for a refit, which are those of the model."""
    *of_items, observed = model.features.names
    given = item_features(args)
    for (name, file), names in zip(given.items(), of_items, strict=True):
        if names and file is None:
            raise ValueError(
                f"--{name.replace('_', '-')} must be given for a refit of {args.model}, which was "
                f"fitted with {', '.join(names)}"
            )
    return {"features": list(observed) or None, **given}


def _count_gone(model: Any, updated: Any) -> dict[str, int]:
    """Count the labels of the old model that are not in the data of the refit."""
    if model.row_labels is None or updated.row_labels is None:
        return {}
    counts = (
        int((new.positions(old.labels, what) < 0).sum())
        for old, new, what in zip(model.axes, updated.axes, ("rows", "columns"), strict=True)
    )
    return dict(zip(("rows", "columns"), counts, strict=True))


def _update(args: argparse.Namespace, model: Any) -> Any:
    """Update a boosted model with new observations."""
    from fastemf.sources.open_source import is_store

    if is_store(args.data):
        raise ValueError(f"{args.data}: new observations must not be in a store; --all reads one")
    data = read_model_data(args, model)
    return model.update(data.pop("R"), n_jobs=args.jobs, **data, **item_features(args))


def _extend(args: argparse.Namespace, model: Any) -> tuple[Any, dict[str, Any]]:
    """Fold in the new rows, and count the observations that are left out."""
    import numpy as np

    from fastemf.inputs.table_files import read_file
    from fastemf.sources.open_source import is_store

    if model.row_labels is None or is_store(args.data):
        raise ValueError(
            f"{args.data}: new rows are recognised by their labels in a table; use --all to refit "
            "a model or data without labels"
        )
    data = read_model_data(args, model)
    if "rows" not in data:
        raise ValueError(f"{args.data} is a matrix; new rows must be in a table")
    names, numbers = [data["rows"], data["cols"]], [data["values"]]
    numbers += [] if args.weights is None else [args.weights]
    marks = [] if args.censored is None else [args.censored]
    texts = [
        name
        for name, axis in zip(names, model.axes, strict=True)
        if axis.labels.kind == "str"
    ]  # fmt: skip
    table = read_file(data.pop("R"), names + marks, numbers, texts).content
    rows, cols = (
        axis.positions(labels_like(axis.labels, table.column(name), name, "nan"), name)
        for axis, name in zip(model.axes, names, strict=True)
    )
    is_new, has_column = rows < 0, cols >= 0
    kept = is_new & has_column
    if not kept.any():
        raise ValueError(
            f"{args.data} has no observation of a new row in a column of the model; --all refits "
            "the model to all data, old and new"
        )
    updated = model.extend(table.filter(kept), n_jobs=args.jobs, **data, **item_features(args))
    return updated, {
        "update": "new rows folded in",
        "new_rows": updated.shape[0] - model.shape[0],
        "observations": int(np.count_nonzero(kept)),
        "left_out": {
            "of old rows": int(np.count_nonzero(~is_new)),
            "of new columns": int(np.count_nonzero(is_new & ~has_column)),
        },
    }
