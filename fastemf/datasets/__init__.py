"""Data to try things on: generated, or read from files that you have. Nothing is downloaded."""

from __future__ import annotations

import numbers
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fastemf.datasets.latency_log import LatencyLog, make_latencies
from fastemf.datasets.matrix_files import Found, find_matrices, read_npz, read_text
from fastemf.observations.hold_out import Split, split
from fastemf.support.validation import (
    check_choice,
    check_integer,
    check_number,
    check_rank,
    check_rng,
)
from fastemf.support.warn import warn

__all__ = [
    "LatencyLog",
    "MeasuredMatrix",
    "SkewedMatrix",
    "Split",
    "load_netlatency",
    "load_wsdream",
    "make_latencies",
    "make_skewed",
    "split",
]

WSDREAM_SHAPE = (339, 5825)
WSDREAM_UNITS = {"rt": "s", "tp": "kbit/s"}
WSDREAM_TIMEOUT = 20.0  # seconds: response times of the collection end here
NETLATENCY_NODES = (490, 99)  # PlanetLab, Seattle


class SkewedMatrix(NamedTuple):
    """A generated matrix: what is seen, what is behind it, and everything that was drawn."""

    R: Any
    """Sampled noisy entries, a CSR array."""
    truth: NDArray[np.float64]
    """The low-rank matrix without noise."""
    noisy: NDArray[np.float64]
    """All entries with noise, sampled or not."""


def make_skewed(
    m: int = 1000,
    n: int = 1000,
    *,
    rank: int = 10,
    density: float = 0.05,
    noise: float = 0.5,
    degrees: float = 3.0,
    factor_low: Any = 0.0,
    factor_high: Any = 1.0,
    random_state: Any = None,
) -> SkewedMatrix:
    """Low-rank matrix plus right-skewed noise, sampled at random: the paper's synthetic data.

    Parameters
    ----------
    m, n
        Rows and columns.
    rank
        Rank of the truth.
    density
        Share of the cells sampled, in (0, 1]; exactly ``round(density * m * n)`` of
        them, at least one.
    noise
        The noise is this times a χ² variable; 0 for noiseless data.
    degrees
        Degrees of freedom of the χ².
    factor_low, factor_high
        The factors' entries are uniform between these.
    random_state
        Seed or numpy Generator.

    Examples
    --------
    >>> from fastemf.datasets import make_skewed
    >>> data = make_skewed(30, 20, rank=2, density=0.25, random_state=0)
    >>> data.R.shape, data.R.nnz, data.truth.shape
    ((30, 20), 150, (30, 20))
    """
    m = check_integer(m, "m", minimum=1)
    n = check_integer(n, "n", minimum=1)
    rank = check_rank(rank, (m, n), "rank")
    if not 0 < check_number(density, "density") <= 1:
        raise ValueError(f"density must lie in (0, 1], got {density!r}")
    noise = check_number(noise, "noise")
    if not check_number(degrees, "degrees") > 0:
        raise ValueError(f"degrees must be positive, got {degrees!r}")
    for name, bound in (("factor_low", factor_low), ("factor_high", factor_high)):
        if isinstance(bound, bool) or not isinstance(bound, numbers.Real):
            raise TypeError(f"{name} must be a number, got {bound!r}")
        if not np.isfinite(float(bound)):
            raise ValueError(f"{name} must be finite, got {bound!r}")
    if not factor_low <= factor_high:
        raise ValueError(
            f"factor_low must not exceed factor_high, got {factor_low!r} and {factor_high!r}"
        )
    rng = check_rng(random_state)
    X = rng.uniform(factor_low, factor_high, (m, rank))
    Y = rng.uniform(factor_low, factor_high, (n, rank))
    truth = X @ Y.T
    noisy = truth + noise * rng.chisquare(degrees, (m, n))
    size = max(1, round(density * m * n))
    cells = np.sort(rng.choice(m * n, size=size, replace=False))
    rows, cols = np.divmod(cells, n)
    indptr = np.searchsorted(rows, np.arange(m + 1))
    R = sp.csr_array((noisy[rows, cols], cols.astype(np.int32), indptr), shape=(m, n))
    return SkewedMatrix(R, truth, noisy)


