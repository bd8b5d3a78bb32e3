"""`report`: one page about a model and the observations that judge it."""

from __future__ import annotations

from typing import Any

from fastemf.reporting.about import about_section, headline
from fastemf.reporting.calibration import calibration_section
from fastemf.reporting.judgement import judged_by
from fastemf.reporting.markup import safe
from fastemf.reporting.misses import misses_section
from fastemf.reporting.page import whole_page
from fastemf.reporting.ranks import ranks_section
from fastemf.reporting.residuals import residual_section
from fastemf.reporting.rows import rows_section
from fastemf.reporting.served import served_of, served_section
from fastemf.reporting.tuned import tuning_section
from fastemf.reporting.verdict import verdict_of
from fastemf.support.validation import check_choice

__all__ = ["report"]


def report(
    model: Any,
    R: Any,
    *,
    unknown: str = "error",
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    weights: Any = None,
    shape: Any = None,
) -> str:
    """Write one HTML page that tells a person, in two minutes, what a model is worth.

    It says what was fitted, compares its losses on `R` with those of simpler predictions, and
    shows calibration by size of the prediction, residuals, the levels of some rows, the rows and
    columns that are predicted worst and served worst, what each factor adds, and how the fit was
    tuned. The page needs nothing beside itself: no scripts, no files, no network. It follows the
    reader's choice of light or dark.

    Parameters
    ----------
    model
        A `Factorization`, `Levels` or `Quantiles`.
    R
        Observations that the model has not seen, in any form `fastemf.complete` takes but a
        store.
    unknown
        What labels that the model does not have are: ``"error"``; with ``"nan"`` their
        observations are left out, and counted.
    rows, cols, values, weights, shape
        As in `Factorization.evaluate`.

    Returns
    -------
    str
        The page, to be written as UTF-8.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.6, random_state=0).R
    >>> train, test = fastemf.datasets.split(R, 0.8, random_state=0)
    >>> levels = fastemf.complete_levels(train, (0.1, 0.9), k=2, reg="noise")
    >>> page = fastemf.report(levels, test)
    >>> page.startswith("<!doctype html>"), "Calibration of ω = 0.9" in page
    (True, True)
    """
    check_choice(unknown, "unknown", ("error", "nan"))
    judged = judged_by(model, R, unknown, (rows, cols, values), weights, shape)
    verdict = verdict_of(judged)
    served = served_of(judged, 0), served_of(judged, 1)
    title = headline(judged)
    return whole_page(
        title,
        [
            f"<header><h1>{safe(title)}</h1>{verdict.words}</header>",
            about_section(judged),
            verdict.section,
            calibration_section(judged),
            residual_section(judged),
            rows_section(judged, served[0]),
            served_section(judged, served),
            misses_section(judged),
            ranks_section(judged),
            tuning_section(judged),
        ],
    )
