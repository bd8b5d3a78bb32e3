"""How much memory there is, and what is refused because it would take more."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

__all__ = ["available_memory", "check_memory", "readable_bytes"]

MEMINFO = Path("/proc/meminfo")
SMALL = 1 << 28  # bytes: less is not worth asking the system


def check_memory(size: int, what: str, remedy: str) -> None:
    """Refuse what takes `size` bytes or more where there are fewer.

    A system that promises more memory than it has would end the process without a word, when
    the memory is written to.
    """
    if size <= SMALL:
        return
    left = available_memory()
    if left is not None and size > left:
        raise MemoryError(
            f"{what} takes at least {readable_bytes(size)} of memory, and "
            f"{readable_bytes(left)} are left; {remedy}"
        )


def available_memory() -> int | None:
    """Return how many bytes can be had, swap included; None where the system does not say."""
    with suppress(OSError):
        found = re.findall(r"^(?:MemAvailable|SwapFree): +(\d+) kB$", MEMINFO.read_text(), re.M)
        if found:
            return 1024 * sum(map(int, found))
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # all there is
    except (OSError, ValueError, AttributeError):
        return None


def readable_bytes(size: int) -> str:
    """Return a size as a person would say it."""
    amount = size / (1 << 30)
    return f"{amount:.3g} GiB" if amount < 1000 else f"{amount:,.0f} GiB"
