"""The opening of a fit's data, which are in memory, in a store, or with a cluster's workers."""

from __future__ import annotations

import copy
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastemf.cluster.distribution import distribute
from fastemf.inputs.censoring import Cap, cap_of
from fastemf.inputs.tables import ColumnNames
from fastemf.kernels.threads import count_threads
from fastemf.observations.hold_out import hold_out
from fastemf.observations.memory import Observations, observe
from fastemf.observations.source import Side, Source
from fastemf.observations.spikes import warn_of_limits
from fastemf.solver.gathering import at_hand
from fastemf.solver.sampling import Marks, marks_of
from fastemf.store import open as open_store
from fastemf.support.warn import warn

__all__ = ["Data", "hold_apart", "open_in_memory", "open_source"]


def open_source(
    R: Any,
    weights: Any,
    shape: Any,
    names: ColumnNames,
    client: Any,
    n_jobs: int | None,
    censored: Any = None,
) -> AbstractContextManager[Source]:
    """Open the observations for a ``with`` statement, at whose end a cluster releases them."""
    opened = _opened(R, weights, shape, names, client, n_jobs, censored)
    return opened if censored is not None else _AskedForLimits(opened)


class _AskedForLimits(AbstractContextManager[Source]):
    """A source that is looked at for values that seem censored.

    It is not made by `contextlib`, whose frames would be between a warning and the caller's line.
    """

    def __init__(self, opened: AbstractContextManager[Source]) -> None:
        self._opened = opened

    def __enter__(self) -> Source:
        source = self._opened.__enter__()
        try:
            if not (isinstance(source, Observations) and source.by_row.censored.size):
                warn_of_limits(source)
        except BaseException:  # such as a warning that the caller made an error
            self._opened.__exit__(*sys.exc_info())
            raise
        return source

    def __exit__(self, *reason: Any) -> bool | None:
        return self._opened.__exit__(*reason)


def _opened(
    R: Any,
    weights: Any,
    shape: Any,
    names: ColumnNames,
    client: Any,
    n_jobs: int | None,
    censored: Any,
) -> AbstractContextManager[Source]:
    rows, cols, values = names
    cap = cap_of(censored)
    given = {"weights": weights, "shape": shape, "rows": rows, "cols": cols, "values": values}
    if client is not None:
        _check_cap(censored, cap)
        return distribute(R, client, n_jobs=n_jobs, **given)
    if isinstance(R, (str, os.PathLike)) and os.path.isdir(R):
        R = open_store(R)
    if not isinstance(R, Source) or isinstance(R, Observations):
        return nullcontext(observe(R, **given, censored=censored, n_threads=count_threads(n_jobs)))
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} must not be given beside a store, which has its own")
    _check_cap(censored, cap)
    return nullcontext(R)


def _check_cap(censored: Any, cap: Cap | None) -> None:
    if censored is not None and cap is None:
        raise ValueError(
            'censored must be ("right", limit) or ("left", limit) where R is not in memory, got '
            f"{type(censored).__name__}"
        )


def open_in_memory(
    R: Any,
    weights: Any,
    shape: Any,
    names: ColumnNames,
    n_jobs: int | None,
    censored: Any = None,
) -> Observations:
    """Open the observations for a task that holds cells out by a mask over all of them."""
    with open_source(R, weights, shape, names, None, n_jobs, censored) as source:
        if not isinstance(source, Observations):
            raise TypeError(
                f"R must be in memory here, where cells are held out, got a "
                f"{type(source).__name__}: only fits, levels and quantiles read it block by "
                "block"
            )
        return source


@dataclass(frozen=True, eq=False)
class Data:
    """What a fit sees: the observations it fits, and those that judge its sweeps, if any."""

    fitted: Source
    held_out: Observations | None = None
    seed: int = 0  # of the cells that a tuned fit sets aside, which are the same at all levels
    value_name: str | None = None  # of a table's column
    cap: Cap | None = None  # where values are censored, unless observations are marked one by one

    @cached_property
    def is_censored(self) -> bool:
        """Whether some of what is fitted is only known to lie beyond its value."""
        if isinstance(self.fitted, Observations):
            return bool(self.fitted.by_row.censored.any())
        if self.cap is None:
            return False
        found = self.fitted.by_row.each(_any_beyond, (), (), self.cap, n_threads=1)
        return any([beyond for _, beyond in found])  # of all blocks, which workers may hold

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
        parts = [part for part in (self.fitted, self.held_out) if part is not None]
        if self.cap is None:
            return [part.digest() for part in parts]
        return [*(_unmarked(part).digest() for part in parts), repr(self.cap)]


def _any_beyond(block: Side, cap: Cap, n_threads: int) -> bool:
    return bool(cap.codes(block.values).any())


def _unmarked(source: Source) -> Source:
    """Return observations without the marks of a limit, which stores do not have."""
    if not isinstance(source, Observations):
        return source
    none = np.empty(0, np.int8)
    by_row, by_col = (replace(side, censored=none) for side in (source.by_row, source.by_col))
    return replace(source, by_row=by_row, by_col=by_col)


def hold_apart(
    source: Source,
    validation: Any,
    rng: np.random.Generator,
    names: ColumnNames,
    censored: Any = None,
) -> Data:
    """Divide what is observed as `validation` says; None holds nothing out.

    Entries that are given are `censored` where the rest is by a limit.
    """
    cap = cap_of(censored)
    seed = int(copy.deepcopy(rng).integers(2**63))  # a start after it has the numbers it always had
    if validation is None:
        data = Data(source, seed=seed, value_name=names[2], cap=cap)
        if cap is not None and not data.is_censored:
            warn(f"censored: no value is at or beyond the limit {cap.limit:g}")
        return data
    fitted, judged = hold_out(source, validation, rng, names)
    if cap is not None:
        judged = observe(judged, censored=censored)
    return Data(fitted, judged, seed, names[2], cap)
