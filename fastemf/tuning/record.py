"""The record of a tuning: the candidates, the choice, and the validation loss."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from fastemf.support.records import unpack_record

NOTHING_ADDED = 0.995  # of a baseline's loss: above it a model does not improve on the baseline
MEANING = {  # of each family, in words
    "constant": "no intercepts or factors",
    "equal": "equal weights",
    "weighted": "noisy rows and columns have lower weights",
    "ridged": "noisy rows and columns are shrunk more",
    "noise": "the ridge is noise-adaptive",
}


@dataclass(frozen=True, slots=True)
class TuningStep:
    """One candidate of a tuned fit, evaluated on the validation cells (see `Tuning`).

    Attributes
    ----------
    family : str
        How observations and ridge are weighted: ``"constant"``, ``"equal"``, ``"weighted"``,
        ``"ridged"``, or ``"noise"`` for the ridge of ``reg="noise"``.
    reg : float
        The ridge λ; infinite for a model without factors.
    rank : int
        Number of factors that the ridge does not remove.
    loss : float
        Mean expectile loss of the validation cells, in squared units of the data.
    standard_error : float
        Standard error of the loss.
    effective_omega : float
        The expectile level of the predictions on the validation cells.
    """

    family: str
    reg: float
    rank: int
    loss: float
    standard_error: float
    effective_omega: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """A simple prediction, and its mean expectile loss on the validation cells."""

    name: str
    loss: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """The candidates of ``reg="auto"``, and how the fit compares with baselines.

    Candidates are fitted to training cells and evaluated on validation cells. They come in
    families: ``"constant"``; ``"equal"``, with equal weights; ``"weighted"``, with lower weights
    for noisy rows and columns; ``"ridged"``, with a stronger ridge for noisy rows and columns.

    Attributes
    ----------
    steps : tuple of TuningStep
        The candidates, in the order tried; empty if nothing was tuned.
    chosen : int
        Index of the candidate that was fitted to all cells; -1 if there are none.
    baselines : tuple of Baseline
        ``"constant"``, ``"column"`` (column intercepts) and ``"row + column"`` (both).
    cells : int
        Number of validation observations, over all folds.
    folds : int
        Number of folds with validation cells.
    note : str
        Why nothing was tuned; empty if something was.
    noise : float
        The smallest ridge that removes factors of pure noise, in the chosen family.
    loss : float
        Mean expectile loss of the validation cells, for the chosen candidate with its correction
        tables, if any; these are cross-fitted in five folds. NaN if nothing was tuned.
    effective_omega : float
        The expectile level of those predictions.
    tables : int
        Number of correction tables that the fit adds to its predictions.
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
    tables: int = 0

    @property
    def best(self) -> TuningStep | None:
        """The chosen candidate."""
        return self.steps[self.chosen] if self.steps else None

    @property
    def has_intercepts(self) -> bool:
        """Whether the candidates have intercepts: only then is a constant tried."""
        return any(step.family == "constant" for step in self.steps)

    @property
    def factors_help(self) -> bool:
        """Whether factors reduce the validation loss relative to row and column intercepts."""
        best = self.best
        if best is None or best.rank == 0:
            return False
        return best.loss <= NOTHING_ADDED * self._loss_of("row + column")

    def relative_loss(self, baseline: str = "constant") -> float:
        """Return the validation loss relative to that of a baseline; NaN if there is none.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> fit = fastemf.complete(R, 0.5, 2, intercepts=True)
        >>> fit.tuning.relative_loss("constant") < 1
        True
        """
        of = self._loss_of(baseline)
        return self.loss / of if of > 0 else math.nan

    def verdict(self) -> str:
        """Summarize the validation performance of the fit in two lines.

        The first line has the loss relative to those of baselines, and the effective level. The
        second one describes what the factors add. If nothing was tuned, one line states why.

        Examples
        --------
        >>> import fastemf
        >>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R
        >>> fit = fastemf.complete(R, 0.5, 2, intercepts=True)
        >>> print(fit.tuning.verdict())
        validation loss ... relative to a constant, ... relative to row + column intercepts; ...
        ...
        """
        if self.best is None:
            return f"not tuned, the ridge is noise-adaptive: {self.note}"
        return f"{self._compare()}\n{self._in_words(self.best)}"

    def _compare(self) -> str:
        constant, simple = self._loss_of("constant"), self._loss_of("row + column")
        if not constant > 0:
            return "a constant predicts all validation cells exactly"
        level = self.effective_omega
        return (
            f"validation loss {_ratio(self.loss, constant)} relative to a constant, "
            f"{_ratio(self.loss, simple)} relative to row + column intercepts"
            + ("" if math.isnan(level) else f"; effective level {level:.2f}")
        )

    def _in_words(self, best: TuningStep) -> str:
        if best.family == "constant":
            why = "neither factors nor intercepts reduce the loss"
            return f"{why}: predictions are a constant{self._corrected(best)}"
        meaning = f" ({best.family}: {MEANING[best.family]})"
        if best.rank == 0:
            what = "row + column intercepts" if self.has_intercepts else "0, without intercepts"
            tried = any(math.isfinite(step.reg) for step in self.steps)
            why = "the factors do not reduce the loss" if tried else "k is 0"
            meaning = "" if best.family == "equal" else meaning
            return f"{why}: predictions are {what}{meaning}{self._corrected(best)}"
        factors = "1 factor" if best.rank == 1 else f"{best.rank} factors"
        if self.factors_help:
            simple = self._loss_of("row + column")
            reduce = "reduces" if best.rank == 1 else "reduce"
            reduction = f"{100 * (1 - best.loss / simple):.0f} %"
            relative = "relative to row + column intercepts"
            return f"{factors} {reduce} the loss by {reduction} {relative}{meaning}"
        if self.has_intercepts:
            return f"{factors}, hardly any improvement over row + column intercepts"
        return f"{factors}; row + column intercepts predict as well or better: try intercepts"

    def _corrected(self, best: TuningStep) -> str:
        """Describe the correction tables, which make predictions without factors vary."""
        if not self.tables:
            return ""
        tables = "1 correction table" if self.tables == 1 else f"{self.tables} correction tables"
        if not self.loss <= NOTHING_ADDED * best.loss:
            return f" plus {tables}, which hardly reduce it"
        return f" plus {tables}, which reduce it by {100 * (1 - self.loss / best.loss):.0f} %"

    def _loss_of(self, name: str) -> float:
        return next((one.loss for one in self.baselines if one.name == name), math.nan)