@dataclass(frozen=True, eq=False)
class MeasuredMatrix:
    """A measured matrix: what was observed, and what the file says besides.

    Attributes
    ----------
    R : scipy.sparse.coo_array
        The observations.
    unit : str
        Unit of the values.
    failed : (count, 2) int64 array
        Rows and columns of the cells whose measurement failed.
    source : uint8 array or None
        For fragments of a data set, the bits of each observation that say where it was
        recovered from, aligned with ``R.data``; None for a whole one.
    """

    R: Any
    unit: str
    failed: NDArray[np.int64]
    source: NDArray[np.uint8] | None = None


def load_wsdream(
    path: str | os.PathLike[str], kind: str = "rt", failures: Any = "drop"
) -> MeasuredMatrix:
    """Web-service measurements of WS-DREAM data set 1 (339 users × 5825 services).

    Every valid value is kept, zeros and those close to the limit of 20 s included; some
    published comparisons drop these.

    Parameters
    ----------
    path
        ``rtMatrix.txt`` or ``tpMatrix.txt`` as published (numbers separated by tabs, −1 for
        a failed call), an ``.npz`` of fragments (``row``, ``col``, ``val``, ``shape``, and
        optionally ``src``, ``inv_row``, ``inv_col``), or a folder or zip archive with one.
    kind
        ``"rt"``: response times in seconds; ``"tp"``: throughput in kbit/s.
    failures
        What a failed call is: ``"drop"``, no observation; ``"cap"``, one of 20 s, where
        response times end; or a number, which it is taken to be.

    Raises
    ------
    FileNotFoundError, ValueError
        With the file, the line and the column, and what was expected there.

    Warns
    -----
    UserWarning
        When the matrix has another shape than the published one.

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
    check_choice(kind, "kind", tuple(WSDREAM_UNITS))
    value = _value_of_failure(failures, kind)
    (found, *_) = find_matrices(path, (f"{kind}Matrix.txt", f"wsdream1_{kind}*.npz"))
    source = None
    if found.is_npz:
        rows, cols, values, shape, failed, source = _fragments(found)
    else:
        matrix = read_text(found)
        shape = matrix.shape
        wrong = (matrix < 0) & (matrix != -1)
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise ValueError(
                f"{found.name}: line {i + 1}, column {j + 1}: expected a value >= 0, or -1 for a "
                f"failed call, got {matrix[i, j]:g}"
            )
        rows, cols = np.nonzero(matrix >= 0)
        values = matrix[rows, cols]
        failed = np.argwhere(matrix < 0)
    if shape != WSDREAM_SHAPE:
        warn(
            f"{found.name}: a matrix of {shape[0]} x {shape[1]}, which is not the published one "
            f"of {WSDREAM_SHAPE[0]} x {WSDREAM_SHAPE[1]}"
        )
    if value is not None:
        rows, cols = (np.append(a, b) for a, b in zip((rows, cols), failed.T, strict=True))
        values = np.append(values, np.full(len(failed), value))
        if source is not None:
            source = np.append(source, np.zeros(len(failed), np.uint8))
    R = sp.coo_array((values, (rows, cols)), shape=shape)
    return MeasuredMatrix(R, WSDREAM_UNITS[kind], failed.astype(np.int64), source)


def load_netlatency(path: str | os.PathLike[str], snapshot: int = 0) -> MeasuredMatrix:
    """Round-trip times between nodes in milliseconds, from the NetLatency-Data collection.

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
    if m not in NETLATENCY_NODES:
        nodes = " or ".join(f"{size} x {size}" for size in NETLATENCY_NODES)
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


def _value_of_failure(failures: Any, kind: str) -> float | None:
    if not isinstance(failures, str):
        return check_number(failures, "failures")
    check_choice(failures, "failures", ("drop", "cap"))
    if failures == "drop":
        return None
    if kind == "tp":
        raise ValueError(
            'failures="cap" is for response times, which end at 20 s; throughput has no such '
            "limit: give the number that a failed call stands for, or drop them"
        )
    return WSDREAM_TIMEOUT


def _fragments(found: Found) -> tuple[Any, Any, Any, tuple[int, int], Any, Any]:
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
    right = values >= 0  # not NaN either
    if not (right & np.isfinite(values)).all():
        first = int(np.argmin(right & np.isfinite(values)))
        raise ValueError(
            f"{found.name}: val[{first}]: expected a finite value >= 0, got {values[first]:g}"
        )
    return rows, cols, values, (shape[0], shape[1]), failed, source


def _check_snapshot(snapshot: int, count: int, name: str) -> None:
    if snapshot >= count:
        raise ValueError(f"snapshot must be below {count}, the number in {name}, got {snapshot}")
