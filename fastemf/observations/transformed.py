"""`transformed`: the same observations with other values, applied as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.observations.changed import ChangedSource, WrappedSide
from fastemf.observations.memory import Observations
from fastemf.observations.source import Grouped, Side, Source

__all__ = ["transformed", "transformed_in_memory"]

Change = Callable[[NDArray[Any]], NDArray[Any]]


def transformed(source: Source, change: Change) -> Source:
    """Return a source with the values that `change` makes of the given ones, elementwise.

    In memory they are computed once, elsewhere whenever a block is read; `change` must be
    something that workers can be sent.
    """
    if isinstance(source, Observations):
        return transformed_in_memory(source, change)
    return _Transformed(source, change)


def transformed_in_memory(source: Observations, change: Change) -> Observations:
    """Return observations with the values that `change` makes of the given ones."""
    by_row, by_col = (_changed(side, change) for side in (source.by_row, source.by_col))
    return replace(source, by_row=by_row, by_col=by_col)


def _changed(side: Side, change: Change) -> Side:
    return replace(side, values=change(side.values).astype(side.dtype))


class _Transformed(Source):
    """A source that is read elsewhere, with other values."""

    def __init__(self, source: Source, change: Change) -> None:
        self.shape = source.shape
        # As those of a changed source, sums are of the values that it was made of.
        of = source.source if isinstance(source, ChangedSource) else source
        self.by_row = _TransformedSide(source.by_row, change, of.by_row)
        self.by_col = _TransformedSide(source.by_col, change, of.by_col)
        self.row_labels = source.row_labels
        self.col_labels = source.col_labels


class _TransformedSide(WrappedSide):
    """One side of it."""

    def __init__(self, side: Grouped, change: Change, summed: Grouped) -> None:
        super().__init__(side)
        self._change, self._summed = change, summed

    def each(
        self,
        task: Callable[..., Any],
        others: tuple[NDArray[Any], ...],
        own: tuple[NDArray[Any], ...],
        *args: Any,
        n_threads: int,
    ) -> Iterator[tuple[slice, Any]]:
        """Run a task on changed blocks; see `Grouped`."""
        task = _OnBlock(task, self._change)
        return self._side.each(task, others, own, *args, n_threads=n_threads)

    def sums(self, terms: Callable[..., Any], *args: Any) -> NDArray[np.float64]:
        """Add up the terms of changed values; see `Grouped`."""
        return self._summed.sums(_OnValues(terms, self._change), *args)


@dataclass(frozen=True, eq=False)
class _OnBlock:
    """A task, given a block with other values; an object, as workers are sent it."""

    task: Callable[..., Any]
    change: Change

    def __call__(self, block: Side, *args: Any) -> Any:
        return self.task(_changed(block, self.change), *args)


@dataclass(frozen=True, eq=False)
class _OnValues:
    """Terms of a sum, given other values."""

    terms: Callable[..., Any]
    change: Change

    def __call__(self, values: NDArray[Any], weights: NDArray[Any], *args: Any) -> Any:
        return self.terms(self.change(values).astype(values.dtype), weights, *args)
