"""`select`, which chooses rank and ridge by cross-validation and fits with them."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastemf import completion
from fastemf.inputs.censoring import left_of_limits
from fastemf.kernels.threads import single_threaded_blas
from fastemf.loss import sign_weights
from fastemf.model.factorization import Factorization
from fastemf.model.prediction import residuals
from fastemf.observations.hold_out import folds as dealt_folds
from fastemf.observations.memory import Observations
from fastemf.solver.opening import hold_apart, open_in_memory
from fastemf.solver.progress import counting
from fastemf.solver.settings import Settings
from fastemf.support.validation import (
    check_choice,
    check_integer,
    check_model_rank,
    check_rank,
    check_reg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Selection", "Setting", "select"]

MOST_VALUES = 10_000  # of a grid: each stands for a fit of every fold
RANKS = (1, 2, 5, 10)  # and 0 where there are intercepts
RULES = ("auto", "noise")  # ridges that are no numbers, in the table's order

PARTS = 10  # parts of each fold, over which standard errors are taken
CLEARLY = 4.0  # a setting worse than the leader by so many standard errors is dropped
NEGLIGIBLE = 1e-3  # share of the loss by which a setting may be worse without anyone minding
ALIVE = 0.01  # size of a factor's entries in the fit, relative to the data's
ENOUGH = 10  # parts without which a standard error is not trusted for that


@dataclass(frozen=True, slots=True)
class Setting:
    """A rank and a ridge, and how well they did on cells that were not fitted.

    Attributes
    ----------
    k : int
        Rank.
    reg : float, "auto" or "noise"
        Ridge, as `fastemf.complete` takes it.
    ridge : float
        The λ in force at the end of the fits, on average; `reg` itself where that is a number.
    loss : float
        Expectile loss of the held-out cells per summed weight, over the folds done.
    standard_error : float
        Standard error of `loss`, over the parts of the folds done (ten each, where cells suffice).
    folds : int
        Folds done.
    dropped : bool
        Whether it was given up before the last fold.
    """

    k: int
    reg: float | str
    ridge: float
    loss: float
    standard_error: float
    folds: int
    dropped: bool


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """Settings compared by cross-validation, and the fit of the one chosen.

    ``print(selection)`` shows the table; ``pandas.DataFrame(selection.table)`` holds it.

    Attributes
    ----------
    table : tuple of Setting
        Every setting, by rank; within a rank ``"auto"`` and ``"noise"`` first, then from strong
        ridge to weak.
    best : Setting
        The one chosen.
    rule : {"best", "one_se"}
        How it was chosen.
    omega : float
        The expectile level.
    fit : Factorization
        The fit of all observations at the setting chosen, as `fastemf.complete` gives it.
    """

    table: tuple[Setting, ...]
    best: Setting
    rule: str
    omega: float
    fit: Factorization

    def __repr__(self) -> str:
        lines = [f"{'k':>5}  {'reg':>9}  {'ridge':>9}  {'loss':>10}  {'std. error':>10}  folds"]
        for row in self.table:
            reg = row.reg if isinstance(row.reg, str) else f"{row.reg:.3g}"
            mark = "  dropped" if row.dropped else "  chosen" if row is self.best else ""
            # After fewer folds a loss is that of other cells, and would only look comparable.
            loss = "" if row.dropped else f"{row.loss:.5g}"
            error = "" if row.dropped else f"{row.standard_error:.2g}"
            lines.append(
                f"{row.k:>5}  {reg:>9}  {row.ridge:>9.3g}  {loss:>10}  {error:>10}  "
                f"{row.folds:>5}{mark}"
            )
        best = self.best
        same_rank = [row.ridge for row in self.table if row.k == best.k]
        is_number = not isinstance(best.reg, str)
        if is_number and best.k > 0 and len(same_rank) > 1 and best.ridge == max(same_rank):
            or_intercepts = "" if self.fit.rows.has_intercepts else ", or intercepts,"
            lines.append(
                "The strongest ridge compared is best: the factors add little, and a still "
                f"stronger one (regs){or_intercepts} may do better."
            )
        return "\n".join(lines)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the held-out loss against the ridge, a curve per rank: `fastemf.plot.selection`.

        Examples
        --------
        >>> import fastemf
        >>> from matplotlib.figure import Figure
        >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
        >>> chosen = fastemf.select(R, omega=0.1, ks=[1, 2], regs=["auto", 0.1], folds=2)
        >>> chosen.plot(ax=Figure().subplots()).get_xlabel()
        "ridge λ (the data's unit)"
        """
        from fastemf import plot

        return plot.selection(self, ax=ax)


