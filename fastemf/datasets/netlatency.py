"""NetLatency-Data: round-trip times between the nodes of two networks."""

from __future__ import annotations

import os

import numpy as np
import scipy.sparse as sp

from fastemf.datasets.matrix_files import find_matrices, read_npz, read_text
from fastemf.datasets.measured_matrix import MeasuredMatrix
from fastemf.support.validation import check_integer
from fastemf.support.warn import warn

__all__ = ["load_netlatency"]

NODES = (490, 99)  # PlanetLab, Seattle


def load_netlatency(path: str | os.PathLike[str], snapshot: int = 0) -> MeasuredMatrix:
    """Load round-trip times between nodes, in milliseconds, of the NetLatency-Data collection.

    The diagonal is no data and is left out. Both directions of a pair are there, and equal
    where the matrix is symmetric: to hold cells out, use ``split(..., by="pair")``.

    Parameters
    ----------
    path
        A square text matrix, an ``.npz`` with ``rtt_ms`` of shape (snapshots, nodes, nodes),
        or a folder or zip archive with ``PlanetLabData_*`` (490 nodes) or ``SeattleData_*``
        (99 nodes) files, or such an ``.npz``.
    snapshot
        Which one, from 0, where there are several. Files count by the numbers in their names.

    Raises
    ------
    FileNotFoundError, ValueError
        With the file, the line and the column, and what was expected there.

    Warns
    -----
    UserWarning
        When the matrix has another shape than the published ones.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib, warnings
    >>> from fastemf.datasets import load_netlatency
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "PlanetLabData_1"
    >>> np.savetxt(file, [[0, 12.5], [12.5, 0]])
    >>> with warnings.catch_warnings(action="ignore"):  # not the published shape
    ...     data = load_netlatency(file)
    >>> data.R.toarray().tolist(), data.unit
    ([[0.0, 12.5], [12.5, 0.0]], 'ms')
    """
    snapshot = check_integer(snapshot, "snapshot", minimum=0)
    patterns = ("PlanetLabData_*", "SeattleData_*", "netlatency*.npz")
    files = find_matrices(path, patterns)
    if files[0].is_npz:
        found = files[0]
        stack = np.asarray(read_npz(found, ("rtt_ms",))["rtt_ms"], dtype=np.float64)
        if stack.ndim not in (2, 3):
            raise ValueError(
                f"{found.name}: expected rtt_ms of shape (snapshots, nodes, nodes), "
                f"got {stack.shape}"
            )
        matrices = stack if stack.ndim == 3 else stack[None]
        _check_snapshot(snapshot, len(matrices), found.name)
        matrix = matrices[snapshot]
    else:
        _check_snapshot(snapshot, len(files), str(path))
        found = files[snapshot]
        matrix = read_text(found)
    m, n = matrix.shape
    if m != n:
        raise ValueError(f"{found.name}: expected a square matrix, got {m} x {n}")
    if m not in NODES:
        nodes = " or ".join(f"{size} x {size}" for size in NODES)
        warn(f"{found.name}: a matrix of {m} x {n}, which is none of the published ones ({nodes})")
    off_diagonal = ~np.eye(m, dtype=bool)
    wrong = off_diagonal & ~(matrix >= 0)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise ValueError(
            f"{found.name}: line {i + 1}, column {j + 1}: expected a time >= 0, got "
            f"{matrix[i, j]:g}"
        )
    rows, cols = np.nonzero(off_diagonal & (matrix > 0))
    R = sp.coo_array((matrix[rows, cols], (rows, cols)), shape=(m, m))
    return MeasuredMatrix(R, "ms", np.argwhere(off_diagonal & (matrix == 0)))


def _check_snapshot(snapshot: int, count: int, name: str) -> None:
    if snapshot >= count:
        raise ValueError(f"snapshot must be below {count}, the number in {name}, got {snapshot}")
