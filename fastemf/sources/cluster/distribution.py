"""`distribute`: let the workers of a Dask cluster read the observations of a store."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from fastemf.features.reading import check_names
from fastemf.sources.cluster.source import ClusterSource
from fastemf.sources.cluster.workers import Cluster, connect
from fastemf.sources.store.manifest import COLUMN_ROLES, Manifest
from fastemf.sources.store.reading import Store, hold_state
from fastemf.sources.store.side_features import with_features
from fastemf.sources.store.writing import build


def distribute(
    R: Any, client: Any, *, store_path: Any = None, n_jobs: int | None = -1, features: Any = None,
    **given: Any,
) -> ClusterSource:  # fmt: skip
    """Give observations to the workers of `client`, which hold them until the end of a `with`.

    Parameters
    ----------
    R
        A store, which every worker can read under the same path; any source of
        `fastemf.store.build`, or a Dask DataFrame, if there is a `store_path`.
    client
        A connected `distributed.Client`.
    store_path
        Folder in which to build a store of `R`.
    n_jobs
        Threads of a worker that a task may use.
    features
        Names of columns of `R` with side features of the observations, held in this process.
    given
        Weights, shape, and names of columns; not for a store.
    """
    cluster = connect(client, n_jobs)
    if isinstance(R, Store):
        return _from_store(R, cluster, features)
    if store_path is None:
        raise ValueError(
            "R must be a store for a fit on a cluster, or store_path= must name a folder that "
            f"every worker can read, in which a store of R is built, got {type(R).__name__}"
        )
    given["columns"] = () if features is None else check_names(features)
    is_frame = hasattr(R, "to_delayed") and hasattr(R, "columns")
    write = partial(_build_from_frame, client) if is_frame else build
    return _from_store(write(R, store_path, **given), cluster, features)


def _build_from_frame(client: Any, frame: Any, store_path: Any, **given: Any) -> Store:
    """Let the workers write a Dask DataFrame as Parquet, and build a store from it."""
    target = Path(os.path.abspath(store_path))
    folder = target.with_name(f".{target.name}.parquet")
    names = [given[role] for role in COLUMN_ROLES if given.get(role) is not None]
    names = list(dict.fromkeys([*names, *given["columns"]]))
    if missing := [name for name in names if name not in frame.columns]:
        raise ValueError(f"the Dask DataFrame has no column {missing[0]!r}")
    try:
        with client.as_current():
            frame[names].to_parquet(
                folder, write_index=False, name_function=lambda part: f"{part:09}.parquet"
            )
        return build(folder, target, **given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _from_store(store: Store, cluster: Cluster, features: Any) -> ClusterSource:
    """Let the workers read the blocks of a store."""
    if features is not None:
        store = with_features(store, features)
    cluster.check(_check_store, str(store.path), store.by_row.manifest)
    return ClusterSource(store, cluster)


def _check_store(path: str, manifest: Manifest) -> str:
    """Return an error message if a worker cannot read the store, else an empty string."""
    rule = "R must be a store that every worker can read under the same path"
    try:
        found, _ = hold_state(Path(path))
    except (OSError, ValueError) as error:
        return f"{rule}: {error}"
    # Observations may have been appended since it was opened.
    is_same = found.generation > manifest.generation or found == manifest
    return "" if is_same else f"{rule}: {path} is another store on a worker"
