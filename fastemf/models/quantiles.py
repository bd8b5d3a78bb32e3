"""`Quantiles`, the quantiles of every cell, and `Interval`."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fastemf.boosting.coverage_report import CoverageReport
from fastemf.distribution import Distribution
from fastemf.features.schema import NOT_GIVEN, SideFeatures
from fastemf.models.bilinear import Predicts
from fastemf.models.boosted import Boosted
from fastemf.models.boosted_explanation import explain_boosted
from fastemf.models.boosted_file import write_boosted
from fastemf.models.evaluation import Evaluation, evaluate_quantiles
from fastemf.models.explanation import Explanation
from fastemf.models.file import QUANTILES
from fastemf.models.held_out import DriftReport, HeldOutReport, pack_reports
from fastemf.models.reading import CellValues
from fastemf.models.tabular import Columns
from fastemf.support.arrays import Array, Indices
from fastemf.support.display_names import quantile_name
from fastemf.support.validation import (
    check_choice,
    check_fitted_level,
    check_proportion,
)


class Interval(NamedTuple):
    """Prediction intervals, in the units of the data; see `Quantiles.interval`.

    Attributes
    ----------
    lower : array
        The lower ends; minus infinity for ``side="below"``.
    upper : array
        The upper ends; infinity for ``side="above"``.
    """

    lower: Array
    upper: Array


@dataclass(frozen=True, eq=False, repr=False)
class Quantiles(Boosted):
    """Quantiles of every cell of a matrix, with their out-of-fold coverage.

    `fastemf.complete_quantiles` returns it. `predict` and `predict_block` have the quantiles as
    the last axis, along which values never decrease; `rank` takes one of them as `tau`: the safest
    service has the smallest 0.95 quantile. Predictions lie in the range of the data. Those of a
    row without observations, or of an unknown row with ``unknown="model"``, are based on the
    column, on side features and on all data.

    Attributes
    ----------
    fits : tuple of tuples of Factorization
        The cross-fitted models, without labels: one tuple per expectile level, ω = 0.5 first, and
        a last one for the normal scores at 0.5. A tuple has one fit per fold, to the other folds.
    labels : pair of Labels, or of None
        Labels of rows and columns.
    marks : pair of arrays
        Random marks of rows and columns, from which the fold of a cell follows.
    normal : NormalScores
        The map from values to normal scores.
    features : CellFeatures
        Statistics and side features of rows and columns.
    combination : Combination
        Linear starts and boosted trees that combine fits and features into quantiles.
    updated : UpdateRecord, or None
        What the last update fitted anew and what it kept; None for a model that was not updated.
    coverage : tuple of CoverageReport
        Out-of-fold coverage of each quantile.
    groups : str, or None
        Name of the side feature whose categories the coverage reports list.
    drift : DriftReport, or None
        Coverage and loss in the latest tenth of the time, for a model fitted with ``time=``.
    validation : HeldOutReport, or None
        Coverage and loss on validation cells, for a model fitted with ``validation=``.

    See Also
    --------
    fastemf.plot.levels : The quantiles of one row as bands.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
    >>> quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), k=2)
    >>> quantiles.predict([3, 4, 5], 7).shape, quantiles.predict_block([0, 5]).shape
    ((3, 2), (2, 50, 2))
    >>> safest = quantiles.rank(3, 5, order="smallest", tau=0.9)
    >>> bool((safest.values[1:] >= safest.values[:-1]).all())
    True
    """

    _of_quantiles: ClassVar = True

    coverage: tuple[CoverageReport, ...]
    groups: str | None = None
    drift: DriftReport | None = None
    validation: HeldOutReport | None = None

    @property
    def taus(self) -> tuple[float, ...]:
        """The quantiles, as numbers in (0, 1), in increasing order."""
        return self._fitted

    @property
    def _content(self) -> str:
        return self._describe("taus")

    @property
    def _verdict(self) -> str:
        if not all(one.measured for one in self.coverage):
            return ""
        coverages, losses = (
            ", ".join("–" if math.isnan(figure) else f"{figure:.{digits}f}" for figure in figures)
            for figures, digits in (
                ([one.coverage for one in self.coverage], 3),
                ([one.relative for one in self.coverage], 2),
            )
        )
        return f"out-of-fold coverage {coverages}, pinball loss {losses} relative to a constant"

    def _performance(self) -> Columns:
        reports = self.coverage
        return {
            "quantile": [quantile_name(one.tau) for one in reports],
            "out-of-fold coverage": [one.coverage for one in reports],
            "lower": [one.interval[0] for one in reports],
            "upper": [one.interval[1] for one in reports],
            "cells": [one.cells for one in reports],
            "pinball loss": [one.pinball for one in reports],
            "relative to a constant": [one.relative for one in reports],
            "best baseline": [one.best_baseline for one in reports],
        }

    def _details(self) -> list[str]:
        return [*map(str, self.coverage), *([] if self.updated is None else [str(self.updated)])]

    # --- predictions -----------------------------------------------------------------------

    def interval(
        self, rows: Any, cols: Any = None, *, coverage: float = 0.9, side: str = "central",
        unseen: str = "model", unknown: str = "error", features: Any = None,
        row_features: Any = None, col_features: Any = None,
    ) -> Interval:  # fmt: skip
        """Predict intervals with a given coverage for the cells (rows[i], cols[i]).

        Parameters
        ----------
        rows, cols, unseen, unknown, features, row_features, col_features
            As in `predict`.
        coverage
            Target proportion of values inside the interval, in (0, 1).
        side
            ``"central"``: between the quantiles (1 − coverage) / 2 and (1 + coverage) / 2;
            ``"below"``: below the quantile `coverage`; ``"above"``: above the quantile
            1 − coverage. These quantiles must be among those fitted.

        Returns
        -------
        Interval
            ``lower`` and ``upper``, of the broadcast shape.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> quantiles = fastemf.complete_quantiles(R, (0.1, 0.5, 0.9), k=2)
        >>> low, high = quantiles.interval(3, 7, coverage=0.8)
        >>> bool(low <= high)
        True
        >>> quantiles.interval(3, 7, coverage=0.9, side="below").lower.tolist()
        -inf
        """
        proportion = check_proportion(coverage, "coverage")
        check_choice(side, "side", ("central", "below", "above"))
        ends: dict[str, tuple[float | None, float | None]] = {
            "central": ((1 - proportion) / 2, (1 + proportion) / 2),
            "below": (None, proportion),
            "above": (1 - proportion, None),
        }
        hint = ""
        if side == "central" and proportion in self.taus:
            hint = f' (side="below" needs only {proportion!r})'
        name = f'tau for coverage={coverage!r} and side="{side}"{hint}'
        places = [None if tau is None else self._place(tau, name) for tau in ends[side]]
        predicted = self.predict(
            rows, cols, unseen=unseen, unknown=unknown, features=features,
            row_features=row_features, col_features=col_features,
        )  # fmt: skip
        missing = np.isnan(predicted[..., 0])
        lower, upper = (
            np.where(missing, np.nan, predicted.dtype.type(infinite))
            if at is None
            else predicted[..., at]
            for at, infinite in zip(places, (-np.inf, np.inf), strict=True)
        )
        return Interval(np.asarray(lower), np.asarray(upper))

    def predict_distribution(
        self, rows: Any, cols: Any = None, *, tails: str = "exponential", unseen: str = "model",
        unknown: str = "error", features: Any = None, row_features: Any = None,
        col_features: Any = None,
    ) -> Distribution:  # fmt: skip
        """Predict the whole distributions of the cells (rows[i], cols[i]).

        They interpolate the quantiles linearly, from the smallest value of the data. Their upper
        tails are an assumption, so fit quantiles around the values of interest.

        Parameters
        ----------
        rows, cols, unseen, unknown, features, row_features, col_features
            As in `predict`.
        tails
            ``"exponential"``: beyond the last quantile, the tail of the exponential distribution
            through the last two quantiles; ``"flat"``: values do not exceed the last quantile.

        Returns
        -------
        fastemf.distribution.Distribution
            Distributions of the broadcast shape, with `cdf`, `above`, `quantile` and `crps`.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> quantiles = fastemf.complete_quantiles(R, (0.1, 0.5, 0.9), k=2)
        >>> cells = quantiles.predict_distribution([3, 4], 7)
        >>> p90 = quantiles.predict([3, 4], 7)[:, 2]
        >>> cells.above(p90).round(6).tolist()  # the probability of a larger value
        [0.1, 0.1]
        """
        predicted = self.predict(
            rows, cols, unseen=unseen, unknown=unknown, features=features,
            row_features=row_features, col_features=col_features,
        )  # fmt: skip
        return self._distribution(predicted, tails)

    def _distribution(self, predicted: Array, tails: str = "exponential") -> Distribution:
        if len(self.taus) < 2:
            raise ValueError(
                f"a distribution needs a model of at least two quantiles, got {self.taus}"
            )
        return Distribution(self.taus, predicted, tails, lowest=self.combination.low)

    def _predict_above(self, threshold: Any) -> Predicts:
        if isinstance(threshold, str) or not np.isfinite(threshold):
            raise ValueError(f"above must be a finite number, got {threshold!r}")

        def predict(i: Indices, j: Indices, given: SideFeatures = NOT_GIVEN) -> Array:
            return self._distribution(self._predict_cells(i, j, given)).above(threshold)

        return predict

    def explain(
        self, row: Any, col: Any, *, tau: float, unknown: str = "error", features: Any = None,
        row_features: Any = None, col_features: Any = None,
    ) -> Explanation:  # fmt: skip
        """Decompose one quantile of one cell into contributions, in the units of the data.

        Contributions of the trees are Shapley values (TreeSHAP, path-dependent), added up by what
        they are about: the row, the column, the pair (the factors), and each side feature.

        Parameters
        ----------
        row, col, unknown, features, row_features, col_features
            One cell, as in `predict`.
        tau
            One of the quantiles.

        Returns
        -------
        Explanation
            ``parts``, whose sum is ``value``, the prediction; printed as a table.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), k=2)
        >>> found = quantiles.explain(3, 7, tau=0.9)
        >>> list(found.parts)
        ['constant', 'row', 'column', 'pair (factors)', 'sorting and calibration']
        >>> bool(abs(sum(found.parts.values()) - quantiles.predict(3, 7)[1]) < 1e-9)
        True
        """
        place = self._place(tau, "tau")
        return explain_boosted(
            self, place, *self._read_cell(row, col, unknown, features, row_features, col_features)
        )

    def _evaluate_cells(self, cells: CellValues) -> Evaluation:
        predicted = self._predict_cells(cells.rows, cells.cols, cells.side)
        training = self.fits[0][0].training
        censored = self._censored_cells(cells)
        return evaluate_quantiles(
            cells, self.shape, predicted, self.features, training, censored, self.combination.low
        )

    def _changed(self, **parts: Any) -> Quantiles:
        coverage = tuple(replace(report, measured=False) for report in self.coverage)
        return replace(self, coverage=coverage, drift=None, validation=None, **parts)

    # --- the model file --------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, atomically; read it with `fastemf.load`.

        The file holds about 20 pairs of factors, and the trees.

        Examples
        --------
        >>> import fastemf, tempfile, os
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> path = os.path.join(tempfile.mkdtemp(), "quantiles.npz")
        >>> fastemf.complete_quantiles(R, (0.5, 0.9), k=2).save(path)
        >>> fastemf.load(path).taus
        (0.5, 0.9)
        """
        reports = [asdict(report) for report in self.coverage]
        more = pack_reports(drift=self.drift, validation=self.validation)
        write_boosted(path, QUANTILES, self, {"reports": reports, "groups": self.groups} | more)

    def _place(self, tau: Any, name: str) -> int:
        return check_fitted_level(tau, self.taus, name, "quantiles")
