"""Tasks on the workers of a Dask cluster (needs distributed, the extra ``dask``).

Observations stay with the workers, in blocks by row and in blocks by column. What travels in
a half-sweep is the other factor, to every worker, and each block's own rows, there and back.
The process that calls holds both factors, and a block's solve is a pure function of them and
of a block that can be loaded again: whatever a lost worker held or did is simply repeated, with a
bitwise identical result. Nothing is tied to a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.threads import count_threads
from fastemf.observations.source import Side

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Cluster", "WorkersLostError", "connect", "threads_of_worker"]

ATTEMPTS = 5  # at a half-sweep, each lost to a lost worker
DIRECT_ATTEMPTS = 2  # at sending data to the workers past the scheduler
PATIENCE = 60.0  # seconds without any worker
POLL = 2.0  # seconds between looks at whether there is one


class WorkersLostError(RuntimeError):
    """Workers, or the scheduler, were lost for good."""


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
            f"client must be connected to a scheduler, got one that is {client.status}"
        )
    count_threads(n_jobs)
    return Cluster(client, n_jobs)


class Cluster:
    """Workers of a client, who run tasks again where some of them are lost.

    Parameters
    ----------
    client
        A connected `distributed.Client`.
    n_jobs
        Threads of a worker that a task may use; -1 for all that Dask gave it.
    """

    def __init__(self, client: Client, n_jobs: int | None) -> None:
        self.client = client
        self._n_jobs = n_jobs
        self._direct_failures = 0
        self._n_pieces = max(1, self.n_workers)

    @property
    def n_workers(self) -> int:
        """Number of workers there are now."""
        return len(self.client.nthreads())

    def results(self, futures: Sequence[Future]) -> list[Any]:
        """Return the results of tasks that need nothing sent; workers may be lost meanwhile."""
        losses: list[_LossError] = []
        while len(losses) < ATTEMPTS:
            try:
                with self.client.as_current():
                    self._wait(futures)
                    return self._gather(futures)
            except _LossError as loss:
                losses.append(loss)
                self._try_again(futures)
        raise _too_many(losses)

    def check(self, question: Callable[..., str], *args: Any) -> None:
        """Ask every worker; raise the first answer that is not empty."""
        from fastemf import __version__

        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise ValueError(
                f"client must have workers, got none within {PATIENCE:.0f} s"
            ) from None
        answers = self.client.run(_answer, __version__, question, *args, on_error="return")
        for worker, answer in answers.items():
            if isinstance(answer, ModuleNotFoundError):
                raise ModuleNotFoundError(
                    f"every worker needs this version of fastemf, {__version__}; worker {worker} "
                    f"says: {answer}"
                )
            if isinstance(answer, Exception):
                raise answer
            if answer:
                raise ValueError(f"{answer} (worker {worker})")

    def run(
        self,
        task: Callable[..., Any],
        blocks: Sequence[Future],
        shared: tuple[NDArray[Any], ...],
        own: Sequence[tuple[NDArray[Any], ...]],
        *args: Any,
    ) -> list[Any]:
        """Run ``task(block, shared, its own, *args, n_threads)`` for every block, in order.

        Parameters
        ----------
        shared
            Large arrays that every block needs.
        own
            For every block, arrays that only it needs.
        args
            Small things that every block needs.
        """
        losses: list[_LossError] = []
        while len(losses) < ATTEMPTS:
            try:
                with self.client.as_current():
                    return self._attempt(task, blocks, shared, own, args)
            except _LossError as loss:
                losses.append(loss)
                self._try_again(blocks)
        raise _too_many(losses)

    def _attempt(
        self,
        task: Callable[..., Any],
        blocks: Sequence[Future],
        shared: tuple[NDArray[Any], ...],
        own: Sequence[tuple[NDArray[Any], ...]],
        args: tuple[Any, ...],
    ) -> list[Any]:
        import distributed

        held: list[Future] = []
        try:
            # What all need goes to each worker in part, and the workers exchange the parts: that
            # takes every line for one copy. (Dask's own broadcast waits for ever for a worker
            # that dies meanwhile.)
            cuts = (np.array_split(array, self._n_pieces) for array in shared)
            pieces = [_Sent(arrays) for arrays in zip(*cuts, strict=True)]
            sent = self._send(pieces + [_Sent(arrays) for arrays in own])
            held += sent
            parts, there = sent[: len(pieces)], sent[len(pieces) :]
            futures = self.client.map(
                _run, blocks, there,
                task=task, parts=parts, args=args, n_jobs=self._n_jobs, pure=False,
            )  # fmt: skip
            held += futures
            self._wait(futures)
            return self._gather(futures)
        except distributed.CancelledError as error:
            raise _LossError("data that were sent are lost") from error
        finally:
            for future in held:
                future.release()

    def _send(self, data: list[_Sent]) -> list[Future]:
        """Spread data over the workers, past the scheduler where they can be reached."""
        self._check_connection()
        direct = self._direct_failures < DIRECT_ATTEMPTS
        try:
            return list(self.client.scatter(data, hash=False, direct=direct, timeout=POLL))
        except Exception as error:  # Dask's: our data are arrays
            self._direct_failures += direct
            raise _LossError(f"data could not be sent ({error!r})") from error

    def _wait(self, futures: Sequence[Future]) -> None:
        """Wait until all are done, as long as there are workers; raise what a task raised."""
        import distributed

        seen = time.monotonic()
        while True:
            try:
                distributed.wait(futures, timeout=POLL)
                break
            except TimeoutError:
                self._check_connection()
                if self.n_workers:
                    seen = time.monotonic()
                elif time.monotonic() - seen > PATIENCE:
                    raise _none_left() from None
            except distributed.CancelledError as error:
                raise _LossError("data that were sent are lost") from error
        for future in futures:
            if future.status == "error":
                failure = future.exception()
                if isinstance(failure, distributed.KilledWorker):
                    raise _LossError(str(failure)) from failure
                raise failure

    def _gather(self, futures: Sequence[Future]) -> list[Any]:
        import distributed

        try:
            return list(self.client.gather(futures, direct=True))
        except (distributed.CancelledError, distributed.KilledWorker, OSError) as error:
            raise _LossError(f"results are lost ({error!r})") from error

    def _try_again(self, tasks: Sequence[Future]) -> None:
        """Wait for workers, and give tasks that failed because they kept dying another chance."""
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise _none_left() from None
        if any(task.cancelled() for task in tasks):
            raise WorkersLostError(
                "the observations on the cluster were cancelled: was it restarted? Fit again"
            )
        self._n_pieces = max(1, self.n_workers)
        failed = [task for task in tasks if task.status == "error"]
        if failed:
            self.client.retry(failed)

    def _check_connection(self) -> None:
        if self.client.status != "running":
            raise WorkersLostError(
                f"the scheduler is gone: the client is {self.client.status}; the fit is lost"
            )


class _LossError(Exception):
    """Something was lost with a worker; try again."""


def _none_left() -> WorkersLostError:
    return WorkersLostError(f"no worker is left, and none came back within {PATIENCE:.0f} s")


def _too_many(losses: list[_LossError]) -> WorkersLostError:
    return WorkersLostError(
        f"workers were lost {len(losses)} times during one half-sweep, the last time with: "
        f"{losses[-1]}; look at the workers' logs (memory?) before fitting again"
    )


@dataclass(frozen=True)
class _Sent:
    arrays: tuple[NDArray[Any], ...]


# --- on a worker ----------------------------------------------------------------------------


def threads_of_worker(n_jobs: int | None) -> int:
    """Return the threads of a task: launches of one process take turns, so each uses them all."""
    from distributed import get_worker

    return min(count_threads(n_jobs), int(get_worker().state.nthreads))


def _answer(version: str, question: Callable[..., str], *args: Any) -> str:
    from fastemf import __version__

    if version != __version__:
        return f"every worker needs this version of fastemf, {version}, got {__version__}"
    return question(*args)


def _run(
    block: Side,
    own: _Sent,
    *,
    task: Callable[..., Any],
    parts: list[_Sent],
    args: tuple[Any, ...],
    n_jobs: int | None,
) -> Any:
    shared = map(np.concatenate, zip(*(part.arrays for part in parts), strict=True))
    # What came over the wire may be read-only, for which kernels would be compiled anew.
    mine = (np.require(array, requirements=("C", "W")) for array in own.arrays)
    return task(block, tuple(shared), tuple(mine), *args, threads_of_worker(n_jobs))
