"""The result of a tuning in a checkpoint, checked when it is read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastemf.solver.checkpoint import (
    Arrays,
    CheckpointFile,
    check_overflow,
    check_ridge,
    read_array,
    read_field,
    read_floats,
)
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.records import Ridge
from fastemf.solver.settings import Settings
from fastemf.solver.start import Factors
from fastemf.solver.weighting import Pair
from fastemf.sources.cell_sample import MOST_FOLDS, Marks
from fastemf.support.array_file import DamagedFileError, check_keys, require
from fastemf.support.arrays import Floats
from fastemf.tuning import corrections
from fastemf.tuning.corrections import Correction, Corrections
from fastemf.tuning.noise import WIDEST, noise_family
from fastemf.tuning.record import Tuning, pack_tuning, unpack_tuning
from fastemf.tuning.ridge_path import tune
from fastemf.tuning.trial import TrialStart, TuningResult, WarmStart

FLOAT = np.dtype(np.float64)
VARIANCES = 0.5 / WIDEST**2, 2 * WIDEST**2  # means over trials round
ARRAYS = ("X", "Y", "rows", "cols")
START_ARRAYS = (*ARRAYS, "row_intercepts", "col_intercepts")


def resume_or_tune(
    checkpoint: CheckpointFile | None,
    engine: CompletionEngine,
    settings: Settings,
    seed: int,
    marks: Marks,
    **options: Any,
) -> TuningResult | Tuning:
    """Return the result that a checkpoint holds; otherwise tune, and write the result there."""
    if checkpoint is not None:
        found = read_result(checkpoint, engine, settings.k, marks)
        if found is not None:
            return found
    result = tune(engine, settings, seed, marks, **options)
    if checkpoint is not None and isinstance(result, TuningResult):
        write_result(checkpoint, result)
    return result


def write_result(checkpoint: CheckpointFile, result: TuningResult) -> None:
    """Write the result of a tuning; its marks follow from the data."""
    header = {
        "family": result.family,
        "numbers": [
            *result.ridge, result.shift, result.correction, result.plain_correction,
            result.intercept_ridge,
        ],
        "record": pack_tuning(result.tuning),
        "tables": None,
        "warm_start": None,
    }  # fmt: skip
    arrays = dict(zip(ARRAYS, (*result.factors, *result.variances), strict=True))
    if result.warm_start is not None:
        family, ratio, starts = result.warm_start
        header["warm_start"] = {"family": family, "ratio": ratio, "trials": len(starts)}
        for trial, start in enumerate(starts):
            parts = (*start.factors, *start.variances, *start.intercepts)
            arrays |= dict(zip(_start_names(trial), parts, strict=True))
    if result.tables:
        header["tables"], of_tables = corrections.pack_corrections(
            Corrections(result.tables, result.intercept_ridge)
        )
        arrays |= of_tables
    checkpoint.write_tuning(header, arrays)


def read_result(
    checkpoint: CheckpointFile, engine: CompletionEngine, k: int, marks: Marks
) -> TuningResult | None:
    """Read the result of a finished tuning of rank k; None where there is none."""
    found = checkpoint.read_tuning()
    if found is None:
        return None
    with checkpoint.damage_as_error():
        return _unpack(*found, engine, k, marks)


def _unpack(
    header: dict[str, Any], arrays: Arrays, engine: CompletionEngine, k: int, marks: Marks
) -> TuningResult:
    fields = {"family", "numbers", "record", "tables", "warm_start"}
    check_keys(header, fields, "field of the tuning")
    check_keys(arrays, _array_names(header), "array")
    factors, intercepts, shift, correction, plain, ridge = read_floats(header, "numbers", 6)
    check_ridge(Ridge(factors, intercepts), engine, WIDEST**2)
    check_ridge(Ridge(0.0, ridge), engine)
    for part in (shift, correction, plain):
        _check_shift(part, engine)
    try:
        tuning = unpack_tuning(read_field(header, "record", dict)) or Tuning()
    except ValueError as error:
        raise DamagedFileError(str(error)) from error
    family = read_field(header, "family", str)
    chosen = tuning.best is not None and tuning.best.family == family
    require(chosen, "its family must be that of the chosen candidate")
    return TuningResult(
        family, Ridge(factors, intercepts), _read_variances(arrays, ARRAYS, engine),
        _read_factors(arrays, ARRAYS, engine, k), shift, correction, plain,
        _read_tables(header["tables"], arrays, engine), ridge, marks, tuning,
        _read_starts(header["warm_start"], arrays, engine, k),
    )  # fmt: skip


def _array_names(header: dict[str, Any]) -> set[str]:
    """Return the names of the arrays that a header requires."""
    tables, warm_start = header["tables"], header["warm_start"]
    n_tables = 0 if tables is None else len(corrections.check_corrections(tables))
    trials = 0 if warm_start is None else _count_trials(warm_start)
    return {
        *ARRAYS,
        *(name for place in range(n_tables) for name in corrections.array_names(place)),
        *(name for trial in range(trials) for name in _start_names(trial)),
    }


def _start_names(trial: int) -> list[str]:
    return [f"start_{part}_{trial}" for part in START_ARRAYS]


def _count_trials(warm_start: Any) -> int:
    require(isinstance(warm_start, dict), "its warm start must have fields")
    check_keys(warm_start, {"family", "ratio", "trials"}, "field of the warm start")
    trials: int = read_field(warm_start, "trials", int)
    require(0 < trials <= MOST_FOLDS, f"its warm start must have 1 to {MOST_FOLDS} trials")
    return trials


def _read_starts(header: Any, arrays: Arrays, engine: CompletionEngine, k: int) -> WarmStart | None:
    if header is None:
        return None
    family, ratio = read_field(header, "family", str), read_field(header, "ratio", float)
    require(noise_family(family) == family, "its warm start must be of a family with noise scales")
    require(0 < ratio < math.inf, "the ridge of its warm start must be positive and finite")
    starts = []
    for trial in range(_count_trials(header)):
        names = _start_names(trial)
        a, c = (
            read_array(arrays, name, (size, int(engine.has_intercepts)), engine.dtype)
            for name, size in zip(names[4:], engine.shape, strict=True)
        )
        factors = _read_factors(arrays, names, engine, k)
        starts.append(TrialStart(factors, _read_variances(arrays, names, engine), (a, c)))
    return WarmStart(family, ratio, tuple(starts))


def _read_tables(header: Any, arrays: Arrays, engine: CompletionEngine) -> tuple[Correction, ...]:
    if header is None:
        return ()
    tables = corrections.unpack_corrections(header, arrays).each
    for table in tables:
        _check_shift(float(np.abs(table.values).max()), engine)
    return tables


def _read_variances(arrays: Arrays, names: Any, engine: CompletionEngine) -> Pair:
    rows: Floats
    rows, cols = (
        read_array(arrays, name, (size,), FLOAT)
        for name, size in zip(names[2:4], engine.shape, strict=True)
    )
    low, high = min(rows.min(), cols.min()), max(rows.max(), cols.max())
    require(VARIANCES[0] <= low and high <= VARIANCES[1], "noise scales must be in their range")
    return rows, cols


def _check_shift(shift: float, engine: CompletionEngine) -> None:
    limit = math.sqrt(float(np.finfo(engine.dtype).max) / max(1.0, engine.mass))
    require(abs(shift) < limit, f"a shift must not overflow {engine.dtype}")


def _read_factors(arrays: Arrays, names: Any, engine: CompletionEngine, k: int) -> Factors:
    """Read factors of rank k or less, with their intercepts."""
    width = arrays[names[0]].shape[-1] if arrays[names[0]].ndim == 2 else 0
    require(0 <= width - engine.has_intercepts <= k, f"{names[0]} must have a rank up to {k}")
    X, Y = (
        read_array(arrays, name, (size, width), engine.dtype)
        for name, size in zip(names[:2], engine.shape, strict=True)
    )
    if width > 0:
        check_overflow(X, Y, engine)
    return X, Y
