"""`report`: an HTML page that evaluates a model on held-out observations."""

from __future__ import annotations

from typing import Any

from fastemf.reporting import markup as html
from fastemf.reporting import model_sections
from fastemf.reporting.calibration import calibration_section
from fastemf.reporting.comparison import compare_with_baselines
from fastemf.reporting.errors import errors_section, residual_section
from fastemf.reporting.evaluated_model import read_evaluated
from fastemf.reporting.predictions import extremes_section, mean_predictions, rows_section
from fastemf.support.validation import check_choice


def report(
    model: Any,
    R: Any,
    *,
    unknown: str = "error",
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    weights: Any = None,
    censored: Any = None,
    shape: Any = None,
    features: Any = None,
) -> str:
    """Return an HTML page, as a string, that evaluates a model on held-out observations.

    The page describes the model, compares its loss on `R` with baselines, and shows calibration by
    decile of the prediction, residuals, predictions of some rows, the rows and columns with the
    largest predictions and the largest errors, the contribution of each factor, the tuning, and the
    reports of validation cells and of the latest tenth of the time. It is self-contained, without
    scripts, and follows the light or dark theme of the reader.

    Parameters
    ----------
    model
        A fitted model: `Factorization`, `Levels`, `BoostedLevels` or `Quantiles`.
    R
        Held-out observations, in any form that `fastemf.complete` takes except a store.
    unknown
        Treatment of labels that are not in the model: ``"error"``, or ``"nan"`` to leave their
        observations out and report their number.
    rows, cols, values, weights, censored, shape, features
        As in `Factorization.evaluate`. Predictions that are not of observations are made without
        features of observations.

    Returns
    -------
    str
        The page, to be encoded as UTF-8.

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
    names = (rows, cols, values)
    evaluated = read_evaluated(model, R, unknown, names, weights, shape, features, censored)
    summary, comparison = compare_with_baselines(evaluated)
    means = mean_predictions(evaluated, 0), mean_predictions(evaluated, 1)
    title = model_sections.headline(evaluated)
    return html.page(
        title,
        [
            f"<header><h1>{html.escape(title)}</h1>{summary}</header>",
            model_sections.about_section(evaluated),
            comparison,
            calibration_section(evaluated),
            residual_section(evaluated),
            rows_section(evaluated, means[0]),
            extremes_section(evaluated, means),
            errors_section(evaluated),
            model_sections.factors_section(evaluated),
            model_sections.tuning_section(evaluated),
            model_sections.drift_section(evaluated),
        ],
    )
