"""Where the observations of a fit are: in memory, or in a store."""

from __future__ import annotations

import os
from typing import Any

from fastemf.observations import Source, observe
from fastemf.store import Store
from fastemf.store import open as open_store

__all__ = ["source_of"]


def source_of(
    R: Any, weights: Any, shape: Any, names: tuple[Any, Any, Any], n_threads: int
) -> Source:
    """A store, or the path of one, as it is; anything else observed."""
    rows, cols, values = names
    if isinstance(R, (str, os.PathLike)) and os.path.isdir(R):
        R = open_store(R)
    if not isinstance(R, Store):
        return observe(
            R, weights=weights, shape=shape, rows=rows, cols=cols, values=values,
            n_threads=n_threads,
        )  # fmt: skip
    given = {"weights": weights, "shape": shape, "rows": rows, "cols": cols, "values": values}
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} must not be given beside a store, which has its own")
    return R
