"""How well fits predict cells that were not fitted: ``python -m bench.accuracy``.

>>> from bench.accuracy import SETS
>>> train, test = SETS["additive"](seed=0)
>>> train.shape, train.cells.values.size < test.values.size
((400, 600), True)
"""

from __future__ import annotations

from collections.abc import Callable

from bench.accuracy.families import FAMILIES
from bench.accuracy.splits import REAL, Cells, Split, Training

__all__ = ["FAMILIES", "REAL", "SETS", "Cells", "Split", "Training"]

SETS: dict[str, Callable[..., Split]] = {**REAL, **FAMILIES}
