"""A warning about undeclared limits: many values that equal the largest or the smallest one."""

from __future__ import annotations

import numpy as np

from fastemf.sources.source import Side, Source
from fastemf.support.arrays import Array, Ints
from fastemf.support.warn import warn

SAMPLED = 50_000  # evenly spaced values
PROPORTION, FEWEST = 0.01, 20  # of the sample that equal the extreme value
DISTINCT = 100  # fewer distinct values are ratings or counts, which repeat everywhere
PROMINENCE = 5  # times the count of any value between the extremes


def warn_of_spikes(source: Source) -> None:
    """Warn once if values look censored and were not declared to be."""
    step = max(1, -(-source.size // SAMPLED))
    blocks = source.by_row.each(_count, (), (), step, n_threads=1)
    parts = [part for _, part in blocks]  # all of them: workers return them in any order
    values, place = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    if values.size < DISTINCT:
        return
    counts = np.bincount(place, np.concatenate([part[1] for part in parts]))
    least = max(FEWEST, PROPORTION * counts.sum(), PROMINENCE * counts[1:-1].max())
    for end, name, side, option in (
        (-1, "largest", "right", "--censored-above"), (0, "smallest", "left", "--censored-below"),
    ):  # fmt: skip
        limit = float(values[end])
        if counts[end] > least:
            warn(
                f"{counts[end] / counts.sum():.1%} of the values equal the {name}, "
                f"{values[end]:g}: if this is a censoring limit, such as a time-out, pass "
                f'censored=("{side}", {limit!r}) (in a shell, {option}={limit!r})'
            )


def _count(block: Side, step: int, n_threads: int) -> tuple[Array, Ints]:
    """Count the distinct values of a block, or of a sample of them."""
    values, counts = np.unique(block.values[::step], return_counts=True)
    return values, counts
