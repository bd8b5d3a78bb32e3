"""`level_for_coverage`, which finds the level whose fit has a wanted share of the values below."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fastemf.level_search import LevelSearch, logit
from fastemf.levels import fit_near
from fastemf.metrics import effective_omega
from fastemf.model.factorization import Factorization
from fastemf.model.measured_share import MeasuredShare
from fastemf.model.prediction import predict_cells, residuals
from fastemf.observations import hold_out
from fastemf.observations.memory import Observations
from fastemf.solver.holding import Holding
from fastemf.solver.opening import Data, hold_apart, open_in_memory
from fastemf.solver.records import SweepRecord
from fastemf.solver.settings import Settings
from fastemf.support.validation import check_share
from fastemf.support.warn import ConvergenceWarning, PassedOnOnce, warn

__all__ = ["Calibration", "level_for_coverage"]

FEWEST_BEYOND = 20  # held-out cells on the rarer side: with fewer the share is hardly known
MODERATE = (0.1, 0.5, 0.9)  # plus a constant, one of these suits noise that is the same everywhere
MOST_FITS = 20
FAR = 2.0  # standard errors of the share, beyond which it counts as not met
NORMAL_95 = 1.959964


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fit, and the share of held-out values at or below its predictions.

    Attributes
    ----------
    fit : Factorization
        The fit whose share was measured, made from the observations not held out. A fit of all
        of them at the same level is another one, and its share is not known. What its ``tuning``
        says is about the first level tried. Its ``coverage`` has the share, and so has its file.
    shift : float
        What was added to the fit's own ``shift``, in the data's unit, and so to all it predicts:
        0 where the level alone leaves the wanted share below. Rows folded in later have it too.
    wanted : float
        The share asked for.
    coverage : float
        Share of the held-out values at or below the fit, weighted where observations are.
    standard_error : float
        Standard error of that share as an estimate for other cells.
    interval : (float, float)
        Where the share of other cells lies, with 95 % confidence (Wilson).
    held_out : int
        Number of observations held out.
    tried : tuple of (float, float)
        The levels fitted on the way and the shares below those fits, in that order.
    """

    fit: Factorization
    shift: float
    wanted: float
    coverage: float
    standard_error: float
    interval: tuple[float, float]
    held_out: int
    tried: tuple[tuple[float, float], ...]

    @property
    def omega(self) -> float:
        """The level found."""
        return self.fit.omega

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to a model file, which keeps the share too; read it with `fastemf.load`.

        What was tried on the way is not kept.

        Examples
        --------
        >>> import fastemf, tempfile, os
        >>> R = fastemf.datasets.make_skewed(100, 80, rank=2, density=0.3, random_state=0).R
        >>> path = os.path.join(tempfile.mkdtemp(), "half.npz")
        >>> half = fastemf.level_for_coverage(R, 0.5, k=2, intercepts=True)
        >>> half.save(path)
        >>> fastemf.load(path).coverage.coverage == half.coverage
        True
        """
        self.fit.save(path)


@overload
def level_for_coverage(R: Any, coverage: float, k: int, **settings: Any) -> Calibration: ...
@overload
def level_for_coverage(
    R: Any, coverage: Sequence[float] | NDArray[Any], k: int, **settings: Any
) -> tuple[Calibration, ...]: ...
def level_for_coverage(  # type: ignore[misc]  # whose settings have names
    R: Any,
    coverage: Any,
    k: int,
    *,
    held_out: float = 0.2,
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    weights: Any = None,
    censored: Any = None,
    shape: tuple[int, int] | None = None,
    reg: Any = "auto",
    reg_scaling: str = "count",
    intercepts: bool = False,
    init: Any = "spectral",
    tol: float = 1e-5,
    max_iter: int = 100,
    momentum: bool = True,
    anneal: bool = True,
    orthogonalize: bool = False,
    solver: str = "auto",
    validation: Any = None,
    patience: int | None = None,
    random_state: Any = 0,
    n_jobs: int | None = -1,
    callback: Callable[[SweepRecord], Any] | None = None,
    progress: bool = False,
) -> Any:
    """Find the level whose fit has a wanted share of values at or below it, such as 95 %.

    To predict p95 use `complete_quantiles`, which is sharper, and right for small and large
    predictions alike. This is for those who want one expectile fit.

    An expectile level is not a quantile: which level leaves 95 % below depends on the noise,
    and on how well the model predicts. So some cells are held out, the others are fitted at one
    level after the other, each from the nearest fit so far, and the level is moved (by
    secants of the shares on logit scales, kept within a bracket) until the share of held-out
    values at or below the fit is within half a standard error of the wanted one. With
    ``reg="auto"`` the first of these levels is tuned, on cells that are not held out, and the
    others hold what it found: how noisy rows and columns count, and the ridges relative to the
    noise at each level.

    Few observations per row or column cannot tell how far up a tail goes: even an extreme level
    then leaves too many new values above. Where none from 0.001 to 0.999 will do, each fit tried,
    and three at moderate levels, is shifted by the constant that leaves the wanted share below
    (split conformal prediction), and the one with the least quantile loss on the held-out
    values is taken; a warning says so.

    The share holds on average over cells like those held out, that is, drawn at random from
    those observed: not in every row or column, and not for cells that are observed for other
    reasons. It is no quantile of each cell's own distribution.

    Parameters
    ----------
    R
        The observations, in any form that `complete` takes and that is in memory: no store,
        and no `client`, as cells are held out by a mask over all of them.
    coverage
        The wanted share of values at or below the fit, in (0, 1); or several in a tuple, list
        or array, which share the cells held out, the tuning and the fits tried. At least 20
        held-out cells must be expected on the rarer side.
    k
        Rank; 0 as in `complete`.
    held_out
        Share of the cells to hold out, in (0, 1). Repeated observations of a cell stay together.
    rows, cols, values, weights, censored, shape
        As in `complete`. Weights also count in the share; censored values that are held out count
        there as their limits.
    reg
        Ridge, as in `complete`; ``"auto"`` tunes one level for all.
    reg_scaling, intercepts, tol, momentum, orthogonalize, solver, patience, n_jobs, progress
        As in `complete`, at each level.
    init, anneal
        As in `complete`, for the level that is fitted first.
    max_iter
        The largest number of sweeps at each level.
    validation
        As in `complete`: a share of the cells that `held_out` leaves, or entries, by which the
        sweeps of every fit are judged. They do not count in the share.
    random_state
        Seed or numpy Generator for the cells held out and the start.
    callback
        Called with each sweep's `SweepRecord`, fit after fit; a true return value ends the
        sweeps of that fit.

    Returns
    -------
    Calibration, or a tuple of them
        It has the very fit whose share was measured: that of the cells not held out. For several
        shares there is one for each, in their order.

    Raises
    ------
    ValueError
        Also where too few cells are held out for such a share.
    TypeError
        Also where `R` is a store.

    Warns
    -----
    UserWarning
        Where no level will do and a constant is added; where the nearest share found is over two
        standard errors off, as it may be where many values are equal; and as in `complete`.
    ConvergenceWarning
        When the fit returned did not reach `tol`.

    Notes
    -----
    There is no `checkpoint`: it would have to hold the search, of which a fit is a short part.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(100, 80, rank=2, density=0.3, random_state=0).R
    >>> median = fastemf.level_for_coverage(R, 0.5, k=2, intercepts=True)
    >>> median.held_out, abs(median.coverage - 0.5) < median.standard_error
    (480, True)
    >>> median.omega < 0.45  # skewed to the right: more than half lie below the mean
    True
    """
    wanted = _wanted(coverage)
    share_out = check_share(held_out, "held_out")
    settings = Settings(
        omega=0.5, k=k, reg=reg, reg_scaling=reg_scaling, intercepts=intercepts, init=init,
        tol=tol, max_iter=max_iter, momentum=momentum, anneal=anneal, orthogonalize=orthogonalize,
        solver=solver, validation=validation, patience=patience, random_state=random_state,
        n_jobs=n_jobs, callback=callback, progress=progress,
    )  # fmt: skip
    rng = settings.generator()
    names = (rows, cols, values)
    observations = open_in_memory(R, weights, shape, names, n_jobs, censored)
    out = hold_out.held_out(observations, share_out, rng, "held_out")
    fitted, judged = observations.subset(~out), _Judge(observations.subset(out))
    for share in wanted:
        _check_enough(judged, share)
    fits = _Fits(hold_apart(fitted, validation, rng, names, censored), settings, rng)
    with PassedOnOnce(leave_out=ConvergenceWarning):
        tried = [_tried(share, _first_guess(fitted, share), fits, judged) for share in wanted]
    count = int(np.count_nonzero(out))
    found = tuple(_chosen(one, judged, count, settings) for one in tried)
    return found if _is_several(coverage) else found[0]


class _Judge:
    """The held-out observations, and how precisely they tell the share below a fit.

    Repeated observations of a cell say much about each other, so the share is known as well as
    from (Σw)² / Σw² independent cells, w being the summed weights of a cell.
    """

    def __init__(self, observed: Observations) -> None:
        self._observed = observed
        side = observed.by_row
        self._weights = side.weights.astype(np.float64) if side.weights.size else None
        _, of_cell = hold_out.cells(observed)
        mass = np.bincount(of_cell, weights=self._weights)
        self.cells = float(mass.sum() ** 2 / np.sum(mass**2))

    def share(self, fit: Factorization) -> float:
        """Compute the share of the values at or below the fit."""
        side = self._observed.by_row
        below = side.values <= predict_cells(fit.axes, fit.constant, side.keys, side.indices)
        return float(np.average(below, weights=self._weights))

    def shift(self, fit: Factorization, wanted: float) -> float:
        """Find the constant to add to the fit so that it has the wanted share at or below it."""
        return _quantile(self._residuals(fit), wanted, self._weights)

    def quantile_loss(self, fit: Factorization, wanted: float) -> float:
        """Compute the mean of r (τ − 1(r < 0)), the score of a τ-quantile, of the shifted fit."""
        r = self._residuals(fit) - self.shift(fit, wanted)
        return float(np.average(np.maximum(wanted * r, (wanted - 1) * r), weights=self._weights))

    def _residuals(self, fit: Factorization) -> NDArray[Any]:
        return residuals(fit.axes, fit.constant, self._observed)

    def standard_error(self, share: float) -> float:
        return float(np.sqrt(share * (1 - share) / self.cells))

    def interval(self, share: float) -> tuple[float, float]:
        """Compute Wilson's 95 % interval."""
        n, z = self.cells, NORMAL_95
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
        # At a share of 0 or 1 the interval ends there, which rounding must not move.
        return max(0.0, min(float(middle - half), share)), min(
            1.0, max(float(middle + half), share)
        )


