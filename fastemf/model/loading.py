"""`load`, which reads a model file, whether it holds one fit or several levels."""

from __future__ import annotations

import os
from typing import Any

from fastemf.model import file as model_file
from fastemf.model.factorization import Factorization
from fastemf.model.levels import Levels

__all__ = ["load"]


def load(path: str | os.PathLike[str]) -> Any:
    """Read a fit that `Factorization.save` or `Levels.save` wrote.

    Nothing is unpickled: a model file cannot run code. Keys, shapes, types and
    values are checked, and memory is bounded by the size of the file.

    Returns
    -------
    Factorization or Levels
        What was saved.

    Raises
    ------
    fastemf.ModelFileError
        A `ValueError`: the file is damaged, of another kind, or of a newer version.
    FileNotFoundError
        There is no such file.
    OSError
        It cannot be read, or is no regular file.

    Examples
    --------
    >>> import numpy as np, fastemf, tempfile, os
    >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> fit.save(path)
    >>> fastemf.load(path).omega
    0.5
    """
    found = model_file.read(path)
    if isinstance(found, dict):
        return Factorization(**found)
    return Levels(tuple(Factorization(**content) for content in found))
