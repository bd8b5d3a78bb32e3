"""`fit_over_time`: fits to observations with times, for every completion task.

A fit to the earlier part, evaluated on the latest tenth, shows whether the data drift. Weights that
decrease with age follow the drift; their half-life may be chosen on the latest tenth.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fastemf.boosting.normal_scores import NormalScores
from fastemf.boosting.objective import EXPECTILE, Objective
from fastemf.boosting.observed_cells import cells_in_memory
from fastemf.features.times import parse_half_life
from fastemf.fitting import fit_data
from fastemf.models.held_out import (
    DriftReport,
    Figures,
    mean_difference,
    measure_model,
    objectives_of,
)
from fastemf.solver.settings import Settings
from fastemf.sources.memory import Observations
from fastemf.sources.open_source import Data, without_codes
from fastemf.sources.recency import latest_from, of_known_items, times_of, weigh_by_age
from fastemf.support.arrays import Floats, Mask
from fastemf.tuning.record import NOTHING_ADDED

HALF_LIVES = (1.0, 0.5, 0.25, 0.125, 0.0625)  # candidates, relative to the time of the data
FEWEST_KNOWN = 20  # observations in the latest tenth that a half-life is chosen on


class Fitted(NamedTuple):
    """A model, and its performance in random folds, by level; empty if it was not measured."""

    model: Any
    folds: tuple[Figures, ...]


Fit = Callable[[Data, Settings], Fitted]


def fit_over_time(
    fit: Fit, data: Data, settings: Settings, half_life: Any, *, by_scores: bool = False
) -> Fitted:
    """Fit data and, if they have times, a model of their earlier part for the report about drift.

    Parameters
    ----------
    fit
        Fits data with these settings.
    data
        The data. Without times, nothing but `fit` happens.
    settings
        Settings of the fit.
    half_life
        Half-life of the weights, as in `fastemf.complete_quantiles`.
    by_scores
        Whether "auto" compares half-lives by the normal scores of the values, which suits
        quantiles, instead of the values.
    """
    observed = data.fitted
    if not isinstance(observed, Observations) or observed.times is None:
        return fit(data, settings)
    start = latest_from(times_of(observed))
    latest = times_of(observed) >= start
    # The fit itself alone draws from a generator, writes checkpoints and calls callbacks.
    own = replace(
        settings, checkpoint=None, callback=None,
        random_state=settings.random_state if type(settings.random_state) is int else 0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all data issues the same warnings
        if half_life == "auto":
            chosen = _choose_half_life(observed, latest, own, by_scores=by_scores)
        else:
            chosen = parse_half_life(half_life, observed.times)
        earlier = observed.subset(~latest)
        before = fit(_with_observations(data, weigh_by_age(earlier, chosen)), own)
    found = fit(_with_observations(data, weigh_by_age(observed, chosen)), settings)
    known = latest & of_known_items(observed, earlier)
    objectives = objectives_of(before.model)
    report = DriftReport(
        objective=objectives[0].kind,
        levels=tuple(one.level for one in objectives),
        held_out=measure_model(before.model, observed.subset(known)) if known.any() else (),
        folds=before.folds,
        observations=int(np.count_nonzero(known)),
        left_out=int(np.count_nonzero(latest & ~known)),
        proportion=float(np.mean(latest)),
        start=start,
        time=observed.times.name,
        is_date=observed.times.is_date,
        half_life=chosen,
    )
    return found._replace(model=replace(found.model, drift=report))


def _with_observations(data: Data, observed: Observations) -> Data:
    """Return data with other observations, whose values keep their place in time no longer."""
    return replace(data, fitted=replace(observed, times=None))


def _choose_half_life(
    observed: Observations, latest: Mask, settings: Settings, *, by_scores: bool
) -> float:
    """Return the half-life with the lowest loss in the latest tenth, of fits to the earlier part.

    Each candidate is one fit, with a noise-adaptive ridge if the ridge is to be tuned. Weights
    must reduce the loss by more than its uncertainty, or the half-life is infinite. Censored
    values count as exact here.
    """
    observed = without_codes(observed)
    assert isinstance(observed, Observations)
    earlier = observed.subset(~latest)
    known = latest & of_known_items(observed, earlier)
    if np.count_nonzero(known) < FEWEST_KNOWN:
        return math.inf
    if by_scores:
        side = earlier.by_row
        normal = NormalScores.fit(side.values, side.weights if side.weights.size else None)
        observed = observed.map_values(normal.to_scores)
        earlier = earlier.map_values(normal.to_scores)
    test = observed.subset(known)
    times = times_of(observed)
    candidates = [part * float(np.ptp(times)) for part in HALF_LIVES]
    settings = replace(
        settings, validation=None, progress=False,
        reg="noise" if isinstance(settings.reg, str) else settings.reg,
    )  # fmt: skip
    plain = _losses(earlier, test, settings)
    best, lowest = math.inf, NOTHING_ADDED * float(np.mean(plain))
    groups = cells_in_memory(test).hashes
    for candidate in candidates:
        losses = _losses(weigh_by_age(earlier, candidate), test, settings)
        gain = mean_difference(plain, losses, groups)[1]
        if gain[0] > 0 and np.mean(losses) < lowest:
            best, lowest = candidate, float(np.mean(losses))
    return best


def _losses(train: Observations, test: Observations, settings: Settings) -> Floats:
    """Fit some observations, and return the losses of others, times their weights."""
    data = Data(replace(train, times=None))
    model = fit_data(data, settings, np.random.default_rng(0), keep_baselines=False).model
    cells = cells_in_memory(test)
    residuals = cells.values - model._predict_cells(cells.rows, cells.cols)
    objective = Objective(EXPECTILE, settings.omega)
    weights = 1.0 if cells.weights is None else cells.weights
    return np.asarray(objective.losses(residuals) * weights)
