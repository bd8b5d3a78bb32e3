"""`Quantiles`: what `fastemf.complete_quantiles` found, and what can be asked of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.labels import Labels
from fastemf.model.evaluation import Evaluation
from fastemf.model.factorization import Factorization
from fastemf.model.folding import new_labels
from fastemf.model.interval import Interval, ends_of, interval_between
from fastemf.model.mean_fit import MeanFit
from fastemf.model.model import Model
from fastemf.model.newcomers import left_of_new
from fastemf.model.prediction import Axes, Predicts
from fastemf.model.quantile_file import write_quantiles
from fastemf.model.quantile_parts import QuantileParts, parts_of
from fastemf.model.quantile_scores import evaluate_quantiles
from fastemf.model.reading import CellValues
from fastemf.model.similarity import distances_from
from fastemf.observations.memory import Observations
from fastemf.observations.transformed import transformed_in_memory
from fastemf.stacking.items import COLUMNS, KnownItems
from fastemf.stacking.normal_scores import NormalScores
from fastemf.stacking.promise import Promise
from fastemf.stacking.sampled import in_memory
from fastemf.stacking.stack import Stack
from fastemf.support.memory import check_memory
from fastemf.support.validation import check_fitted_level, check_share
from fastemf.support.warn import ConvergenceWarning, PassedOnOnce

__all__ = ["Quantiles"]

CELLS_PER_BLOCK = 1 << 15  # so that their columns stay in cache


@dataclass(frozen=True, eq=False, repr=False)
class Quantiles(Model):
    """Quantiles of every cell of a matrix, and what they were worth on cells not seen.

    `fastemf.complete_quantiles` makes it. What is asked as of any model (`predict`,
    `predict_block`, `rank`) has the quantiles as the last axis, along which values never fall, or
    takes the share of one as its ``level``: the safest service has the smallest 0.95 quantile.
    Predictions lie in the range of the data. Of a row or column without observations, and with
    ``unknown="model"`` of one that is not known, they say what the other side and all data say.

    Attributes
    ----------
    fits : tuple of tuples of Factorization
        For each level, that of ω = 0.5 first, and last for the normal scores at 0.5, the fits
        without each of the folds; without labels.
    labels : pair of Labels, or of None
        What rows and columns are called.
    normal : NormalScores
        The normal scores of values.
    items : KnownItems
        What is known of rows and columns beside the factors.
    stack : Stack
        What makes quantiles of all this.
    promises : tuple of Promise
        For each quantile, what it was worth on cells out of fold.

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
    >>> safest = quantiles.rank(3, 5, order="smallest", level=0.9)
    >>> bool((safest.values[1:] >= safest.values[:-1]).all())
    True
    """

    _of_quantiles: ClassVar = True

    fits: tuple[tuple[Factorization, ...], ...]
    labels: tuple[Labels | None, Labels | None]
    normal: NormalScores
    items: KnownItems
    stack: Stack
    promises: tuple[Promise, ...]

    @property
    def taus(self) -> tuple[float, ...]:
        """The shares below the quantiles, from the lowest on."""
        return self.stack.taus

    @cached_property
    def axes(self) -> Axes:
        """Rows and columns of the first fit, with labels."""
        rows, cols = (
            replace(axis, labels=labels)
            for axis, labels in zip(self.fits[0][0].axes, self.labels, strict=True)
        )
        return rows, cols

    @property
    def k(self) -> int:
        """The rank of each fit."""
        return self.fits[0][0].k

    @property
    def value_name(self) -> str | None:
        """The column that the values came from, if it had a name."""
        return self.fits[0][0].value_name

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the regressions are on."""
        return (*COLUMNS, *(f"fit at {level[0].omega:g}" for level in self.fits[1:-1]))

    def __repr__(self) -> str:
        m, n = self.shape
        taus = ", ".join(f"{tau:g}" for tau in self.taus)
        fits = sum(map(len, self.fits))
        return f"<Quantiles {m} x {n}, taus=({taus}), k={self.k}, {fits} fits, {self._dtype}>"

    def __str__(self) -> str:
        return "\n".join([repr(self), *map(str, self.promises)])

    # --- questions -------------------------------------------------------------------------

    def interval(
        self,
        rows: Any,
        cols: Any = None,
        *,
        coverage: float = 0.9,
        side: str = "central",
        unseen: str = "model",
        unknown: str = "error",
    ) -> Interval:
        """Predict an interval that holds a given share of the values of cells like these.

        Parameters
        ----------
        rows, cols, unseen, unknown
            As in `predict`.
        coverage
            The share, in (0, 1).
        side
            ``"central"``: as many values above as below it, which takes the quantiles
            (1 − coverage) / 2 and (1 + coverage) / 2; ``"below"``: up to the quantile `coverage`;
            ``"above"``: from the quantile 1 − coverage on. They must be among those fitted.

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
        share = check_share(coverage, "coverage")
        alone = side == "central" and share in self.taus
        hint = f' (side="below" takes {share!r} alone)' if alone else ""
        what = f'coverage={coverage!r} with side="{side}"{hint} takes quantiles that'
        places = [
            None if tau is None else self._place(tau, what) for tau in ends_of(share, side)
        ]  # fmt: skip
        found = self.predict(rows, cols, unseen=unseen, unknown=unknown)
        return interval_between(found, places)

    def explain(self, row: Any, col: Any, *, tau: float) -> QuantileParts:
        """Take one quantile of one cell apart: what it is the sum of, in the data's unit.

        Parameters
        ----------
        row, col
            A row and a column: indices, or labels where there are some.
        tau
            One of the quantiles.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> quantiles = fastemf.complete_quantiles(R, (0.5, 0.9), k=2)
        >>> parts = quantiles.explain(3, 7, tau=0.9)
        >>> bool(parts.value == quantiles.predict(3, 7)[1])
        True
        """
        t = self._place(tau, "tau")
        i, j = (np.array([self._single(axis, given)]) for axis, given in enumerate((row, col)))
        return parts_of(
            self.taus[t], self.columns, self._columns(i, j)[t], self.stack.parts[t],
            float(self._cells(i, j)[0, t]),
        )  # fmt: skip

    def _evaluated(self, cells: CellValues) -> Evaluation:
        predicted = self._cells(cells.rows, cells.cols)
        training = self.fits[0][0].training
        return evaluate_quantiles(cells, self.shape, predicted, self.items, training)

    def _distances(self, axis: int, item: int) -> NDArray[np.float64]:
        apart = [distances_from(mean.axes, axis, item) for mean in self._means[:-1]]
        return np.asarray(np.hypot.reduce(apart) / np.sqrt(len(apart)))

    # --- new rows and columns --------------------------------------------------------------

    def _folded(self, observed: Observations, axis: int, n_threads: int) -> Quantiles:
        observed = self._with_new_limits(observed, axis, n_threads)
        unlabelled = replace(observed, row_labels=None, col_labels=None)
        scored = transformed_in_memory(unlabelled, self.normal.of_values)
        left, fits = {}, []
        with PassedOnOnce(leave_out=ConvergenceWarning):
            for place, level in enumerate(self.fits):
                last = place == len(self.fits) - 1
                source = scored if last else unlabelled
                fits.append(tuple(fit._folded(source, axis, n_threads) for fit in level))
                if place == 0 or last:
                    found = [left_of_new(fit, axis, source, n_threads) for fit in fits[-1]]
                    left[last] = np.stack(found)
        items = self.items.folded(axis, in_memory(observed), left[False], left[True])
        return self._new(axis, tuple(fits), items, new_labels(self.axes[axis], axis, observed))

    def _with_new_limits(self, observed: Observations, axis: int, n_threads: int) -> Observations:
        """Replace censored values as the first fit does, which keeps what they were replaced by."""
        return self.fits[0][0]._with_new_limits(observed, axis, n_threads)

    def _joined(self, new: Quantiles, axis: int) -> Quantiles:
        fits = tuple(
            tuple(fit._joined(other, axis) for fit, other in zip(level, others, strict=True))
            for level, others in zip(self.fits, new.fits, strict=True)
        )
        ours, theirs = self.labels[axis], new.labels[axis]
        labels = None if ours is None or theirs is None else ours.joined(theirs)
        return self._new(axis, fits, self.items.extended(new.items, axis), labels)

    def _new(
        self,
        axis: int,
        fits: tuple[tuple[Factorization, ...], ...],
        items: KnownItems,
        labels: Labels | None,
    ) -> Quantiles:
        """Return quantiles of which one axis is another, so that their promises are not theirs."""
        promises = tuple(replace(promise, measured=False) for promise in self.promises)
        both = (labels, self.labels[1]) if axis == 0 else (self.labels[0], labels)
        return replace(self, fits=fits, items=items, labels=both, promises=promises)

    # --- the model file --------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, atomically; read it with `fastemf.load`.

        The file holds some 25 pairs of factors, and about as much again as one of them.

        Examples
        --------
        >>> import fastemf, tempfile, os
        >>> R = fastemf.datasets.make_skewed(60, 50, rank=2, density=0.5, random_state=0).R
        >>> path = os.path.join(tempfile.mkdtemp(), "quantiles.npz")
        >>> fastemf.complete_quantiles(R, (0.5, 0.9), k=2).save(path)
        >>> fastemf.load(path).taus
        (0.5, 0.9)
        """
        write_quantiles(path, self)

    # --- how a cell is predicted -----------------------------------------------------------

    @cached_property
    def _means(self) -> list[MeanFit]:
        return [MeanFit(level) for level in self.fits]

    @cached_property
    def _used(self) -> list[NDArray[np.bool_]]:
        return [part.regression.coefficients != 0 for part in self.stack.parts]

    def _columns(
        self, i: NDArray[np.integer], j: NDArray[np.integer]
    ) -> list[NDArray[np.float64]]:  # fmt: skip
        """Compute the columns of each quantile for cells by position, in one dimension."""
        location, *fits, scores = (mean.at(i, j) for mean in self._means)
        return self.items.columns(i, j, location, scores, fits, self.normal)

    def _cell(self, i: int, j: int) -> Any:
        fits = [np.array([mean.one(i, j)]) for mean in self._means]
        return self._stacked(np.array([i]), np.array([j]), fits)[0].astype(self._dtype)

    def _cells(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[Any]:
        shape, i, j = i.shape, i.ravel(), j.ravel()
        out = np.empty((i.size, len(self.taus)), self._dtype)
        for first in range(0, i.size, CELLS_PER_BLOCK):
            part = slice(first, first + CELLS_PER_BLOCK)
            fits = [mean.at(i[part], j[part]) for mean in self._means]
            out[part] = self._stacked(i[part], j[part], fits)
        return out.reshape(*shape, len(self.taus))

    def _stacked(
        self, i: NDArray[np.integer], j: NDArray[np.integer], fits: list[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Make the quantiles of cells of what the mean fits predict there."""
        location, *others, scores = fits
        columns = self.items.columns(i, j, location, scores, others, self.normal, self._used)
        return self.stack.at(columns)

    def _rows(self, i: NDArray[np.int64]) -> NDArray[Any]:
        n, count = self.shape[1], len(self.taus)
        check_memory(
            i.size * n * count * self._dtype.itemsize,
            f"a block of {i.size} rows, {n} columns and {count} quantiles",
            "predict fewer rows at a time",
        )
        return self._cells(*np.meshgrid(i, np.arange(n), indexing="ij"))

    def _of_level(self, level: Any) -> tuple[float, Predicts]:
        if level is None:
            fitted = ", ".join(f"{tau:g}" for tau in self.taus)
            raise ValueError(f"level must be one of the quantiles fitted, {fitted}, got None")
        t = self._place(level, "level")
        return self.taus[t], lambda i, j: self._cells(i, j)[..., t]

    def _place(self, tau: Any, what: str) -> int:
        return check_fitted_level(tau, self.taus, what, "quantiles")
