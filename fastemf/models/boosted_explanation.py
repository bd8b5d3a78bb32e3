"""`BoostedExplanation`: contributions to a prediction of a boosted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fastemf.boosting.model_fit import predict_columns
from fastemf.support.arrays import Indices
from fastemf.support.terminal import escape_control

if TYPE_CHECKING:
    from fastemf.features.schema import SideFeatures
    from fastemf.models.boosted import Boosted

CONSTANT, PAIR, LIMITS = "constant", "pair (factors)", "sorting and calibration"


class BoostedExplanation(NamedTuple):
    """Contributions to a prediction, in the units of the data; see `Quantiles.explain`.

    Attributes
    ----------
    level : float
        The quantile, or the expectile level.
    parts : dict of str to float
        Contributions by what they are about, whose sum is `value`.
    value : float
        The prediction.
    notes : tuple of str
        Remarks on how far the prediction can be trusted.
    """

    level: float
    parts: dict[str, float]
    value: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [(escape_control(name), value) for name, value in self.parts.items()]
        width = max(len(name) for name, _ in parts)
        by_size = sorted(parts, key=lambda part: -abs(part[1]))
        lines = [f"{name:<{width}}  {value:+12.4g}" for name, value in by_size]
        lines += map(escape_control, self.notes)
        return "\n".join([f"{'prediction':<{width}}  {self.value:12.4g}", *lines])


def explain_boosted(
    model: Boosted, t: int, i: Indices, j: Indices, given: SideFeatures
) -> BoostedExplanation:
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
            notes.append(f"the {name} is new: its history is that of no observations")
    if not combination.low < value < combination.high:
        notes.append("the prediction is at the end of the range of the data")
    imputation = model.fits[0][0].imputation
    if imputation is not None and not imputation.bounds[0] < value < imputation.bounds[1]:
        notes.append("the prediction is beyond the censoring limit, where it is extrapolated")
    return BoostedExplanation(features.objectives[t].level, parts, value, tuple(notes))