def _raised(fit: Factorization, shift: float) -> Factorization:
    """Add a constant to all that a fit predicts."""
    if fit.rows.has_intercepts:
        return replace(fit, shift=fit.shift + shift)
    rows, cols = (replace(axis, intercepts=np.zeros_like(axis.factor[:, 0])) for axis in fit.axes)
    return replace(fit, shift=shift, rows=rows, cols=cols)


def _first_guess(observed: Observations, wanted: float) -> float:
    """Find the level at which the wanted quantile of the values is their expectile."""
    side = observed.by_row
    values = side.values.astype(np.float64)
    weights = side.weights.astype(np.float64) if side.weights.size else None
    guess = effective_omega(values - _quantile(values, wanted, weights), weights)
    return 0.5 if np.isnan(guess) else float(np.clip(guess, 0.01, 0.99))


def _quantile(values: NDArray[Any], share: float, weights: NDArray[np.float64] | None) -> float:
    """Find the smallest of the values that has that share at or below it."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(np.ones(values.size) if weights is None else weights[order])
    return float(values[order[np.searchsorted(reached, share * reached[-1])]])


class _Fits:
    """Fits of one data at one level after the other, each from the nearest before."""

    def __init__(self, data: Data, settings: Settings, rng: np.random.Generator) -> None:
        self._data, self._settings, self._rng = data, settings, rng
        self._holding = Holding()
        self._made: dict[float, Factorization] = {}

    def at(self, omega: float) -> Factorization:
        """Fit a level, unless that was done."""
        if omega not in self._made:
            near = min(
                self._made.values(),
                key=lambda fit: abs(logit(fit.omega) - logit(omega)),
                default=None,
            )
            settings = replace(self._settings, omega=omega)
            self._made[omega] = fit_near(near, self._data, settings, self._rng, self._holding)
        return self._made[omega]


class _Tried(NamedTuple):
    """The fits tried for one share, and the shares below them."""

    wanted: float
    fits: list[Factorization]
    shares: list[float]
    reached: tuple[float, float] | None  # outermost level and its share, if no level will do


def _tried(wanted: float, first: float, fits: _Fits, judged: _Judge) -> _Tried:
    """Try levels until one has the wanted share below, or no level has."""
    search = LevelSearch(wanted, judged.standard_error(wanted), judged.cells)
    made: list[Factorization] = []
    shares: list[float] = []
    omega: float | None = first
    while omega is not None and len(made) < MOST_FITS:
        made.append(fits.at(omega))
        shares.append(judged.share(made[-1]))
        omega = search.following(omega, shares[-1])
    if not search.out_of_reach:
        return _Tried(wanted, made, shares, None)
    reached = made[-1].omega, shares[-1]
    made += [fits.at(omega) for omega in MODERATE]
    shares += [judged.share(fit) for fit in made[len(shares) :]]
    return _Tried(wanted, made, shares, reached)


def _chosen(tried: _Tried, judged: _Judge, held_out: int, settings: Settings) -> Calibration:
    """Choose among the fits tried, and warn where none is quite what was asked for."""
    wanted, fits, shares, reached = tried
    if reached is not None:
        fit = min(fits, key=lambda fit: judged.quantile_loss(fit, wanted))
        shift = judged.shift(fit, wanted)
        fit = _raised(fit, shift)
        share = judged.share(fit)
        warn(
            f"coverage={wanted!r} is out of reach of levels alone: at omega={reached[0]:.3g} the "
            f"share of held-out values at or below the fit is {reached[1]:.4g}; the fit at omega="
            f"{fit.omega:.3g} with {shift:.4g} added (shift of the result) is taken instead"
            + ("" if settings.intercepts else "; try intercepts=True")
        )
    else:
        best = int(np.argmin(np.abs(np.array(shares) - wanted)))
        fit, share, shift = fits[best], shares[best], 0.0
    if abs(share - wanted) > FAR * judged.standard_error(wanted):
        warn(
            f"coverage={wanted!r} was not met: the nearest share is {share:.4g}, at omega="
            f"{fit.omega:.3g}; it jumps, as it does where many values are equal"
        )
    if not fit.converged and fit.n_iter >= settings.max_iter:
        warn(
            f"the fit at omega={fit.omega:.3g} did not converge within max_iter="
            f"{settings.max_iter} sweeps; its share is measured all the same; raise max_iter or "
            "tol",
            ConvergenceWarning,
        )
    measured = MeasuredShare(
        wanted, share, judged.standard_error(share), judged.interval(share), held_out, shift
    )
    return Calibration(
        fit=replace(fit, coverage=measured),
        shift=shift,
        wanted=wanted,
        coverage=share,
        standard_error=measured.standard_error,
        interval=measured.interval,
        held_out=held_out,
        tried=tuple((one.omega, found) for one, found in zip(fits, shares, strict=True)),
    )


def _wanted(coverage: Any) -> list[float]:
    """Check the share, or the shares."""
    given = coverage if _is_several(coverage) else [coverage]
    if len(given) == 0:
        raise ValueError("coverage must be a share or several, got none")
    return [check_share(share, "coverage") for share in given]


def _is_several(coverage: Any) -> bool:
    return isinstance(coverage, list | tuple | np.ndarray) and np.ndim(coverage) > 0


def _check_enough(judged: _Judge, wanted: float) -> None:
    beyond = judged.cells * min(wanted, 1 - wanted)
    if beyond < FEWEST_BEYOND:
        raise ValueError(
            f"coverage={wanted!r} leaves {beyond:.1f} of {judged.cells:.0f} held-out cells on "
            f"its rarer side, and at least {FEWEST_BEYOND} are needed to measure it; raise "
            "held_out, give more data, or ask for less"
        )
