"""`distribute`: give observations to the workers of a Dask cluster."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fastemf.inputs.tables import check_names
from fastemf.sources.cluster.partitions import from_parts
from fastemf.sources.cluster.source import ClusterSide, ClusterSource, even_cuts
from fastemf.sources.cluster.workers import Cluster, connect
from fastemf.sources.store.chunks import TableColumns
from fastemf.sources.store.manifest import Manifest
from fastemf.sources.store.reading import hold_state, read_state
from fastemf.store import Store
from fastemf.store import open as open_store


def distribute(
    R: Any,
    client: Any,
    *,
    weights: Any = None,
    shape: Any = None,
    rows: Any = None,
    cols: Any = None,
    values: Any = None,
    n_jobs: int | None = -1,
) -> ClusterSource:
    """Give observations to the workers of `client`, which hold them until the end of a `with`.

    Parameters
    ----------
    R
        A store or its path, a list of Parquet or CSV files, or a Dask DataFrame. Every worker must
        be able to read the folder or the files under the same path.
    client
        A connected `distributed.Client`.
    weights, rows, cols, values
        Names of columns; not for a store.
    shape
        (rows, columns), if the columns hold positions instead of labels; not for a store.
    n_jobs
        Threads of a worker that a task may use.
    """
    cluster = connect(client, n_jobs)
    columns = TableColumns(rows, cols, values, weights, positions=shape is not None)
    if isinstance(R, list) and R and all(isinstance(path, (str, os.PathLike)) for path in R):
        paths = [os.path.abspath(path) for path in R]
        columns.required_names()
        cluster.check(_check_files, paths)
        return from_parts(paths, paths, columns, shape, cluster)
    if hasattr(R, "to_delayed") and hasattr(R, "columns"):
        return _from_frame(R, columns, shape, cluster)
    if isinstance(R, (str, os.PathLike)):
        R = open_store(R)
    if isinstance(R, Store):
        for name, value in (*columns.fields(), ("shape", shape)):
            if value is not None:
                raise ValueError(f"{name} must not be given with a store, which has its own")
        return _from_store(R, cluster)
    raise TypeError(
        "R must be a store, its path, a list of Parquet files or a Dask DataFrame for a fit on a "
        f"cluster, got {type(R).__name__}; use fastemf.store.build to write data in memory to a "
        "folder that all workers can read"
    )


# --- parts ----------------------------------------------------------------------------------


def _check_files(paths: list[str]) -> str:
    """Return an error message if a worker cannot read one of the files, else an empty string."""
    missing = next((path for path in paths if not os.path.isfile(path)), None)
    return "" if missing is None else f"{missing}: every worker must be able to read the files of R"


def _from_frame(frame: Any, columns: TableColumns, shape: Any, cluster: Cluster) -> ClusterSource:
    wanted = columns.required_names()
    check_names(wanted, list(frame.columns), "the Dask DataFrame")
    cluster.check(str)
    client = cluster.client
    partitions = client.compute(frame[wanted].to_delayed())
    try:
        names = [f"partition {number}" for number in range(len(partitions))]
        return from_parts(partitions, names, columns, shape, cluster)
    finally:
        for partition in partitions:
            partition.release()


# --- stores ---------------------------------------------------------------------------------


def _from_store(store: Store, cluster: Cluster) -> ClusterSource:
    """Let the workers read the blocks of a store; lost blocks are read again by another worker."""
    path, manifest = str(store.path), store.by_row.manifest
    cluster.check(_check_store, path, manifest)
    sides = []
    for axis, side in enumerate((store.by_row, store.by_col)):
        cuts = even_cuts(np.diff(side.indptr), cluster)
        blocks = [
            cluster.client.submit(read_state, path, manifest, axis, first, last, pure=False)
            for first, last in pairwise(cuts.tolist())
        ]
        sides.append(ClusterSide(cluster, blocks, cuts, side.indptr, side.mass, side.dtype))
    return ClusterSource(store.shape, sides[0], sides[1], store.row_labels, store.col_labels, store)


def _check_store(path: str, manifest: Manifest) -> str:
    """Return an error message if a worker cannot read the store, else an empty string."""
    rule = "R must be a store that every worker can read under the same path"
    try:
        found, _ = hold_state(Path(path))
    except (OSError, ValueError) as error:
        return f"{rule}: {error}"
    # Observations may have been appended since it was opened.
    is_same = manifest.files.items() <= found.files.items()
    return "" if is_same else f"{rule}: {path} is another store on a worker"
