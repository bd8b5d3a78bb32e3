"""Available memory, and errors for computations that need more."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
SMALL = 1 << 28  # bytes that are never checked


def check_memory(size: int, what: str, remedy: str) -> None:
    """Raise MemoryError if fewer than `size` bytes are available.

    A system that overcommits memory would kill the process when the memory is written.
    """
    if size <= SMALL:
        return
    left = available_memory()
    if left is not None and size > left:
        raise MemoryError(
            f"{what} takes at least {readable_bytes(size)} of memory, and "
            f"{readable_bytes(left)} are available; {remedy}"
        )


def available_memory() -> int | None:
    """Return the available bytes, swap included; None if unknown."""
    with suppress(OSError):
        found = re.findall(r"^(?:MemAvailable|SwapFree): +(\d+) kB$", MEMINFO.read_text(), re.M)
        if found:
            return 1024 * sum(map(int, found))
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # all memory
    except (OSError, ValueError, AttributeError):
        return None


def readable_bytes(size: int) -> str:
    """Format a size in GiB."""
    amount = size / (1 << 30)
    return f"{amount:.3g} GiB" if amount < 1000 else f"{amount:,.0f} GiB"
