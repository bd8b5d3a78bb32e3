"""A warning about values that are probably not measurements: sentinels, limits and zeros.

The rules look at the distinct values of a sample, and at the magnitudes of all values, counted by
powers of two. They are strict, because honest data must not cause a warning:

- One value, or very few values, exceed all others a hundredfold, and the tail of the others makes
  such a gap improbable.
- A code for missing values, such as -1, 9999 or 2**31 - 1, occurs several times at one end of the
  data, without neighbours.
- Many values equal the largest or the smallest one, or lie just beside it or a declared limit.
- Zeros occur among positive values, none of which is close to zero.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fastemf.censoring.limits import LEFT, RIGHT, CensoringLimit
from fastemf.inputs.entries import parts
from fastemf.sources.source import Side, Source
from fastemf.support.arrays import Array, Ints
from fastemf.support.warn import warn

SAMPLED = 50_000  # evenly spaced values

# Isolated values
FACTOR = 100  # between them and all others
FEWEST_OTHERS = 20
TAIL = 0.02  # of the other values, from which the probability of the gap is estimated
IMPROBABLE = 1e-4
ERRORS = 1e-3  # proportion of isolated values, at most, if they differ

# Codes for missing values
REPEATED = 3  # times that a code, or zero, occurs in the sample
NINES = [10.0**digits - 1 for digits in range(3, 10)]  # 999, 9999, ...
CODES = [*NINES, *(2.0**bits - 1 for bits in (15, 16, 31, 32, 63, 64))]
NEGATIVE_CODES = [-1.0, -9.0, -99.0, *(-code for code in NINES), *(-(2.0**b) for b in (15, 31, 63))]
CODE_FACTOR = 4  # between a positive code and all others
CODE_OTHERS = {RIGHT: 20, LEFT: 5}  # distinct values other than the code, at least

# Limits and zeros
DISTINCT = 100  # fewer distinct values are ratings or counts, which repeat everywhere
PROPORTION, FEWEST = 0.01, 20  # of the sample that equal the extreme value
PROMINENCE = 5  # times the count of the neighbourhood, or of any of the `NEAREST` values
MODE = 3  # times the count of any value between the extremes
NEAREST = 20
BAND = 5e-4  # width of what is beside a limit, relative to its distance from the median
STRAY = 0.01  # proportion of what is beside a limit that may be unrelated to it
STEPS = 10  # typical steps between zero and the smallest positive value; counts have fewer

EXPONENTS, BIAS = 2200, 1100  # those of float64 are from -1073 to 1024
REMOVE = "leave them out, for example with WHERE in fastemf.sql or --sql"


class Scan(NamedTuple):
    """What the rules look at."""

    values: Array  # distinct values of a sample, in increasing order
    counts: Ints
    exponents: Ints  # counts of all nonzero values by the exponent of their magnitude
    smallest: float  # magnitude above zero


class Split(NamedTuple):
    """Values whose magnitude is above or below a gap."""

    above: Array  # distinct values
    below: float  # the largest magnitude


def warn_of_suspicious_values(source: Source, limit: CensoringLimit | None) -> None:
    """Warn once if some values appear not to be measurements.

    Values that are marked as censored, or are at or beyond the declared `limit`, are left out.
    """
    step = max(1, -(-source.size // SAMPLED))
    scan = _merge(source.by_row.each(_scan, (), (), limit, step, n_threads=1))
    if not scan.values.size:
        return
    cut, findings = _find_isolated(source, limit, scan)
    kept = np.abs(scan.values) <= cut
    values, counts = scan.values[kept], scan.counts[kept]
    for side in (LEFT, RIGHT):
        if _ends_in_code(values, counts, side):
            at = -1 if side == RIGHT else 0
            findings.append(
                f"{counts[at] / scan.counts.sum():.2%} of the values equal {values[at]:.12g}, and "
                f"none is close to it: if this is a code for missing values, {REMOVE}"
            )
            kept = np.arange(values.size) != at % values.size
            values, counts = values[kept], counts[kept]
    if values.size >= DISTINCT:
        for side in (RIGHT, LEFT):
            findings += _find_limit(values, counts, side, limit)
        findings += _find_zeros(values, counts, scan.smallest)
    if findings:
        warn("; also, ".join(findings))


def warn_of_new_values(values: Array, low: float, high: float) -> None:
    """Warn if values for an update are unlike all values from `low` to `high`, of the fit."""
    far = np.count_nonzero(np.abs(values) > FACTOR * max(abs(low), abs(high)))
    negative = np.count_nonzero(values < 0) if low >= 0 else 0
    findings = [
        f"{count:,} of {values.size:,} values are {what}: if these are errors, codes for missing "
        f"values or in another unit, {REMOVE}"
        for count, what in (
            (far, f"over {FACTOR} times as large as any in the fit, where the largest is {high:g}"),
            (negative, "negative, and none was in the fit"),
        )
        if count
    ]
    if findings:
        warn("; also, ".join(findings))


# --- scanning -----------------------------------------------------------------------------------


def _exact(block: Side, limit: CensoringLimit | None, part: slice) -> Array:
    """Return the values of a part that are not censored."""
    values: Array = block.values[part]
    codes = block.censored[part] if block.censored.size or limit is None else limit.codes(values)
    return values[codes == 0] if codes.size else values


def _scan(block: Side, limit: CensoringLimit | None, step: int, n_threads: int) -> Scan:
    exponents, smallest = np.zeros(EXPONENTS, np.int64), math.inf
    for part in parts(block.size):
        sizes = np.abs(_exact(block, limit, part))
        sizes = sizes[sizes > 0]
        exponents += np.bincount(np.frexp(sizes)[1] + BIAS, minlength=EXPONENTS)
        smallest = min(smallest, float(sizes.min(initial=np.inf)))
    values = _exact(block, limit, slice(None, None, step))
    return Scan(*np.unique(values, return_counts=True), exponents, smallest)


def _merge(blocks: Any) -> Scan:
    found = [scan for _, scan in blocks]  # all of them: workers return them in any order
    values, place = np.unique(np.concatenate([scan.values for scan in found]), return_inverse=True)
    counts = np.bincount(place, np.concatenate([scan.counts for scan in found]))
    exponents = np.sum([scan.exponents for scan in found], axis=0)
    return Scan(values, counts, exponents, min(scan.smallest for scan in found))


def _split(block: Side, limit: CensoringLimit | None, cut: float, n_threads: int) -> Split:
    above, below = np.empty(0), 0.0
    for part in parts(block.size):
        values = _exact(block, limit, part)
        is_above = np.abs(values) > cut
        above = np.union1d(above, values[is_above])
        below = max(below, float(np.abs(values[~is_above]).max(initial=0)))
    return Split(above, below)


# --- rules --------------------------------------------------------------------------------------


def _find_isolated(
    source: Source, limit: CensoringLimit | None, scan: Scan
) -> tuple[float, list[str]]:
    """Return a bound of the magnitudes that are not isolated, and what was found."""
    present = np.flatnonzero(scan.exponents)
    below = np.cumsum(scan.exponents[present])
    for at in np.flatnonzero(np.diff(present) > math.log2(FACTOR) - 1)[::-1]:
        others, isolated = int(below[at]), int(below[-1] - below[at])
        if isolated > others or others < FEWEST_OTHERS:
            break
        cut = math.ldexp(1.0, int(present[at]) - BIAS)
        splits = [found for _, found in source.by_row.each(_split, (), (), limit, cut, n_threads=1)]
        values = np.unique(np.concatenate([one.above for one in splits]))
        ratio = float(np.abs(values).min()) / max(one.below for one in splits)
        if values.size > 1 and isolated > max(REPEATED, ERRORS * others):
            continue
        if ratio >= FACTOR and _probability_of_gap(scan, cut, ratio) < IMPROBABLE:
            shown = f"{values[np.argmax(np.abs(values))]:.12g}"
            what = f"equal {shown}," if values.size == 1 else f"go up to {shown}, at least"
            return cut, [
                f"{isolated:,} of {source.size:,} values {what} {ratio:,.0f} times as large as all "
                f"others: if these are errors or codes for missing values, {REMOVE}"
            ]
    return math.inf, []


def _probability_of_gap(scan: Scan, cut: float, ratio: float) -> float:
    """Estimate the probability that the largest of all values is `ratio` times the second largest.

    It is that of a Pareto tail, whose index is Hill's estimate for the values below the cut.
    """
    sizes = np.sort(np.repeat(np.abs(scan.values), scan.counts.astype(int)))
    sizes = sizes[(sizes > 0) & (sizes <= cut)]
    if sizes.size < FEWEST_OTHERS:
        return 1.0
    tail = sizes[-max(FEWEST_OTHERS, int(TAIL * sizes.size)) :]
    spread = float(np.mean(np.log(tail / tail[0])))
    return math.exp(-math.log(ratio) / spread) if spread > 0 else 0.0


def _ends_in_code(values: Array, counts: Ints, side: int) -> bool:
    """Return whether the smallest or the largest value is a code without neighbours."""
    if values.size <= CODE_OTHERS[side]:
        return False
    if side == RIGHT:
        code, count, isolated = values[-1], counts[-1], values[-1] > CODE_FACTOR * values[-2]
        return bool(isolated and count >= REPEATED and np.isin(code, CODES))
    code, count = values[0], counts[0]
    steps = np.diff(values[1 : DISTINCT // 2])
    isolated = values[1] >= 0 and values[1] - code > 1.5 * np.median(steps)
    return bool(isolated and count >= REPEATED and np.isin(code, NEGATIVE_CODES))


def _find_limit(values: Array, counts: Ints, side: int, limit: CensoringLimit | None) -> list[str]:
    """Find many values at one end of the data, or just before a declared limit."""
    declared = limit.value if limit is not None and limit.code == side else None
    if declared is None and side == LEFT and values[0] == 0:
        return []  # zeros have a rule of their own
    v, c = (values, counts) if side == RIGHT else (-values[::-1], counts[::-1])
    total = c.sum()
    end = float(v[-1] if declared is None else side * declared)
    width = BAND * (end - float(v[np.searchsorted(np.cumsum(c), total / 2)]))
    far, low = np.searchsorted(v, [end - 10 * width, end - width])
    near = c[low:].sum() - (c[-1] if declared is None else 0)
    if near < FEWEST or near <= PROMINENCE * c[far:low].sum():
        if declared is not None:
            return []
        low = v.size - 1
    else:
        low += int(np.searchsorted(np.cumsum(c[low:]), STRAY * near, "right"))
    found = side * float(v[low])
    name, beside, option = (
        ("largest", "below", "--censored-above") if side == RIGHT
        else ("smallest", "above", "--censored-below")
    )  # fmt: skip
    remedy = (
        f'pass censored=("{"right" if side == RIGHT else "left"}", {found!r}) (in a shell, '
        f"{option}={found!r})"
    )
    pile = c[low:].sum() / total
    if declared is not None:
        return [
            f"{pile:.1%} of the values lie just {beside} the censoring limit {declared:g}, from "
            f"{found:g}: if they are censored too, {remedy}"
        ]
    others, nearest = c[1:low], c[max(1, low - NEAREST) : low]
    least = MODE * others.max(initial=0), PROMINENCE * nearest.max(initial=0)
    if pile * total <= max(FEWEST, PROPORTION * total, *least):
        return []
    more = "" if low == v.size - 1 else f", or lie just {beside} it, from {found:g}"
    return [
        f"{pile:.1%} of the values equal the {name}, {side * end:g}{more}: if this is a censoring "
        f"limit, such as a time-out, {remedy}"
    ]


def _find_zeros(values: Array, counts: Ints, smallest: float) -> list[str]:
    """Find zeros that no other value is close to. Reading warns if most values are zero."""
    total = counts.sum()
    if values[0] != 0 or counts[0] < REPEATED or 2 * counts[0] > total:
        return []
    positive = total - counts[0]
    median = values[np.searchsorted(np.cumsum(counts) - counts[0], positive / 2)]
    step = np.quantile(np.diff(values[1:]), 0.1)
    # If the density down to zero were that below the median, this would be improbable.
    gap = -math.log(IMPROBABLE) * median / (positive / 2)
    if smallest <= max(median / FACTOR, STEPS * step, gap):
        return []
    return [
        f"{counts[0] / total:.2%} of the values are 0, and all others at least {smallest:g}: if "
        f"zeros stand for missing or failed, {REMOVE}"
    ]
