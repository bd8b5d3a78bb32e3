"""`histograms`: the buckets of Prometheus and OpenTelemetry histograms as intervals with counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastemf.inputs import file_lists, table_files
from fastemf.inputs.columns import Where
from fastemf.inputs.intervals import read_numbers
from fastemf.inputs.labels import Labels
from fastemf.inputs.tables import arrow, as_read, select_columns, table_row
from fastemf.support.arrays import Floats, Ints, Mask

COLUMNS = ("lower", "upper", "count")  # of the result, after the labels


def histograms(
    table: Any,
    *,
    rows: str,
    cols: str,
    le: str = "le",
    counts: str = "count",
    cumulative: bool = True,
    before: Any = None,
) -> Any:
    """Return the buckets of histograms as intervals, which fits take as observations.

    Parameters
    ----------
    table
        A table with one line per bucket, in any form that `complete` takes: row label, column
        label, upper bound and count. The bounds of each histogram, which is all lines with one row
        and column label, must increase from line to line.
    rows, cols
        Columns with the labels.
    le
        Column with the upper bounds of the buckets, numbers or text; ``"+Inf"`` is infinity.
    counts
        Column with the counts.
    cumulative
        Whether a count is that of all values up to the bound, as in Prometheus; the last bucket
        must then be that of +Inf. False for counts of single buckets, as in OpenTelemetry; all
        buckets must then have a line, also empty ones.
    before
        An earlier table of the same columns, whose counts are subtracted. A histogram with a count
        that is smaller than before was reset in between and starts from 0, as in Prometheus' rate
        and increase, and so does one that was not there before.

    Returns
    -------
    pyarrow.Table
        One line per bucket that is not empty: the two labels, ``lower``, ``upper`` and ``count``.
        The first bucket of positive bounds starts at 0. Pass it to `complete` with
        ``values=("lower", "upper")`` and ``weights="count"``.

    Raises
    ------
    ValueError
        If counts are negative, or fall along cumulative buckets; if bounds do not increase, or are
        missing; if a histogram has other bounds than before. The message names row, column and
        bucket.

    Examples
    --------
    >>> import fastemf, pyarrow as pa
    >>> scrape = pa.table({
    ...     "client": ["eu-7"] * 3, "service": ["search"] * 3,
    ...     "le": ["0.1", "0.5", "+Inf"], "count": [20, 29, 30],
    ... })
    >>> buckets = fastemf.histograms(scrape, rows="client", cols="service")
    >>> buckets.select(["lower", "upper", "count"]).to_pylist()[0]
    {'lower': 0.0, 'upper': 0.1, 'count': 20.0}
    """
    if {rows, cols} & set(COLUMNS):
        raise ValueError(
            f"rows and cols must not be named {', '.join(COLUMNS)}, got {rows!r} and {cols!r}"
        )
    names = (rows, cols, le, counts)
    found = _read(table, names, cumulative)
    if before is not None:
        earlier = _earlier_counts(found, _read(before, names, cumulative))
        found = found._replace(counts=found.counts - earlier)
        found.check(cumulative)
    lower = np.where(found.bounds > 0, 0.0, -np.inf)
    lower = np.where(found.is_first, lower, np.roll(found.bounds, 1))
    n = found.counts
    if cumulative:
        n = n - np.where(found.is_first, 0.0, np.roll(n, 1))
    kept = np.flatnonzero(n > 0)
    if not kept.size:
        raise ValueError("table must have a bucket with a positive count, got none")
    columns = (*found.lines, lower, found.bounds, n)
    named = zip((rows, cols, *COLUMNS), columns, strict=True)
    return arrow().table({name: arrow().array(column).take(kept) for name, column in named})


class _Buckets(NamedTuple):
    """The buckets of histograms, grouped by histogram, with increasing bounds."""

    lines: tuple[Any, ...]  # Arrow columns with the labels of each bucket
    rows: Labels
    cols: Labels
    pairs: Ints  # row * columns + column of each bucket
    bounds: Floats
    counts: Floats

    @property
    def is_first(self) -> Mask:
        """Mark the first bucket of each histogram."""
        return np.append(True, self.pairs[1:] != self.pairs[:-1])

    def describe(self, at: int) -> str:
        """Name row, column and bucket."""
        row, col = (line[at].as_py() for line in self.lines)
        return f"row {row!r}, column {col!r}, bucket {self.bounds[at]:g}"

    def check(self, cumulative: bool) -> None:
        """Raise an error for bounds or counts that are not those of histograms."""
        bounds, counts, is_first = self.bounds, self.counts, self.is_first
        for at in np.flatnonzero(~(is_first | (bounds > np.roll(bounds, 1)))).tolist():
            raise ValueError(
                "the bounds of a histogram must increase from line to line and buckets must not "
                f"overlap, got {bounds[at]:g} after {bounds[at - 1]:g} at {self.describe(at)}: "
                "sort the lines by bound, and sum the counts of several histograms of one pair"
            )
        for at in np.flatnonzero(~((counts >= 0) & (counts < np.inf))).tolist():
            raise ValueError(
                f"counts must be finite and at least 0, got {counts[at]:g} at {self.describe(at)}"
            )
        if not cumulative:
            return
        for at in np.flatnonzero(~(is_first | (counts >= np.roll(counts, 1)))).tolist():
            raise ValueError(
                "cumulative counts must not fall from bucket to bucket, got "
                f"{counts[at]:g} after {counts[at - 1]:g} at {self.describe(at)}; pass "
                "cumulative=False for counts of single buckets"
            )
        for at in np.flatnonzero(np.append(is_first[1:], True) & (bounds < np.inf)).tolist():
            raise ValueError(
                "the last bucket of a cumulative histogram must be +Inf, the count of all values, "
                f"got {self.describe(at)}"
            )


def _read(table: Any, names: tuple[str, str, str, str], cumulative: bool) -> _Buckets:
    """Read and check the buckets of a table."""
    if not file_lists.is_source(table):
        return _group(as_read(table), names, cumulative, table_row)
    rows, cols, le, counts = names
    with table_files.naming(table):
        content, where = table_files.read_file(table, [rows, cols], [counts], features=[le])
        return _group(content, names, cumulative, where)


def _group(
    table: Any, names: tuple[str, str, str, str], cumulative: bool, where: Where
) -> _Buckets:
    """Group the lines of an Arrow table by histogram, and check them."""
    rows, cols, le, _ = names
    columns = select_columns(table, names)
    if len(columns[0]) == 0:
        raise ValueError("table must have at least one bucket, got none")
    row_labels, i = Labels.encode(columns[0], rows, what=f"column {rows!r}", where=where)
    col_labels, j = Labels.encode(columns[1], cols, what=f"column {cols!r}", where=where)
    pairs = i.astype(np.int64) * len(col_labels) + j
    order = np.argsort(pairs, kind="stable")
    bounds, n = (read_numbers(columns[at], names[at], where)[order] for at in (2, 3))
    if np.isnan(bounds).any():
        first = where(int(order[np.argmax(np.isnan(bounds))]))
        raise ValueError(f"column {le!r} must hold a bound in each line, got none at {first}")
    types = arrow().types
    lines = tuple(
        (c.cast("large_string") if types.is_string_view(c.type) else c).take(order)
        for c in columns[:2]
    )
    found = _Buckets(lines, row_labels, col_labels, pairs[order], bounds, n)
    found.check(cumulative)
    return found


def _earlier_counts(now: _Buckets, earlier: _Buckets) -> Floats:
    """Return the counts to subtract: 0 for a histogram that is new, or that was reset."""
    i, j = np.divmod(earlier.pairs, len(earlier.cols))
    i = now.rows.positions(earlier.rows, what="rows of before")[i]
    j = now.cols.positions(earlier.cols, what="cols of before")[j]
    pairs = np.where((i < 0) | (j < 0), -1, i * len(now.cols) + j)
    theirs = np.argsort(pairs, kind="stable")
    theirs = theirs[np.isin(pairs[theirs], now.pairs)]
    ours = np.flatnonzero(np.isin(now.pairs, pairs))
    ends = np.append(now.bounds[ours], np.nan), np.append(earlier.bounds[theirs], np.nan)
    size = min(map(len, ends)) - 1
    differs = ends[0][: size + 1] != ends[1][: size + 1]  # NaN differs from everything
    differs[:size] |= now.pairs[ours[:size]] != pairs[theirs[:size]]
    if (at := int(np.argmax(differs))) < max(ours.size, theirs.size):
        bucket = now.describe(ours[min(at, ours.size - 1)])
        raise ValueError(f"before must have the same buckets of each histogram, not at {bucket}")
    counts = np.zeros_like(now.counts)
    counts[ours] = earlier.counts[theirs]
    reset = now.pairs[counts > now.counts]
    return np.where(np.isin(now.pairs, reset), 0.0, counts)
