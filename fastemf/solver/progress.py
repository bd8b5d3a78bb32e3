"""Progress bars for the sweeps of a fit, with the user's callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastemf.solver.records import SweepRecord


@contextmanager
def sweep_progress(
    callback: Callable[[SweepRecord], Any] | None, max_iter: int, progress: bool
) -> Iterator[Callable[[SweepRecord], Any]]:
    """Make a callback that also advances a bar on standard error, if requested."""

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
