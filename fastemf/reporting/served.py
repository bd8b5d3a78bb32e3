"""What rows and columns get: their predictions, on average over the other side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import as_cards, as_figure, as_section, as_table
from fastemf.stacking.shrunk_quantile import Floats

__all__ = ["Served", "served_of", "served_section"]

CELLS = 1 << 22  # predicted for each axis, about
FEWEST = 8  # items of the other side that a mean is over
CELLS_PER_PART = 1 << 18
SHOWN = 8


class Served(NamedTuple):
    """Mean predictions of the rows, or columns, that were observed in the fit."""

    items: NDArray[np.int64]
    """Which they are, from the largest mean at the highest level to the smallest."""
    means: Floats
    """Their means, a column for each level."""
    over: int
    """Columns, or rows, that the means are over."""


def served_of(judged: Judgement, axis: int) -> Served:
    """Average the predictions of all rows (columns) over columns (rows), or some where many."""
    items, others = (_seen(judged, side) for side in (axis, 1 - axis))
    some = min(others.size, max(CELLS // max(items.size, 1), FEWEST))
    others = others[np.linspace(0, others.size - 1, some).round().astype(np.int64)]
    ids = [side.ids() for side in judged.model.axes]
    means = np.empty((items.size, len(judged.levels)))
    step = max(1, CELLS_PER_PART // max(some, 1))
    for first in range(0, items.size, step):
        part = slice(first, first + step)
        pair = ids[axis][items[part], None], ids[1 - axis][None, others]
        found = judged.model.predict(*(pair if axis == 0 else pair[::-1]))
        means[part] = found.reshape(*found.shape[:2], -1).mean(axis=1)
    order = np.argsort(-means[:, -1], kind="stable")
    return Served(items[order], means[order], some)


def _seen(judged: Judgement, axis: int) -> NDArray[np.int64]:
    side = judged.model.axes[axis]
    return np.setdiff1d(np.arange(side.size), side.unseen)


def served_section(judged: Judgement, by_axis: tuple[Served, Served]) -> str:
    """List the rows and columns with the largest predictions, and those with the smallest."""
    cards = []
    for axis, served in enumerate(by_axis):
        item, other = judged.item(axis), judged.item(1 - axis)
        others = ("columns", "rows")[axis]
        shown = min(SHOWN, (served.items.size + 1) // 2)
        for which, places in (
            ("largest", np.arange(shown)),
            ("smallest", np.arange(served.items.size - 1, served.items.size - 1 - shown, -1)),
        ):
            names = judged.called(axis, served.items[places])
            lines = [
                [name, *means]
                for name, means in zip(names, served.means[places].tolist(), strict=True)
            ]
            over = f"mean over {served.over:,} {others} ({other}), in {judged.unit}"
            cards.append(
                as_figure(
                    f"{item}: the {which}", as_table([item, *judged.names], lines), f"By {over}."
                )
            )
    return as_section(
        "Who is served worst",
        f"Predictions on average over the other side, by {judged.names[-1]}. Where small values "
        "are good, as with times, the largest are served worst; where large ones are, as with "
        "spend, the smallest.",
        as_cards(cards, "slim" if len(judged.levels) < 3 else "broad"),
    )
