"""Progress bars on standard error, shown by steps that take longer than two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

DELAY = 2.0  # seconds

_are_shown: ContextVar[bool] = ContextVar("_are_shown", default=False)


@contextmanager
def show_bars(shows: bool) -> Iterator[None]:
    """Show the bars of all steps that take long, if `shows`."""
    token = _are_shown.set(shows or _are_shown.get())
    try:
        yield
    finally:
        _are_shown.reset(token)


def bars_are_shown() -> bool:
    """Return whether steps that take long show bars."""
    return _are_shown.get()


@contextmanager
def count_steps(
    total: int | None, unit: str, name: str = "", *, shows: bool = False, scale: bool | int = False
) -> Iterator[Callable[..., Any]]:
    """Make a function that counts steps, and advances a bar if bars are shown.

    The bar replaces those of the steps within. With `shows` it is always shown, and at once.
    `scale` is the number of units of a step; True abbreviates large numbers.
    """
    if not (shows or bars_are_shown()):
        yield lambda count=1: None
        return
    from tqdm.auto import tqdm

    token = _are_shown.set(False)
    delay = 0 if shows else DELAY
    try:
        with tqdm(
            total=total, unit=unit, desc=name, leave=False, delay=delay, unit_scale=scale
        ) as bar:
            yield bar.update
    finally:
        _are_shown.reset(token)


def track(steps: range, unit: str) -> Iterator[int]:
    """Yield the numbers of a range, whose steps have the length of a unit, and count them."""
    with count_steps(len(steps), unit, scale=steps.step) as advance:
        for step in steps:
            yield step
            advance()
