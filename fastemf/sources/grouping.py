"""Entries grouped by row or by column: a counting sort, selections, and sums of weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastemf.kernels.entries import CountArgs, PlacementArgs, count_keys, place_entries
from fastemf.kernels.threads import launch
from fastemf.sources.source import Side
from fastemf.support.arrays import Array, Ints, Mask


def make_side(indptr: Ints, indices: Array, values: Array, weights: Array) -> Side:
    """Return the entries of groups that follow each other."""
    return Side(indptr, indices, values, weights, sum_weights(indptr, weights))


def sum_weights(indptr: Ints, weights: Array) -> Array:
    """Return the summed weight of each group, or its count if there are no weights."""
    counts = np.diff(indptr)
    if not weights.size:
        return counts.astype(np.float64)
    groups = np.repeat(np.arange(counts.size), counts)
    return np.asarray(np.bincount(groups, weights, counts.size))


def select_entries(side: Side, mask: Mask) -> Side:
    """Select the entries of a side where `mask` is true."""
    indptr = np.zeros_like(side.indptr)
    np.cumsum(np.bincount(side.keys[mask], minlength=indptr.size - 1), out=indptr[1:])
    weights, codes, half_widths = (
        part[mask] if part.size else part
        for part in (side.weights, side.censored, side.half_widths)
    )
    kept = make_side(indptr, side.indices[mask], side.values[mask], weights)
    return replace(kept, censored=codes, half_widths=half_widths)


def group(
    keys: Array,
    others: Array,
    pointers: Ints | None,
    values: Array,
    weights: Array,
    n: int,
    n_threads: int,
) -> Side:
    """Group entries by key with a stable counting sort.

    Each thread counts, then places, the keys of its own run of entries. Its first place within
    each key follows from the counts of the runs before, so the result does not depend on the number
    of threads. The other index of the entries is `others`, or follows from the row `pointers`.
    """
    # So few that counts take no more memory than entries.
    n_runs = max(1, min(n_threads, keys.size // n))
    runs = np.arange(n_runs + 1, dtype=np.int64)
    bounds = runs * keys.size // n_runs
    table = np.zeros((n_runs, n), np.int64)
    launch(count_keys, n_threads, runs, CountArgs(bounds, keys, table))
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(table.sum(axis=0), out=indptr[1:])
    before = indptr[:-1].copy()
    for counts in table:  # from counts to places
        counts[:], before = before, before + counts
    indices, b, v = np.empty_like(keys), np.empty_like(values), np.empty_like(weights)
    given = (np.empty(0, np.int64) if pointers is None else pointers, others, values, weights)
    placement = PlacementArgs(bounds, keys, *given, table, indices, b, v)
    launch(place_entries, n_threads, runs, placement)
    return make_side(indptr, indices, b, v)
