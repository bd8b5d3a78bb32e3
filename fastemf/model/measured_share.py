"""`MeasuredShare`: what is known of the share of values at or below a fit, and kept in its file."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["MeasuredShare", "share_from", "share_to"]


@dataclass(frozen=True, slots=True)
class MeasuredShare:
    """The share of held-out values at or below a fit that `fastemf.level_for_coverage` found.

    Attributes
    ----------
    wanted : float
        The share asked for.
    coverage : float
        The share found.
    standard_error : float
        Its standard error as an estimate for other cells.
    interval : (float, float)
        Where the share of other cells lies, with 95 % confidence (Wilson).
    held_out : int
        Number of observations held out.
    shift : float
        What was added to all that the fit predicts, in the data's unit, to have that share.
    """

    wanted: float
    coverage: float
    standard_error: float
    interval: tuple[float, float]
    held_out: int
    shift: float


def share_to(share: MeasuredShare | None) -> dict[str, Any] | None:
    """Make plain values of a share, for a header."""
    return None if share is None else asdict(share)


def share_from(record: Any) -> MeasuredShare | None:
    """Make a share of plain values; what is not one raises ValueError."""
    if record is None:
        return None
    names = {field.name for field in fields(MeasuredShare)}
    if not isinstance(record, dict) or set(record) != names:
        raise ValueError("coverage must have the fields of MeasuredShare")
    interval = record["interval"]
    if not isinstance(interval, list) or len(interval) != 2:
        raise ValueError("coverage must have two ends of its interval")
    shares = [record["wanted"], record["coverage"], record["standard_error"], *interval]
    if not all(type(share) is float and 0 <= share <= 1 for share in shares):
        raise ValueError("coverage must have shares from 0 to 1")
    if type(record["held_out"]) is not int or not 0 < record["held_out"] < 2**63:
        raise ValueError("coverage must have a positive number as held_out")
    if type(record["shift"]) is not float or not math.isfinite(record["shift"]):
        raise ValueError("coverage must have a finite number as shift")
    return MeasuredShare(**record | {"interval": (interval[0], interval[1])})
