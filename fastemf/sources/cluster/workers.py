"""Tasks on the workers of a Dask cluster (needs distributed, the extra ``dask``).

Observations stay on the workers, in blocks by row and in blocks by column. In a half-sweep the
other factor is sent to every worker, and the rows of each block are sent and returned. The calling
process holds both factors. The solution of a block is a pure function of the factors and of a block
that can be loaded again, so the work of a lost worker is repeated with a bitwise identical result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from fastemf.kernels.threads import count_threads
from fastemf.sources.source import Arrays, Side, Task

if TYPE_CHECKING:
    from distributed import Client, Future

ATTEMPTS = 5  # at a half-sweep during which workers are lost
DIRECT_ATTEMPTS = 2  # at sending data directly to the workers, not through the scheduler
PATIENCE = 60.0  # seconds without any worker
POLL = 2.0  # seconds between checks for workers


class WorkersLostError(RuntimeError):
    """All workers, or the scheduler, were lost."""


def connect(client: Any, n_jobs: int | None) -> Cluster:
    """Check that a client is connected, and return its cluster."""
    try:
        import distributed
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "a fit on a cluster needs distributed: pip install 'fastemf[dask]'"
        ) from None
    if not isinstance(client, distributed.Client):
        raise TypeError(f"client must be a distributed.Client or None, got {type(client).__name__}")
    if client.asynchronous:
        raise TypeError("client must not be asynchronous: the fit waits for its workers")
    if client.status != "running":
        raise ValueError(
            f"client must be connected to a scheduler, got a client that is {client.status}"
        )
    count_threads(n_jobs)
    return Cluster(client, n_jobs)


class Cluster:
    """The workers of a client; tasks are repeated when workers are lost.

    Parameters
    ----------
    client
        A connected `distributed.Client`.
    n_jobs
        Threads that a task may use; -1 for all threads of its worker.
    """

    def __init__(self, client: Client, n_jobs: int | None) -> None:
        self.client = client
        self._n_jobs = n_jobs
        self._direct_failures = 0

    @property
    def n_workers(self) -> int:
        """Current number of workers."""
        return len(self.client.nthreads())

    def check(self, check: Callable[..., str], *args: Any) -> None:
        """Run a check on every worker; raise the first error message that is not empty."""
        from fastemf import __version__

        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise ValueError(
                f"client must have workers, got none within {PATIENCE:.0f} s"
            ) from None
        answers = self.client.run(_run_check, __version__, check, *args, on_error="return")
        for worker, answer in answers.items():
            if isinstance(answer, ModuleNotFoundError):
                raise ModuleNotFoundError(
                    f"every worker needs this version of fastemf, {__version__}; worker {worker} "
                    f"reports: {answer}"
                )
            if isinstance(answer, Exception):
                raise answer
            if answer:
                raise ValueError(f"{answer} (worker {worker})")

    def run(
        self, task: Task, blocks: Sequence[Future], shared: Arrays, own: Sequence[Arrays],
        *args: Any,
    ) -> list[Any]:  # fmt: skip
        """Return ``task(block, shared, own, *args, n_threads)`` for every block, in order.

        Parameters
        ----------
        shared
            Large arrays for all blocks.
        own
            Arrays for each block.
        args
            Small arguments for all blocks.
        """
        losses: list[Exception] = []
        while len(losses) < ATTEMPTS:
            try:
                with self.client.as_current():
                    return self._attempt(task, blocks, shared, own, args)
            except _LossError as loss:
                losses.append(loss)
                self._recover(blocks)
        raise WorkersLostError(
            f"workers were lost {len(losses)} times during one half-sweep, the last time with: "
            f"{losses[-1]}; check the workers' logs and memory before fitting again"
        )

    def _attempt(
        self, task: Task, blocks: Sequence[Future], shared: Arrays, own: Sequence[Arrays],
        args: tuple[Any, ...],
    ) -> list[Any]:  # fmt: skip
        import distributed

        held: list[Future] = []
        try:
            # (Dask's broadcast would wait forever for a worker that dies meanwhile.)
            held += self._send([shared, *own])
            held += self.client.map(
                _run, blocks, held[1:], task=task, shared=held[0], args=args, n_jobs=self._n_jobs,
                pure=False,
            )  # fmt: skip
            futures = held[1 + len(own) :]
            self._wait(futures)
            return list(self.client.gather(futures, direct=True))
        except (distributed.CancelledError, distributed.KilledWorker, OSError) as error:
            raise _LossError(f"data or results are lost ({error!r})") from error
        finally:
            for future in held:
                future.release()

    def _send(self, data: list[Arrays]) -> list[Future]:
        """Send data to the workers, directly if they can be reached, else through the scheduler."""
        self._check_connection()
        direct = self._direct_failures < DIRECT_ATTEMPTS
        try:
            return list(self.client.scatter(data, hash=False, direct=direct, timeout=POLL))
        except Exception as error:  # from Dask, because the data are arrays
            self._direct_failures += direct
            raise _LossError(f"data could not be sent ({error!r})") from error

    def _wait(self, futures: Sequence[Future]) -> None:
        """Wait for all tasks as long as there are workers."""
        import distributed

        seen = time.monotonic()
        while True:
            with suppress(TimeoutError):
                distributed.wait(futures, timeout=POLL)
                return
            self._check_connection()
            if self.n_workers:
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE:
                raise _all_lost()

    def _recover(self, tasks: Sequence[Future]) -> None:
        """Wait for workers, and retry tasks that failed because workers died."""
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise _all_lost() from None
        if any(task.cancelled() for task in tasks):
            raise WorkersLostError(
                "the observations on the cluster were cancelled, perhaps by a restart; fit again"
            )
        self.client.retry([task for task in tasks if task.status == "error"])

    def _check_connection(self) -> None:
        if self.client.status != "running":
            raise WorkersLostError(
                f"the scheduler was lost: the client is {self.client.status}; the fit is lost"
            )


class _LossError(Exception):
    """Data or results were lost with a worker; the attempt is repeated."""


def _all_lost() -> WorkersLostError:
    return WorkersLostError(f"all workers were lost, and none returned within {PATIENCE:.0f} s")


# --- on a worker ----------------------------------------------------------------------------


def _run_check(version: str, check: Callable[..., str], *args: Any) -> str:
    from fastemf import __version__

    if version != __version__:
        return f"every worker needs this version of fastemf, {version}, got {__version__}"
    return check(*args)


def _run(
    block: Side, own: Arrays, *, task: Task, shared: Arrays, args: tuple[Any, ...],
    n_jobs: int | None,
) -> Any:  # fmt: skip
    from distributed import get_worker

    # All threads of the worker, because kernel launches are serialized.
    n_threads = min(count_threads(n_jobs), int(get_worker().state.nthreads))
    # Received arrays may be read-only, for which kernels would be compiled again.
    given = (tuple(np.require(one, requirements=("C", "W")) for one in part)
             for part in (shared, own))  # fmt: skip
    return task(block, *given, *args, n_threads)
