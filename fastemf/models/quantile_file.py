"""The model file of quantiles: the cross-fitted models, and the arrays that combine them."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastemf.models.factorization import Factorization
from fastemf.models.file import QUANTILES, StoredModel, write_model
from fastemf.models.fit_record import Arrays
from fastemf.quantile_model.coverage_report import BASELINES, CoverageReport
from fastemf.quantile_model.item_features import FEATURES, KINDS, ItemFeatures, Pools
from fastemf.quantile_model.normal_scores import NormalScores
from fastemf.quantile_model.pinball import Regression
from fastemf.quantile_model.stack import CorrectionTable, QuantileRegression, Stack
from fastemf.support.array_file import check_keys, require
from fastemf.tuning.corrections import check_numbers

if TYPE_CHECKING:
    from fastemf.models.quantiles import Quantiles

Fits = tuple[tuple[Factorization, ...], ...]

HEADER = {"taus", "levels", "folds", "low", "high", "coverage"}
SIDES = ("row", "col")
ITEMS = ("quantiles", "log_scales")
POOLS = ("pool_atoms", "pool_shares", "pool_kappas", "pool_scale_kappas")
KNOTS = ("knots", "scores")
SCALES = ("scales", "multiples")
REGRESSION = ("coefficients", "intercepts")
TABLE = ("centres", "corrections")  # of each quantile
LARGEST_LOG = 300.0  # of a row's or a column's scale: exp() of the sum of two is finite


def write_quantiles(path: str | os.PathLike[str], quantiles: Quantiles) -> None:
    """Write quantiles to one file, atomically; the first fit holds the labels."""
    stack, items, normal = quantiles.stack, quantiles.items, quantiles.normal
    arrays: Arrays = {}
    for axis, side in enumerate(SIDES):
        stored = (items.sides[axis], items.log_scales[axis])
        arrays |= {f"{side}_{name}": array for name, array in zip(ITEMS, stored, strict=True)}
    arrays |= dict(zip(POOLS, items.pools, strict=True))
    arrays |= dict(zip(KNOTS, (normal.values, normal.scores), strict=True))
    arrays |= dict(zip(SCALES, (items.scales, items.multiples), strict=True))
    arrays["coefficients"] = np.stack([part.regression.coefficients for part in stack.parts])
    arrays["intercepts"] = np.array([part.regression.intercept for part in stack.parts])
    for t, part in enumerate(stack.parts):
        arrays |= {f"{name}_{t}": array for name, array in zip(TABLE, part.table, strict=True)}
    header = {
        "taus": list(stack.taus), "levels": len(quantiles.fits), "folds": len(quantiles.fits[0]),
        "low": stack.low, "high": stack.high,
        "coverage": [asdict(report) for report in quantiles.coverage],
    }  # fmt: skip
    fits = {
        _name(place, fold): fit
        for place, level in enumerate(quantiles.fits)
        for fold, fit in enumerate(level)
    }
    rows, cols = quantiles.axes
    fits[_name(0, 0)] = replace(fits[_name(0, 0)], rows=rows, cols=cols)
    write_model(path, QUANTILES, fits, header, arrays)


def unpack_quantiles(stored: StoredModel) -> dict[str, Any]:
    """Check the content of a file, and return the fields of the constructor of `Quantiles`."""
    header, arrays = stored.header, stored.arrays
    check_keys(header.keys(), HEADER, "header field")
    taus = header["taus"]
    right = isinstance(taus, list) and len(taus) > 0
    right = right and all(type(tau) is float and 0 < tau < 1 for tau in taus)
    require(right and taus == sorted(set(taus)), "taus must be increasing numbers in (0, 1)")
    low, high = header["low"], header["high"]
    right = type(low) is float and type(high) is float and -np.inf < low <= high < np.inf
    require(right, "low and high must be the range of the data")
    fits = _unpack_fits(stored)
    first = fits[0][0]
    _check_arrays(arrays, len(taus), first.shape, len(FEATURES) + len(fits) - 2)
    parts = tuple(
        QuantileRegression(
            Regression(arrays["coefficients"][t], float(arrays["intercepts"][t])),
            CorrectionTable(*(arrays[f"{name}_{t}"] for name in TABLE)),
        )
        for t in range(len(taus))
    )
    sides, log_scales = ((arrays[f"row_{name}"], arrays[f"col_{name}"]) for name in ITEMS)
    rows, cols = (replace(axis, labels=None) for axis in first.axes)
    bare = replace(first, rows=rows, cols=cols)
    return {
        "fits": ((bare, *fits[0][1:]), *fits[1:]),
        "labels": (first.row_labels, first.col_labels),
        "normal": NormalScores(*(arrays[name] for name in KNOTS)),
        "items": ItemFeatures(
            tuple(taus), sides, log_scales, arrays["scales"], arrays["multiples"],
            Pools(*(arrays[name] for name in POOLS)),
        ),
        "stack": Stack(tuple(taus), parts, low, high),
        "coverage": _unpack_coverage(header["coverage"], taus),
    }  # fmt: skip


def _name(place: int, fold: int) -> str:
    return f"{place}/{fold}"


def _unpack_fits(stored: StoredModel) -> Fits:
    """Return the fits by level and fold."""
    levels, folds = stored.header["levels"], stored.header["folds"]
    right = type(levels) is int and type(folds) is int and levels >= 2 and folds >= 1
    right = right and levels * folds == len(stored.fits)
    require(right, "levels and folds must match the number of fits")
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


def _check_arrays(arrays: Arrays, count: int, shape: tuple[int, int], columns: int) -> None:
    """Check the names, shapes and values of the arrays beside the fits."""
    tables = [tuple(f"{name}_{t}" for name in TABLE) for t in range(count)]
    by_side = {f"{side}_{name}" for side in SIDES for name in ITEMS}
    wanted = {*by_side, *POOLS, *KNOTS, *SCALES, *REGRESSION}
    check_keys(arrays.keys(), wanted | {name for pair in tables for name in pair}, "array")
    for side, n in zip(SIDES, shape, strict=True):
        check_numbers(f"{side}_quantiles", arrays[f"{side}_quantiles"], KINDS, count, n + 1)
        name = f"{side}_log_scales"
        check_numbers(name, arrays[name], 2, n + 1)
        right = bool((np.abs(arrays[name]) <= LARGEST_LOG).all())
        require(right, f"{name} must lie between -{LARGEST_LOG:g} and {LARGEST_LOG:g}")
    atoms = arrays["pool_atoms"].shape[-1:]
    for name, *dimensions in (
        ("pool_atoms", KINDS, count, 2, *atoms),
        ("pool_shares", KINDS, count, 2, *atoms),
        ("pool_kappas", KINDS, count, 2),
        ("pool_scale_kappas", 2),
        ("scales", 2),
        ("multiples", count),
        ("coefficients", count, columns),
        ("intercepts", count),
    ):
        check_numbers(str(name), arrays[str(name)], *map(int, dimensions))
    for name in POOLS[:2]:
        require(bool((np.diff(arrays[name], axis=-1) >= 0).all()), f"{name} must not decrease")
    right = atoms != (0,) and bool((arrays["pool_shares"][..., -1] == 1).all())
    require(right, "pool_shares must end with 1")
    for name in POOLS[2:]:
        require(bool((arrays[name] > 0).all()), f"{name} must be positive")
    for pair in (KNOTS, *tables):
        for name in pair:
            check_numbers(name, arrays[name], max(arrays[pair[0]].size, 1))
        for name in pair if pair is KNOTS else pair[:1]:
            require(bool((np.diff(arrays[name]) > 0).all()), f"{name} must be increasing")


PROPORTIONS = ("coverage", "dense_coverage", "deciles")  # NaN if no cell is verifiable
TYPES = {"float": float, "int": int, "bool": bool, "str": str}


def _unpack_coverage(records: Any, taus: list[float]) -> tuple[CoverageReport, ...]:
    """Check one coverage report per quantile."""
    right = isinstance(records, list) and len(records) == len(taus)
    require(right, "coverage must be one report per quantile")
    reports = []
    for record, tau in zip(records, taus, strict=True):
        require(isinstance(record, dict), "coverage must have the fields of a report")
        names = {field.name for field in fields(CoverageReport)}
        check_keys(record.keys(), names, "field of coverage")
        for field in fields(CoverageReport):
            value, kind = record[field.name], str(field.type)
            is_right = _is_proportion if field.name in PROPORTIONS else _is_number
            if kind.startswith("tuple"):
                length = 2 if field.name == "interval" else 10
                right = isinstance(value, list) and len(value) == length
                right = right and all(map(is_right, value))
                record[field.name] = tuple(value) if right else ()
            elif kind.startswith("dict"):
                right = isinstance(value, dict) and set(value) == set(BASELINES)
                right = right and all(map(_is_number, value.values()))
            elif kind == "float":
                right = is_right(value)
            else:
                right = type(value) is TYPES[kind]
            require(right, f"coverage must have a valid {field.name}")
        require(record["tau"] == tau, "coverage must be of the stored quantiles")
        reports.append(CoverageReport(**record))
    return tuple(reports)


def _is_proportion(value: Any) -> bool:
    return type(value) is float and (math.isnan(value) or 0 <= value <= 1)


def _is_number(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)
