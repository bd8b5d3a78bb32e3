"""What files keep of a tuning: plain values for a header, checked when they are read."""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace
from typing import Any

from fastemf.solver.tuning import MEANING, Baseline, Tuning, TuningStep

__all__ = ["record_of", "tuning_of"]

KINDS = {"int": int, "float": float, "str": str}
MAY_BE_INFINITE = ("reg",)  # that of a model without factors
MAY_BE_NAN = {  # where nothing is left of any observation, or nothing was tuned
    TuningStep: ("effective_omega",),
    Baseline: (),
    Tuning: ("loss", "effective_omega"),
}
SINCE_TABLES = ("loss", "effective_omega")  # of a tuning: before, they were those of the best step
NOT_NEGATIVE = ("reg", "rank", "loss", "standard_error", "cells", "folds", "noise")


def record_of(tuning: Tuning | None) -> dict[str, Any] | None:
    """Make plain values of a tuning."""
    return None if tuning is None else asdict(tuning)


def tuning_of(record: Any) -> Tuning | None:
    """Make a tuning of plain values; what is not one raises ValueError."""
    if record is None:
        return None
    older = isinstance(record, dict) and not any(name in record for name in SINCE_TABLES)
    if older:
        record |= dict.fromkeys(SINCE_TABLES, math.nan)
    found = _checked(Tuning, record, {"steps": TuningStep, "baselines": Baseline})
    tuning = Tuning(**found)
    first, last = (0, len(tuning.steps) - 1) if tuning.steps else (-1, -1)
    if not first <= tuning.chosen <= last:
        raise ValueError("tuning must have the step that was chosen")
    if not {step.family for step in tuning.steps} <= MEANING.keys():
        raise ValueError(f"tuning must have steps of the families {', '.join(MEANING)}")
    if older and tuning.best is not None:
        best = tuning.best
        return replace(tuning, loss=best.loss, effective_omega=best.effective_omega)
    return tuning


def _checked(kind: Any, record: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Check the fields of a dataclass; `parts` are those that hold several others."""
    if not isinstance(record, dict) or set(record) != {field.name for field in fields(kind)}:
        raise ValueError(f"tuning must have the fields of {kind.__name__}")
    found: dict[str, Any] = {}
    for field in fields(kind):
        name, value = field.name, record[field.name]
        if name in parts:
            if not isinstance(value, list):
                raise ValueError(f"tuning must have a list of {name}")
            found[name] = tuple(parts[name](**_checked(parts[name], one, {})) for one in value)
            continue
        expected: type = KINDS[str(field.type)]
        if type(value) is not expected:
            raise ValueError(f"tuning must have {expected.__name__} as {name}")
        if expected is not str:
            _check_number(name, value, MAY_BE_NAN[kind])
        found[name] = value
    return found


def _check_number(name: str, value: Any, may_be_nan: tuple[str, ...]) -> None:
    right = math.isnan(value) if name in may_be_nan else False
    right |= value == math.inf and name in MAY_BE_INFINITE
    right |= abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)
    right &= not (name in NOT_NEGATIVE and value < 0)
    if not right:
        raise ValueError(f"tuning must have a number in its range as {name}")
