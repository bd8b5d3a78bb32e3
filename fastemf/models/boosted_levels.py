"""`BoostedLevels`: expectile levels of every cell, with boosted trees."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastemf.models.boosted import Boosted
from fastemf.models.boosted_explanation import explain_boosted
from fastemf.models.boosted_file import write_boosted
from fastemf.models.evaluation import Evaluation, Score, evaluate_level
from fastemf.models.explanation import Explanation
from fastemf.models.file import BOOSTED_LEVELS
from fastemf.models.held_out import DriftReport, pack_reports
from fastemf.models.levels import LevelMethods
from fastemf.models.reading import CellValues
from fastemf.models.tabular import Columns
from fastemf.support.arrays import Array
from fastemf.support.validation import check_fitted_level


@dataclass(frozen=True, slots=True)
class LevelGroup:
    """Out-of-fold figures of one expectile level for some of the cells.

    Attributes
    ----------
    name : str
        The cells, for example ``"new rows"``.
    cells : int
        Number of observations.
    effective_omega, loss, constant : float
        As in `LevelReport`; the constant is that of all cells.
    """

    name: str
    cells: int
    effective_omega: float
    loss: float
    constant: float

    def __str__(self) -> str:
        relative = self.loss / self.constant if self.constant > 0 else 0.0
        return (
            f"{self.name}: loss {relative:.3f} relative to a constant, effective omega "
            f"{self.effective_omega:.3f} of {self.cells:,} observations"
        )


@dataclass(frozen=True, slots=True)
class LevelReport:
    """Out-of-fold figures of one expectile level.

    Attributes
    ----------
    omega : float
        The level.
    effective_omega : float
        The level of the predictions on cells that were not fitted: Σ|r⁻| / (Σ|r⁻| + Σ|r⁺|).
    loss : float
        Mean expectile loss, in squared units of the data.
    constant : float
        That of the best constant.
    cold : tuple of LevelGroup
        The figures of known pairs, and of cells that were presented as if their row, their column
        or both were new.
    measured : bool
        False after `fold_in`, `extend` and `update`, and if a refit kept the trees: the figures
        then refer to the earlier data.
    """

    omega: float
    effective_omega: float
    loss: float
    constant: float
    cold: tuple[LevelGroup, ...] = ()
    measured: bool = True

    @property
    def relative(self) -> float:
        """The loss relative to that of the best constant."""
        return self.loss / self.constant if self.constant > 0 else 0.0

    def __str__(self) -> str:
        line = (
            f"omega={self.omega:g}: out-of-fold loss {self.relative:.3f} relative to a constant, "
            f"effective omega {self.effective_omega:.3f}"
        )
        line += "" if self.measured else "; measured before the update"
        return "\n".join([line, *(f"    {group}" for group in self.cold)])


@dataclass(frozen=True, eq=False, repr=False)
class BoostedLevels(LevelMethods, Boosted):
    """Expectile levels of every cell, from cross-fitted models and boosted trees.

    ``fastemf.complete_levels(..., boost=True)`` returns it. The predictions of a cell are sorted
    across the levels.

    Attributes
    ----------
    fits, labels, marks, normal, features, combination, updated
        As in `Quantiles`.
    reports : tuple of LevelReport
        Out-of-fold figures of each level.
    drift : DriftReport, or None
        Effective omega and loss in the latest tenth of the time, for a model fitted with ``time=``.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
    >>> levels = fastemf.complete_levels(R, (0.1, 0.9), k=2, boost=True)
    >>> levels.predict([3, 4, 5], 7).shape
    (3, 2)
    """

    reports: tuple[LevelReport, ...]
    drift: DriftReport | None = None

    @property
    def omegas(self) -> tuple[float, ...]:
        """The expectile levels, in increasing order."""
        return self._fitted

    @property
    def _content(self) -> str:
        return self._describe("omegas")

    @property
    def _verdict(self) -> str:
        ratios = ", ".join(f"{one.relative:.2f}" for one in self.reports)
        return f"out-of-fold loss {ratios} relative to a constant"

    def _performance(self) -> Columns:
        return {
            "omega": [one.omega for one in self.reports],
            "out-of-fold loss": [one.loss for one in self.reports],
            "relative to a constant": [one.relative for one in self.reports],
            "effective omega": [one.effective_omega for one in self.reports],
        }

    def _details(self) -> list[str]:
        return [*map(str, self.reports), *([] if self.updated is None else [str(self.updated)])]

    def explain(
        self, row: Any, col: Any, *, omega: float, unknown: str = "error", features: Any = None,
        row_features: Any = None, col_features: Any = None,
    ) -> Explanation:  # fmt: skip
        """Decompose one level of one cell into contributions: see `Quantiles.explain`."""
        place = check_fitted_level(omega, self.omegas, "omega")
        return explain_boosted(
            self, place, *self._read_cell(row, col, unknown, features, row_features, col_features)
        )

    def _changed(self, **parts: Any) -> BoostedLevels:
        reports = tuple(replace(report, measured=False) for report in self.reports)
        return replace(self, reports=reports, drift=None, **parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, atomically; read it with `fastemf.load`."""
        reports = [asdict(report) for report in self.reports]
        more = pack_reports(drift=self.drift)
        write_boosted(path, BOOSTED_LEVELS, self, {"reports": reports, "groups": None} | more)

    def _evaluate_cells(self, cells: CellValues) -> Evaluation:
        predicted = self._predict_cells(cells.rows, cells.cols, cells.side)
        scores: list[Score] = []
        censored = self._censored_cells(cells)
        for t, omega in enumerate(self.omegas):
            [training] = (level[0].training for level in self.fits[:-1] if level[0].omega == omega)
            own: Array = predicted[:, t]
            scores += evaluate_level(cells, omega, own, training, censored)
        return Evaluation(tuple(scores), cells.values.size, censored=cells.n_censored)
