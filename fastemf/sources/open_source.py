"""`open_source`: open the data of a fit, which are in memory, in a store, or on a cluster."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastemf.censoring.limits import CensoringLimit, parse_limit
from fastemf.features.times import add_time, is_matrix, select_times, split_time
from fastemf.inputs.intervals import is_intervals, refuse_intervals
from fastemf.inputs.tables import ColumnNames
from fastemf.kernels.threads import count_threads
from fastemf.sources.cell_sample import Marks, draw_marks
from fastemf.sources.gathering import gather_small
from fastemf.sources.hold_out import hold_out
from fastemf.sources.memory import Observations, observe
from fastemf.sources.source import Side, Source
from fastemf.sources.suspicious_values import warn_of_suspicious_values
from fastemf.support.warn import warn


@contextmanager
def open_source(
    R: Any, weights: Any, shape: Any, names: ColumnNames, client: Any, n_jobs: int | None,
    censored: Any = None, *, store_path: Any = None, progress: bool = False, features: Any = None,
    time: Any = None,
) -> Iterator[Source]:  # fmt: skip
    """Open the observations for a ``with`` statement; a cluster releases them at its end.

    `features` are side features of the observations, as in `fastemf.sources.memory.observe`, or
    further columns of a store. They are the `features` of the result. `time` is the column with the
    time of each observation, or an array: the `times` of the result.
    """
    rows, cols, values = names
    given = {"weights": weights, "shape": shape, "rows": rows, "cols": cols, "values": values}
    if client is None and store_path is not None:
        raise ValueError(f"store_path is for a fit on a cluster, with client=, got {store_path!r}")
    if is_store(R):
        from fastemf.sources.store.reading import open_store

        R = open_store(R)
    is_stored = isinstance(R, Source) and not isinstance(R, Observations)
    for name, value in {**given, "store_path": store_path}.items() if is_stored else ():
        if value is not None:
            raise ValueError(f"{name} must not be given with a store, which has its own")
    if client is not None and is_intervals(R, values):
        raise ValueError("values must be exact on a cluster, got intervals; fit without client=")
    if (is_stored or client is not None) and censored is not None and parse_limit(censored) is None:
        raise ValueError(
            'censored must be ("right", limit) or ("left", limit) if R is not in memory, got '
            f"{type(censored).__name__}"
        )
    if time is not None and (is_stored or client is not None or isinstance(R, Source)):
        kind = type(R).__name__ if client is None else "fit on a cluster"
        raise ValueError(f"time must be given with data in memory or in a file, got a {kind}")
    with ExitStack() as opened:
        if client is not None:
            from fastemf.sources.cluster.distribution import distribute

            there = distribute(
                R, client, store_path=store_path, n_jobs=n_jobs, features=features, **given
            )
            source: Source = opened.enter_context(there)
        elif is_stored:
            from fastemf.sources.store.side_features import with_features

            source = R if features is None else with_features(R, features)
        else:
            asked = add_time(R, names, features, time)
            read = {"n_threads": count_threads(n_jobs), "progress": progress, "features": asked}
            observed = observe(R, **given, censored=censored, takes_intervals=True, **read)
            source = _take_times(observed, features, time)
        warn_of_suspicious_values(source, parse_limit(censored))
        yield source


def _take_times(source: Observations, features: Any, time: Any) -> Observations:
    """Return observations with their times, which were read as the last feature."""
    if time is None:
        return source
    if is_matrix(time):
        side = source.by_row
        return replace(source, times=select_times(time, source.shape, side.keys, side.indices))
    assert source.features is not None
    found, times = split_time(source.features, features, time)
    return replace(source, features=found, times=times)


def is_store(path: Any) -> bool:
    """Return whether data are the path of a store, which is a folder with a manifest."""
    is_path = isinstance(path, (str, os.PathLike))
    return is_path and os.path.lexists(os.path.join(path, "manifest.json"))


def open_in_memory(
    R: Any, weights: Any, shape: Any, names: ColumnNames, n_jobs: int | None, censored: Any = None
) -> Observations:
    """Open the observations for a task that holds out cells, for which they must be in memory."""
    refuse_intervals(R, names[2])
    with open_source(R, weights, shape, names, None, n_jobs, censored) as source:
        if not isinstance(source, Observations):
            raise TypeError(
                f"R must be in memory where cells are held out, got a {type(source).__name__}: "
                "only fits, levels and quantiles read it block by block"
            )
        return source


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a fit: training observations and, if any, validation observations."""

    fitted: Source
    held_out: Observations | None = None
    seed: int = 0  # of the validation cells of a tuning, which are the same at all levels
    value_name: str | None = None  # column of a table
    limit: CensoringLimit | None = None  # None also where observations have codes of their own
    had_weights: bool | None = None  # before those by age; None without these
    earlier_marks: Marks | None = None  # of an earlier model; −1 for new rows and columns

    @property
    def censored(self) -> tuple[str, float] | None:
        """The common limit in the form of the parameter `censored`, if there is one."""
        return None if self.limit is None else self.limit.as_pair

    @property
    def is_weighted(self) -> bool:
        """Whether some of the training observations have weights other than 1, apart from age."""
        if self.had_weights is not None:
            return self.had_weights
        side = self.fitted.by_row
        return not np.array_equal(side.mass, np.diff(side.indptr))

    @cached_property
    def is_censored(self) -> bool:
        """Whether some of the training observations are censored."""
        if isinstance(self.fitted, Observations):
            return bool(self.fitted.by_row.censored.any())
        if self.limit is None:
            return False
        found = self.fitted.by_row.each(_has_censored, (), (), self.limit, n_threads=1)
        return any([censored for _, censored in found])  # a list: all blocks must be read

    @cached_property
    def marks(self) -> Marks:
        """Random marks of rows and columns, which select validation cells."""
        return draw_marks(self.fitted, np.random.default_rng(self.seed), self.earlier_marks)

    @cached_property
    def gathered(self) -> Source:
        """The observations to fit, gathered in this process if they are few."""
        return gather_small(self.fitted)

    @cached_property
    def digests(self) -> list[str]:
        """Hashes of the training and validation observations; they take a pass over the data."""
        parts = [part for part in (self.fitted, self.held_out) if part is not None]
        if self.limit is None:
            return [part.digest() for part in parts]
        return [*map(_digest_values, parts), repr(self.limit)]


def _has_censored(block: Side, limit: CensoringLimit, n_threads: int) -> bool:
    return bool(limit.codes(block.values).any())


def _digest_values(source: Source) -> str:
    return (without_codes(source) if isinstance(source, Observations) else source).digest()


def without_codes(source: Observations) -> Observations:
    """Return observations without codes, as those of a store."""
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
    """Split the observations into training and validation; None holds out nothing.

    A common limit `censored` applies to given validation entries as well.
    """
    limit = parse_limit(censored)
    value_name = None if isinstance(names[2], tuple) else names[2]
    seed = int(copy.deepcopy(rng).integers(2**63))  # the copy leaves the state of rng unchanged
    if validation is None:
        data = Data(source, seed=seed, value_name=value_name, limit=limit)
        if limit is not None and not data.is_censored:
            warn(f"censored: no value is at or beyond the limit {limit.value:g}")
        return data
    fitted, validation_cells = hold_out(source, validation, rng, names)
    if limit is not None:
        validation_cells = observe(validation_cells, censored=censored)
    return Data(fitted, validation_cells, seed, value_name, limit)
