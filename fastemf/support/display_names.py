"""Names of levels and quantiles in text and figures."""

from __future__ import annotations


def quantile_name(tau: float) -> str:
    """Return the name of a quantile, such as p95."""
    return f"p{100 * tau:g}"


def expectile_name(omega: float) -> str:
    """Return the name of an expectile level, such as ω = 0.5."""
    return f"ω = {omega:g}"
