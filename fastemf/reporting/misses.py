"""The rows and columns that are predicted worst."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import as_cards, as_figure, as_section, as_table
from fastemf.stacking.shrunk_quantile import Floats

__all__ = ["Missed", "missed_of", "misses_section"]

ENOUGH = 5  # observations that a mean is worth showing of
SHOWN = 8


class Missed(NamedTuple):
    """The rows, or columns, with the largest mean losses, the worst first."""

    items: NDArray[np.int64]
    observations: NDArray[np.int64]
    observed: Floats
    """Mean of the values."""
    predicted: Floats
    """Mean of their predictions."""
    loss: Floats
    """Mean loss."""
    share: Floats
    """Of the whole loss."""
    fewest: int
    """Observations that each has at least; those with fewer are not among them."""


def missed_of(judged: Judgement, axis: int) -> Missed:
    """Find the rows (columns) with the largest mean loss at the middle level."""
    keys = (judged.cells.rows, judged.cells.cols)[axis]
    size, at = judged.model.axes[axis].size, judged.middle
    counts = np.bincount(keys, minlength=size)
    fewest = min(ENOUGH, int(counts.max()))
    sums = [
        np.bincount(keys, judged.weights * of, minlength=size)
        for of in (
            np.ones(keys.size), judged.cells.values, judged.predicted[at], judged.losses(at),
        )
    ]  # fmt: skip
    kept = np.flatnonzero(counts >= fewest)
    mass, observed, predicted, loss = (of[kept] for of in sums)
    whole = float(sums[3].sum())
    worst = np.argsort(-loss / mass, kind="stable")[:SHOWN]
    return Missed(
        items=kept[worst],
        observations=counts[kept][worst],
        observed=(observed / mass)[worst],
        predicted=(predicted / mass)[worst],
        loss=(loss / mass)[worst],
        share=loss[worst] / (whole or 1.0),
        fewest=fewest,
    )


def misses_section(judged: Judgement) -> str:
    """List the rows and the columns with the largest mean losses."""
    cards = []
    name = judged.names[judged.middle]
    for axis in (0, 1):
        missed, item = missed_of(judged, axis), judged.item(axis)
        heads = [item, "count", "observed", "predicted", "mean loss", "share"]
        lines = [
            [name, int(count), float(observed), float(predicted), float(loss), f"{share:.1%}"]
            for name, count, observed, predicted, loss, share in zip(
                judged.called(axis, missed.items), *missed[1:6], strict=True
            )
        ]
        note = f"Of those with {missed.fewest} observations or more; shares are of the whole loss."
        cards.append(as_figure(f"{item}: the worst", as_table(heads, lines), note))
    return as_section(
        "Who is predicted worst",
        f"The largest mean losses at {name}, with the means of what was observed and predicted, in "
        f"{judged.unit}. Look here for other causes: time-outs, typing errors, too few data.",
        as_cards(cards, "broad"),
    )
