"""What a tuned fit tried, what it chose, and what its predictions of new cells are worth."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["MEANING", "NOTHING_ADDED", "Baseline", "Tuning", "TuningStep"]

NOTHING_ADDED = 0.995  # of a simple prediction's loss: above that a model adds nothing to it
MEANING = {  # of each family, in words
    "constant": "no rows, columns or factors",
    "even": "all observations count alike",
    "weighted": "noisy rows and columns count less",
    "ridged": "noisy rows and columns are shrunk more",
    "noise": "the ridge follows the residuals",
}


@dataclass(frozen=True, slots=True)
class TuningStep:
    """One candidate of a tuned fit, judged on the cells set aside (see `Tuning`).

    Attributes
    ----------
    family : str
        How observations and ridge are weighted: ``"constant"``, ``"even"``, ``"weighted"``,
        ``"ridged"``, or ``"noise"`` for the ridge of ``reg="noise"``.
    reg : float
        The ridge λ; infinite for a model without factors.
    rank : int
        Factors that the ridge leaves alive.
    loss : float
        Mean expectile loss on the cells set aside, in squared units of the data.
    standard_error : float
        Of the loss.
    effective_omega : float
        The level that the predictions have on those cells.
    """

    family: str
    reg: float
    rank: int
    loss: float
    standard_error: float
    effective_omega: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """A simpler prediction, and its mean expectile loss on the cells set aside."""

    name: str
    loss: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """What ``reg="auto"`` tried, and how the fit compares with simpler predictions.

    Candidates are fitted to all cells but those set aside, which judge them. They come in
    families: ``"constant"``; ``"even"``, in which all observations count alike; ``"weighted"``,
    in which those of noisy rows and columns count less; ``"ridged"``, in which noisy rows and
    columns have a stronger ridge instead.

    Attributes
    ----------
    steps : tuple of TuningStep
        The candidates, in the order tried; empty where there was nothing to tune with.
    chosen : int
        Which of them was fitted to all cells; -1 where there are none.
    baselines : tuple of Baseline
        ``"constant"``, ``"column"`` (each column's level) and ``"row + column"`` (their levels).
    cells : int
        Observations set aside, over all folds.
    folds : int
        How often some were set aside.
    note : str
        Why nothing was tuned; empty where something was.
    noise : float
        The ridge at which noise alone would make a factor, in the family chosen.
    loss : float
        Mean expectile loss of predictions of the cells set aside, by the candidate chosen and
        the tables of the fit, if it has any: each fifth of the cells by tables of the others.
        NaN where nothing was tuned.
    effective_omega : float
        The level that those predictions have.
    """

    steps: tuple[TuningStep, ...] = ()
    chosen: int = -1
    baselines: tuple[Baseline, ...] = ()
    cells: int = 0
    folds: int = 0
    note: str = ""
    noise: float = 0.0
    loss: float = math.nan
    effective_omega: float = math.nan

    @property
    def best(self) -> TuningStep | None:
        """The candidate that was chosen."""
        return self.steps[self.chosen] if self.steps else None

    @property
    def has_intercepts(self) -> bool:
        """Whether the candidates have intercepts: a constant alone is tried only then."""
        return any(step.family == "constant" for step in self.steps)

    def verdict(self) -> str:
        """Say in two lines what the fit's predictions of cells set aside are worth.

        The first compares their loss with that of simpler predictions, and has the level at
        which they lie; the second says in words what the factors add. Where nothing was tuned,
        one line says why.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> fit = fastemf.complete(R, 0.5, 2, intercepts=True)
        >>> print(fit.tuning.verdict())
        held-out loss ... of a constant's, ... of row + column levels; effective level 0...
        ...
        """
        if self.best is None:
            return f"not tuned, the ridge follows the size of the residuals: {self.note}"
        return f"{self._compared()}\n{self._in_words(self.best)}"

    def _compared(self) -> str:
        constant = self._loss_of("constant")
        if not constant > 0:
            return "a constant predicts all observations set aside"
        level = self.effective_omega
        return (
            f"held-out loss {_ratio(self.loss, constant)} of a constant's, "
            f"{_ratio(self.loss, self._loss_of('row + column'))} of row + column levels"
            + ("" if math.isnan(level) else f"; effective level {level:.2f}")
        )

    def _in_words(self, best: TuningStep) -> str:
        if best.family == "constant":
            return (
                "neither factors nor row + column levels add anything: predictions are a constant"
            )
        meaning = f" ({best.family}: {MEANING[best.family]})"
        if best.rank == 0:
            what = "row + column levels" if self.has_intercepts else "0, without intercepts"
            tried = any(math.isfinite(step.reg) for step in self.steps)
            why = "the factors add nothing" if tried else "no factors were asked for"
            return f"{why}: predictions are {what}" + ("" if best.family == "even" else meaning)
        factors = "1 factor" if best.rank == 1 else f"{best.rank} factors"
        simple = self._loss_of("row + column")
        if best.loss <= NOTHING_ADDED * simple:
            added = f"{100 * (1 - best.loss / simple):.0f} % off the loss of row + column levels"
            takes = "takes" if best.rank == 1 else "take"
            return f"{factors} {takes} {added}{meaning}"
        if self.has_intercepts:
            return f"{factors}, next to nothing more than row + column levels"
        return f"{factors}; row + column levels predict as well or better: try intercepts"

    def _loss_of(self, name: str) -> float:
        return next((one.loss for one in self.baselines if one.name == name), math.nan)


def _ratio(loss: float, of: float) -> str:
    """Write a loss as a share of another, which may be 0."""
    share = loss / of if of > 0 else math.inf if loss > 0 else 1.0
    return f"{share:.2f}" if share >= 0.01 else f"{share:.1g}"
