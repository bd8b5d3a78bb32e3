"""`Levels`: fits of one matrix at several expectile levels."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastemf.features.schema import NOT_GIVEN, SideFeatures
from fastemf.models.bilinear import Axes
from fastemf.models.evaluation import Evaluation, Score, evaluate_level
from fastemf.models.factorization import Factorization
from fastemf.models.file import LEVELS, write_model
from fastemf.models.held_out import DriftReport, pack_reports
from fastemf.models.model import Model
from fastemf.models.reading import CellValues
from fastemf.models.similarity import mean_distances
from fastemf.sources.memory import Observations
from fastemf.support.arrays import Array, Floats, Indices, Ints, Mask
from fastemf.support.validation import check_fitted_level
from fastemf.support.warn import ConvergenceWarning, UniqueWarnings


class LevelMethods(Model):
    """Methods of models with several expectile levels."""

    @property
    @abstractmethod
    def omegas(self) -> tuple[float, ...]:
        """The expectile levels, in increasing order."""

    def spread(
        self, rows: Any, cols: Any = None, *, lower: float | None = None,
        upper: float | None = None, unseen: str = "model", unknown: str = "error",
        features: Any = None, row_features: Any = None, col_features: Any = None,
    ) -> Array:  # fmt: skip
        """Compute the difference between two levels in the cells (rows[i], cols[i]).

        It is in the units of the data and measures the variability of the values of a cell. It is
        not an interval with a given coverage: see `Quantiles.interval`.

        Parameters
        ----------
        rows, cols, unseen, unknown, features, row_features, col_features
            As in `predict`.
        lower, upper
            Two of the fitted levels; the default is the lowest and the highest.

        Returns
        -------
        array of the broadcast shape, never negative

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> levels = fastemf.complete_levels(R, (0.1, 0.5, 0.9), k=2)
        >>> bool(levels.spread(3, 7, upper=0.5) <= levels.spread(3, 7))
        True
        """
        low = 0 if lower is None else self._place(lower, "lower")
        high = len(self.omegas) - 1 if upper is None else self._place(upper, "upper")
        if low >= high:
            raise ValueError(
                f"lower must be a level below upper, got {self.omegas[low]:g} and "
                f"{self.omegas[high]:g}"
            )
        predicted = self.predict(
            rows, cols, unseen=unseen, unknown=unknown, features=features,
            row_features=row_features, col_features=col_features,
        )  # fmt: skip
        return np.asarray(predicted[..., high] - predicted[..., low])

    def _place(self, omega: Any, name: str) -> int:
        return check_fitted_level(omega, self.omegas, name)


@dataclass(frozen=True, eq=False, repr=False)
class Levels(LevelMethods):
    """Fits of one matrix at several expectile levels, whose predictions never cross.

    `fastemf.complete_levels` returns it. The predictions of a cell are sorted across the levels
    (monotone rearrangement: Chernozhukov, Fernández-Val and Galichon, Econometrica 2010).
    Sorting never increases the error: expectiles increase with the level, so the sorted
    predictions are at least as close to the true ones, and the losses of any observed value,
    summed over the levels, do not increase.

    Attributes
    ----------
    fits : tuple of Factorization
        One per level, in increasing order. Their unsorted predictions may cross.
    drift : DriftReport, or None
        Effective omega and loss in the latest tenth of the time, for a model fitted with ``time=``.

    See Also
    --------
    fastemf.plot.levels : The levels of one row as bands.
    """

    fits: tuple[Factorization, ...]
    drift: DriftReport | None = None

    @property
    def omegas(self) -> tuple[float, ...]:
        """The expectile levels, in increasing order."""
        return tuple(fit.omega for fit in self.fits)

    @property
    def axes(self) -> Axes:
        """Rows and columns of the lowest level; all levels have the same labels."""
        return self.fits[0].axes

    @property
    def _content(self) -> str:
        m, n = self.shape
        first = self.fits[0]
        omegas = ", ".join(f"{omega:g}" for omega in self.omegas)
        intercepts = ", intercepts" if first.rows.has_intercepts else ""
        converged = sum(fit.converged for fit in self.fits)
        sweeps = sum(fit.n_iter for fit in self.fits)
        return (
            f"Levels {m} x {n}, k={first.k}, omegas=({omegas}){intercepts}, {first.X.dtype}, "
            f"{converged} of {len(self.fits)} converged in {sweeps} sweeps"
        )

    def level(self, omega: float) -> Factorization:
        """Return the fit of one level, whose unsorted predictions may cross those of other levels.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> fastemf.complete_levels(R, (0.1, 0.9), k=2).level(0.9).omega
        0.9
        """
        return self.fits[self._place(omega, "omega")]

    def crossed(self, rows: Any, cols: Any = None) -> Mask:
        """Mark the cells (rows[i], cols[i]) in which the unsorted predictions cross.

        The result is a boolean array.

        Many crossings mean that the data hardly separate the levels: consider fewer levels, a
        smaller k, or more data.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> levels = fastemf.complete_levels(R, (0.1, 0.9), k=2)
        >>> levels.crossed([0, 3, 5], 7).mean().tolist()  # proportion
        0.0
        """
        unsorted = np.stack([fit.predict(rows, cols) for fit in self.fits], axis=-1)
        return np.asarray((np.diff(unsorted, axis=-1) < 0).any(axis=-1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all levels to one ``.npz`` file, atomically; read it with `fastemf.load`.

        Examples
        --------
        >>> import fastemf, tempfile, os
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> path = os.path.join(tempfile.mkdtemp(), "levels.npz")
        >>> fastemf.complete_levels(R, (0.1, 0.9), k=2).save(path)
        >>> fastemf.load(path).omegas
        (0.1, 0.9)
        """
        fits = {str(place): fit for place, fit in enumerate(self.fits)}
        write_model(path, LEVELS, fits, pack_reports(drift=self.drift))

    # --- sorted predictions ----------------------------------------------------------------

    def _predict_cell(self, i: int, j: int) -> Any:
        predicted = np.array([fit._predict_cell(i, j) for fit in self.fits])
        predicted.sort()
        return predicted

    def _predict_cells(self, i: Indices, j: Indices, given: SideFeatures = NOT_GIVEN) -> Array:
        return _stack_sorted([fit._predict_cells(i, j) for fit in self.fits])

    def _predict_rows(self, i: Ints, given: SideFeatures = NOT_GIVEN) -> Array:
        return _stack_sorted([fit._predict_rows(i) for fit in self.fits])

    @property
    def _fits(self) -> tuple[Factorization, ...]:
        return self.fits

    @property
    def _fitted(self) -> tuple[float, ...]:
        return self.omegas

    @property
    def value_name(self) -> str | None:
        """Name of the data column that held the values, if it had one."""
        return self.fits[0].value_name

    @property
    def censored(self) -> tuple[str, float] | None:
        """The censoring limit of the training data."""
        return self.fits[0].censored

    def _evaluate_cells(self, cells: CellValues) -> Evaluation:
        scores: list[Score] = []
        for fit in self.fits:
            _, predict = self._select(fit.omega, None)
            predicted = predict(cells.rows, cells.cols)
            censored = self._censored_cells(cells, fit.omega)
            scores += evaluate_level(cells, fit.omega, predicted, fit.training, censored)
        return Evaluation(tuple(scores), cells.values.size, censored=cells.n_censored)

    def _imputing_fit(self, omega: float | None = None) -> Factorization:
        return self.fits[0] if omega is None else self.level(omega)

    def _distances(self, axis: int, item: int) -> Floats:
        return mean_distances([fit.axes for fit in self.fits], axis, item)

    # --- new rows and columns --------------------------------------------------------------

    def _fold_in(
        self, observed: Observations, axis: int, n_threads: int, item_features: None = None
    ) -> Levels:
        with UniqueWarnings(leave_out=ConvergenceWarning):
            return Levels(tuple(fit._fold_in(observed, axis, n_threads) for fit in self.fits))

    def _append(self, new: Levels, axis: int) -> Levels:
        pairs = zip(self.fits, new.fits, strict=True)
        return Levels(tuple(fit._append(other, axis) for fit, other in pairs))


def _stack_sorted(predictions: list[Array]) -> Array:
    """Stack the predictions of the levels along a last axis, and sort them along it."""
    stacked = np.stack(predictions, axis=-1)
    stacked.sort(axis=-1)
    return stacked
