"""Compare two result files; a slowdown counts only if it is large relatively and absolutely."""

from __future__ import annotations

from typing import Any

RELATIVE = 1.25  # 25 % slower
ABSOLUTE = 0.02  # and at least 20 ms slower: less is noise on a shared machine

SETTING = ("section", "problem", "dtype", "k", "threads", "competitor", "what")


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per common setting: both times, their ratio, and whether it became slower."""

    def times(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], float]:
        return {
            tuple(row[name] for name in SETTING): row["seconds"]
            for row in rows
            if row["seconds"] is not None
        }

    old, new = times(before), times(after)
    return [
        {
            "setting": key,
            "before": old[key],
            "after": new[key],
            "ratio": new[key] / old[key],
            "slower": new[key] > RELATIVE * old[key] and new[key] - old[key] > ABSOLUTE,
        }
        for key in old
        if key in new and old[key] > 0
    ]
