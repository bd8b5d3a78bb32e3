"""`select`: choose rank and ridge by cross-validation."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastemf.censoring.limits import residuals_within_limits
from fastemf.fitting import fit_data
from fastemf.kernels.threads import single_threaded_blas
from fastemf.loss import sign_weights
from fastemf.models.bilinear import residuals
from fastemf.models.factorization import Factorization
from fastemf.solver.settings import Settings, Solver, as_solver, as_validation
from fastemf.sources.hold_out import folds as deal_folds
from fastemf.sources.memory import Observations
from fastemf.sources.open_source import hold_apart, open_in_memory
from fastemf.support.arrays import Floats, Ints
from fastemf.support.progress import count_steps
from fastemf.support.validation import (
    check_choice,
    check_integer,
    check_model_rank,
    check_rank,
    check_reg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Grid = list[tuple[int, Any]]  # ranks and ridges

MOST_VALUES = 10_000  # in a grid; each takes a fit per fold
RANKS = (1, 2, 5, 10)  # and 0 with intercepts
RULES = ("auto", "noise")  # ridges that are not numbers, in the order of the table

PARTS = 10  # per fold, for standard errors
FEWEST_PARTS = 10  # in all folds done, for a standard error that candidates are dropped by
DROP_ERRORS = 4.0  # standard errors by which a candidate must be worse than the leader
NEGLIGIBLE = 1e-3  # proportion of the loss by which a candidate may be worse
ALIVE = 0.01  # smallest size of a factor in a warm start, relative to the data


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rank and a ridge, with their cross-validated loss.

    Attributes
    ----------
    k : int
        Rank.
    reg : float, "auto" or "noise"
        Ridge, as in `complete`.
    ridge : float
        Mean λ at the end of the fits; `reg` itself if it is a number.
    loss : float
        Expectile loss of the held-out cells per unit of weight, over the folds done.
    standard_error : float
        Standard error of `loss` over the parts of the folds done (ten per fold, or as many as
        there are cells).
    folds : int
        Number of folds done.
    dropped : bool
        Whether the candidate was dropped before the last fold.
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
    """Candidates compared by cross-validation, and the fit of the selected one.

    ``print(selection)`` shows the table, and ``pandas.DataFrame(selection.table)`` converts it.

    Attributes
    ----------
    table : tuple of Candidate
        All candidates by rank; within a rank ``"auto"`` and ``"noise"``, then numbers from large
        to small.
    best : Candidate
        The selected candidate.
    rule : {"best", "one_se"}
        Rule of the selection.
    omega : float
        Expectile level.
    fit : Factorization
        Fit of all observations with the selected rank and ridge, as by `complete`.
    """

    table: tuple[Candidate, ...]
    best: Candidate
    rule: str
    omega: float
    fit: Factorization

    def __repr__(self) -> str:
        lines = [f"{'k':>5}  {'reg':>9}  {'ridge':>9}  {'loss':>10}  {'std. error':>10}  folds"]
        for row in self.table:
            reg = row.reg if isinstance(row.reg, str) else f"{row.reg:.3g}"
            mark = "  dropped" if row.dropped else "  chosen" if row is self.best else ""
            # The loss over fewer folds is not comparable.
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
            or_intercepts = "" if self.fit.rows.has_intercepts else " or intercepts"
            lines.append(
                "The largest ridge compared is best: the factors add little, and a larger one "
                f"(regs){or_intercepts} may be better."
            )
        return "\n".join(lines)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot the held-out loss against the ridge, a curve per rank (`fastemf.plot.selection`).

        Examples
        --------
        >>> import fastemf
        >>> from matplotlib.figure import Figure
        >>> R = fastemf.datasets.make_skewed(30, 20, rank=2, density=0.5, random_state=0).R
        >>> selection = fastemf.select(R, omega=0.1, ks=[1, 2], regs=["auto", 0.1], folds=2)
        >>> selection.plot(ax=Figure().subplots()).get_xlabel()
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
    intercepts: bool = False,
    tol: float = 1e-5,
    max_iter: int = 100,
    solver: str | Solver = "auto",
    validation: Any = None,
    random_state: Any = 0,
    n_jobs: int | None = -1,
    progress: bool = False,
) -> Selection:
    """Choose rank and ridge by cross-validation, and fit all observations with them.

    A fit with ``reg="auto"`` tunes its ridge and drops factors that do not help, so a rank that is
    too large is seldom less accurate. Compare several `ks` if the size or speed of the model
    matters, several numbers in `regs` to find one fixed ridge for many fits, and
    ``regs=["auto", "noise"]`` to see how much tuning lowers the loss (``"noise"`` takes one fit
    instead of many).

    The observed cells are divided at random into folds; repeated observations of a cell stay
    together. Each fold is predicted by a fit to the other folds. Its cells count even if their row
    or column has no observations in the other folds.

    After each fold, clearly worse candidates are dropped: those whose loss exceeds the lowest loss
    by more than a margin plus four standard errors of the difference. The margin is 0.1 % of the
    lowest loss or, with ``rule="one_se"``, its standard error. Standard errors are estimated from
    ten parts of each fold.

    Parameters
    ----------
    R
        The observations, in any form that `complete` takes except a store.
    omega
        Expectile level in (0, 1).
    ks
        Ranks to compare. Defaults to 1, 2, 5 and 10, as far as the shape allows, and 0 with
        `intercepts`.
    regs
        Ridges to compare: ``"auto"``, ``"noise"`` or numbers. Defaults to ``"auto"``, which tunes
        every fit of every fold.
    folds
        Number of folds, from 2 to the number of cells.
    rule
        ``"best"``: the lowest loss. ``"one_se"``: the simplest candidate (smallest rank, then
        largest ridge) within one standard error of the lowest loss.
    rows, cols, values, weights, censored, shape
        Describe the data, as in `complete`.
    intercepts, tol, max_iter, solver
        Apply to every fit, as in `complete`.
    validation
        As in `complete`, for every fit. A proportion refers to the cells outside the fold. The
        candidates are compared on the cells of the fold only.
    random_state
        Seed or numpy Generator for the folds and the starts.
    n_jobs
        Number of threads within each fit; -1 for all. The result does not depend on it.
    progress
        Show a progress bar on standard error.

    Returns
    -------
    Selection

    Notes
    -----
    Within a fold and a rank, each numeric ridge starts from the fit of the next larger one, unless
    that ridge nearly removed a factor, which would stay removed. Warnings about convergence and
    about rows without observations are those of the final fit.

    Examples
    --------
    >>> import fastemf
    >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
    >>> selection = fastemf.select(R, omega=0.1, ks=[1, 2], folds=2)
    >>> selection.fit.k == selection.best.k
    True
    """
    folds = check_integer(folds, "folds", minimum=2)
    check_choice(rule, "rule", ("best", "one_se"))
    solver = as_solver(solver)
    if regs is None and solver.reg_scaling == "plain":
        raise ValueError('regs must be given with reg_scaling="plain": the default is count-scaled')
    ridges = _check_ridges(["auto"] if regs is None else regs)
    settings = Settings(
        omega=omega, k=1, reg=ridges[0], intercepts=intercepts, tol=tol, max_iter=max_iter,
        solver=solver, validation=as_validation(validation), random_state=random_state,
        n_jobs=n_jobs, progress=progress,
    )  # fmt: skip
    for reg in ridges:
        replace(settings, reg=reg)  # check every ridge before the first fit
    names = (rows, cols, values)
    observed = open_in_memory(R, weights, shape, names, n_jobs, censored)
    ranks = _check_ranks(ks, observed.shape, settings.intercepts)
    data = settings.validation_data
    if data is not None and not isinstance(data, numbers.Real):  # read the entries once
        data = hold_apart(observed, data, settings.generator(), names, censored).held_out
        names = (None, None, None)

    def fit_candidate(train: Observations, k: int, reg: Any, init: Any) -> Factorization:
        own = replace(settings, k=k, reg=reg, init=init, progress=False)
        rng = own.generator()
        parts = replace(hold_apart(train, data, rng, names), value_name=values)
        return fit_data(parts, own, rng, keep_baselines=train is observed).model

    grid = [(k, reg) for k in ranks for reg in ridges]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        table = _cross_validate(observed, grid, folds, rule, settings, fit_candidate)
    best = choose(table, rule)
    fit = fit_candidate(observed, best.k, best.reg, "spectral")
    return Selection(table, best, rule, settings.omega, fit)


def _cross_validate(
    observed: Observations,
    grid: Grid,
    folds: int,
    rule: str,
    settings: Settings,
    fit_candidate: Callable[[Observations, int, Any, Any], Factorization],
) -> tuple[Candidate, ...]:
    """Fit the candidates to all folds but one at a time, and return their losses on that one."""
    fold_of, part_of = deal_folds(observed, folds, settings.generator(), parts=PARTS)
    losses = _Losses(grid, folds, int(part_of.max()) + 1)
    with count_steps(len(grid) * folds, "fit", shows=settings.progress) as count:
        for fold in range(folds):
            out = fold_of == fold
            train, held_out = observed.subset(~out), observed.subset(out)
            previous = None
            for index, (k, reg) in enumerate(grid):
                if not losses.dropped[index]:
                    fit = fit_candidate(train, k, reg, _start(previous, k, reg))
                    losses.add(index, fold, fit, held_out, part_of[out])
                    previous = previous if reg in RULES else fit
                count()
            if fold + 1 < folds:
                losses.drop(fold + 1, rule)
    return losses.table()


def choose(table: Sequence[Candidate], rule: str) -> Candidate:
    """Choose a candidate by the rule among those that completed all folds."""
    complete = [row for row in table if not row.dropped]
    best = min(complete, key=lambda row: row.loss)
    if rule == "best":
        return best
    near = [row for row in complete if row.loss <= best.loss + best.standard_error]
    return min(near, key=lambda row: (row.k, -row.ridge))


class _Losses:
    """Losses of each candidate in each part of each fold."""

    def __init__(self, grid: Grid, folds: int, parts: int) -> None:
        self.grid = grid
        self.dropped = np.zeros(len(grid), bool)
        self._losses = np.zeros((len(grid), folds, parts))
        self._masses = np.zeros((folds, parts))
        self._ridges = np.zeros(len(grid))
        self._done = np.zeros(len(grid), int)

    def add(self, index: int, fold: int, fit: Factorization, out: Observations, part: Ints) -> None:
        """Add the losses of a candidate on the cells of a fold."""
        side, parts = out.by_row, self._masses.shape[1]
        v = side.weights if side.weights.size else np.ones(out.size)
        r = residuals_within_limits(residuals(fit.axes, fit.constant, out), side.censored)
        losses = v * sign_weights(r, fit.omega) * r**2
        self._losses[index, fold] = np.bincount(part, losses, minlength=parts)
        self._masses[fold] = np.bincount(part, v, minlength=parts)
        self._ridges[index] += fit.reg
        self._done[index] += 1

    def drop(self, done: int, rule: str) -> None:
        """Drop candidates that are clearly worse than the leader after `done` folds."""
        losses = self._losses[:, :done].reshape(len(self.grid), -1)
        masses = self._masses[:done].ravel()
        if masses.size < FEWEST_PARTS:
            return
        remaining = np.flatnonzero(~self.dropped)
        leader = remaining[np.argmin(losses[remaining].sum(axis=1))]
        loss, error = mean_and_error(losses[leader], masses)
        margin = error if rule == "one_se" else NEGLIGIBLE * loss
        for index in remaining:
            worse, error = mean_and_error(losses[index] - losses[leader], masses)
            self.dropped[index] = worse - DROP_ERRORS * error > margin

    def table(self) -> tuple[Candidate, ...]:
        """Return all candidates with their losses."""
        rows = []
        for index, (k, reg) in enumerate(self.grid):
            done = int(self._done[index])
            loss, error = mean_and_error(
                self._losses[index, :done].ravel(), self._masses[:done].ravel()
            )
            ridge = float(self._ridges[index]) / done
            rows.append(Candidate(k, reg, ridge, loss, error, done, bool(self.dropped[index])))
        return tuple(rows)


def mean_and_error(losses: Floats, masses: Floats) -> tuple[float, float]:
    """Return Σ losses / Σ masses and the standard error of this ratio over the parts."""
    mean = float(losses.sum() / masses.sum())
    deviations = (losses - mean * masses) / masses.mean()
    n = deviations.size
    if n < 2:
        return mean, float("nan")
    # Losses are squares of the data: without the unit, their squares may overflow or underflow.
    unit = float(np.abs(deviations).max()) or 1.0
    return mean, unit * float(np.sqrt(np.sum((deviations / unit) ** 2) / (n * (n - 1))))


def _start(previous: Factorization | None, k: int, reg: float | str) -> Any:
    """Return the start of a fit: that of the next larger ridge, if no factor is nearly zero."""
    if previous is None or previous.k != k or reg in RULES:
        return "spectral"
    if k == 0:
        return previous
    with single_threaded_blas():
        smallest = float(np.linalg.norm(previous.X, -2) * np.linalg.norm(previous.Y, -2))
    m, n = previous.shape
    return previous if smallest > ALIVE * previous.scale * float(m * n) ** 0.5 else "spectral"


def _check_ranks(ks: Any, shape: tuple[int, int], intercepts: bool) -> list[int]:
    """Return the ranks in ascending order without repeats."""
    if ks is None:
        return [0] * intercepts + [k for k in RANKS if k <= min(shape)]
    given = [check_model_rank(k, "ks", intercepts=intercepts) for k in _check_grid(ks, "ks")]
    return sorted({check_rank(k, shape, "ks", minimum=0) for k in given})


def _check_ridges(regs: Any) -> list[Any]:
    """Return the ridges without repeats: rules first, then numbers from large to small."""
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
