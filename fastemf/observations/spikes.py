"""Values that look like limits: many that equal the largest or the smallest."""

from __future__ import annotations

import numpy as np

from fastemf.observations.memory import Observations
from fastemf.support.warn import warn

__all__ = ["warn_of_limits"]

SAMPLED = 50_000  # values, evenly spaced, that are looked at
SHARE, FEWEST = 0.01, 20  # of them at one end
DISTINCT = 100  # values there must be: ratings and counts pile up everywhere
ALONE = 5  # times as many as of any value between the ends


def warn_of_limits(observed: Observations) -> None:
    """Say so, once, where values look censored and are not declared to be."""
    values = observed.by_row.values
    found, counts = np.unique(values[:: -(-values.size // SAMPLED)], return_counts=True)
    if found.size < DISTINCT:
        return
    least = max(FEWEST, SHARE * counts.sum(), ALONE * counts[1:-1].max())
    for end, name, side in ((-1, "largest", "right"), (0, "smallest", "left")):
        if counts[end] > least:
            warn(
                f"{counts[end] / counts.sum():.1%} of the values equal the {name}, {found[end]:g}: "
                f"if that is a limit, such as a time-out, which the truth lies beyond, pass "
                f'censored=("{side}", {float(found[end])!r})'
                + (f" (in a shell, --censored-above {found[end]:g})" if side == "right" else "")
            )
