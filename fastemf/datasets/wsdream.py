"""WS-DREAM data set 1: response times and throughput of web services."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastemf.datasets.matrix_files import Found, find_matrices, read_npz, read_text
from fastemf.datasets.measured_matrix import MeasuredMatrix
from fastemf.support.validation import check_choice, check_number
from fastemf.support.warn import warn

__all__ = ["load_wsdream"]

SHAPE = (339, 5825)
UNITS = {"rt": "s", "tp": "kbit/s"}
TIMEOUT = 20.0  # seconds: response times of the collection end here


def load_wsdream(
    path: str | os.PathLike[str], kind: str = "rt", failures: Any = "drop"
) -> MeasuredMatrix:
    """Load the web-service measurements of WS-DREAM data set 1 (339 users × 5825 services).

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
    check_choice(kind, "kind", tuple(UNITS))
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
    if shape != SHAPE:
        warn(
            f"{found.name}: a matrix of {shape[0]} x {shape[1]}, which is not the published one "
            f"of {SHAPE[0]} x {SHAPE[1]}"
        )
    if value is not None:
        rows, cols = (np.append(a, b) for a, b in zip((rows, cols), failed.T, strict=True))
        values = np.append(values, np.full(len(failed), value))
        if source is not None:
            source = np.append(source, np.zeros(len(failed), np.uint8))
    R = sp.coo_array((values, (rows, cols)), shape=shape)
    return MeasuredMatrix(R, UNITS[kind], failed.astype(np.int64), source)


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
    return TIMEOUT


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
