"""Sparse matrices in files of Matrix Market and SciPy, whose content is checked."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fastemf.inputs.columns import one_line
from fastemf.inputs.market_files import read_market

MATRICES = (".mtx", ".mtx.gz", ".npz")

# The arrays of SciPy's formats besides data, in the order of the constructor.
PARTS = {
    "csr": ("indices", "indptr"),
    "csc": ("indices", "indptr"),
    "bsr": ("indices", "indptr"),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}
DEFLATE_RATIO = 1033  # maximal compression
DATA_DIMENSIONS = {"bsr": 3, "dia": 2}  # else 1


def read_matrix(path: Path, extension: str) -> Any:
    """Read a sparse matrix, or a dense one in the array format of Matrix Market."""
    kind = "a sparse matrix of scipy" if extension == ".npz" else "a Matrix Market file"
    try:
        if extension == ".npz":
            return _from_arrays(_read_arrays(path))
        return read_market(path, is_packed=extension == ".mtx.gz")
    except Exception as error:  # scipy, zipfile or zlib may raise any error
        raise ValueError(f"{path}: expected {kind}: {one_line(str(error))}") from None


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a compressed archive."""
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
    # Checked before memory is allocated, because headers may be wrong.
    if (
        dtype.hasobject
        or size != member.file_size - content.tell()
        or member.file_size > (DEFLATE_RATIO * member.compress_size)
    ):
        raise ValueError(f"{member.filename} is damaged, or an array of objects")
    array = np.frombuffer(content.read(), dtype)  # reading to the end checks the checksum
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
