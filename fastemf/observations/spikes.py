"""Values that look like limits: many that equal the largest or the smallest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.observations.source import Side, Source
from fastemf.support.warn import warn

__all__ = ["warn_of_limits"]

SAMPLED = 50_000  # values, evenly spaced, that are looked at
SHARE, FEWEST = 0.01, 20  # of them at one end
DISTINCT = 100  # values there must be: ratings and counts pile up everywhere
ALONE = 5  # times as many as of any value between the ends


def warn_of_limits(source: Source) -> None:
    """Say so, once, where values look censored and are not declared to be."""
    step = max(1, -(-source.size // SAMPLED))
    blocks = source.by_row.each(_counted, (), (), step, n_threads=1)
    parts = [part for _, part in blocks]  # in any order, as workers have them
    found, place = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    if found.size < DISTINCT:
        return
    counts = np.bincount(place, np.concatenate([part[1] for part in parts]))
    least = max(FEWEST, SHARE * counts.sum(), ALONE * counts[1:-1].max())
    for end, name, side, option in (
        (-1, "largest", "right", "--censored-above"), (0, "smallest", "left", "--censored-below"),
    ):  # fmt: skip
        limit = float(found[end])
        if counts[end] > least:
            warn(
                f"{counts[end] / counts.sum():.1%} of the values equal the {name}, {found[end]:g}: "
                f"if that is a limit, such as a time-out, which the truth lies beyond, pass "
                f'censored=("{side}", {limit!r}) (in a shell, {option}={limit!r})'
            )


def _counted(block: Side, step: int, n_threads: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Count each of a block's values, or of a sample of them."""
    found, counts = np.unique(block.values[::step], return_counts=True)
    return found, counts
