"""Stores: observations on disk, for data larger than memory; fits read them block by block.

>>> import os, tempfile, fastemf
>>> R = fastemf.datasets.make_skewed(60, 40, rank=2, density=0.5, random_state=0).R.tocoo()
>>> path = os.path.join(tempfile.mkdtemp(), "log")
>>> fastemf.store.build((R.row, R.col, R.data), path)
<Store 60 x 40, 1200 observations, float64>
>>> fastemf.complete(path, omega=0.1, k=2).shape
(60, 40)
>>> fastemf.store.append(path, ([60, 60], [0, 3], [0.2, 1.4]))
<Store 61 x 40, 1202 observations, float64>
"""

from __future__ import annotations

from fastemf.sources.store.manifest import StoreError
from fastemf.sources.store.reading import Store, read_block
from fastemf.sources.store.reading import open_store as open
from fastemf.sources.store.verification import verify
from fastemf.sources.store.writing import append, build

__all__ = ["Store", "StoreError", "append", "build", "open", "read_block", "verify"]
