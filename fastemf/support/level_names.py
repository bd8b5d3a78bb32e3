"""What levels and quantiles are called."""

from __future__ import annotations

__all__ = ["expectile_name", "quantile_name"]


def quantile_name(tau: float) -> str:
    """Return what people call a quantile: p95 for 0.95."""
    return f"p{100 * tau:g}"


def expectile_name(omega: float) -> str:
    """Return what an expectile level is called in pictures: ω = 0.5."""
    return f"ω = {omega:g}"
