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
    measure_model,
    objectives_of,
)
from fastemf.solver.settings import Settings
from fastemf.sources.memory import Observations
from fastemf.sources.open_source import Data, without_codes
from fastemf.sources.recency import (
    has_latest,
    latest_from,
    of_known_items,
    times_of,
    weigh_by_age,
)
from fastemf.support.arrays import Floats, Ints
from fastemf.tuning.record import NOTHING_ADDED

HALF_LIVES = (0.5, 0.25, 0.125, 0.0625)  # candidates, relative to the time of the data
BLOCKS = 8  # parts of the latest tenth, by time, in which half-lives are compared
FEWEST_BLOCKS = 3
CONFIDENCE = 0.975
WINDOWS = 3  # the latest tenth and windows before it


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
    # The fit itself alone draws from a generator, writes checkpoints and calls callbacks. An
    # earlier model, from which it may start, may have seen the latest observations.
    own = replace(
        settings, checkpoint=None, callback=None,
        init=settings.init if isinstance(settings.init, str) else "spectral",
        random_state=settings.random_state if type(settings.random_state) is int else 0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all data issues the same warnings
        if half_life == "auto":
            chosen = _choose_half_life(observed, own, by_scores=by_scores)
        else:
            chosen = parse_half_life(half_life, observed.times)
        earlier = observed.subset(~latest)
        before = fit(_weighted(data, earlier, chosen), own)
    found = fit(_weighted(data, observed, chosen), settings)
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


def _weighted(data: Data, observed: Observations, half_life: float) -> Data:
    """Return data with other observations, weighted by age."""
    weighted = replace(weigh_by_age(observed, half_life), times=None)
    return replace(data, fitted=weighted, had_weights=data.is_weighted)


def _choose_half_life(observed: Observations, settings: Settings, *, by_scores: bool) -> float:
    """Return the half-life with the lowest loss in the latest tenth, of fits to the earlier part.

    Each candidate is one fit, with a noise-adaptive ridge if the ridge is to be tuned. The
    half-life is infinite unless weights reduce the loss throughout the latest tenth: the values of
    one day say little about the next if days differ. They must not increase it over the latest
    tenth and the two windows before it, because a phase of a daily cycle resembles the phase just
    before it, but not the next one. Censored values count as exact here.
    """
    observed = without_codes(observed)
    if by_scores:
        side = observed.by_row
        normal = NormalScores.fit(side.values, side.weights if side.weights.size else None)
        observed = observed.map_values(normal.to_scores)
    settings = replace(
        settings, validation=None, progress=False,
        reg="noise" if isinstance(settings.reg, str) else settings.reg,
    )  # fmt: skip
    windows = _windows(observed)
    if not windows:
        return math.inf
    latest, *before = windows
    blocks = _time_blocks(times_of(latest.test))
    if blocks.max() + 1 < FEWEST_BLOCKS:
        return math.inf
    plain = latest.losses(math.inf, settings)
    gains = {}
    for half_life in (part * float(np.ptp(times_of(observed))) for part in HALF_LIVES):
        found = plain - latest.losses(half_life, settings)
        mean = float(np.mean(found))
        if mean > (1 - NOTHING_ADDED) * np.mean(plain) and _is_gain(found, blocks):
            gains[half_life] = mean
    if not gains:
        return math.inf
    unweighted = sum(np.mean(window.losses(math.inf, settings)) for window in before)
    for half_life in sorted(gains, key=lambda one: -gains[one]):
        weighted = sum(np.mean(window.losses(half_life, settings)) for window in before)
        if gains[half_life] + unweighted - weighted > 0:
            return half_life
    return math.inf


class _Window(NamedTuple):
    """Observations to fit, and later ones of their rows and columns."""

    train: Observations
    test: Observations

    def losses(self, half_life: float, settings: Settings) -> Floats:
        """Fit with weights by age, and return the later losses, times their weights."""
        data = Data(replace(weigh_by_age(self.train, half_life), times=None))
        rng = np.random.default_rng(0)
        model = fit_data(data, settings, rng, keep_baselines=False).model
        cells = cells_in_memory(self.test)
        residuals = cells.values - model._predict_cells(cells.rows, cells.cols)
        weights = 1.0 if cells.weights is None else cells.weights
        return np.asarray(Objective(EXPECTILE, settings.omega).losses(residuals) * weights)


def _windows(observed: Observations) -> list[_Window]:
    """Return the latest tenth after the earlier part, the latest tenth of that part, and so on."""
    found: list[_Window] = []
    while len(found) < WINDOWS and has_latest(times_of(observed)):
        latest = times_of(observed) >= latest_from(times_of(observed))
        earlier = observed.subset(~latest)
        known = latest & of_known_items(observed, earlier)
        if not known.any():
            break
        found.append(_Window(earlier, observed.subset(known)))
        observed = earlier
    return found


def _time_blocks(times: Floats) -> Ints:
    """Divide observations into blocks of about equal size, in the order of their times."""
    _, place, counts = np.unique(times, return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts
    _, block = np.unique(before * BLOCKS // times.size, return_inverse=True)
    return np.asarray(block[place])


def _is_gain(differences: Floats, blocks: Ints) -> bool:
    """Return whether the mean of differences exceeds zero by a one-sided t-test over blocks."""
    from scipy.special import stdtrit

    means = np.bincount(blocks, differences) / np.bincount(blocks)
    error = float(np.std(means, ddof=1)) / math.sqrt(means.size)
    return bool(means.mean() > stdtrit(means.size - 1, CONFIDENCE) * error)
