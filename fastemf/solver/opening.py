"""The opening of a fit's data, which are in memory, in a store, or with a cluster's workers."""

from __future__ import annotations

import copy
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastemf.cluster.distribution import distribute
from fastemf.inputs.tables import ColumnNames
from fastemf.kernels.threads import count_threads
from fastemf.observations.hold_out import hold_out
from fastemf.observations.memory import Observations, observe
from fastemf.observations.source import Source
from fastemf.solver.gathering import at_hand
from fastemf.solver.sampling import Marks, marks_of
from fastemf.store import open as open_store

__all__ = ["Data", "hold_apart", "open_in_memory", "open_source"]


def open_source(
    R: Any,
    weights: Any,
    shape: Any,
    names: ColumnNames,
    client: Any,
    n_jobs: int | None,
) -> AbstractContextManager[Source]:
    """Open the observations for a ``with`` statement, at whose end a cluster releases them."""
    rows, cols, values = names
    given = {"weights": weights, "shape": shape, "rows": rows, "cols": cols, "values": values}
    if client is not None:
        return distribute(R, client, n_jobs=n_jobs, **given)
    if isinstance(R, (str, os.PathLike)) and os.path.isdir(R):
        R = open_store(R)
    if not isinstance(R, Source) or isinstance(R, Observations):
        return nullcontext(observe(R, **given, n_threads=count_threads(n_jobs)))
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} must not be given beside a store, which has its own")
    return nullcontext(R)


def open_in_memory(
    R: Any, weights: Any, shape: Any, names: ColumnNames, n_jobs: int | None
) -> Observations:
    """Open the observations for a task that holds cells out by a mask over all of them."""
    with open_source(R, weights, shape, names, None, n_jobs) as source:
        if not isinstance(source, Observations):
            raise TypeError(
                f"R must be in memory here, where cells are held out, got a "
                f"{type(source).__name__}: only fastemf.complete and fastemf.complete_levels read "
                "it block by block"
            )
        return source


@dataclass(frozen=True, eq=False)
class Data:
    """What a fit sees: the observations it fits, and those that judge its sweeps, if any."""

    fitted: Source
    held_out: Observations | None = None
    seed: int = 0  # of the cells that a tuned fit sets aside, which are the same at all levels
    value_name: str | None = None  # of a table's column

    @cached_property
    def marks(self) -> Marks:
        """What decides which cells a tuned fit sets aside."""
        return marks_of(self.fitted, np.random.default_rng(self.seed))

    @cached_property
    def at_hand(self) -> Source:
        """What is fitted, in this process where it is little."""
        return at_hand(self.fitted)

    @cached_property
    def digests(self) -> list[str]:
        """Fingerprints of both, which cost a pass over the data."""
        return [part.digest() for part in (self.fitted, self.held_out) if part is not None]


def hold_apart(
    source: Source,
    validation: Any,
    rng: np.random.Generator,
    names: ColumnNames,
) -> Data:
    """Divide what is observed as `validation` says; None holds nothing out."""
    seed = int(copy.deepcopy(rng).integers(2**63))  # a start after it has the numbers it always had
    if validation is None:
        return Data(source, seed=seed, value_name=names[2])
    return Data(*hold_out(source, validation, rng, names), seed, names[2])
