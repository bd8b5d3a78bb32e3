"""The model file of quantiles: their fits as those of levels are written, and what joins them."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import Labels
from fastemf.model import file as model_file
from fastemf.model.factorization import Factorization
from fastemf.model.file import ModelFileError, Several
from fastemf.solver.table_record import check_numbers
from fastemf.stacking.items import COLUMNS, KINDS, KnownItems, Pools
from fastemf.stacking.normal_scores import NormalScores
from fastemf.stacking.pinball import Regression
from fastemf.stacking.promise import Promise
from fastemf.stacking.size_table import SizeTable
from fastemf.stacking.stack import Stack, Stacked
from fastemf.support.array_file import DamagedFileError, check_keys, require

__all__ = ["quantile_fields", "write_quantiles"]

HEADER = {"quantiles", "levels", "folds", "low", "high", "promises"}
SIDES = ("row", "col")
ITEMS = ("quantiles", "log_scales")
POOLS = ("pool_atoms", "pool_shares", "pool_kappas", "pool_scale_kappas")
KNOTS = ("knots", "scores")
SCALES = ("scales", "multiples")
REGRESSION = ("coefficients", "intercepts")
TABLE = ("centres", "corrections")  # of each quantile
LARGEST_LOG = 300.0  # of a row's or a column's scale: e to the sum of two is a number


class WrittenQuantiles(Protocol):
    """What is written of quantiles."""

    fits: tuple[tuple[Factorization, ...], ...]
    labels: tuple[Labels | None, Labels | None]
    normal: NormalScores
    items: KnownItems
    stack: Stack
    promises: tuple[Promise, ...]


def write_quantiles(path: str | os.PathLike[str], found: Any) -> None:
    """Write quantiles to one file, atomically; the first of the fits has the labels."""
    quantiles: WrittenQuantiles = found
    stack, items = quantiles.stack, quantiles.items
    arrays: dict[str, NDArray[Any]] = {}
    for axis, side in enumerate(SIDES):
        kept = (items.sides[axis], items.log_scales[axis])
        arrays |= {f"{side}_{name}": array for name, array in zip(ITEMS, kept, strict=True)}
    arrays |= dict(zip(POOLS, items.pools, strict=True))
    arrays |= dict(zip(KNOTS, (quantiles.normal.values, quantiles.normal.scores), strict=True))
    arrays |= dict(zip(SCALES, (items.scales, items.multiples), strict=True))
    arrays["coefficients"] = np.stack([part.regression.coefficients for part in stack.parts])
    arrays["intercepts"] = np.array([part.regression.intercept for part in stack.parts])
    for t, part in enumerate(stack.parts):
        arrays |= {f"{name}_{t}": array for name, array in zip(TABLE, part.table, strict=True)}
    header = {
        "quantiles": list(stack.taus), "levels": len(quantiles.fits),
        "folds": len(quantiles.fits[0]), "low": stack.low, "high": stack.high,
        "promises": [asdict(promise) for promise in quantiles.promises],
    }  # fmt: skip
    fits = {
        _name(place, fold): fit
        for place, level in enumerate(quantiles.fits)
        for fold, fit in enumerate(level)
    }
    first = fits[_name(0, 0)]
    rows, cols = (
        replace(axis, labels=labels)
        for axis, labels in zip(first.axes, quantiles.labels, strict=True)
    )
    fits[_name(0, 0)] = replace(first, rows=rows, cols=cols)
    model_file.write_several(path, header, dict(fits), arrays)


def quantile_fields(path: str | os.PathLike[str], found: Several) -> dict[str, Any]:
    """Check what a file holds, and return the fields of `Quantiles`."""
    try:
        return _checked(*found)
    except DamagedFileError as error:
        raise ModelFileError(f"{os.fspath(path)} is not a valid fastemf model: {error}") from error


def _name(place: int, fold: int) -> str:
    return f"{place}/{fold}"


def _checked(
    header: dict[str, Any], fits: dict[str, dict[str, Any]], arrays: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    check_keys(header.keys(), HEADER, "header field")
    taus = header["quantiles"]
    require(isinstance(taus, list) and len(taus) > 0, "quantiles must be a list of shares")
    right = all(type(tau) is float and 0 < tau < 1 for tau in taus)
    require(right and taus == sorted(set(taus)), "quantiles must be shares that rise")
    levels, folds = header["levels"], header["folds"]
    right = type(levels) is int and type(folds) is int and levels >= 2 and folds >= 1
    require(right and levels * folds == len(fits), "levels and folds must be those of the fits")
    names = [[_name(place, fold) for fold in range(folds)] for place in range(levels)]
    check_keys(fits.keys(), {name for level in names for name in level}, "fit")
    models = tuple(tuple(Factorization(**fits[name]) for name in level) for level in names)
    every = [fit for level in models for fit in level]
    first = every[0]
    require(len({fit.shape for fit in every}) == 1, "fits must be of one matrix")
    require(len({fit.X.dtype for fit in every}) == 1, "fits must be of one dtype")
    require(
        len({fit.rows.has_intercepts for fit in every}) == 1,
        "all fits must have intercepts, or none",
    )
    require(all(fit.rows.labels is None for fit in every[1:]), "only one fit may have labels")
    labels = first.rows.labels, first.cols.labels
    bare = replace(
        first, rows=replace(first.rows, labels=None), cols=replace(first.cols, labels=None)
    )
    models = ((bare, *models[0][1:]), *models[1:])

    count, columns = len(taus), len(COLUMNS) + levels - 2
    tables = [[f"{name}_{t}" for name in TABLE] for t in range(count)]
    by_side = {f"{side}_{name}" for side in SIDES for name in ITEMS}
    wanted = {*by_side, *POOLS, *KNOTS, *SCALES, *REGRESSION}
    check_keys(arrays.keys(), wanted | {name for pair in tables for name in pair}, "array")
    for axis, side in enumerate(SIDES):
        size = first.shape[axis] + 1
        check_numbers(f"{side}_quantiles", arrays[f"{side}_quantiles"], KINDS, count, size)
        name = f"{side}_log_scales"
        check_numbers(name, arrays[name], 2, size)
        right = bool((np.abs(arrays[name]) <= LARGEST_LOG).all())
        require(right, f"{name} must lie between -{LARGEST_LOG:g} and {LARGEST_LOG:g}")
    atoms = arrays["pool_atoms"].shape[-1:]
    for name in POOLS[:2]:
        check_numbers(name, arrays[name], KINDS, count, 2, *atoms)
        require(bool((np.diff(arrays[name], axis=-1) >= 0).all()), f"{name} must not fall")
    require(atoms != (0,) and bool((arrays["pool_shares"][..., -1] == 1).all()),
            "pool_shares must end with 1")  # fmt: skip
    check_numbers("pool_kappas", arrays["pool_kappas"], KINDS, count, 2)
    check_numbers("pool_scale_kappas", arrays["pool_scale_kappas"], 2)
    for name in POOLS[2:]:
        require(bool((arrays[name] > 0).all()), f"{name} must be positive")
    for pair in (KNOTS, *tables):
        for name in pair:
            check_numbers(name, arrays[name], max(arrays[pair[0]].size, 1))
        for name in pair if pair is KNOTS else pair[:1]:
            require(bool((np.diff(arrays[name]) > 0).all()), f"{name} must rise")
    check_numbers("scales", arrays["scales"], 2)
    check_numbers("multiples", arrays["multiples"], count)
    check_numbers("coefficients", arrays["coefficients"], count, columns)
    check_numbers("intercepts", arrays["intercepts"], count)
    low, high = header["low"], header["high"]
    right = type(low) is float and type(high) is float and -np.inf < low <= high < np.inf
    require(right, "low and high must be the range of the data")
    parts = tuple(
        Stacked(
            Regression(arrays["coefficients"][t], float(arrays["intercepts"][t])),
            SizeTable(*(arrays[name] for name in tables[t])),
        )
        for t in range(count)
    )
    sides = [[arrays[f"{side}_{name}"] for side in SIDES] for name in ITEMS]
    return {
        "fits": models,
        "labels": labels,
        "normal": NormalScores(*(arrays[name] for name in KNOTS)),
        "items": KnownItems(
            tuple(taus), (sides[0][0], sides[0][1]), (sides[1][0], sides[1][1]), arrays["scales"],
            arrays["multiples"], Pools(*(arrays[name] for name in POOLS)),
        ),
        "stack": Stack(tuple(taus), parts, low, high),
        "promises": _promises(header["promises"], taus),
    }  # fmt: skip


BEFORE: dict[str, Any] = {"checked": 1.0}  # of promises of version 5 or less
SHARES = ("coverage", "many", "deciles")  # NaN where none could be checked
KINDS_OF = {"float": float, "int": int, "bool": bool, "str": str}


def _promises(records: Any, taus: list[float]) -> tuple[Promise, ...]:
    require(isinstance(records, list) and len(records) == len(taus), "promises must be one each")
    found = []
    for record, tau in zip(records, taus, strict=True):
        require(isinstance(record, dict), "promises must have the fields of Promise")
        given: dict[str, Any] = BEFORE | record
        check_keys(given.keys(), {field.name for field in fields(Promise)}, "field of promises")
        for field in fields(Promise):
            value, kind = given[field.name], str(field.type)
            is_right = _is_share if field.name in SHARES else _is_number
            if kind.startswith("tuple"):
                length = 2 if field.name == "interval" else 10
                right = isinstance(value, list) and len(value) == length
                require(right and all(map(is_right, value)), f"promises must have {field.name}")
                given[field.name] = tuple(value)
            elif kind == "float":
                require(is_right(value), f"promises must have a number as {field.name}")
            else:
                require(type(value) is KINDS_OF[kind], f"promises must have {kind} as {field.name}")
        require(given["tau"] == tau, "promises must be those of the quantiles")
        found.append(Promise(**given))
    return tuple(found)


def _is_share(value: Any) -> bool:
    return type(value) is float and (math.isnan(value) or 0 <= value <= 1)


def _is_number(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)
