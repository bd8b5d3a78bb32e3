"""The progress bar of a fit, as a callback around the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastemf.records import SweepRecord

__all__ = ["reporting"]


@contextmanager
def reporting(
    callback: Callable[[SweepRecord], Any] | None, max_iter: int, progress: bool
) -> Iterator[Callable[[SweepRecord], Any]]:
    """A callback that also moves a bar on standard error, if one is wanted."""

    def silent(record: SweepRecord) -> Any:
        return callback(record) if callback is not None else None

    if not progress:
        yield silent
        return

    from tqdm.auto import tqdm

    with tqdm(total=max_iter, unit="sweep", leave=False) as bar:

        def report(record: SweepRecord) -> Any:
            bar.set_postfix_str(f"F={record.objective:.6g}", refresh=False)
            bar.update()
            return silent(record)

        yield report
