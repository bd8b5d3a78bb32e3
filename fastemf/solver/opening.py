"""Where the observations of a fit are: in memory, in a store, or with the workers of a cluster."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fastemf.cluster.distribution import distribute
from fastemf.kernels.threads import count_threads
from fastemf.observations.memory import Observations, observe
from fastemf.observations.source import Source
from fastemf.store import open as open_store

__all__ = ["source_of"]


def source_of(
    R: Any,
    weights: Any,
    shape: Any,
    names: tuple[Any, Any, Any],
    client: Any,
    n_jobs: int | None,
) -> AbstractContextManager[Source]:
    """Observations for the time of a ``with``: a cluster lets go of them at its end."""
    rows, cols, values = names
    given = {"weights": weights, "shape": shape, "rows": rows, "cols": cols, "values": values}
    if client is not None:
        return distribute(R, client, n_jobs=n_jobs, **given)
    if isinstance(R, (str, os.PathLike)) and os.path.isdir(R):
        R = open_store(R)
    if not isinstance(R, Source) or isinstance(R, Observations):
        return nullcontext(observe(R, **given, n_threads=count_threads(n_jobs)))
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} must not be given beside a store, which has its own")
    return nullcontext(R)