def select(
    R: Any,
    omega: float,
    ks: Sequence[int] | None = None,
    regs: Sequence[float | str] | None = None,
    folds: int = 5,
    *,
    rule: str = "best",
    rows: str | None = None,
    cols: str | None = None,
    values: str | None = None,
    weights: Any = None,
    censored: Any = None,
    shape: tuple[int, int] | None = None,
    reg_scaling: str = "count",
    intercepts: bool = False,
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
    progress: bool = False,
) -> Selection:
    """Choose rank and ridge by the expectile loss of held-out cells, and fit with them.

    A fit with ``reg="auto"`` has found its ridge, on cells that it sets aside itself. What it
    does not choose is the rank: with a large one it is seldom worse, but larger and slower. So
    compare ranks here where size or speed matter; compare numbers where a ridge is to be held
    fixed, over several fits say; and compare ``"auto"`` with ``"noise"``, which costs one fit
    where ``"auto"`` costs many, before many fits of such data.

    The observed cells are dealt at random into folds, repeated observations of a cell
    together; each fold in turn is predicted by a fit of the others, cells in rows or columns
    that are then without observations included. After a fold, settings that are clearly worse
    than the leader are dropped: where the mean paired difference of their losses to its, over
    the parts of the folds done (each fold has ten), is above a thousandth of its loss by more
    than four standard errors; under ``rule="one_se"``, above the leader's standard error.

    Parameters
    ----------
    R
        The observations, in any form that `fastemf.complete` takes and that is in memory: no
        store, and no `client`, as folds are held out by a mask over all of them.
    omega
        Expectile level, as in `fastemf.complete`.
    ks
        Ranks to compare; the default is 1, 2, 5 and 10, as far as the shape allows, and with
        `intercepts` also 0, intercepts alone.
    regs
        Ridges to compare: ``"auto"``, ``"noise"`` or numbers. The default is ``"auto"`` alone,
        which every fit of every fold then tunes for itself.
    folds
        Number of folds, from 2 to the number of cells.
    rule
        ``"best"``: the lowest loss. ``"one_se"``: the simplest setting (smallest rank, then
        strongest ridge) whose loss is within one standard error of the lowest.
    rows, cols, values, weights, censored, shape
        As in `fastemf.complete`.
    reg_scaling, intercepts, tol, max_iter, momentum, anneal, orthogonalize, solver
        As in `fastemf.complete`, for every fit.
    validation, patience
        As in `fastemf.complete`, for every fit: where `validation` is a share, of the cells that
        the fold leaves. These judge the sweeps; settings are compared by the fold's cells alone.
    random_state
        Seed or numpy Generator for the folds and the starts.
    n_jobs
        Threads within each fit, -1 for all; the fits follow one another. The outcome does not
        depend on it.
    progress
        Show a progress bar on standard error.

    Returns
    -------
    Selection

    Notes
    -----
    Within a fold and a rank, each ridge that is a number starts from the fit of the next
    stronger one, unless that ridge all but removed a factor, which would stay removed.
    Warnings about gaps and convergence come from the final fit only.

    There is no `init`, as fits start from one another; no `callback`, which could not tell the
    many fits apart; and no `checkpoint`, which would have to hold the comparison, not one fit.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> chosen = fastemf.select(R, omega=0.1, ks=[1, 2], folds=2)
    >>> chosen.fit.k == chosen.best.k
    True
    """
    folds = check_integer(folds, "folds", minimum=2)
    check_choice(rule, "rule", ("best", "one_se"))
    if regs is None and reg_scaling == "plain":
        raise ValueError('regs must be given with reg_scaling="plain": the default is count-scaled')
    ridges = _check_ridges(["auto"] if regs is None else regs)
    settings = Settings(
        omega=omega, k=1, reg=ridges[0], reg_scaling=reg_scaling, intercepts=intercepts, tol=tol,
        max_iter=max_iter, momentum=momentum, anneal=anneal,
        orthogonalize=orthogonalize, solver=solver, validation=validation, patience=patience,
        random_state=random_state, n_jobs=n_jobs, progress=progress,
    )  # fmt: skip
    for reg in ridges:
        replace(settings, reg=reg)  # checks each ridge now, not in the middle of the work
    names = (rows, cols, values)
    observed = open_in_memory(R, weights, shape, names, n_jobs, censored)
    ks = _check_ranks(ks, observed.shape, settings.intercepts)
    if validation is not None and not isinstance(validation, numbers.Real):  # entries, read once
        validation = hold_apart(
            observed, validation, settings.generator(), names, censored
        ).held_out
        names = (None, None, None)

    def fitted(to_fit: Observations, k: int, reg: Any, init: Any = "spectral") -> Factorization:
        one = replace(settings, k=k, reg=reg, init=init, progress=False)
        rng = one.generator()
        data = replace(hold_apart(to_fit, validation, rng, names), value_name=values)
        return completion.fit(data, one, rng, keeps_levels=to_fit is observed)

    fold, part = dealt_folds(observed, folds, settings.generator(), parts=PARTS)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        grid = [(k, reg) for k in ks for reg in ridges]
        trial = _Trial(grid, folds, int(part.max()) + 1)
        with counting(len(grid) * folds, "fit", progress) as count:
            for number in range(folds):
                mask = fold == number
                train, held = observed.subset(~mask), observed.subset(mask)
                previous = None
                for place, (k, reg) in enumerate(grid):
                    if trial.dropped[place]:
                        count()
                        continue
                    start = _start(previous, k, reg)
                    fit = fitted(train, k, reg, start)
                    trial.judge(place, number, fit, held, part[mask])
                    previous = previous if reg in RULES else fit
                    count()
                if number + 1 < folds:
                    trial.drop(number + 1, rule)
    table = trial.table()
    best = choose(table, rule)
    return Selection(table, best, rule, settings.omega, fitted(observed, best.k, best.reg))


