"""What a tuned fit tried, what it chose, and what its predictions of new cells are worth."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Baseline", "Tuning", "TuningStep"]

NOTHING_ADDED = 0.995  # of row + column levels' loss: above that the factors add nothing


@dataclass(frozen=True, slots=True)
class TuningStep:
    """One candidate of a tuned fit, judged on the cells set aside.

    Attributes
    ----------
    family : str
        How observations and ridge are weighted: ``"constant"``, ``"even"``, ``"weighted"``,
        ``"ridged"`` (see `Tuning`), or ``"noise"`` for the ridge of ``reg="noise"``.
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
    """

    steps: tuple[TuningStep, ...] = ()
    chosen: int = -1
    baselines: tuple[Baseline, ...] = ()
    cells: int = 0
    folds: int = 0
    note: str = ""
    noise: float = 0.0

    @property
    def best(self) -> TuningStep | None:
        """The candidate that was chosen."""
        return self.steps[self.chosen] if self.steps else None

    def verdict(self) -> str:
        """Say in two lines what the fit's predictions of cells set aside are worth.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> fit = fastemf.complete(R, 0.5, 2, intercepts=True)
        >>> print(fit.tuning.verdict().splitlines()[0][:13])
        held-out loss
        """
        best = self.best
        if best is None:
            return self.note
        losses = {baseline.name: baseline.loss for baseline in self.baselines}
        against = ", ".join(
            f"{_ratio(best.loss, losses[name])} of {what}"
            for name, what in (
                ("constant", "a constant's"),
                ("column", "column levels'"),
                ("row + column", "row + column levels'"),
            )
            if name in losses
        )
        first = f"held-out loss {against}; effective level {best.effective_omega:.2f}"
        simple = losses.get("row + column", math.nan)
        if best.rank == 0:
            second = "the factors add nothing: predictions are " + (
                "a constant" if best.family == "constant" else "row and column levels"
            )
        elif best.loss > NOTHING_ADDED * simple:
            second = "the factors add next to nothing to row and column levels"
        else:
            second = f"{best.rank} factors, judged by {self.cells:,} observations set aside"
        return f"{first}\n{second}"


def _ratio(loss: float, of: float) -> str:
    return f"{loss / of:.2f}" if of > 0 else "none"
