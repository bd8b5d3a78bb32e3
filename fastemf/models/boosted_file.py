"""The model file of boosted models: the cross-fitted models, features of items, and the trees."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastemf.boosting.cell_features import BASELINES, SCALE, CellFeatures
from fastemf.boosting.combination import Combination, GroupShifts, Part
from fastemf.boosting.coverage_report import DECILES, CoverageReport
from fastemf.boosting.forest import ARRAYS, Forest
from fastemf.boosting.model_fit import Fits
from fastemf.boosting.normal_scores import NormalScores
from fastemf.boosting.objective import QUANTILE, Objective
from fastemf.boosting.start import LinearStart
from fastemf.boosting.update_record import UpdateRecord
from fastemf.features.schema import FeatureSchema, FeatureTable
from fastemf.models.factorization import Factorization
from fastemf.models.file import StoredModel, write_model
from fastemf.models.fit_record import Arrays
from fastemf.models.held_out import DriftReport, HeldOutReport, unpack_report
from fastemf.sources.cell_sample import N_HASHES, Marks
from fastemf.support.array_file import check_keys, require
from fastemf.support.records import unpack_record
from fastemf.tuning.corrections import check_numbers

if TYPE_CHECKING:
    from fastemf.models.boosted import Boosted

HEADER = {
    "objective", "levels", "fitted", "folds", "low", "high", "mean_scale", "row_features",
    "col_features", "features", "reports", "groups", "updated",
    "fitted_levels", "proportion",
}  # fmt: skip
HISTORY = ("row_history", "col_history")
MARKS = ("row_marks", "col_marks")
KNOTS = ("knots", "scores")
STARTS = ("indices", "coefficients", "intercepts")  # of the starts, one line per objective
KINDS = ("known", "cold")
SCHEMA = ("text", "offsets")
ITEMS = ("row_features", "col_features")
FEATURES = dict.fromkeys(ITEMS, (*SCHEMA, "values")) | {"features": SCHEMA}
LARGEST_LOG = 300.0  # of a row's or a column's scale: exp() of the sum of two is finite
LARGEST = 1e100  # of numbers that are added and multiplied


def write_boosted(
    path: str | os.PathLike[str], kind: str, model: Boosted, more: dict[str, Any]
) -> None:
    """Write a model to one file, atomically; `more` is for the header.

    The first fit holds the labels.
    """
    features, combination = model.features, model.combination
    arrays: Arrays = dict(zip(HISTORY, features.history, strict=True))
    arrays |= dict(zip(MARKS, model.marks, strict=True))
    arrays["trained"] = combination.trained.astype(np.uint32)
    arrays |= {"centres": features.centres, "kappas": features.kappas}
    arrays |= dict(zip(KNOTS, (model.normal.values, model.normal.scores), strict=True))
    for name, parts in zip(KINDS, (combination.known, combination.cold), strict=True):
        starts = zip(*(part.start[:3] for part in parts), strict=True)
        arrays |= {f"{name}_{key}": np.stack(one) for key, one in zip(STARTS, starts, strict=True)}
        for t, part in enumerate(parts):
            arrays |= {f"{name}_{t}_{key}": array for key, array in part.forest.pack().items()}
    header = {
        "objective": features.objectives[0].kind,
        "levels": [one.level for one in features.objectives],
        "fitted": len(model.fits), "folds": len(model.fits[0]),
        "low": combination.low, "high": combination.high, "mean_scale": features.mean_scale,
        "proportion": features.proportion, "fitted_levels": list(combination.levels),
        "updated": None if model.updated is None else asdict(model.updated), **more,
    }  # fmt: skip
    tables: tuple[FeatureTable | FeatureSchema, ...] = (
        features.rows, features.cols, features.observed,
    )  # fmt: skip
    for name, table in zip(FEATURES, tables, strict=True):
        header[name], packed = table.pack()
        arrays |= {f"{name}_{key}": array for key, array in packed.items()}
    if combination.shifts is not None:
        arrays["group_shifts"] = combination.shifts.by_code
    fits = {
        _name(place, fold): fit
        for place, level in enumerate(model.fits)
        for fold, fit in enumerate(level)
    }
    rows, cols = model.axes
    fits[_name(0, 0)] = replace(fits[_name(0, 0)], rows=rows, cols=cols)
    write_model(path, kind, fits, header, arrays)


def unpack_boosted(stored: StoredModel, objective: str) -> dict[str, Any]:
    """Check the content of a file but the reports, and return fields of the model."""
    header, arrays = stored.header, stored.arrays
    reports: dict[str, type[HeldOutReport]] = {"drift": DriftReport}
    if objective == QUANTILE:
        reports["validation"] = HeldOutReport
    check_keys(header.keys(), HEADER | (reports.keys() & header.keys()), "header field")
    require(header["objective"] == objective, f"objective must be {objective}")
    levels = header["levels"]
    right = isinstance(levels, list) and len(levels) > 0
    right = right and all(type(level) is float and 0 < level < 1 for level in levels)
    require(right and levels == sorted(set(levels)), "levels must be increasing, in (0, 1)")
    low, high, scale = header["low"], header["high"], header["mean_scale"]
    right = type(low) is float and type(high) is float and -np.inf < low <= high < np.inf
    require(right, "low and high must be the range of the data")
    require(type(scale) is float and 0 <= scale <= LARGEST, "mean_scale must be a number")
    reached = header["fitted_levels"]
    right = isinstance(reached, list) and len(reached) == len(levels)
    right = right and all(
        type(level) is float and (math.isnan(level) or 0 <= level <= 1) for level in reached
    )
    require(right, "fitted_levels must be proportions, one per level")
    fits = _unpack_fits(stored)
    first = fits[0][0]
    features = _unpack_features(header, arrays, first.shape, objective)
    shifts = _unpack_shifts(header, arrays, features, len(fits))
    trained = arrays["trained"]
    right = trained.dtype == np.uint32 and trained.ndim == 1
    require(right, "trained must be hashes of cells, uint32")
    for name in KNOTS:
        check_numbers(name, arrays[name], max(arrays[KNOTS[0]].size, 1))
        require(bool((np.diff(arrays[name]) > 0).all()), f"{name} must be increasing")
    known, cold = (_unpack_parts(name, header, arrays, features, len(fits)) for name in KINDS)
    rows, cols = (replace(axis, labels=None) for axis in first.axes)
    bare = replace(first, rows=rows, cols=cols)
    return {
        "fits": ((bare, *fits[0][1:]), *fits[1:]),
        "labels": (first.row_labels, first.col_labels),
        "marks": _unpack_marks(arrays, first.shape),
        "normal": NormalScores(*(arrays[name] for name in KNOTS)),
        "features": features,
        "combination": Combination(
            known, cold, low, high, trained.astype(np.int64), tuple(reached), shifts
        ),
        "updated": _unpack_update(header["updated"]),
        **{name: unpack_report(kind, header, name) for name, kind in reports.items()},
    }


def _unpack_marks(arrays: Arrays, shape: tuple[int, int]) -> Marks:
    """Check the marks of rows and columns."""
    for name, size in zip(MARKS, shape, strict=True):
        marks = arrays[name]
        right = marks.dtype == np.int64 and marks.shape == (size,)
        right = right and bool(((marks >= 0) & (marks < N_HASHES)).all())
        require(right, f"{name} must be int64 from 0 to {N_HASHES - 1}, one per item")
    return arrays[MARKS[0]], arrays[MARKS[1]]


def _unpack_update(record: Any) -> UpdateRecord | None:
    """Check the record of an update, if there is one."""
    if record is None:
        return None
    return unpack_record(UpdateRecord, record, "updated")


def _name(place: int, fold: int) -> str:
    return f"{place}/{fold}"


def _check_names(header: dict[str, Any], arrays: Arrays) -> None:
    """Check that no array is missing or unknown."""
    count = len(header["levels"])
    wanted = {*HISTORY, *MARKS, *KNOTS, "trained", "centres", "kappas"}
    wanted |= {"group_shifts"} & arrays.keys()
    wanted |= {f"{name}_{key}" for name, keys in FEATURES.items() for key in keys}
    wanted |= {f"{kind}_{key}" for kind in KINDS for key in STARTS}
    wanted |= {f"{kind}_{t}_{key}" for kind in KINDS for t in range(count) for key in ARRAYS}
    check_keys(arrays.keys(), wanted, "array")


def _unpack_features(
    header: dict[str, Any], arrays: Arrays, shape: tuple[int, int], objective: str
) -> CellFeatures:
    """Check the histories and side features."""
    _check_names(header, arrays)
    count = len(header["levels"])
    width = SCALE + 1 + count
    for name, size in zip(HISTORY, shape, strict=True):
        history = arrays[name]
        right = history.dtype == np.float64 and history.shape == (size + 1, width)
        require(
            right, f"{name} must have {width} columns of float64, one line per item and one more"
        )
        require(
            bool((history[:, 0] >= 0).all()) and history[-1, 0] == 0, f"{name} must have counts"
        )
        require(not (np.abs(history) > LARGEST).any(), f"{name} must be up to {LARGEST:g}")
        require(bool(np.isfinite(history[:, SCALE:]).all()), f"{name} must have finite scales")
        require(
            bool((np.abs(history[:, SCALE]) <= LARGEST_LOG).all()),
            f"scales of {name} must lie between -{LARGEST_LOG:g} and {LARGEST_LOG:g}",
        )
    proportion = header["proportion"]
    right = type(proportion) is float and 0 < proportion <= 1
    require(right, "proportion must be that of the observations that histories count")
    check_numbers("centres", arrays["centres"], count)
    check_numbers("kappas", arrays["kappas"], count, 2)
    require(bool((arrays["kappas"] > 0).all()), "kappas must be positive")

    def part(name: str) -> dict[str, Any]:
        return {key: arrays[f"{name}_{key}"] for key in FEATURES[name]}

    rows, cols = (
        FeatureTable.unpack(header[name], part(name), size)
        for name, size in zip(ITEMS, shape, strict=True)
    )
    return CellFeatures(
        tuple(Objective(objective, level) for level in header["levels"]),
        (arrays[HISTORY[0]], arrays[HISTORY[1]]), header["mean_scale"], arrays["centres"],
        arrays["kappas"], rows, cols, FeatureSchema.unpack(header["features"], part("features")),
        header["proportion"],
    )  # fmt: skip


def _unpack_shifts(
    header: dict[str, Any], arrays: Arrays, features: CellFeatures, n_fits: int
) -> GroupShifts | None:
    """Check the groups and their shifts, if there are any."""
    name, shifts = header["groups"], arrays.get("group_shifts")
    require(shifts is None or name is not None, "group_shifts must be of groups")
    if name is None:
        return None
    is_known = any(name in names for names in features.names)
    place, categories = features.place(name) if is_known else (0, None)
    require(categories is not None, "groups must be a feature of categories")
    if shifts is None:
        return None
    check_numbers("group_shifts", shifts, len(categories or ()), len(header["levels"]))
    require(bool((np.abs(shifts) <= LARGEST).all()), f"group_shifts must be up to {LARGEST:g}")
    return GroupShifts(n_fits + 1 + place, shifts)


def _unpack_parts(
    kind: str, header: dict[str, Any], arrays: Arrays, features: CellFeatures, n_fits: int
) -> tuple[Part, ...]:
    """Check the starts and the trees of all objectives."""
    count, n_columns = len(header["levels"]), n_fits + 1 + features.width
    indices, coefficients, intercepts = (arrays[f"{kind}_{key}"] for key in STARTS)
    right = indices.dtype == np.int64 and indices.ndim == 2 and len(indices) == count
    require(right, f"{kind}_indices must be int64, one line per objective")
    check_numbers(f"{kind}_coefficients", coefficients, *indices.shape)
    check_numbers(f"{kind}_intercepts", intercepts, count)
    right = bool((np.abs(coefficients) <= LARGEST).all() and (np.abs(intercepts) <= LARGEST).all())
    require(right, f"coefficients of starts must be up to {LARGEST:g}")
    parts = []
    for t in range(count):
        allowed = [*range(n_fits + 1), *(n_fits + 1 + features.own_places(t))]
        require(
            bool(np.isin(indices[t], allowed).all()), f"{kind}_indices must be of start columns"
        )
        start = LinearStart(
            indices[t], coefficients[t], float(intercepts[t]), header["low"], header["high"]
        )
        trees = {key: arrays[f"{kind}_{t}_{key}"] for key in ARRAYS}
        parts.append(Part(start, Forest.unpack(trees, n_columns)))
    return tuple(parts)


def _unpack_fits(stored: StoredModel) -> Fits:
    """Return the fits by level and fold."""
    levels, folds = stored.header["fitted"], stored.header["folds"]
    right = type(levels) is int and type(folds) is int and levels >= 2 and folds >= 1
    right = right and levels * folds == len(stored.fits)
    require(right, "fitted and folds must match the number of fits")
    names = [[_name(place, fold) for fold in range(folds)] for place in range(levels)]
    check_keys(stored.fits.keys(), {name for level in names for name in level}, "fit")
    fits = tuple(tuple(Factorization(**stored.fits[name]) for name in level) for level in names)
    every = [fit for level in fits for fit in level]
    for what, values in (
        ("shape", {fit.shape for fit in every}),
        ("dtype", {fit.X.dtype for fit in every}),
        ("choice of intercepts", {fit.rows.has_intercepts for fit in every}),
    ):
        require(len(values) == 1, f"all fits must have the same {what}")
    require(all(fit.row_labels is None for fit in every[1:]), "only the first fit may have labels")
    return fits


def unpack_coverage(header: dict[str, Any]) -> tuple[CoverageReport, ...]:
    """Check one coverage report per quantile."""
    records, taus = header["reports"], header["levels"]
    require(isinstance(records, list), "coverage must be a list of reports")
    reports = tuple(unpack_record(CoverageReport, record, "coverage") for record in records)
    require([one.tau for one in reports] == taus, "coverage must be one report per quantile")
    for one in reports:
        groups = (*one.cold, *one.groups)
        proportions = [one.coverage, one.dense_coverage, *one.deciles]
        proportions += [part for group in groups for part in (group.coverage, *group.interval)]
        losses = [one.pinball, one.verifiable, *one.interval, *one.baselines.values()]
        losses += [loss for group in groups for loss in (group.pinball, group.baseline)]
        right = all(math.isnan(part) or 0 <= part <= 1 for part in proportions)
        right = right and all(map(math.isfinite, losses)) and len(one.deciles) == DECILES
        require(right, "coverage must have proportions, and finite losses")
        require(set(one.baselines) == set(BASELINES), "coverage must have losses of all baselines")
    return reports