def _ratio(loss: float, of: float) -> str:
    """Format a loss relative to another, which may be 0."""
    ratio = loss / of if of > 0 else math.inf if loss > 0 else 1.0
    return f"{ratio:.2f}" if ratio >= 0.01 else f"{ratio:.1g}"


# --- in files ------------------------------------------------------------------------------------

MAY_BE_INFINITE = ("reg",)  # that of a model without factors
MAY_BE_NAN = {  # if all residuals are 0, or nothing was tuned
    TuningStep: ("effective_omega",),
    Baseline: (),
    Tuning: ("loss", "effective_omega"),
}
NOT_NEGATIVE = ("reg", "rank", "loss", "standard_error", "cells", "folds", "noise", "tables")


def pack_tuning(tuning: Tuning | None) -> dict[str, Any] | None:
    """Convert a record to plain values."""
    return None if tuning is None else asdict(tuning)


def unpack_tuning(record: Any) -> Tuning | None:
    """Make a record from plain values; ValueError if they are not one."""
    if record is None:
        return None
    tuning = unpack_record(Tuning, record, "tuning")
    parts: tuple[Any, ...] = (tuning, *tuning.steps, *tuning.baselines)
    for part in parts:
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, (int, float)):
                _check_number(field.name, value, MAY_BE_NAN[type(part)])
    first, last = (0, len(tuning.steps) - 1) if tuning.steps else (-1, -1)
    if not first <= tuning.chosen <= last:
        raise ValueError("tuning must have the step that was chosen")
    if not {step.family for step in tuning.steps} <= MEANING.keys():
        raise ValueError(f"tuning must have steps of the families {', '.join(MEANING)}")
    return tuning


def _check_number(name: str, value: Any, may_be_nan: tuple[str, ...]) -> None:
    right = math.isnan(value) if name in may_be_nan else False
    right |= value == math.inf and name in MAY_BE_INFINITE
    right |= abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)
    right &= not (name in NOT_NEGATIVE and value < 0)
    if not right:
        raise ValueError(f"tuning must have a number in its range as {name}")
