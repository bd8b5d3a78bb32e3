"""Measured data in files: WS-DREAM and NetLatency-Data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.datasets.matrix_files import Found, find_matrices, read_npz, read_text
from fastemf.support.arrays import Floats, Ints, Mask
from fastemf.support.validation import check_choice, check_integer, check_number
from fastemf.support.warn import warn

NODES = (490, 99)  # PlanetLab, Seattle
SHAPE = (339, 5825)
UNITS = {"rt": "s", "tp": "kbit/s"}
TIMEOUT = 20.0  # seconds: response times of the collection end here


@dataclass(frozen=True, eq=False)
class MeasuredMatrix:
    """A measured matrix, as read from a file.

    Attributes
    ----------
    R : scipy.sparse.coo_array
        The observations.
    unit : str
        Unit of the values.
    failed : (count, 2) int64 array
        Rows and columns of failed measurements.
    source : uint8 array or None
        For fragments of a data set, a bit mask of the sources of each observation, aligned with
        ``R.data``; None for a complete data set.
    """

    R: Any
    unit: str
    failed: Ints
    source: NDArray[np.uint8] | None = None


def load_netlatency(path: str | os.PathLike[str], snapshot: int = 0) -> MeasuredMatrix:
    """Load round-trip times between network nodes, in milliseconds (NetLatency-Data).

    The diagonal is left out. Both directions of a pair are included, and are equal if the matrix is
    symmetric: to hold out cells, use ``split(..., by="pair")``.

    Parameters
    ----------
    path
        A square text matrix, an ``.npz`` with ``rtt_ms`` of shape (snapshots, nodes, nodes),
        or a directory or zip archive with ``PlanetLabData_*`` (490 nodes) or ``SeattleData_*``
        (99 nodes) files, or such an ``.npz``.
    snapshot
        Index of the snapshot, from 0. Files are ordered by the numbers in their names.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or malformed; the message has its line and column.

    Warns
    -----
    UserWarning
        If the shape differs from the published ones.

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
        warn(f"{found.name}: expected a published shape, {nodes}, got {m} x {n}")
    off_diagonal = ~np.eye(m, dtype=bool)
    _refuse_values(matrix, off_diagonal & ~(matrix >= 0), found, "a time >= 0")
    rows, cols = np.nonzero(off_diagonal & (matrix > 0))
    R = sp.coo_array((matrix[rows, cols], (rows, cols)), shape=(m, m))
    return MeasuredMatrix(R, "ms", np.argwhere(off_diagonal & (matrix == 0)))


def _check_snapshot(snapshot: int, count: int, name: str) -> None:
    if snapshot >= count:
        raise ValueError(f"snapshot must be below {count}, the number in {name}, got {snapshot}")


