"""Sparse matrices in files: Matrix Market, and what scipy writes; neither is trusted."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import shortened
from fastemf.support.array_file import read_arrays

__all__ = ["MATRICES", "read_matrix"]

MATRICES = (".mtx", ".mtx.gz", ".npz")

# The arrays of a format of scipy beside data, in the order of its constructor.
PARTS = {
    "csr": ("indices", "indptr"),
    "csc": ("indices", "indptr"),
    "bsr": ("indices", "indptr"),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}
DATA_DIMENSIONS = {"bsr": 3, "dia": 2}  # else 1
ENTRY_BYTES = {"coordinate": 4, "array": 2}  # of the shortest entries: "1 1\n" and "1\n"


def read_matrix(path: Path, extension: str) -> Any:
    """Read a matrix, sparse or, where a Matrix Market file says so, dense."""
    kind = "a sparse matrix of scipy" if extension == ".npz" else "a Matrix Market file"
    try:
        if extension == ".npz":
            return _from_arrays(read_arrays(path))
        return _from_text(path, is_packed=extension == ".mtx.gz")
    except Exception as error:  # whatever the bytes make scipy, zipfile or zlib raise
        raise ValueError(f"{path}: expected {kind}: {shortened(str(error))}") from None


def _from_text(path: Path, *, is_packed: bool) -> Any:
    import scipy.io

    # In memory, not from an open file: scipy ends the process where it gives up in the middle of
    # one. Nor does it open a name that is not UTF-8.
    if is_packed:
        content = gzip.decompress(path.read_bytes())
    elif not _is_text(str(path)):
        content = path.read_bytes()
    else:
        content = None
    size = path.stat().st_size if content is None else len(content)

    def source() -> Any:
        return path if content is None else io.BytesIO(content)

    rows, cols, entries, layout, _, symmetry = scipy.io.mminfo(source())
    if layout == "array" and symmetry != "general":
        entries //= 2
    # Before memory is asked for: a number in the header is worth nothing by itself.
    if entries * ENTRY_BYTES[layout] > size + ENTRY_BYTES[layout]:
        raise ValueError(f"its header says {entries} entries, more than {size} bytes can hold")
    matrix = scipy.io.mmread(source())
    if tuple(matrix.shape) != (rows, cols):
        raise ValueError(f"its header says {rows} x {cols}, got {matrix.shape}")
    return matrix


def _is_text(name: str) -> bool:
    return not any("\udc80" <= letter <= "\udcff" for letter in name)


def _from_arrays(arrays: dict[str, NDArray[Any]]) -> Any:
    import scipy.sparse

    found = _scalar(arrays, "format")
    form = found.decode("ascii", "replace") if isinstance(found, bytes) else str(found)
    if form not in PARTS:
        raise ValueError(f"its format must be one of {', '.join(PARTS)}, got {form!r}")
    missing = [name for name in ("shape", "data", *PARTS[form]) if name not in arrays]
    if missing:
        raise ValueError(f"it has no array {missing[0]!r}")
    shape = arrays["shape"]
    if shape.dtype.kind not in "iu" or shape.shape != (2,):
        raise ValueError(f"its shape must be two integers, got {shape.tolist()}")
    for name in PARTS[form]:
        if arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu":
            raise ValueError(f"its {name} must be integers in one dimension")
    if arrays["data"].ndim != DATA_DIMENSIONS.get(form, 1):
        raise ValueError(f"its data must have {DATA_DIMENSIONS.get(form, 1)} dimensions")
    parts = [arrays[name] for name in PARTS[form]]
    made = getattr(scipy.sparse, f"{form}_array")
    size = tuple(int(length) for length in shape)
    if form == "coo":
        return made((arrays["data"], tuple(parts)), shape=size)
    return made((arrays["data"], *parts), shape=size)


def _scalar(arrays: dict[str, NDArray[Any]], name: str) -> Any:
    if name not in arrays or arrays[name].shape != () or arrays[name].dtype.kind not in "SU":
        raise ValueError(f"it has no {name}: it was not written by scipy.sparse.save_npz")
    return arrays[name].item()
