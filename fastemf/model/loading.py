"""`load`, which reads a model file, whether it holds one fit, several levels, or quantiles."""

from __future__ import annotations

import os
from typing import Any

from fastemf.model import file as model_file
from fastemf.model.factorization import Factorization
from fastemf.model.levels import Levels
from fastemf.model.quantile_file import quantile_fields
from fastemf.model.quantiles import Quantiles

__all__ = ["load"]


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `Factorization.save`, `Levels.save` or `Quantiles.save` wrote.

    Nothing is unpickled: a model file cannot run code. Keys, shapes, types and
    values are checked, and memory is bounded by the size of the file.

    Returns
    -------
    Factorization, Levels or Quantiles
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
    if isinstance(found, model_file.Several):
        return Quantiles(**quantile_fields(path, found))
    return Levels(tuple(Factorization(**content) for content in found))