def load_wsdream(
    path: str | os.PathLike[str], kind: str = "rt", failures: Any = "drop"
) -> MeasuredMatrix:
    """Load the web-service measurements of WS-DREAM data set 1 (339 users × 5825 services).

    All valid values are kept, including zeros and values close to the time-out of 20 s, which some
    published comparisons drop.

    Parameters
    ----------
    path
        ``rtMatrix.txt`` or ``tpMatrix.txt`` as published (numbers separated by tabs, −1 for
        a failed call), an ``.npz`` of fragments (``row``, ``col``, ``val``, ``shape``, and
        optionally ``src``, ``inv_row``, ``inv_col``), or a directory or zip archive with one.
    kind
        ``"rt"``: response times in seconds; ``"tp"``: throughput in kbit/s.
    failures
        Treatment of failed calls: ``"drop"`` leaves them out, ``"cap"`` sets them to the time-out
        of 20 s, a number sets them to this value.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is missing or malformed; the message has its line and column.

    Warns
    -----
    UserWarning
        If the shape differs from the published one.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib, warnings
    >>> from fastemf.datasets import load_wsdream
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "rtMatrix.txt"
    >>> np.savetxt(file, [[0.2, -1], [0.5, 1.5]])
    >>> with warnings.catch_warnings(action="ignore"):  # not the published shape
    ...     data = load_wsdream(file)
    >>> data.R.data.tolist(), data.failed.tolist(), data.unit
    ([0.2, 0.5, 1.5], [[0, 1]], 's')
    """
    check_choice(kind, "kind", tuple(UNITS))
    value = _failure_value(failures, kind)
    (found, *_) = find_matrices(path, (f"{kind}Matrix.txt", f"wsdream1_{kind}*.npz"))
    source = None
    if found.is_npz:
        rows, cols, values, shape, failed, source = _read_fragments(found)
    else:
        matrix = read_text(found)
        shape = matrix.shape
        wrong = (matrix < 0) & (matrix != -1)
        _refuse_values(matrix, wrong, found, "a value >= 0, or -1 for a failed call")
        rows, cols = np.nonzero(matrix >= 0)
        values = matrix[rows, cols]
        failed = np.argwhere(matrix < 0)
    if shape != SHAPE:
        warn(
            f"{found.name}: expected the published shape, {SHAPE[0]} x {SHAPE[1]}, got "
            f"{shape[0]} x {shape[1]}"
        )
    if value is not None:
        rows, cols = (np.append(a, b) for a, b in zip((rows, cols), failed.T, strict=True))
        values = np.append(values, np.full(len(failed), value))
        if source is not None:
            source = np.append(source, np.zeros(len(failed), np.uint8))
    R = sp.coo_array((values, (rows, cols)), shape=shape)
    return MeasuredMatrix(R, UNITS[kind], failed.astype(np.int64), source)


def _failure_value(failures: Any, kind: str) -> float | None:
    if not isinstance(failures, str):
        return check_number(failures, "failures")
    check_choice(failures, "failures", ("drop", "cap"))
    if failures == "drop":
        return None
    if kind == "tp":
        raise ValueError(
            'failures="cap" requires kind="rt", whose time-out is 20 s; for throughput failures '
            'must be "drop" or a number'
        )
    return TIMEOUT


def _read_fragments(found: Found) -> tuple[Any, Any, Any, tuple[int, int], Any, Any]:
    arrays = read_npz(found, ("row", "col", "val", "shape"))
    shape = tuple(int(size) for size in np.ravel(arrays["shape"]).astype(np.int64))
    rows, cols = (arrays[key].astype(np.int64) for key in ("row", "col"))
    values = arrays["val"].astype(np.float64)
    source = arrays["src"].astype(np.uint8) if "src" in arrays else None
    failed = np.column_stack(
        [np.asarray(arrays.get(key, [])).astype(np.int64) for key in ("inv_row", "inv_col")]
    )
    if len(shape) != 2 or not rows.shape == cols.shape == values.shape == (values.size,):
        raise ValueError(
            f"{found.name}: expected row, col and val of one length and a shape of two numbers, "
            f"got {rows.shape}, {cols.shape}, {values.shape} and {shape}"
        )
    if source is not None and source.shape != values.shape:
        raise ValueError(f"{found.name}: expected src of the length of val, got {source.shape}")
    for name, index, size in (("row", rows, shape[0]), ("col", cols, shape[1])):
        if index.size and not 0 <= index.min() <= index.max() < size:
            raise ValueError(
                f"{found.name}: expected {name} from 0 to {size - 1}, got "
                f"{index.min()} to {index.max()}"
            )
    valid = (values >= 0) & np.isfinite(values)
    if not valid.all():
        first = int(np.argmin(valid))
        raise ValueError(
            f"{found.name}: val[{first}]: expected a finite value >= 0, got {values[first]:g}"
        )
    return rows, cols, values, (shape[0], shape[1]), failed, source


def _refuse_values(matrix: Floats, wrong: Mask, found: Found, expected: str) -> None:
    """Raise an error that names the first wrong value of a text matrix, if there is one."""
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise ValueError(
            f"{found.name}: line {i + 1}, column {j + 1}: expected {expected}, got {matrix[i, j]:g}"
        )
