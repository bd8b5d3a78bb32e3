"""What commands tell of quantiles: what they were worth on cells not seen."""

from __future__ import annotations

from typing import Any

from fastemf.support.level_names import quantile_name

__all__ = ["render_promises"]


def render_promises(promises: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the facts of each `Promise` as lines for a person."""
    from fastemf import Promise

    lines: list[tuple[str, str]] = []
    for fields in promises:
        promise = Promise(**fields)
        low, high = promise.interval
        about = []
        if promise.cells:
            about += [
                f"{promise.coverage:.4f} of {promise.cells:,} cells out of fold lie at or below "
                f"(95 %: {low:.4f} to {high:.4f})",
                f"{min(promise.deciles):.3f} to {max(promise.deciles):.3f} by decile of the "
                f"prediction, {promise.many:.4f} in rows of {promise.many_cells:,} observations or "
                "more",
            ]
        if promise.unchecked:
            about.append(promise.unchecked)
        about.append(
            f"pinball loss {promise.pinball:.4g}; constant {promise.constant:.4g}, column "
            f"{promise.column:.4g}, row + column {promise.row_column:.4g}, larger of both "
            f"{promise.larger:.4g}"
        )
        if not promise.measured:
            about.append("measured before rows or columns were folded in, not for these")
        lines += zip([quantile_name(promise.tau), *[""] * (len(about) - 1)], about, strict=True)
    return lines
