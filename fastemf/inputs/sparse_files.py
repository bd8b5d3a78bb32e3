"""Sparse matrices in files: Matrix Market, and what scipy writes; neither is trusted."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import one_line
from fastemf.inputs.market_files import read_market

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
DEFLATE_RATIO = 1033  # of the most compressible bytes
DATA_DIMENSIONS = {"bsr": 3, "dia": 2}  # else 1


def read_matrix(path: Path, extension: str) -> Any:
    """Read a matrix, sparse or, where a Matrix Market file says so, dense."""
    kind = "a sparse matrix of scipy" if extension == ".npz" else "a Matrix Market file"
    try:
        if extension == ".npz":
            return _from_arrays(_read_arrays(path))
        return read_market(path, is_packed=extension == ".mtx.gz")
    except Exception as error:  # whatever the bytes make scipy, zipfile or zlib raise
        raise ValueError(f"{path}: expected {kind}: {one_line(str(error))}") from None


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an archive, which scipy compresses, as models never are."""
    with zipfile.ZipFile(path) as archive:
        arrays = {}
        for member in archive.infolist():
            with archive.open(member) as content:
                arrays[member.filename.removesuffix(".npy")] = _read_array(content, member)
        return arrays


def _read_array(content: IO[bytes], member: zipfile.ZipInfo) -> NDArray[Any]:
    if np.lib.format.read_magic(content) != (1, 0):
        raise ValueError(f"{member.filename} is an array of another version")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(content)
    size = math.prod(shape) * dtype.itemsize
    # Before memory is asked for: a number in a header is worth nothing by itself.
    if (
        dtype.hasobject
        or size != member.file_size - content.tell()
        or member.file_size > (DEFLATE_RATIO * member.compress_size)
    ):
        raise ValueError(f"{member.filename} is damaged, or an array of objects")
    array = np.frombuffer(content.read(), dtype)  # at the end of which is the checksum
    return array.reshape(shape, order="F" if is_fortran else "C")


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
