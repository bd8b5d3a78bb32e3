"""Censored values, each replaced by one that is drawn from what may lie beyond its limit.

A mean, as fits take it (see `imputation`), has no spread, and quantiles are about the spread. The
chance of a draw comes from the hash of its cell: the same in every source, on every run.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastemf.observations.source import Side, Source
from fastemf.solver.beyond import Tail
from fastemf.solver.blocks import ALL
from fastemf.solver.engine import CompletionEngine
from fastemf.solver.imputation import Censoring, Imputation, censored_at, with_each_replaced
from fastemf.solver.opening import Data
from fastemf.solver.sampling import hashes
from fastemf.solver.settings import Settings

__all__ = ["drawn_beyond"]

OTHER_HASH = 0x7F4A7C15  # added to a cell's hash: draws must not follow the folds


def drawn_beyond(data: Data, settings: Settings) -> tuple[Source, Imputation | None]:
    """Return what is to be fitted with its censored values drawn, and what replaces later ones."""
    if not data.is_censored:
        return data.fitted, None
    mu = data.fitted.expectile(settings.omega) if settings.intercepts else None
    engine = CompletionEngine(data.fitted, settings.omega, mu=mu, n_threads=settings.n_threads)
    censoring = Censoring(engine, engine, data.cap, data.marks)
    first = censoring.first(settings)
    imputation, tails = censoring.imputation(first), censoring.tails(first)
    marks = (data.marks[0],), (data.marks[1],)
    source = with_each_replaced(
        data.fitted, imputation, (first.X, first.Y), mu, _drawn_block, marks, (tails,)
    )
    return source, imputation


def _drawn_block(
    block: Side,
    by_index: tuple[Any, ...],
    by_row: tuple[Any, ...],
    imputation: Imputation,
    tails: tuple[Tail, Tail],
) -> Side:
    found = censored_at(block, by_index, by_row, imputation.cap)
    cells = hashes(by_row[2][found.rows], by_index[2][found.cols])
    chance = (hashes(cells, np.int64(OTHER_HASH)) + 0.5) / ALL
    right, left = (partial(tail.draw, chance=chance) for tail in tails)
    values = block.values.copy()
    values[found.at] = imputation.values(*found[3:], (right, left))
    return replace(block, values=values)
