"""Web-service response times (WS-DREAM data set 1): which level predicts which cells best."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.datasets import MeasuredMatrix, Split, load_wsdream, split
from fastemf.experiments.measured import Draw, check_bins, judge_draws, show_data, show_errors
from fastemf.experiments.report import Report
from fastemf.experiments.settings import ExperimentSettings
from fastemf.support.validation import check_rank

__all__ = ["draws_of", "run", "uniform_part"]

RATES = (0.05, 0.1)
BINS = (0.0, 0.3, 3.1, 20.0)  # seconds, the paper's

# Bits of the fragments' source: a uniform 5 % sample of the matrix; all that was sampled
# rather than taken as one dense block, which biases every statistic.
UNIFORM = 1
SAMPLED = 7


def run(
    settings: ExperimentSettings, data: str | os.PathLike[str], *, bins: Sequence[float] = BINS
) -> Report:
    """Run both sampling rates with every level and draw; return the report with its figures."""
    measured = load_wsdream(data)
    R = _of_source(measured, SAMPLED)
    check_rank(settings.rank, R.shape, "rank")
    edges = check_bins(R.data, bins, measured.unit)
    draws = draws_of(measured, settings.repeats)
    m, n = R.shape
    known = f"{R.nnz:,} of {m * n:,} cells ({R.nnz / (m * n):.1%})"
    what = (
        f"WS-DREAM data set 1, {m} users × {n} services: {known} are known, the calls that failed "
        "left out."
        if measured.source is None
        else f"Recovered fragments of WS-DREAM data set 1, not the full matrix of {m} users × {n} "
        f"services: {known}. At 5 % the fit sees the uniform sample among them, in one draw; at "
        "10 % cells drawn at random from all of them."
    )
    report = Report(
        "wsdream",
        "Web-service response times",
        [
            f"{what} Fits: {settings.description}.",
            "Relative error (RE) is against the measured value of held-out cells; it rewards low "
            "predictions. Skill (1 − expectile loss / that of the best constant) is the proper "
            "score of a level; w_eff is the level at which predictions really lie.",
        ],
    )
    tally = judge_draws(settings, draws, edges, measured.unit)
    show_data(report, uniform_part(measured), settings, "response time", measured.unit)
    show_errors(report, tally, draws)
    return report


def draws_of(data: MeasuredMatrix, repeats: int) -> list[Draw]:
    """Draw samples of 5 % and 10 % of the matrix's cells; all other known cells are held out."""
    R = _of_source(data, SAMPLED)
    m, n = R.shape
    draws = []
    for rate in RATES:
        if data.source is not None and rate == RATES[0]:
            known = data.source[(data.source & SAMPLED) > 0]
            uniform = (known & UNIFORM) > 0
            draws.append(Draw(rate, 0, Split(_part(R, uniform), _part(R, ~uniform))))
            continue
        size = round(rate * m * n)
        if size >= R.nnz:
            raise ValueError(
                f"data must hold more than {rate:.0%} of the matrix's cells ({size:,}) to hold "
                f"some of them out, got {R.nnz:,}"
            )
        draws += [
            Draw(rate, repeat, split(R, size, random_state=repeat)) for repeat in range(repeats)
        ]
    return draws


def uniform_part(data: MeasuredMatrix) -> Any:
    """Return the cells whose distribution is that of the whole matrix."""
    return _of_source(data, UNIFORM)


def _of_source(data: MeasuredMatrix, bits: int) -> Any:
    if data.source is None:
        return data.R
    return _part(data.R, (data.source & bits) > 0)


def _part(R: Any, mask: NDArray[np.bool_]) -> Any:
    return sp.coo_array((R.data[mask], (R.row[mask], R.col[mask])), shape=R.shape)
