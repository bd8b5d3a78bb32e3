"""`Levels`: fits of one matrix at several expectile levels, and what they say together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.model import file as model_file
from fastemf.model.evaluation import Evaluation, evaluate_level
from fastemf.model.factorization import Factorization
from fastemf.model.model import Model
from fastemf.model.prediction import Axes, Predicts
from fastemf.model.reading import CellValues
from fastemf.model.similarity import distances_from
from fastemf.observations.memory import Observations
from fastemf.support.validation import check_fitted_level
from fastemf.support.warn import ConvergenceWarning, PassedOnOnce

__all__ = ["Levels"]


@dataclass(frozen=True, eq=False, repr=False)
class Levels(Model):
    """Fits of one matrix at several expectile levels; what they predict never crosses.

    `fastemf.complete_levels` makes it. The predictions of a cell are sorted across the levels
    (monotone rearrangement: Chernozhukov, Fernández-Val and Galichon, Econometrica 2010).
    Sorting is never worse: expectiles rise with the level, so the sorted predictions are at
    least as close to the true ones, and whatever value is observed in the cell, its
    losses summed over the levels are no larger than those of the fits one by one.

    Attributes
    ----------
    fits : tuple of Factorization
        One per level, from the lowest on. Taken one by one they may cross.

    See Also
    --------
    fastemf.plot.levels : The levels of one row as bands.
    """

    fits: tuple[Factorization, ...]

    @property
    def omegas(self) -> tuple[float, ...]:
        """The levels, from the lowest on."""
        return tuple(fit.omega for fit in self.fits)

    @property
    def axes(self) -> Axes:
        """Rows and columns of the lowest level; all have the same labels."""
        return self.fits[0].axes

    def __repr__(self) -> str:
        m, n = self.shape
        first = self.fits[0]
        omegas = ", ".join(f"{omega:g}" for omega in self.omegas)
        intercepts = ", intercepts" if first.rows.has_intercepts else ""
        settled = sum(fit.converged for fit in self.fits)
        sweeps = sum(fit.n_iter for fit in self.fits)
        return (
            f"<Levels {m} x {n}, k={first.k}, omegas=({omegas}){intercepts}, {first.X.dtype}, "
            f"{settled} of {len(self.fits)} converged in {sweeps} sweeps>"
        )

    def level(self, omega: float) -> Factorization:
        """Return the fit of one level, a `Factorization`; alone it may cross the others.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> fastemf.complete_levels(R, (0.1, 0.9), k=2).level(0.9).omega
        0.9
        """
        return self.fits[self._place(omega, "omega")]

    def spread(
        self,
        rows: Any,
        cols: Any = None,
        *,
        lower: float | None = None,
        upper: float | None = None,
        unseen: str = "model",
        unknown: str = "error",
    ) -> NDArray[Any]:
        """Compute how far two levels of the cells (rows[i], cols[i]) lie apart, in the data's unit.

        This tells cells whose values vary from those where they hardly do; it is not an interval
        that holds a given share of them.

        Parameters
        ----------
        rows, cols, unseen, unknown
            As in `predict`.
        lower, upper
            The levels, two of those fitted; the default is the lowest and the highest.

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
        high = len(self.fits) - 1 if upper is None else self._place(upper, "upper")
        if low >= high:
            raise ValueError(
                f"lower must be a level below upper, got {self.omegas[low]:g} and "
                f"{self.omegas[high]:g}"
            )
        predicted = self.predict(rows, cols, unseen=unseen, unknown=unknown)
        return np.asarray(predicted[..., high] - predicted[..., low])

    def crossed(self, rows: Any, cols: Any = None) -> NDArray[np.bool_]:
        """Tell in which of the cells (rows[i], cols[i]) the fits cross when taken one by one.

        Where many do, the data hardly tell the levels apart: consider fewer levels, a smaller k,
        or more data.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> levels = fastemf.complete_levels(R, (0.1, 0.9), k=2)
        >>> levels.crossed([0, 3, 5], 7).mean().tolist()  # as a share
        0.0
        """
        one_by_one = np.stack([fit.predict(rows, cols) for fit in self.fits], axis=-1)
        return np.asarray((np.diff(one_by_one, axis=-1) < 0).any(axis=-1))

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
        model_file.write_levels(path, self.fits)

    def _place(self, level: Any, name: str) -> int:
        return check_fitted_level(level, self.omegas, name)

    # --- predictions, each cell's in order -------------------------------------------------

    def _cell(self, i: int, j: int) -> Any:
        together = np.array([fit._cell(i, j) for fit in self.fits])
        together.sort()
        return together

    def _cells(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
        return _sorted([fit._cells(i, j) for fit in self.fits])

    def _rows(self, i: NDArray[np.int64]) -> NDArray[Any]:
        return _sorted([fit._rows(i) for fit in self.fits])

    def _of_level(self, level: Any) -> tuple[float, Predicts]:
        if level is None:
            fitted = ", ".join(f"{omega:g}" for omega in self.omegas)
            raise ValueError(f"level must be given, one of the levels fitted, {fitted}, got None")
        place = self._place(level, "level")
        return self.omegas[place], lambda i, j: self._cells(i, j)[..., place]

    @property
    def value_name(self) -> str | None:
        """The column of the table that the values came from."""
        return self.fits[0].value_name

    def _evaluated(self, cells: CellValues) -> Evaluation:
        scores = [
            score
            for fit in self.fits
            for score in evaluate_level(
                cells, fit.omega, self._of_level(fit.omega)[1], fit.training
            )
        ]
        return Evaluation(tuple(scores), cells.values.size)

    def _distances(self, axis: int, item: int) -> NDArray[np.float64]:
        apart = [distances_from(fit.axes, axis, item) for fit in self.fits]
        return np.asarray(np.hypot.reduce(apart) / np.sqrt(len(apart)))

    # --- new rows and columns --------------------------------------------------------------

    def _folded(self, observed: Observations, axis: int, n_threads: int) -> Levels:
        with PassedOnOnce(leave_out=ConvergenceWarning):
            return Levels(tuple(fit._folded(observed, axis, n_threads) for fit in self.fits))

    def _joined(self, new: Levels, axis: int) -> Levels:
        pairs = zip(self.fits, new.fits, strict=True)
        return Levels(tuple(fit._joined(other, axis) for fit, other in pairs))


def _sorted(predictions: list[NDArray[Any]]) -> NDArray[Any]:
    together = np.stack(predictions, axis=-1)
    together.sort(axis=-1)
    return together
