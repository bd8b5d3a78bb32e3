"""Contributions to a prediction of a boosted model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastemf.boosting.model_fit import predict_columns
from fastemf.models.explanation import Explanation, limit_notes
from fastemf.support.arrays import Indices

if TYPE_CHECKING:
    from fastemf.features.schema import SideFeatures
    from fastemf.models.boosted import Boosted

CONSTANT, PAIR, LIMITS = "constant", "pair (factors)", "sorting and calibration"


def explain_boosted(
    model: Boosted, t: int, i: Indices, j: Indices, given: SideFeatures
) -> Explanation:
    """Decompose prediction number t of the cell (i, j), which are arrays of one element."""
    features, combination = model.features, model.combination
    columns = predict_columns(model._means, model.normal, features, i, j, given)
    is_cold = bool(features.is_cold(i, j)[0])
    start, forest = (combination.cold if is_cold else combination.known)[t]
    *of_columns, base = forest.contributions(columns)[0].tolist()
    names = [axis.name or name for axis, name in zip(model.axes, ("row", "column"), strict=True)]
    about = features.subjects(len(model.fits), names[0], names[1], PAIR)
    parts = dict.fromkeys([CONSTANT, *names, PAIR, *about], 0.0)
    parts[CONSTANT] = base + start.intercept
    for name, contribution in zip(about, of_columns, strict=True):
        parts[name] += contribution
    for at, coefficient in zip(start.indices.tolist(), start.coefficients.tolist(), strict=True):
        if at < len(model.fits) - 1:  # the last is not additive
            for name, term in zip(
                (CONSTANT, *names, PAIR), model._means[at].terms(int(i[0]), int(j[0])), strict=True
            ):
                parts[name] += coefficient * term
        else:
            parts[about[at]] += coefficient * float(columns[0, at])
    value = float(model._predict_cells(i, j, given)[0, t])
    rest = value - sum(parts.values())
    rounding = 1e-12 * sum(map(abs, parts.values()))
    parts[LIMITS] = rest if abs(rest) > rounding else 0.0
    notes = []
    for name, history, at in zip(names, features.history, (i, j), strict=True):
        if history[at[0], 0] == 0:
            notes.append(f"the {name}{' is new and' if at[0] < 0 else ''} has no observations")
    if not combination.low < value < combination.high:
        notes.append("the prediction is at the end of the range of the data")
    notes += limit_notes(value, model._limits)
    return Explanation(features.objectives[t].level, parts, value, tuple(notes))
