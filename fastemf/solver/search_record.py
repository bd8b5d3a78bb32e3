"""What a checkpoint keeps of a tuning, under way and at its end, checked when it is read.

Engines are not kept: that of a fit follows from its family and noise scales.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.solver.engine import CompletionEngine
from fastemf.solver.kept_fields import (
    Arrays,
    array,
    check_overflow,
    check_ridge,
    demand,
    field,
    floats_of,
    require_names,
)
from fastemf.solver.noise import WIDEST, noise_family, weighting_of
from fastemf.solver.records import Ridge
from fastemf.solver.sampling import MOST_FOLDS, Marks
from fastemf.solver.search import Candidate, Lead, Leads, Search, Tuned
from fastemf.solver.start import Factors
from fastemf.solver.table_record import array_names, tables_from, tables_named, tables_to
from fastemf.solver.tables import Table, Tables
from fastemf.solver.trial import Fitted, Trial
from fastemf.solver.tuning import Tuning, TuningStep
from fastemf.solver.tuning_record import record_of, tuning_of
from fastemf.solver.weighting import Pair
from fastemf.support.array_file import DamagedFileError

__all__ = ["packed_search", "packed_tuned", "tuned_names", "unpacked_search", "unpacked_tuned"]

FLOAT = np.dtype(np.float64)
VARIANCES = 0.5 / WIDEST**2, 2 * WIDEST**2  # those of several trials are means, which round


class Kept(NamedTuple):
    """Plain values for a header, and arrays."""

    header: dict[str, Any]
    arrays: Arrays


# --- under way --------------------------------------------------------------------------------


def packed_search(search: Search) -> Kept:
    """Make plain values and arrays of a search."""
    record = record_of(Tuning(tuple(one.step for one in search.tried), 0 if search.tried else -1))
    arrays: Arrays = {}
    fits: list[list[list[float]]] = []
    for place, candidate in enumerate(search.tried):
        fits.append([])
        if candidate.fits:
            arrays[f"losses_{place}"] = candidate.losses
        for trial, fit in enumerate(candidate.fits):
            fits[-1].append([*fit.ridge, fit.shift])
            arrays |= _packed_fit(f"{place}_{trial}", fit)
    return Kept(
        {
            "intercept_ridge": search.intercept_ridge,
            "noise": search.noise,
            "tried": record,
            "fits": fits,
        },
        arrays,
    )


def _packed_fit(name: str, fit: Fitted) -> Arrays:
    arrays = {f"X_{name}": fit.factors[0], f"Y_{name}": fit.factors[1]}
    for side, *about in zip(("rows", "cols"), fit.leverages, fit.variances, strict=True):
        arrays[f"{side}_{name}"] = np.stack(about)
    return arrays


def unpacked_search(header: dict[str, Any], arrays: Arrays, trials: list[Trial], k: int) -> Search:
    """Rebuild a search of rank k, all of whose arrays are given."""
    require_names("field of the search", header, {"intercept_ridge", "noise", "tried", "fits"})
    intercept_ridge = field(header, "intercept_ridge", float)
    check_ridge(Ridge(0.0, intercept_ridge), trials[0].fitted)
    noise = field(header, "noise", dict)
    for norm in noise.values():
        demand(type(norm) is float, "its noise must be norms")
        check_ridge(Ridge(norm, 0.0), trials[0].fitted, WIDEST**2)
    steps, fits = _tuning(header, "tried").steps, field(header, "fits", list)
    demand(len(fits) == len(steps), "its candidates must have fits, or none each")
    _check_dropped(steps, fits)
    names, tried = set(), []
    for place, (step, kept) in enumerate(zip(steps, fits, strict=True)):
        demand(isinstance(kept, list) and len(kept) in (0, len(trials)), "a trial has one fit")
        losses = np.empty(0)
        if kept:
            names.add(f"losses_{place}")
            losses = array(arrays, f"losses_{place}", (trials[0].judge.shape[0],), FLOAT)
        found = []
        for at, about in enumerate(kept):
            name = f"{place}_{at}"
            names |= {f"{part}_{name}" for part in ("X", "Y", "rows", "cols")}
            found.append(_fit(name, about, arrays, trials[at], step.family, k))
        rank = max((fit.rank for fit in found), default=step.rank)
        demand(rank == step.rank, "a candidate must have the rank of its fits")
        tried.append(Candidate(step, losses, found))
    require_names("array", arrays, names)
    return Search(intercept_ridge, noise, tried)


def _check_dropped(steps: tuple[TuningStep, ...], fits: list[Any]) -> None:
    """Refuse a search without fits that may be chosen, or that it goes on from."""
    best: dict[str, float] = {}
    for step in steps:
        best[step.family] = min(step.loss, best.get(step.family, math.inf))
    for place, (step, kept) in enumerate(zip(steps, fits, strict=True)):
        wanted = step.rank == 0 or step.loss == best[step.family] or place == len(steps) - 1
        demand(bool(kept) or not wanted, "candidates that may be chosen must have their fits")


def _fit(name: str, about: Any, arrays: Arrays, trial: Trial, family: str, k: int) -> Fitted:
    engine = trial.fitted
    factors, intercepts, shift = floats_of({name: about}, name, 3)
    ridge = Ridge(factors, intercepts)
    check_ridge(ridge, engine, WIDEST**2)
    _check_shift(shift, engine)
    by_row, by_col = (
        array(arrays, f"{side}_{name}", (2, size), FLOAT)
        for side, size in zip(("rows", "cols"), engine.shape, strict=True)
    )
    variances = _variances(by_row[1], by_col[1])
    if noise_family(family) != "even":
        engine = engine.view(weighting=weighting_of(family, engine, variances))
    found = _factors(arrays, f"X_{name}", f"Y_{name}", engine, k)
    return Fitted(engine, found, ridge, (by_row[0], by_col[0]), variances, shift)


# --- at its end -------------------------------------------------------------------------------


def packed_tuned(tuned: Tuned) -> Kept:
    """Make plain values and arrays of what a tuning chose; the marks follow from the data."""
    header = {
        "family": tuned.family,
        "numbers": [
            *tuned.ridge, tuned.shift, tuned.correction, tuned.plain_correction,
            tuned.intercept_ridge,
        ],
        "tuning": record_of(tuned.tuning),
        "tables": None,
        "leads": None,
    }  # fmt: skip
    arrays = dict(zip(TUNED, (*tuned.factors, *tuned.variances), strict=True))
    if tuned.leads is not None:
        family, ratio, each = tuned.leads
        header["leads"] = {"family": family, "ratio": ratio, "trials": len(each)}
        for trial, lead in enumerate(each):
            parts = (*lead.factors, *lead.variances, *lead.levels)
            arrays |= dict(zip(_lead_names(trial), parts, strict=True))
    if tuned.tables:
        header["tables"], of_tables = tables_to(Tables(tuned.tables, tuned.intercept_ridge))
        arrays |= of_tables
    return Kept(header, arrays)


TUNED = ("tuned_X", "tuned_Y", "tuned_rows", "tuned_cols")
LEAD = ("X", "Y", "rows", "cols", "row_levels", "col_levels")


def _lead_names(trial: int) -> list[str]:
    return [f"lead_{part}_{trial}" for part in LEAD]


def unpacked_tuned(
    header: dict[str, Any], arrays: Arrays, engine: CompletionEngine, k: int, marks: Marks
) -> Tuned:
    """Rebuild what a tuning of rank k chose."""
    require_names("field of the tuning", header, {"family", "numbers", "tuning", "tables", "leads"})
    factors, intercepts, shift, correction, plain, ridge = floats_of(header, "numbers", 6)
    check_ridge(Ridge(factors, intercepts), engine, WIDEST**2)
    check_ridge(Ridge(0.0, ridge), engine)
    for part in (shift, correction, plain):
        _check_shift(part, engine)
    tuning = _tuning(header, "tuning")
    family = field(header, "family", str)
    demand(tuning.best is not None and tuning.best.family == family, "its family must be chosen")
    rows, cols = (
        array(arrays, name, (size,), FLOAT)
        for name, size in zip(TUNED[2:], engine.shape, strict=True)
    )
    return Tuned(
        family, Ridge(factors, intercepts), _variances(rows, cols),
        _factors(arrays, *TUNED[:2], engine, k), shift, correction, plain,
        _tables(header["tables"], arrays, engine), ridge, marks, tuning,
        _leads(header["leads"], arrays, engine, k),
    )  # fmt: skip


def tuned_names(header: Any) -> set[str]:
    """Return the names of the arrays that what a tuning chose must have, by its header."""
    tables = header.get("tables") if isinstance(header, dict) else None
    over = [] if tables is None else tables_named(tables)
    leads = header.get("leads") if isinstance(header, dict) else None
    return {
        *TUNED,
        *(name for place in range(len(over)) for name in array_names(place)),
        *(name for trial in range(_trials_of(leads)) for name in _lead_names(trial)),
    }


def _trials_of(leads: Any) -> int:
    """Count the trials of leads, by their header."""
    if leads is None:
        return 0
    demand(isinstance(leads, dict), "its leads must have fields")
    require_names("field of the leads", leads, {"family", "ratio", "trials"})
    trials: int = field(leads, "trials", int)
    demand(0 < trials <= MOST_FOLDS, f"its leads must be those of 1 to {MOST_FOLDS} trials")
    return trials


def _leads(found: Any, arrays: Arrays, engine: CompletionEngine, k: int) -> Leads | None:
    trials = _trials_of(found)
    if trials == 0:
        return None
    family, ratio = field(found, "family", str), field(found, "ratio", float)
    demand(noise_family(family) == family, "its leads must be of a family with noise scales")
    demand(0 < ratio < math.inf, "the ridge of its leads must be positive and finite")
    each = []
    for trial in range(trials):
        X, Y, rows, cols, *levels = _lead_names(trial)
        by_row, by_col = (
            array(arrays, name, (size,), FLOAT)
            for name, size in zip((rows, cols), engine.shape, strict=True)
        )
        width = int(engine.has_intercepts)
        a, c = (
            array(arrays, name, (size, width), engine.dtype)
            for name, size in zip(levels, engine.shape, strict=True)
        )
        factors = _factors(arrays, X, Y, engine, k)
        each.append(Lead(factors, _variances(by_row, by_col), (a, c)))
    return Leads(family, ratio, tuple(each))


def _tables(found: Any, arrays: Arrays, engine: CompletionEngine) -> tuple[Table, ...]:
    if found is None:
        return ()
    for name in sorted(tuned_names({"tables": found})):
        demand(name in arrays, f"array {name!r} is missing")
    tables = tables_from(found, arrays).each
    for table in tables:
        _check_shift(float(np.abs(table.values).max()), engine)
    return tables


# --- parts ------------------------------------------------------------------------------------


def _tuning(header: dict[str, Any], name: str) -> Tuning:
    try:
        return tuning_of(field(header, name, dict)) or Tuning()
    except ValueError as error:
        raise DamagedFileError(f"damaged, {error}") from error


def _variances(rows: NDArray[np.float64], cols: NDArray[np.float64]) -> Pair:
    low, high = min(rows.min(), cols.min()), max(rows.max(), cols.max())
    demand(VARIANCES[0] <= low and high <= VARIANCES[1], "noise scales must be in their range")
    return rows, cols


def _check_shift(shift: float, engine: CompletionEngine) -> None:
    limit = math.sqrt(float(np.finfo(engine.dtype).max) / max(1.0, engine.mass))
    demand(abs(shift) < limit, f"a shift must not overflow {engine.dtype}")


def _factors(
    arrays: Arrays, X: str, Y: str, engine: CompletionEngine, k: int
) -> Factors:  # fmt: skip
    """Read factors of rank k or less, with their intercepts."""
    width = arrays[X].shape[-1] if X in arrays and arrays[X].ndim == 2 else 0
    demand(0 <= width - engine.has_intercepts <= k, f"{X} must have a rank up to {k}")
    found = [
        array(arrays, name, (size, width), engine.dtype)
        for name, size in zip((X, Y), engine.shape, strict=True)
    ]
    if width > 0:
        check_overflow(found[0], found[1], engine)
    return found[0], found[1]
