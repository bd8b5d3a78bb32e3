"""`Described`, the base of models for their text and HTML: content and held-out performance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastemf.models.tabular import Columns, render_html

if TYPE_CHECKING:
    from fastemf.models.factorization import Factorization


class Described(ABC):
    """A model that prints its content and its held-out performance."""

    @property
    @abstractmethod
    def _content(self) -> str:
        """Kind, size and settings of the model, in one line."""

    @property
    @abstractmethod
    def _fits(self) -> Sequence[Factorization]:
        """The fits whose factors describe the rows and columns."""

    @property
    def _verdict(self) -> str:
        """Held-out performance in a few words; empty if it was not measured."""
        ratios = self._performance().get("relative to a constant", [])
        listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return f"validation loss {listed} relative to a constant" if ratios else ""

    def _details(self) -> list[str]:
        """Describe the held-out performance in whole lines."""
        return [self._verdict] if self._verdict else []

    def _performance(self) -> Columns:
        """Return the held-out performance by level or quantile; empty if it was not measured."""
        tuned = [
            (fit.omega, fit.tuning)
            for fit in self._fits
            if fit.tuning is not None and fit.tuning.steps and fit.history  # was not folded in
        ]
        if len(tuned) < len(self._fits):
            return {}
        levels, tunings = zip(*tuned, strict=True)
        return {
            "omega": list(levels),
            "validation loss": [tuning.loss for tuning in tunings],
            "relative to a constant": [one.relative_loss("constant") for one in tunings],
            "relative to row + column": [one.relative_loss("row + column") for one in tunings],
            "effective omega": [one.effective_omega for one in tunings],
        }

    def _reports(self) -> list[str]:
        """Return the lines of the reports of cells that were not fitted, if there are any."""
        found = [getattr(self, name, None) for name in ("validation", "drift")]
        return [line for one in found if one is not None for line in one.details()]

    def __repr__(self) -> str:
        verdict = self._verdict
        return f"<{self._content}; {verdict}>" if verdict else f"<{self._content}>"

    def __str__(self) -> str:
        return "\n".join([f"<{self._content}>", *self._details(), *self._reports()])

    def _repr_html_(self) -> str:
        performance = self._performance()
        notes = [] if performance else self._details()
        return render_html(self._content, performance, [*notes, *self._reports()])