def choose(table: Sequence[Setting], rule: str) -> Setting:
    """Choose the setting that the rule prefers among those that went through all folds."""
    kept = [row for row in table if not row.dropped]
    best = min(kept, key=lambda row: row.loss)
    if rule == "best":
        return best
    near = [row for row in kept if row.loss <= best.loss + best.standard_error]
    return min(near, key=lambda row: (row.k, -row.ridge))


class _Trial:
    """Losses of each setting in each part of each fold."""

    def __init__(self, grid: Sequence[tuple[int, float | str]], folds: int, parts: int) -> None:
        self.grid = grid
        self.dropped = np.zeros(len(grid), bool)
        self._losses = np.zeros((len(grid), folds, parts))
        self._masses = np.zeros((folds, parts))
        self._ridges = np.zeros(len(grid))
        self._done = np.zeros(len(grid), int)

    def judge(
        self, place: int, fold: int, fit: Factorization, held: Observations, part: NDArray[np.int64]
    ) -> None:
        """Add the losses of a fold's cells."""
        side, parts = held.by_row, self._masses.shape[1]
        v = side.weights if side.weights.size else np.ones(held.size)
        r = left_of_limits(residuals(fit.axes, fit.constant, held), side.censored)
        losses = v * sign_weights(r, fit.omega) * r**2
        self._losses[place, fold] = np.bincount(part, losses, minlength=parts)
        self._masses[fold] = np.bincount(part, v, minlength=parts)
        self._ridges[place] += fit.reg
        self._done[place] += 1

    def drop(self, done: int, rule: str) -> None:
        """Drop what is clearly worse than the leader after `done` folds."""
        losses = self._losses[:, :done].reshape(len(self.grid), -1)
        masses = self._masses[:done].ravel()
        if masses.size < ENOUGH:
            return
        left = np.flatnonzero(~self.dropped)
        leader = left[np.argmin(losses[left].sum(axis=1))]
        loss, error = mean_and_error(losses[leader], masses)
        margin = error if rule == "one_se" else NEGLIGIBLE * loss
        for place in left:
            worse, error = mean_and_error(losses[place] - losses[leader], masses)
            self.dropped[place] = worse - CLEARLY * error > margin

    def table(self) -> tuple[Setting, ...]:
        """Summarise what became of every setting."""
        rows = []
        for place, (k, reg) in enumerate(self.grid):
            done = int(self._done[place])
            loss, error = mean_and_error(
                self._losses[place, :done].ravel(), self._masses[:done].ravel()
            )
            ridge = float(self._ridges[place]) / done
            rows.append(Setting(k, reg, ridge, loss, error, done, bool(self.dropped[place])))
        return tuple(rows)


