"""Round-trip times between nodes (NetLatency-Data): the same questions on a symmetric matrix."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fastemf.datasets import load_netlatency, split
from fastemf.experiments.measured import Draw, check_bins, judge_draws, show_data, show_errors
from fastemf.experiments.report import Report
from fastemf.experiments.settings import ExperimentSettings
from fastemf.support.validation import check_rank

__all__ = ["run"]

RATES = (0.05, 0.1)
BINS = (0.0, 50.0, 200.0, 3000.0)  # milliseconds


def run(
    settings: ExperimentSettings, data: str | os.PathLike[str], *, bins: Sequence[float] = BINS
) -> Report:
    """Run both sampling rates with every level and draw; return the report with its figures."""
    measured = load_netlatency(data)
    R = measured.R
    check_rank(settings.rank, R.shape, "rank")
    edges = check_bins(R.data, bins, measured.unit)
    draws = [
        Draw(rate, repeat, split(R, rate, by="pair", random_state=repeat))
        for rate in RATES
        for repeat in range(settings.repeats)
    ]
    report = Report(
        "netlatency",
        "Round-trip times between network nodes",
        [
            f"NetLatency-Data, first snapshot: {R.shape[0]} nodes, {R.nnz:,} ordered pairs; the "
            "diagonal is not data. Unordered pairs are held out, since both directions are the "
            f"same measurement. The paper has no such experiment. Fits: {settings.description}.",
            "Relative error (RE) is against the measured value of held-out pairs. Skill is "
            "1 − expectile loss / that of the best constant; w_eff is the level at which "
            "predictions really lie.",
        ],
    )
    tally = judge_draws(settings, draws, edges, measured.unit)
    show_data(report, R, settings, "round-trip time", measured.unit)
    show_errors(report, tally, draws)
    return report
