"""What commands tell of quantiles: what they were worth on cells not seen."""

from __future__ import annotations

from typing import Any

from fastemf.support.level_names import quantile_name

__all__ = ["render_promises"]


def render_promises(promises: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the facts of each `Promise` as lines for a person."""
    lines = []
    for promise in promises:
        low, high = promise["interval"]
        deciles = promise["deciles"]
        lines += [
            (
                quantile_name(promise["tau"]),
                f"{promise['coverage']:.4f} of {promise['cells']:,} cells out of fold lie at or "
                f"below (95 %: {low:.4f} to {high:.4f})",
            ),
            (
                "",
                f"{min(deciles):.3f} to {max(deciles):.3f} by decile of the prediction, "
                f"{promise['many']:.4f} in rows of {promise['many_cells']:,} observations or more",
            ),
            (
                "",
                f"pinball loss {promise['pinball']:.4g}; constant {promise['constant']:.4g}, "
                f"column {promise['column']:.4g}, row + column {promise['row_column']:.4g}, "
                f"larger of both {promise['larger']:.4g}",
            ),
        ]
        if not promise["measured"]:
            lines.append(("", "measured before rows or columns were folded in, not for these"))
    return lines