def mean_and_error(losses: NDArray[np.float64], masses: NDArray[np.float64]) -> tuple[float, float]:
    """Compute Σ losses / Σ masses and the standard error of that ratio over the parts."""
    mean = float(losses.sum() / masses.sum())
    left = (losses - mean * masses) / masses.mean()
    if left.size < 2:
        return mean, float("nan")
    # Losses are squares: in the data's unit their own squares may overflow or vanish.
    unit = float(np.abs(left).max()) or 1.0
    return mean, unit * float(np.sqrt(np.sum((left / unit) ** 2) / (left.size * (left.size - 1))))


def _start(previous: Factorization | None, k: int, reg: float | str) -> Any:
    """Choose what to start from: the fit at the next stronger ridge if its factors are alive."""
    if previous is None or previous.k != k or reg in RULES:
        return "spectral"
    if k == 0:
        return previous
    with single_threaded_blas():
        weakest = float(np.linalg.norm(previous.X, -2) * np.linalg.norm(previous.Y, -2))
    m, n = previous.shape
    return previous if weakest > ALIVE * previous.scale * float(m * n) ** 0.5 else "spectral"


def _check_ranks(ks: Any, shape: tuple[int, int], intercepts: bool) -> list[int]:
    if ks is None:
        return [0] * intercepts + [k for k in RANKS if k <= min(shape)]
    given = [check_model_rank(k, "ks", intercepts=intercepts) for k in _check_grid(ks, "ks")]
    return sorted({check_rank(k, shape, "ks", minimum=0) for k in given})


def _check_ridges(regs: Any) -> list[Any]:
    """Check the ridges and order them without repeats: the rules, then from strong to weak."""
    ridges = {check_reg(reg) for reg in _check_grid(regs, "regs")}
    numbers = sorted(ridges - set(RULES), reverse=True)
    return [*(rule for rule in RULES if rule in ridges), *numbers]


def _check_grid(values: Any, name: str) -> list[Any]:
    if hasattr(values, "__len__") and len(values) > MOST_VALUES:
        raise ValueError(f"{name} must hold at most {MOST_VALUES} values, got {len(values)}")
    if isinstance(values, str) or np.ndim(values) != 1:
        raise TypeError(f"{name} must be a list of values to compare, got {values!r}")
    if len(values) == 0:
        raise ValueError(f"{name} must hold at least one value, got none")
    return list(values)
